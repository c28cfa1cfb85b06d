"""Writes the parts of the docs that are made from the code: the tables of protections and attacks.

Run it after a change to a docstring; a test compares.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

from tacit.audit import attacks, input_attacks
from tacit.protect import embedding, gradient

DOCS = Path(__file__).parent.parent / "docs"
HEAD = "<!-- made by scripts/make_docs.py from the docstrings; do not edit -->\n"


def table(package: str, names: list[str]) -> str:
    lines = ["| name | call | what it does |", "|---|---|---|"]
    for name in names:
        function = getattr(importlib.import_module(f"{package}.{name}"), name)
        first = inspect.getdoc(function).splitlines()[0].replace("|", "\\|")
        lines.append(f"| `{name}` | `{name}({arguments(function)})` | {first} |")
    return "\n".join(lines)


def arguments(function: Callable[..., object]) -> str:
    """The arguments as a caller writes them, with their defaults where they have one."""
    shown = []
    for argument in inspect.signature(function).parameters.values():
        default = "" if argument.default is None else argument.default
        needed = argument.default is inspect.Parameter.empty
        shown.append(argument.name if needed else f"{argument.name}={default}")
    return ", ".join(shown)


def details(package: str, names: list[str]) -> str:
    parts = []
    for name in names:
        function = getattr(importlib.import_module(f"{package}.{name}"), name)
        text = inspect.getdoc(function).partition(">>>")[0].rstrip()  # examples are tested where they stand
        parts.append(f"## `{name}`\n\n```text\n{text}\n```")
    return "\n\n".join(parts)


def page(title: str, text: str, package: str, names: list[str]) -> str:
    return f"{HEAD}# {title}\n\n{text}\n\n{table(package, names)}\n\n{details(package, names)}\n"


def pages() -> dict[str, str]:
    return {
        "ref-protections.md": page(
            "Protections of the gradient",
            "By name with `tacit.protection(NAME, **options)`, or as functions of the same name in `tacit`.\n"
            "`tacit.chain(...)` puts several one after the other. `tacit.randomized_response(rate)` acts on labels,\n"
            "once, before any loss.",
            "tacit.protect.gradient",
            gradient.names(),
        ),
        "ref-embedding-protections.md": page(
            "Protections of the embedding",
            "A feature party takes a list of them: `FeatureParty(protect=[...])`,\n"
            "`simulate(protect_embedding=[...])`, or `[protect] embedding = [...]` in party.toml; they act in its\n"
            "order. By name with `tacit.embedding_protection(NAME, **options)`, or as functions of the same name in\n"
            "`tacit`. What changes an embedding does so in training, evaluation and serving alike; what adds a loss\n"
            "acts in training.",
            "tacit.protect.embedding",
            embedding.names(),
        ),
        "ref-attacks.md": page(
            "Attacks on labels",
            "By name with `tacit.attack(NAME, **options)`, or as names in `tacit.attack_all`. Each sees a `View`, one\n"
            "party's transcript, and what it is granted; none sees the truth.",
            "tacit.audit.attacks",
            attacks.names(),
        ),
        "ref-input-attacks.md": page(
            "Attacks on inputs",
            "What a label party may try on the embeddings that it received. By name with\n"
            "`tacit.attack(NAME, **options)`, judged by `tacit.audit.inputs.attack_inputs`. Each sees a `View` and\n"
            "what it is granted; none sees the truth.",
            "tacit.audit.input_attacks",
            input_attacks.names(),
        ),
    }


def main() -> None:
    stale = [name for name, text in pages().items() if not (DOCS / name).exists() or (DOCS / name).read_text() != text]
    if "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(stale)}; run python scripts/make_docs.py" if stale else 0)
    for name, text in pages().items():
        (DOCS / name).write_text(text)


if __name__ == "__main__":
    main()
