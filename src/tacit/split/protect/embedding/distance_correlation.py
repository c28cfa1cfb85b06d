"""A bottom model with less distance correlation to its input (section 3.2.1 of Report 2020b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tacit.audit import dependence
from tacit.contracts import EmbeddingProtection, NoiseSource, Regularizer
from tacit.errors import UsageError
from tacit.split.protect.embedding._base import BaseProtection, pair
from tacit.split.protect.facts import Facts, Option
from tacit.split.protect.gradient._base import positive_number

FACTS = Facts(
    strengths=(Option("weight"),), others=(Option("log", bool, stronger=None), Option("unbiased", bool, stronger=None))
)


@dataclass(frozen=True)
class DistanceCorrelation(BaseProtection):
    """See `distance_correlation`."""

    weight: float
    log: bool
    unbiased: bool

    def regularizer(self, x: Tensor, z: Tensor, others: Sequence[Regularizer]) -> Regularizer:
        """A loss that learns nothing itself."""
        pair(x, z)
        return _Dependence(self)


class _Dependence(Regularizer):
    def __init__(self, options: DistanceCorrelation) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Tensor, z: Tensor, noise: NoiseSource) -> Tensor:
        """The weighted (logarithm of the) distance correlation of one batch; 0 where there are too few rows for it."""
        hidden, options = pair(x, z), self.options
        if len(z) < (4 if options.unbiased else 2):
            return z[:0].sum()
        measure = dependence.log_distance_correlation if options.log else dependence.distance_correlation
        return options.weight * measure(hidden, z, unbiased=options.unbiased, noise=noise)


def distance_correlation(weight: float, log: bool = True, unbiased: bool = False) -> EmbeddingProtection:
    """The loss weight log dCor(x, z): the bottom model learns embeddings whose distances say little about the inputs'.

    It lowers what it measures, dCor over a batch, and by that what a decoder finds, though less: an embedding may keep
    some columns of the input whole among many others. A batch of one row (of fewer than four where it is unbiased) has
    no distance correlation and adds nothing, so this is no protection for a training on single rows. Of a batch of more
    rows than `tacit.audit.dependence.EXACT_ROWS` as many are drawn at each step; why no faster estimator is used, as
    Report 2020b suggests, is said in `tacit.audit.dependence`.

    Args:
        weight: of this loss against the label's.
        log: its logarithm, as Report 2020b advises: its slope does not fade where little is left.
        unbiased: the bias-corrected version, whose value does not depend on the size of the batch.
    """
    for name, flag in (("log", log), ("unbiased", unbiased)):
        if not isinstance(flag, bool):
            raise UsageError(f"{name} = {flag!r} is out of range: it is true or false")
    return DistanceCorrelation(positive_number("weight", weight), log, unbiased)
