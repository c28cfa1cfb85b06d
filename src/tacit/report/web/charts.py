"""Charts of a page: curves as numbers that a browser draws, and the same in words and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.report.measures import MEASURES
from tacit.report.plots import SERIES
from tacit.report.web.words import duration, limit, rate, short, size
from tacit.report.words import count, decimals, spelled

Curve = Mapping[str, Any]
"""As `tacit.report.series.Series.shown` makes it."""


@dataclass(frozen=True)
class Chart:
    """One chart: its curves, the highest first, and what is said of them."""

    id: str
    title: str
    curves: Sequence[Curve]
    told: str  # of all curves, in a sentence
    nothing: str  # to be said where there is no curve
    across: str = "step"  # or "time", in seconds since 1970
    floor: float | None = None  # the lowest end of the axis up
    # {"x": ..., "y": ...} of the limit, where there is one
    limits: Mapping[str, Any] | None = None
    shades: Sequence[tuple[float, float]] = ()  # times in which nothing moved
    marks: Sequence[float] = field(default_factory=list)  # places on the axis across

    @property
    def key(self) -> list[tuple[str, str, str, str]]:
        """Style, name, highest and last figure of each curve."""
        return [
            (style, curve["name"], short(_highest(curve)), short(_known(curve)[-1]))
            for style, curve in zip(self._styles(), self.curves, strict=True)
        ]

    def data(self) -> dict[str, Any]:
        """Everything that a browser needs to draw it."""
        figures = [
            value for curve in self.curves for name in ("y", "mean", "low", "high") for value in curve.get(name, ())
        ]
        figures += (self.limits or {}).get("y", [])
        low, high = _ends([value for value in figures if value is not None])
        low = low if self.floor is None else min(self.floor, low)
        return {
            "across": self.across, "range": [low, high],
            "limits": self.limits, "shades": self.shades, "marks": self.marks,
            "curves": [{**curve, "style": style} for style, curve in zip(self._styles(), self.curves, strict=True)],
        }  # fmt: skip

    def _styles(self) -> list[str]:
        return [f"s{place + 1}" if place < SERIES else "rest" for place in range(len(self.curves))]


def over_steps(detail: Mapping[str, Any]) -> list[Chart]:
    """The charts over steps: looks, the model, the gate, the loss."""
    measure, limits = MEASURES[detail["measure"]], detail["limits"]
    shown = [curve for curve in detail["curves"] if any(value is not None for value in curve["y"])]
    groups = {
        name: sorted((curve for curve in shown if curve["group"] == name), key=_highest, reverse=True)
        for name in ("leak", "gate", "utility")
    }
    loss = [curve for curve in groups["utility"] if "loss" in curve["name"]]
    quality = [curve for curve in groups["utility"] if "loss" not in curve["name"]]
    leaks = groups["leak"]
    thin = " Lines are means over the last looks, the thin ones behind them single looks."
    quiet = "No look yet: the first comes half of `live.every` steps (64 by default) into the training."
    made = [
        Chart("leak", "Leak while training runs", leaks, _worst(leaks, "attack", detail) + thin,
              quiet, floor=measure.chance,
              limits=limits),
        Chart("quality", "How good the model is", quality, _last(quality),
              "No test figure yet: the first comes when an epoch ends."),
    ]  # fmt: skip
    nothing = "Nothing yet: the gate measures all attacks when an epoch ends."
    nothing = "No limit is on record, so no gate measures." if detail["limit"] is None else nothing
    told = _worst(groups["gate"], "figure", detail) + " Bars are 95% intervals."
    marks = [decision["step"] for decision in detail["decisions"] if decision["decision"] != "keep"]
    told += " Upright lines are where it paused, stopped or went on." if marks else ""
    made.append(Chart("gate", "What the gate measured", groups["gate"], told, nothing, floor=measure.chance,
                      limits=limits, marks=marks))  # fmt: skip
    nothing = "No loss was noted yet. Only the label party sees it."
    return [*made, Chart("loss", "Loss", loss, _last(loss), nothing)]


def over_time(detail: Mapping[str, Any]) -> list[Chart]:
    """How fast a run went, and what its journal takes."""
    pace = detail["pace"]
    stalls, met, times = pace["stalls"], pace["connected"], pace["time"]
    nothing = "No pace is on record: the run has not begun, or an older version has written it."
    now = "" if detail["rate"] is None else f"{rate(detail['rate'])} now. "
    lost = duration(sum(to - since for since, to, _ in stalls))
    still = f"It stood still {_times(len(stalls))}, {lost} in all (shaded)" if stalls else "It never stood still"
    back = f"the connection came back {_times(len(met) - 1)}" if len(met) > 1 else "the connection was never lost"
    rates = {"name": "turns a second", "x": times, "y": pace["rate"]}
    sizes = {"name": "MiB", "x": times, "y": [value / 2**20 for value in pace["journal"]]}
    shared = {"across": "time", "floor": 0.0, "shades": [stall[:2] for stall in stalls], "marks": met}
    some = [value for value in pace["rate"] if value is not None]
    return [
        Chart("rate", "Turns a second", [rates] if some else [], f"{now}{still}; {back}.", nothing, **shared),
        Chart("journal-size", "Journal on the disk, MiB", [sizes] if times else [],
              f"The journal takes {size(detail['journal_bytes'])} now.", nothing, **shared),
    ]  # fmt: skip


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _worst(curves: Sequence[Curve], noun: str, detail: Mapping[str, Any]) -> str:
    """The curve that came highest, and where."""
    if not curves:
        return ""
    worst = curves[0]
    where = worst["x"][worst["y"].index(_highest(worst))]
    bound = "No limit is on record." if detail["limit"] is None else f"The limit is {limit(detail['limit'])}."
    most = f"the highest is {decimals(_highest(worst))} ({worst['name']}, step {where:,.0f})"
    return f"{count(len(curves), noun)}; {most}. {bound}"


def _last(curves: Sequence[Curve]) -> str:
    figures = [f"{spelled(curve['name'])} {short(_known(curve)[-1])}" for curve in curves]
    return f"Last: {', '.join(figures)}."


def _known(curve: Curve) -> list[float]:
    return [value for value in curve["y"] if value is not None]


def _highest(curve: Curve) -> float:
    return max(_known(curve))


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest with some air."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    air = 0.08 * (high - low or abs(high) or 1.0)
    return low - air, high + air
