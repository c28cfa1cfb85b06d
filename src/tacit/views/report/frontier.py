"""The settings that `tacit choose` measured as one page with two sliders: which is the best that holds both limits?"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from markupsafe import Markup

from tacit.views.report.rendering import template

_TOP, _BOTTOM = 20.0, 290.0  # of the picture, in pixels
_TICKS = 4


@dataclass(frozen=True)
class Measured:
    """One setting."""

    setting: str  # in words
    figure: float  # its test AUC
    worst: float  # the most that was read of anything, 0 to 1
    auc: float  # leak AUC of a label
    bound: bool  # whether that is certified


def frontier(points: Sequence[Measured], *, title: str, label_limit: float, feature_limit: float | None) -> str:
    """The page: it needs nothing else, and its own script is all that may run in it."""
    figures = [point.figure for point in points]
    low, high = min(figures), max(figures)
    room = (high - low) or 0.01

    def height(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (value - low) / room

    script = (Path(__file__).parent / "frontier.js").read_text(encoding="utf-8")
    ticks = [low + room * place / _TICKS for place in range(_TICKS + 1)]
    return template("frontier.html.j2").render(
        title=title,
        label_limit=label_limit,
        feature_limit=1.0 if feature_limit is None else feature_limit,
        points=[{**asdict(point), "y": height(point.figure)} for point in points],
        ticks=[(round(height(value), 1), f"{value:.{2 if room > 0.1 else 3}f}") for value in ticks],
        script=Markup(script),  # ours: nothing of it comes from a file of the user's
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
