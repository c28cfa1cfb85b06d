"""What is wrong in a file, as one line for each problem: its place, what is wrong, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails


def lines(model: type[BaseModel], details: ErrorDetails) -> Iterator[str]:
    """One line for each problem: its place in the file, what is wrong, what to do."""
    place = tuple(str(part) for part in details["loc"])
    kind, context = details["type"], details.get("ctx", {})
    if kind == "problems":
        for key, message in context["problems"]:
            yield f"{_spell(model, (*place, *key.split('.')))}: {message}"
        return
    if kind == "extra_forbidden":
        yield f"{_spell(model, place)}: there is no such key: {_nearest(model, place)}"
        return
    if kind == "too_short" and details["input"]:  # its entries were refused, and are told on their own
        return
    section = _section(model, place[:-1])
    field = None if section is None else section.model_fields.get(place[-1])
    examples = (field.examples or []) if field is not None else []
    key = next((part for part in reversed(place) if not part.isdigit()), "")
    hint = f", for example {key} = {examples[0]}" if examples and not examples[0].startswith("with") else ""
    if kind == "missing":
        yield f"{_spell(model, place)}: is missing: add it{hint or (', ' + examples[0] if examples else '')}"
    elif kind == "value_error":
        yield f"{_spell(model, place)}: {context['error']}"
    elif kind == "string_pattern_mismatch":
        wanted = "small letters, digits and inner hyphens" if "a-z0-9-" in context["pattern"] else '"my_model:make"'
        yield f"{_spell(model, place)}: {details['input']!r} is not allowed: write {wanted}"
    else:
        message = details["msg"][0].lower() + details["msg"][1:]
        yield f"{_spell(model, place)}: {message}, not {details['input']!r}: correct it{hint}"


def _spell(model: type[BaseModel], place: tuple[str, ...]) -> str:
    """A place as it stands in the file: `[data] ids`, `epochs`, `[protect] embedding, entry 2, std`."""
    table, rest = ("", place) if _section(model, place[:1]) is None else (f"[{place[0]}]", place[1:])
    said = ""
    for part in rest:
        after_entry = said.rpartition(", ")[2].startswith("entry ")
        said += f", entry {int(part) + 1}" if part.isdigit() else f"{', ' if after_entry else '.' * bool(said)}{part}"
    return f"{table} {said}".strip()


def _section(model: type[BaseModel], place: tuple[str, ...]) -> type[BaseModel] | None:
    for part in place:
        if part.isdigit():  # an entry of a list, whose model is that of the list
            continue
        field = model.model_fields.get(part)
        found = None if field is None else _model(field.annotation)
        if found is None:
            return None
        model = found
    return model


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model in an annotation such as `Data`, `Data | None` or `tuple[Data, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model(kind) for kind in getattr(annotation, "__args__", ()))
    return next((kind for kind in inner if kind is not None), None)


def _nearest(model: type[BaseModel], place: tuple[str, ...]) -> str:
    """What may have been meant by an unknown key: a similar one, or the same one in another table."""
    *tables, key = place
    section = _section(model, tuple(tables))
    keys = list(section.model_fields) if section is not None else []
    close = get_close_matches(key, keys, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    for name in model.model_fields:
        inner = _section(model, (name,))
        if inner is not None and inner is not section and key in inner.model_fields:
            return f"did you mean the one under [{name}]?"
    if tables and key in model.model_fields:
        return "it belongs above the first [table]"
    return f"remove it; there are: {', '.join(keys)}"
