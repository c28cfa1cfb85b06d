"""Pictures of sweeps: what each setting is worth against what is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.disk import write
from tacit.report.scatters import Dot, Panel, tradeoff_file
from tacit.report.svg import Axis

if TYPE_CHECKING:
    from tacit.lab import choosing

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


def _written(path: Path, text: str) -> Path:
    write(path, text.encode(), durable=False)
    return path
