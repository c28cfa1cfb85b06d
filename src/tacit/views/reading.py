"""Finding runs and sweeps, and reading them: all that those need who show them.

What they have found is also shown as tables: attacks by protections, and every figure in one long table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.views.finding import DAMAGE, Place, damage, find
from tacit.views.run import RunReader
from tacit.views.sweep import SweepReader

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "DAMAGE", "FIGURES", "Place", "Reader", "RunReader", "SweepReader", "damage", "find", "frame", "matrix", "reader",
]  # fmt: skip

Reader = RunReader | SweepReader
"""What reads a place."""

_WORDS = ("place", "run", "party", "group", "name", "measure")
_NUMBERS = ("step", "time", "value", "low", "high")
FIGURES = {**dict.fromkeys(_WORDS, str), **dict.fromkeys(_NUMBERS, float)}
"""The columns of the long table, and what they hold."""

_ALL = 1 << 62  # points: nothing is thinned
_Who = tuple[str, str | None, str | None]


def reader(place: Place) -> Reader:
    """What reads a place."""
    return RunReader(place) if place.kind == "run" else SweepReader(place)


def matrix(readers: Sequence[Reader]) -> dict[str, Any]:
    """What each attack on labels reached under each protection: of every run with a report, and of every sweep."""
    columns: list[dict[str, str]] = []
    cells: list[dict[str, float | None]] = []
    for reader in readers:
        place = {"id": reader.place.id, "kind": reader.place.kind, "name": reader.place.name}
        if isinstance(reader, RunReader):
            if reader.report is None or reader.measure != "leak_auc" or reader.report["exchange"]:
                continue
            columns.append({"label": reader.card()["strength"] or "unknown", **place})
            cells.append({leak["attack"]: leak["value"] for leak in reader.report["leaks"]})
            continue
        swept = reader.detail()["matrix"] or {"columns": [], "rows": []}
        for number, label in enumerate(swept["columns"]):
            columns.append({"label": label, **place})
            cells.append({row["attack"]: row["values"][number] for row in swept["rows"] if row["on"] == "cut"})
    names = dict.fromkeys(name for column in cells for name in column)
    rows = [{"attack": name, "values": [column.get(name) for column in cells]} for name in names]
    return {"measure": "leak_auc", "columns": columns, "rows": rows}


def frame(reader: Reader) -> pl.DataFrame:
    """Every figure as one long table: place, run, party, group, name, measure, step, time, value, low, high.

    The pace of a run is the group "pace", with times and no steps: "turn" and "journal_bytes".
    """
    import polars as pl

    who: _Who
    pieces = []
    if isinstance(reader, SweepReader):
        for point in reader.points:
            who = (reader.place.id, f"{reader.place.name} / {point['replica']}: {point['label']}", None)
            pieces += [_figures(who, series.shown(_ALL)) for series in reader.series(point["replica"]).values()]
    else:
        who = (reader.place.id, reader.status.get("run"), reader.status.get("party"))
        pieces = [_figures(who, series.shown(_ALL)) for series in reader.series.values()]
        for name, place in (("turn", 1), ("journal_bytes", 3)):
            columns = {"time": [line[0] for line in reader.pace], "value": [line[place] for line in reader.pace]}
            pieces.append(_piece((*who, "pace", name, None), columns))
    return pl.concat([pl.DataFrame(schema=FIGURES), *pieces])


def _figures(who: _Who, curve: Mapping[str, Any]) -> pl.DataFrame:
    columns = {"step": curve["x"], "value": curve["y"]} | {end: curve[end] for end in ("low", "high") if end in curve}
    return _piece((*who, curve["group"], curve["name"], curve["measure"]), columns)


def _piece(words: Sequence[str | None], columns: Mapping[str, Any]) -> pl.DataFrame:
    """A part of the table: the same words in each row, beside columns of numbers."""
    import polars as pl

    same = [pl.lit(word, pl.String).alias(name) for name, word in zip(_WORDS, words, strict=True)]
    numbers = [pl.col(name) if name in columns else pl.lit(None, pl.Float64).alias(name) for name in _NUMBERS]
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64)).select(*same, *numbers)
