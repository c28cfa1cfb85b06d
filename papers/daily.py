"""Training by day, as the papers show it: their settings, and utility and leak of each day with bands over seeds."""

from __future__ import annotations

from collections.abc import Sequence

from papers.kinds import Kind
from tacit.lab.daily import Triple, draw_days, numbers_by_day

__all__ = ["INDUSTRY", "REPORT", "daily"]

INDUSTRY: tuple[Triple, ...] = (
    ("none", None, None), ("iso", "t", 1.0), ("iso", "t", 2.0), ("max_norm", None, None),
    ("marvell", "sum_kl", 0.25), ("marvell", "sum_kl", 0.1),
)  # fmt: skip
"""The settings of the longer version's daily figure; its iso has the variance ratio as its parameter, so it is t."""

REPORT: tuple[Triple, ...] = (
    ("none", None, None), *(("marvell", "sum_kl", value) for value in (3.6, 1.44, 0.64, 0.49, 0.16, 0.01)),
    ("max_norm", None, None),
)  # fmt: skip
"""The settings of the technical report; its sumKL of infinity is no noise."""


def daily(settings: Sequence[Triple], columns: Sequence[str]) -> Kind:
    """Figures by day: some settings, and the panels "norm@cut", "hint@cut" or "test_auc"."""
    return Kind(
        lambda table, data: numbers_by_day(table, settings, columns),
        lambda numbers, sheet: draw_days(numbers, columns, sheet),
    )
