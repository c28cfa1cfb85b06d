"""What a party does to what it sends, before it is sent.

`labels` act on labels once, before the loss; `gradient` acts on every gradient at the cut. `check_protection` says
whether one of your own keeps what every protection owes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.split.protect import gradient, labels

if TYPE_CHECKING:
    from tacit.split.protect.check import check_protection

__all__ = ["check_protection", "gradient", "labels"]


def __getattr__(name: str) -> Any:
    """The check is imported on first use: it needs keys and checkpoints, which training on a cluster does without."""
    if name != "check_protection":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tacit.split.protect.check import check_protection

    return check_protection
