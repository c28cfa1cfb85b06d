"""What settings are worth against what is read of the features, as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from tacit.disk import replaced
from tacit.lab.one_shot.advising import Advice, Point
from tacit.views.report.frontier import Measured, frontier
from tacit.views.report.scatters import Dot, Panel, tradeoff_file
from tacit.views.report.svg import Axis


def draw(points: Sequence[Point], path: Path, *, title: str, advice: Advice | None = None) -> Path:
    """Write the picture."""
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
    text = tradeoff_file(title, panels, worth="test AUC", levels=levels)
    replaced(path, lambda file: file.write(text.encode()), durable=False)
    return path


def draw_page(
    points: Sequence[Point], path: Path, *, title: str, label_limit: float, advice: Advice | None = None
) -> Path:
    """Write the same settings as a page on which both limits can be moved."""
    measured = [
        Measured(point.setting.words, point.figure.value, point.worst, point.auc, point.setting.family.keeps_labels)
        for point in points
    ]
    limit = None if advice is None else advice.feature_limit
    text = frontier(measured, title=title, label_limit=label_limit, feature_limit=limit)
    replaced(path, lambda file: file.write(text.encode()), durable=False)
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
