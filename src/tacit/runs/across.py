"""Everything that some runs and sweeps have found, side by side and as one long table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.runs.pacing import Line
from tacit.runs.run import RunReader
from tacit.runs.sweep import SweepReader

if TYPE_CHECKING:
    import polars as pl

__all__ = ["frame", "matrix"]

_WORDS = 6  # columns that hold words, the first ones
_ALL = 1 << 62  # points: nothing is thinned

_COLUMNS = (
    "place", "run", "party", "group", "name", "measure", "step", "time", "value", "low", "high",
)  # fmt: skip


def matrix(readers: Sequence[RunReader | SweepReader]) -> dict[str, Any]:
    """What each attack on labels reached under each protection: of every run with a report, and of every sweep.

    Args:
        readers: of runs and sweeps, refreshed.
    """
    columns: list[dict[str, str]] = []
    cells: list[dict[str, float | None]] = []
    for one in readers:
        if isinstance(one, RunReader):
            if one.report is None or one.measure != "leak_auc":
                continue
            columns.append({"label": one.card()["strength"] or "unknown", **_place(one)})
            cells.append({leak["attack"]: leak["value"] for leak in one.report["leaks"]})
            continue
        told = one.detail()["matrix"] or {"columns": [], "rows": []}
        for place, label in enumerate(told["columns"]):
            columns.append({"label": label, **_place(one)})
            cells.append({row["attack"]: row["values"][place] for row in told["rows"] if row["on"] == "cut"})
    names = dict.fromkeys(name for each in cells for name in each)
    rows = [{"attack": name, "values": [each.get(name) for each in cells]} for name in names]
    return {"measure": "leak_auc", "columns": columns, "rows": rows}


def _place(reader: RunReader | SweepReader) -> dict[str, str]:
    return {"id": reader.place.id, "kind": reader.place.kind, "name": reader.place.name}


def frame(reader: RunReader | SweepReader) -> pl.DataFrame:
    """Every figure as one long table: place, run, party, group, name, measure, step, time, value, low, high.

    The pace of a run is the group "pace", with times and no steps: "turn" and "journal_bytes".

    Args:
        reader: of a run or a sweep, refreshed.
    """
    import polars as pl

    schema = {name: pl.String if place < _WORDS else pl.Float64 for place, name in enumerate(_COLUMNS)}
    if isinstance(reader, SweepReader):
        pieces = [
            _figures((reader.place.id, f"{reader.place.name} / {point['replica']}: {point['label']}", None), curve)
            for point in reader.detail()["points"]
            for curve in reader.replica(point["replica"], points=_ALL)["curves"]
        ]
    else:
        card = reader.card()
        who = (reader.place.id, card["run"], card["party"])
        pieces = [_figures(who, one.shown(_ALL)) for one in reader.series.values()]
        pieces.append(_pace(who, reader.pace))
    rows = [row for piece in pieces for row in piece]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _figures(who: tuple[Any, ...], curve: dict[str, Any]) -> list[tuple[Any, ...]]:
    missing = [None] * len(curve["x"])
    ends = (curve.get("low", missing), curve.get("high", missing))
    return [
        (*who, curve["group"], curve["name"], curve["measure"], x, None, y, low, high)
        for x, y, low, high in zip(curve["x"], curve["y"], *ends, strict=True)
    ]


def _pace(who: tuple[Any, ...], lines: Sequence[Line]) -> list[tuple[Any, ...]]:
    told = []
    for time, turn, _, journal in lines:
        for name, value in (("turn", turn), ("journal_bytes", journal)):
            told.append((*who, "pace", name, None, None, time, float(value), None, None))
    return told
