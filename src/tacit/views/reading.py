"""Finding runs and sweeps, and reading them: all that those need who show them.

What they have found is also shown as tables: attacks by protections, and every figure in one long table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.views.finding import DAMAGE, Place, damage, find
from tacit.views.run import RunReader
from tacit.views.series import Series
from tacit.views.sweep import SweepReader

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "DAMAGE", "FIGURES", "Place", "Reader", "RunReader", "SweepReader", "damage", "find", "frame", "matrix", "reader",
]  # fmt: skip

Reader = RunReader | SweepReader
"""What reads a place."""

FIGURES = {
    **dict.fromkeys(("place", "run", "party", "group", "name", "measure"), str),
    **dict.fromkeys(("step", "time", "value", "low", "high"), float),
}
"""The columns of the long table, and what they hold."""

_ALL = 1 << 62  # points: nothing is thinned


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

    pieces = [pl.DataFrame(schema=FIGURES)]

    def add(run: str | None, party: str | None, curve: Mapping[str, Any]) -> None:
        row = {"place": reader.place.id, "run": run, "party": party, **curve}
        pieces.append(pl.DataFrame({column: row.get(column) for column in FIGURES}, schema=FIGURES))

    def add_all(run: str | None, party: str | None, each: Mapping[str, Series]) -> None:
        for curve in (series.shown(_ALL) for series in each.values()):
            add(run, party, {**curve, "step": curve["x"], "value": curve["y"]})

    if isinstance(reader, SweepReader):
        for point in reader.points:
            name = f"{reader.place.name} / {point['replica']}: {point['label']}"
            add_all(name, None, reader.series(point["replica"]))
    else:
        who = reader.status.get("run"), reader.status.get("party")
        add_all(*who, reader.series)
        times = [line[0] for line in reader.pace]
        for name, place in (("turn", 1), ("journal_bytes", 3)):
            values = [float(line[place]) for line in reader.pace]
            add(*who, {"group": "pace", "name": name, "time": times, "value": values})
    return pl.concat(pieces)
