"""A picture of one exchange for notebooks (extra `figures`): calibration, importance, and what decoders read."""

from __future__ import annotations

import io
from typing import Any

from tacit.errors import UsageError
from tacit.exchange.findings import ReleaseAudit
from tacit.exchange.head import Head
from tacit.exchange.judged import Tested

_BARS = 10  # columns that are shown at most


def plot(tested: Tested, head: Head, audit: ReleaseAudit | None) -> Any:
    """A Matplotlib figure."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("Matplotlib is not installed: pip install 'tacit[figures]'") from None

    class Picture(Figure):
        """A figure that a notebook shows, whatever its settings."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=80)
            return file.getvalue()

    figure = Picture(figsize=(12, 3.6), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    if tested.classes == 2:
        parts = tested.calibration()
        most = max(parts["score"].max(), parts["share of ones"].max())  # type: ignore[type-var]
        first.plot([0, most], [0, most], color="0.7", linewidth=1)
        first.plot(parts["score"], parts["share of ones"], "o-")
        first.set(xlabel="mean score", ylabel="share of ones", title="Calibration on test rows")
    else:
        first.set_axis_off()
    lost = tested.importance(head).head(_BARS).reverse()
    second.barh(lost["column"], lost[lost.columns[1]])
    second.set(xlabel=lost.columns[1], title="Shuffled among test rows")
    if audit is not None:
        read = list(audit.columns().items())[:_BARS][::-1]
        third.barh([name for name, _ in read], [one.read.value for _, one in read])
        third.set(xlim=(0, 1), xlabel="0 nothing, 1 everything", title="Read of the features by decoders")
    else:
        third.set_axis_off()
    return figure
