"""The worst case: how well a row's label can be told by whoever knows everything else, as a figure and as a sum.

With the one label and with the other, what is sent of a row lies a certain distance apart, and the noise on it is the
same. In units of that noise the squared distance is a sumKL, K, and the best attacker's AUC is Phi(sqrt(K/2)). Visits
of a row, in one run and in all of them, have noise of their own, so their K add up. `tacit.protect.gradient.matched`
says of every step what K is at most for any row in it; what others do to a row is not bounded by row, and not known.

It bounds what messages about a row tell about its label. What the rest of a training tells, because its other messages
come from a model that has seen that label too, is not in it.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from tacit.errors import UsageError

__all__ = ["auc_of", "sum_kl_of"]


def auc_of(sum_kl: float) -> float:
    """The figure for a sumKL: Phi(sqrt(K/2)).

    >>> round(auc_of(0.1284), 3), auc_of(math.inf)
    (0.6, 1.0)
    """
    return NormalDist().cdf(math.sqrt(max(0.0, sum_kl) / 2))


def sum_kl_of(auc: float) -> float:
    """The sumKL that a figure allows: 2 z^2 with z = Phi^-1(AUC).

    >>> round(sum_kl_of(0.6), 4), sum_kl_of(1.0)
    (0.1284, inf)
    """
    if not 0.5 <= auc <= 1.0:
        raise UsageError(f"a leak AUC of {auc!r}: it lies between 0.5, a coin flip, and 1")
    return math.inf if auc == 1.0 else 2 * NormalDist().inv_cdf(auc) ** 2
