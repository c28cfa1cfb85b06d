"""One Parquet file for each sweep: its columns, how it is written, and how figures read it.

Every row is one replica over one part of its training: a *stretch* of updates, or the *whole* of them.

| column | what it is |
|---|---|
| replica, protection, knob, strength, options, seed | which setting; options as JSON |
| part | "stretch" or "whole" |
| step, epoch | updates done at the end of the part, and the same in epochs |
| day | the day that the part trained on, in a training by day; else null |
| train_loss | the mean over the part's batches |
| test_loss, test_auc, test_ace | on the test rows after the part (by day: on the day, before it); null if not asked |
| power | squared norm of a row's noise over that of its gradient, mean over the part |
| untouched_rows, stateless | gradients sent as they were; share of batches with fallback noise |
| seconds | wall time of the part, shared by all replicas of its wave |
| ATTACK@LAYER | leak AUC of one attack at one layer, folded once, of the mean over the part's batches |
| ATTACK@LAYER low, high | its 95% interval |
| ATTACK@LAYER q95 | the papers' figure: the 95% quantile of every batch's folded AUC |

Attacks that only run on recorded batches (`likelihood`, `learned`, the accumulated ones) stand in rows of the whole.
What the sweep was (data, network, batch size, versions, device) is JSON in the file's metadata under `tacit`.
"""

from __future__ import annotations

__all__ = ["IDENTITY", "PLACE", "UTILITY", "leak_column"]

IDENTITY = ("replica", "protection", "knob", "strength", "options", "seed")
"""The columns that name a replica."""

PLACE = ("part", "step", "epoch", "day")
"""The columns that say which part of its training a row is."""

UTILITY = ("train_loss", "test_loss", "test_auc", "test_ace", "power", "untouched_rows", "stateless", "seconds")
"""What a replica's training brought and cost."""


def leak_column(attack: str, layer: str = "cut", figure: str = "") -> str:
    """The name of a leak column; the figure is "", "low", "high" or "q95".

    >>> leak_column("norm"), leak_column("cosine", "layer1", "q95")
    ('norm@cut', 'cosine@layer1 q95')
    """
    return f"{attack}@{layer} {figure}".rstrip()
