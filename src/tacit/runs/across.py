"""Everything that some runs and sweeps have found, side by side and as one long table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.runs.pacing import Line
from tacit.runs.run import RunReader
from tacit.runs.sweep import SweepReader

if TYPE_CHECKING:
    import polars as pl

__all__ = ["frame", "matrix"]

_WORDS = ("place", "run", "party", "group", "name", "measure")
_COLUMNS = (*_WORDS, "step", "time", "value", "low", "high")
_ALL = 1 << 62  # points: nothing is thinned
_Who = tuple[str, str | None, str | None]


def matrix(readers: Sequence[RunReader | SweepReader]) -> dict[str, Any]:
    """What each attack on labels reached under each protection: of every run with a report, and of every sweep.

    Args:
        readers: of runs and sweeps, refreshed.
    """
    columns: list[dict[str, str]] = []
    cells: list[dict[str, float | None]] = []
    for one in readers:
        if isinstance(one, RunReader):
            if one.report is None or one.measure != "leak_auc" or one.report["exchange"]:
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
        pieces += _pace(who, reader.pace)
    empty = pl.DataFrame(schema={name: pl.String if name in _WORDS else pl.Float64 for name in _COLUMNS})
    return pl.concat([empty, *pieces])


def _figures(who: _Who, curve: dict[str, Any]) -> pl.DataFrame:
    missing = [None] * len(curve["x"])
    told = {"step": curve["x"], "time": missing, "value": curve["y"]}
    ends = {"low": curve.get("low", missing), "high": curve.get("high", missing)}
    return _piece(who, (curve["group"], curve["name"], curve["measure"]), told | ends)


def _pace(who: _Who, lines: Sequence[Line]) -> list[pl.DataFrame]:
    missing: list[float | None] = [None] * len(lines)
    times: list[float | None] = [line[0] for line in lines]
    told = {"step": missing, "time": times, "low": missing, "high": missing}
    noted = (("turn", [line[1] for line in lines]), ("journal_bytes", [line[3] for line in lines]))
    return [_piece(who, ("pace", name, None), {**told, "value": list(values)}) for name, values in noted]


def _piece(who: _Who, what: tuple[str, str, str | None], columns: Mapping[str, Sequence[float | None]]) -> pl.DataFrame:
    """A part of the table: the same words in each row, beside columns of numbers."""
    import polars as pl

    words = [pl.lit(word, pl.String).alias(name) for name, word in zip(_WORDS, (*who, *what), strict=True)]
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64)).select(*words, *_COLUMNS[len(_WORDS) :])
