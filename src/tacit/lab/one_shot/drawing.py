"""What settings are worth against what is read of the features, as a picture."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.lab.figures.style import GREY, styled
from tacit.lab.one_shot.advising import Advice, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_COLOURS = ("#1f6fb2", "#b3261e", "#2a8f57", "#d9791a", "#7a4fa3", "#333333", "#5f8f9f", "#a0522d")
_MARKS = "osD^vPX"
_SMALL: Any = {"svg.fonttype": "none", "svg.hashsalt": "tacit", "font.sans-serif": ["DejaVu Sans"]}  # and reproducible


def draw(points: Sequence[Point], path: Path, *, title: str, advice: Advice | None = None) -> Path | None:
    """Write the picture; None where matplotlib is missing.

    Args:
        points: the settings, each over all of its seeds.
        path: of the picture, `.png` or `.svg`.
        title: of the data set and the label limit.
        advice: with the limit and what was chosen, if anything was to be.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with styled(), rc_context(_SMALL):
        figure = Figure(figsize=(11, 5), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        _panel(panels[0], points, lambda point: point.worst, "at worst, of anything")
        _panel(panels[1], points, _mean_read, "on average, of numbers or of codes")
        if advice is not None and advice.feature_limit is not None:
            panels[0].axvline(advice.feature_limit, color="#222222", lw=1.4, label=f"limit {advice.feature_limit:g}")
        if advice is not None and advice.chosen is not None:
            at = advice.chosen.worst, advice.chosen.figure.value
            panels[0].plot(*at, "o", ms=15, mfc="none", mec="#222222", mew=1.6, label="taken")
        panels[0].set_ylabel("test AUC")
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper", fontsize=8.5)
        figure.savefig(path, dpi=150, metadata={"Date" if path.suffix == ".svg" else "Software": None})
    return path


def _mean_read(point: Point) -> float:
    return max(point.numbers.value, point.codes.value)


def _panel(axis: Axes, points: Sequence[Point], across: Callable[[Point], float], what: str) -> None:
    """A line for each family from narrow to wide; what has no embedding is a line across."""
    families: dict[str, list[Point]] = {}
    for point in points:
        families.setdefault(point.setting.family.words, []).append(point)
    for place, (name, members) in enumerate(families.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        if not members[0].setting.family.bottom:
            axis.axhline(members[0].figure.value, color=GREY, ls=":" if place else "--", lw=1.2, label=name)
            continue
        members = sorted(members, key=lambda point: (point.setting.width, -point.setting.noise))
        half = [max(0.0, point.figure.high - point.figure.value) for point in members]
        axis.errorbar(
            [across(point) for point in members], [point.figure.value for point in members],
            yerr=half if all(map(math.isfinite, half)) else None, fmt=_MARKS[place % len(_MARKS)], ls="-", lw=1.1,
            color=colour, ms=5, capsize=2, elinewidth=0.8, label=name,
        )  # fmt: skip
        for point in members:
            width = f"{point.setting.width}" + ("n" if point.setting.noise else "")
            axis.annotate(
                width, (across(point), point.figure.value), textcoords="offset points", xytext=(4, 4), fontsize=7
            )
    axis.set_xlim(-0.02, 1.03)
    axis.set_xlabel(f"read of the features, {what} (0 to 1)")
