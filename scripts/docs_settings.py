"""The page of the settings, from the classes that read them."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from docs_tables import HEAD, arguments_of, attributes, cell, grid, kind
from tacit.config import Contract, Embedding, Gradient, OneShotContract, Party
from tacit.config.files import File, Section
from tacit.plugins import function
from tacit.split.protect.facts import Option

_SETTINGS = """\
There are two TOML files. `party.toml` belongs to one party, and nobody else sees it; `tacit init` writes the few lines
that matter. `contract.toml` is the same on all sides; `tacit contract --new` writes the recommended one, and `tacit
contract` shows its digest. This page has every key.

An unknown key is an error. All mistakes in a file are reported at once, each with its place and what to do. A key
without a default may be left out unless the table says otherwise. A run keeps what it was begun with: if its data,
model, optimizer or protection has changed, it refuses to go on. `limit`, `on_limit` and the address may change."""

_HEAD = ("key", "type", "default", "meaning")

_PARTS = {
    Gradient: '`gradient = { name = "matched", leak_auc = 0.6 }`: a name and one strength. See '
    "[the protections](ref-protections.md).",
    Embedding: '`embedding = [{ name = "gaussian", snr = 4.0, clip = 8.0 }]`: a list of names with their options. See '
    "[the protections](ref-protections.md#protections-of-the-embedding).",
}


def settings() -> str:
    parts = [f"{HEAD}# Settings: `party.toml` and `contract.toml`", _SETTINGS]
    parts += ["## `party.toml`", file_keys(Party)]
    parts += ["## `contract.toml` of one exchange", file_keys(OneShotContract, but=("alignment",))]
    parts += ["`[alignment]` is that of split training, below.", "## `contract.toml` of split training"]
    parts += [file_keys(Contract)]
    for part, words in _PARTS.items():
        parts += [f"## {part.__name__}", inspect.getdoc(part).splitlines()[0], words, grid(_HEAD, setting_keys(part))]
        parts += ["Options, with the protection that each belongs to:", option_keys(part)]
    return "\n\n".join(parts) + "\n"


def file_keys(file: type[File], but: Iterable[str] = ()) -> str:
    """The keys of a file that are no tables, then those of each of its tables but some, and of those in them."""
    tables = tables_of(file)
    lines = setting_keys(file, but=tables)
    for key, one in tables.items():
        if key not in but:
            inner = tables_of(one)
            lines += [(f"**`[{key}]`**", "", "", first_words(one)), *setting_keys(one, but=inner)]
            for name, table in inner.items():
                lines += [(f"**`[{key}] {name}`**", "", "", first_words(table)), *setting_keys(table)]
    return grid(_HEAD, lines)


def first_words(described: type[Section]) -> str:
    return cell(" ".join(inspect.getdoc(described).partition("Attributes:")[0].split()))


def tables_of(described: type[Section]) -> dict[str, type[Section]]:
    """The keys that are tables of their own."""
    return {key: found for key in described.model_fields if (found := table_of(described, key)) is not None}


def table_of(described: type[Section], key: str) -> type[Section] | None:
    """The class of a key that is a table of its own."""
    held = described.model_fields[key].annotation
    found = [one for one in (held, *get_args(held)) if inspect.isclass(one) and issubclass(one, Section)]
    return found[0] if found and found[0] not in _PARTS else None


def setting_keys(described: type[Section], but: Iterable[str] = ()) -> list[tuple[str, ...]]:
    """Every key with its type, default and meaning; one without a meaning is an error."""
    schema, meanings = described.model_json_schema(), attributes(described)
    return [
        (f"`{key}`", toml_kind(field), setting_default(described, key), cell(meanings[key]))
        for key, field in schema["properties"].items()
        if key not in but
    ]


def option_keys(part: type[Gradient] | type[Embedding]) -> str:
    """The options of every protection that a file may name, with what its own docstring says of them."""
    package = "tacit.split.protect.gradient" if part is Gradient else "tacit.split.protect.embedding"
    lines = []
    for name, facts in part.known().items():
        meanings = arguments_of(function(package, "protection", name))
        lines += [
            (f"`{option.name}`", f"`{name}`", option_kind(option), cell(meanings[option.name]))
            for option in facts.options.values()
            if option.name not in part.model_fields
        ]
    return grid(("key", "of", "type", "meaning"), sorted(lines))


def option_kind(option: Option) -> str:
    """What an option may be, as people say it."""
    if isinstance(option.kind, tuple):
        return " or ".join(f'"{word}"' for word in option.kind)
    if option.kind is bool:
        return "boolean"
    if option.kind is int:
        return f"integer from {option.above + 1:g}"
    return f"number above {option.above:g}" + ("" if option.below == math.inf else f", below {option.below:g}")


def toml_kind(field: Mapping[str, Any]) -> str:
    """The type of a key as people say it; TOML has no null, a key is left out instead."""
    some = [one for one in field.get("anyOf", [field]) if one.get("type") != "null"]
    return " or ".join(f"{kind(one)}{bounds(one)}" for one in some)


def bounds(field: Mapping[str, Any]) -> str:
    """Between which numbers a key lies."""
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    told = [f"{word} {field[name]:,}" for name, word in words.items() if name in field]
    return f" {', '.join(told)}" if told else ""


def setting_default(described: type[Section], key: str) -> str:
    field = described.model_fields[key]
    if field.is_required():
        return "must be given"
    return "" if field.default is None else f"`{json.dumps(field.default)}`"
