"""A sweep as a picture: what the worst attack reaches against what the model is worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit.disk import replaced
from tacit.lab.choosing import Choice, Point
from tacit.views.report.scatters import Dot, Panel, tradeoff_file
from tacit.views.report.svg import Axis

_ACROSS = "leak AUC of the worst attack, with its 95% interval (0.5: a coin flip)"


def draw(points: Sequence[Point], path: Path, *, title: str, choice: Choice | None = None) -> Path | None:
    """Write the picture; None where no setting can be drawn."""
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
    text = tradeoff_file(title, [panel], worth="test AUC")
    replaced(path, lambda file: file.write(text.encode()), durable=False)
    return path


def _family(point: Point) -> str:
    """A protection and its knob; its strengths make one line."""
    setting = point.setting
    if setting.protection == "none":
        return "no protection"
    others = ", ".join(f"{key}={value}" for key, value in setting.others)
    return (
        f"{setting.protection}{f'({others})' if others else ''}{'' if setting.knob is None else f' by {setting.knob}'}"
    )
