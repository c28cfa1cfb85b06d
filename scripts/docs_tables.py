"""What pages that are made from the code share: tables, and what a docstring says about each attribute."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

HEAD = "<!-- made by scripts/make_docs.py from the docstrings; do not edit -->\n"


def grid(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |".replace("| --- ", "|---").replace("--- |", "---|") for row in rows)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def kind(field: Mapping[str, Any]) -> str:
    """The type of a field of a JSON schema, as people say it."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(kind(one) for one in field["anyOf"])
    if "const" in field or "enum" in field:
        return " or ".join(f'"{one}"' for one in field.get("enum", [field.get("const")]))
    if field["type"] == "array":
        return f"list of {kind(field['items'])}"
    if field["type"] == "object":
        return f"names to {kind(field['additionalProperties'])}"
    return str(field["type"])


def attributes(described: type) -> dict[str, str]:
    """What the docstrings of a class, and of those that it is made of, say about each attribute."""
    documented = [each for each in reversed(described.__mro__) if each.__doc__ and each.__module__.startswith("tacit")]
    return {key: text for each in documented for key, text in _listed(each, "Attributes:\n").items()}


def arguments_of(described: Callable[..., object]) -> dict[str, str]:
    """What a docstring says about each argument."""
    return _listed(described, "Args:\n")


def _listed(described: object, heading: str) -> dict[str, str]:
    _, _, listed = (inspect.getdoc(described) or "").partition(heading)
    found = re.findall(r"^    (\w+): ((?:.|\n {8})*)", listed, re.MULTILINE)
    return {key: " ".join(text.split()) for key, text in found}


def filled(page: str, tables: Mapping[str, str]) -> str:
    """A page that people write, with its tables as they are made: each stands between `<!-- table: NAME -->` and
    `<!-- end -->`; a name without a table is an error.
    """

    def table(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n\n{tables[found[1]]}\n\n<!-- end -->"

    return re.sub(r"<!-- table: (\w+) -->\n.*?<!-- end -->", table, page, flags=re.DOTALL)
