"""Networks in two halves: a bottom for the party with features, a top for the party with labels.

Each factory returns `(bottom, top)`; the classes build one half alone. Layers are called `layer1`, `layer2`, ...
through both halves (`layer_names()`), so a gradient can be read anywhere. Any other `nn.Module` does as well.
"""

from tacit.split.models.conv import ConvBottom, ConvTop, conv
from tacit.split.models.layers import Columns, Layered
from tacit.split.models.wide_deep import RowwiseAdam, WideDeepBottom, WideDeepTop, adam, wide_deep

__all__ = [
    "Columns",
    "ConvBottom",
    "ConvTop",
    "Layered",
    "RowwiseAdam",
    "WideDeepBottom",
    "WideDeepTop",
    "adam",
    "conv",
    "wide_deep",
]
