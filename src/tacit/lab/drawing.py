"""Pictures of sweeps and of one-shot settings: what each setting is worth against what is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.disk import write
from tacit.views.report.frontier import Measured, frontier
from tacit.views.report.scatters import Dot, Panel, tradeoff_file
from tacit.views.report.svg import Axis

if TYPE_CHECKING:
    from tacit.lab import choosing
    from tacit.lab.one_shot.advising import Advice, Point

_ACROSS = "leak AUC of the worst attack, with its 95% interval (0.5: a coin flip)"


def draw_sweep(
    points: Sequence[choosing.Point], path: Path, *, title: str, choice: choosing.Choice | None = None
) -> Path | None:
    """What the worst attack reaches against what the model is worth; None where no setting can be drawn."""
    families: dict[str, list[tuple[float, Dot]]] = {}
    for point in points:
        if point.worst is not None and point.test_auc is not None:
            ends = None if point.low is None or point.high is None else (point.low, point.high)
            dot = Dot(point.worst, point.test_auc, across=ends)
            families.setdefault(_family(point), []).append((point.setting.strength or 0.0, dot))
    if not families:
        return None
    ring = None
    if choice is not None and choice.point.worst is not None and choice.point.test_auc is not None:
        name = f"{'chosen' if choice.holds else 'nearest'}: {choice.point.setting.spelled}"
        ring = Dot(choice.point.worst, choice.point.test_auc, name), choice.holds
    ordered = {name: [dot for _, dot in sorted(dots, key=lambda pair: pair[0])] for name, dots in families.items()}
    panel = Panel(_ACROSS, ordered, Axis(0.5, 1.0), None if choice is None else choice.limit, ring)
    return _written(path, tradeoff_file(title, [panel], worth="test AUC"))


def _family(point: choosing.Point) -> str:
    """A protection and its knob; its strengths make one line."""
    setting = point.setting
    if setting.protection == "none":
        return "no protection"
    others = ", ".join(f"{key}={value}" for key, value in setting.others)
    knob = "" if setting.knob is None else f" by {setting.knob}"
    return f"{setting.protection}{f'({others})' if others else ''}{knob}"


def draw_exchange(points: Sequence[Point], path: Path, *, title: str, advice: Advice | None = None) -> Path:
    """What settings are worth against what is read of the features."""
    sent = [point for point in points if point.setting.family.bottom]
    levels = {point.setting.family.words: point.figure.value for point in points if not point.setting.family.bottom}
    chosen, limit = (None, None) if advice is None else (advice.chosen, advice.feature_limit)
    ring = None if chosen is None else (Dot(chosen.worst, chosen.figure.value, "taken"), True)
    at_worst = _families(sent, lambda point: point.worst)
    on_average = _families(sent, lambda point: max(point.numbers.value, point.codes.value))
    panels = [
        Panel("read of the features, at worst, of anything", at_worst, Axis(0, 1), limit, ring),
        Panel("read of the features, on average, of numbers or of codes", on_average, Axis(0, 1)),
    ]
    return _written(path, tradeoff_file(title, panels, worth="test AUC", levels=levels))


def draw_page(
    points: Sequence[Point], path: Path, *, title: str, label_limit: float, advice: Advice | None = None
) -> Path:
    """Write the same settings as a page on which both limits can be moved."""
    measured = [
        Measured(point.setting.words, point.figure.value, point.worst, point.auc, point.setting.family.keeps_labels)
        for point in points
    ]
    limit = None if advice is None else advice.feature_limit
    return _written(path, frontier(measured, title=title, label_limit=label_limit, feature_limit=limit))


def _written(path: Path, text: str) -> Path:
    write(path, text.encode(), durable=False)
    return path


def _families(points: Sequence[Point], leak: Callable[[Point], float]) -> dict[str, list[Dot]]:
    """A line for each family from narrow to wide; beside each dot is its width, with an n where there is noise."""
    families: dict[str, list[Dot]] = {}
    for point in sorted(points, key=lambda point: (point.setting.width, -point.setting.noise)):
        name = f"{point.setting.width}{'n' if point.setting.noise else ''}"
        ends = (point.figure.low, point.figure.high)
        dot = Dot(leak(point), point.figure.value, name, up=ends if all(map(math.isfinite, ends)) else None)
        families.setdefault(point.setting.family.words, []).append(dot)
    return families
