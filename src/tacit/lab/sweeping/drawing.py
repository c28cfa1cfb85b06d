"""A sweep as a picture: what the worst attack reaches against what the model is worth."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.lab.choosing import Choice, Point
from tacit.lab.drawing import colour_of, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_MARKS = "osD^vPX"
_DASHES = ("-", "--", ":", "-.")
_BLACK, _RED, _GREY = "#222222", "#b3261e", "#8a8a8a"


def draw(points: Sequence[Point], path: Path, *, title: str, choice: Choice | None = None) -> Path | None:
    """Write the picture; None where matplotlib is missing, or no setting can be drawn.

    Args:
        points: the settings of a sweep, each over all of its seeds.
        path: of the PNG.
        title: of the data set.
        choice: with its limit and the chosen setting, if there is one.
    """
    shown = [point for point in points if point.worst is not None and point.test_auc is not None]
    if not shown or importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=(8, 5), layout="constrained")
        axis = figure.add_subplot()
        _lines(axis, shown)
        if choice is not None:
            _chosen(axis, choice)
        axis.axvline(0.5, color=_GREY, lw=1, ls=":")
        axis.set_xlim(0.485, 1.015)
        axis.set_xlabel("leak AUC of the worst attack, with its 95% interval (0.5: a coin flip)")
        axis.set_ylabel("test AUC")
        axis.set_title(title, loc="left", fontsize=11, fontweight="bold")
        figure.legend(loc="outside right upper", fontsize=8.5)
        figure.savefig(path, dpi=150, metadata={"Software": None})
    return path


def _lines(axis: Axes, points: Sequence[Point]) -> None:
    """A line for each protection and knob, from mild to strong; a mark alone where it has one strength."""
    families: dict[str, list[Point]] = {}
    for point in points:
        others = ", ".join(f"{key}={value}" for key, value in point.setting.others)
        knob = "" if point.setting.knob is None else f" by {point.setting.knob}"
        families.setdefault(f"{point.setting.protection}{f'({others})' if others else ''}{knob}", []).append(point)
    seen: list[str] = []
    for place, (name, members) in enumerate(families.items()):
        protection = members[0].setting.protection
        bare = protection == "none"
        colour, mark = colour_of(protection), "*" if bare else _MARKS[place % len(_MARKS)]
        line = _DASHES[seen.count(protection) % len(_DASHES)]  # the same protection with other options
        seen.append(protection)
        members = sorted(members, key=lambda point: point.setting.strength or 0.0)
        leak = [point.worst or 0.0 for point in members]
        around = [
            [max(0.0, (point.worst or 0.0) - (point.low or 0.0)) for point in members],
            [max(0.0, (point.high or 0.0) - (point.worst or 0.0)) for point in members],
        ]
        axis.errorbar(
            leak, [point.test_auc or 0.0 for point in members], xerr=around, fmt=mark, ls=line, lw=1.1, color=colour,
            ms=10 if bare else 5, capsize=2, elinewidth=0.8, label="no protection" if bare else name,
        )  # fmt: skip


def _chosen(axis: Axes, choice: Choice) -> None:
    """The limit, and a ring around what was chosen or came nearest."""
    axis.axvspan(choice.limit, 1.1, color=_BLACK, alpha=0.05, lw=0)
    axis.axvline(choice.limit, color=_BLACK, lw=1.4, label=f"limit {choice.limit:g}")
    point = choice.point
    if point.worst is not None and point.test_auc is not None:
        label = f"{'chosen' if choice.holds else 'nearest'}: {point.setting.spelled}"
        axis.plot(
            point.worst, point.test_auc, "o", ms=15, mfc="none", mec=_BLACK if choice.holds else _RED, mew=1.6,
            label=label,
        )  # fmt: skip
