"""What stays the same during a run, for those who compare runs: the contract's and the party's own settings."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tacit.views.reading import RunReader

__all__ = ["facts_of"]

_CARD = ("run", "party", "role", "mode", "epochs", "measure", "limit")
_OWN = (
    "limit",
    "on_limit",
    "model",
    "training",
    "protect",
    "odds",
    "budget",
    "odds_budget",
    "learn",
    "head",
)  # not where data, keys and peers are


def facts_of(reader: RunReader) -> dict[str, object]:
    """The facts of a run, by dotted names such as "cut.widths.airport" or "protect.gradient.name".

    They are read from the party's folder, where its settings still are those of this run; else there are only the few
    that the run tells of itself. Addresses, and where keys and data lie, are not among them.
    """
    card = reader.card()
    facts: dict[str, object] = {name: card[name] for name in _CARD if card[name] is not None}
    folder = reader.place.path.parent.parent
    contract, own = _toml(folder / "contract.toml"), _toml(folder / "party.toml")
    if contract.get("run") == card["run"]:
        facts |= contract
        facts |= {name: value for name, value in own.items() if name.partition(".")[0] in _OWN}
    versions = ((reader.report or {}).get("subject") or {}).get("versions") or {}
    return facts | {f"versions.{name}": version for name, version in versions.items()}


def _toml(path: Path) -> dict[str, object]:
    """A file's values by dotted names; nothing where it can't be read, for facts are told where they are known."""
    try:
        return dict(_flat(tomllib.loads(path.read_text())))
    except (OSError, ValueError, RecursionError):
        return {}


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
