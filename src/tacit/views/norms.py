"""Norms by class over training: as many looks as a page can show, however many there were."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["NormsOverTime"]

_MOST = 200


class NormsOverTime:
    """Histograms of norms by class, the more looks there are, the fewer of them are kept."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, dict[str, Any]]] = []
        self._seen = 0
        self._every = 1

    def add(self, step: int, norms: Any) -> None:
        """What one look counted; what is no histogram is left out."""
        if norms is None:
            return
        self._seen += 1
        if (self._seen - 1) % self._every or not isinstance(norms, dict) or "sent" not in norms:
            return
        if all(map(_counted, norms.values())):
            self._kept.append((step, norms))
        if len(self._kept) > 2 * _MOST:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def shown(self) -> dict[str, Any] | None:
        """At most 200 of them, first to last, for a page; None where there are none."""
        if not self._kept:
            return None
        kept = self._kept[:: max(1, -(-len(self._kept) // _MOST))]
        return {
            "steps": [step for step, _ in kept],
            "sent": [norms["sent"] for _, norms in kept],
            "clean": [norms.get("clean") for _, norms in kept],
        }


def _counted(histogram: Any) -> bool:
    """Whether this is a histogram as `tacit.audit.norms` makes them."""
    if not isinstance(histogram, dict) or not {"low", "high", "counts"} <= set(histogram):
        return False
    counts = histogram["counts"]
    numbers = all(type(histogram[end]) in (int, float) for end in ("low", "high"))
    return (
        numbers
        and 0 < histogram["low"] < histogram["high"] < math.inf
        and isinstance(counts, list)
        and len(counts) == 2
        and all(isinstance(bins, list) and all(type(rows) is int for rows in bins) for bins in counts)
    )
