"""Attacks by protections, as tables: of one run, of a sweep, over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["run_matrix", "table"]

_FIGURES = ("values", "low", "high")
Cells = Mapping[tuple[str, str], Sequence[float | None]]
"""Value, lower and upper end of each attack, by its name and what it was tried on."""


def table(columns: Sequence[tuple[str, Cells]]) -> dict[str, Any] | None:
    """One row for each attack, one column for each protection; None where there is neither.

    Args:
        columns: labels and what each attack reached under them.
    """
    names = dict.fromkeys(name for _, cells in columns for name in cells)
    if not names:
        return None
    nothing = [None] * len(_FIGURES)
    rows = [
        {"attack": attack, "on": on}
        | {
            which: [cells.get((attack, on), nothing)[place] for _, cells in columns]
            for place, which in enumerate(_FIGURES)
        }
        for attack, on in names
    ]
    return {"columns": [label for label, _ in columns], "rows": rows}


def run_matrix(decisions: Sequence[Mapping[str, Any]], leaks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Every attack under every strength that a run has had, and in its report.

    Args:
        decisions: of its gate.
        leaks: of its report.
    """
    columns = [
        (
            f"before epoch {one['epoch']}: level {one['level']}",
            {(each["attack"], each["on"]): (each["value"], each["low"], each["upper"]) for each in one["measured"]},
        )
        for one in decisions
        if one["measured"]
    ]
    if leaks:
        columns.append(
            ("report", {(one["attack"], one["on"]): (one["value"], one["low"], one["high"]) for one in leaks})
        )
    return table(columns)
