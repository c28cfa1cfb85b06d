"""The top-share attack: whoever knows the share of positives calls that many of the longest gradients positive."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View
from tacit.errors import UsageError

FACTS = Facts(order=50, needs=("share",), steers=True, live=True, sweep="some batches")


def top_share() -> Attack:
    """Calls the longest gradients of a batch positive, as many as the known share of positives says.

    The top-p% labelling of Report 2020a ("2-norm attack"). The score is the call itself, 0 or 1.

    Knows: the gradients; known.share.
    Costs: one pass over the gradients and one sort of each batch.
    """

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        if known.share is None:
            raise UsageError("the attack 'top_share' needs known.share: grant it, or leave it out")
        return Guess(view.rows, largest(views.row_norm(views.gradient(view)), known.share).double())

    return views.named(top_share, guess)


def largest(score: Tensor, share: float) -> Tensor:
    """True for the largest `share` of the scores along the last dimension, at least one of them.

    Of equal scores at the edge the earlier ones are taken, so that exactly round(share * batch) rows are called.

    >>> largest(torch.tensor([3.0, 1.0, 2.0, 2.0]), 0.5).tolist()
    [True, False, True, False]
    """
    if not 0 < share < 1:
        raise UsageError(f"a share lies strictly between 0 and 1, not at {share}")
    called = max(1, round(share * score.shape[-1]))
    first = score.sort(dim=-1, descending=True, stable=True).indices[..., :called]
    return torch.zeros_like(score, dtype=torch.bool).scatter_(-1, first, True)
