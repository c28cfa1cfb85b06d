"""Residuals from sums: a gradient summed over the batch is a linear equation for every row in it."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.attacks._visits import Visits
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View

_RIDGE = 0.01  # penalty
_ROUNDS = 60  # of conjugate gradients
_FLAT = 1e-10  # directions with less than this share of a batch's largest energy are rounding

FACTS = Facts(order=150, needs=("embedding",))


def summed_gradients() -> Attack:
    """Scores an example by its residual, solved for from gradients that were only sent as sums over batches.

    Many systems send no gradient of a row but the sum that a weight needs, X^T (p - y) for the embeddings (or features)
    X of a batch, and take that for safe. It is as many equations as X has columns for as many unknowns as the batch
    has rows; the next epoch mixes the rows anew, so after rows / columns epochs there are enough to solve for each
    row. The attack first adds up what such a system would have sent in the recorded batches, embeddings (and a column
    of ones) times gradients, and from then on uses these sums alone: of the sums' columns their leading direction, of
    all batches together the least squares solution with a small penalty, by conjugate gradients. Each batch's
    equations are whitened first, so that all of them count alike. Residuals that change between the epochs are
    solved for as if they did not. The longer tail counts as positive.

    In few epochs the solution is mostly a linear function of the embedding, which any model learns: the baseline is the
    one such function that the same sums give for all rows together.

    Knows: the party's own embeddings and the row ids; of the gradients only their sums over each batch; that positives
        are the smaller class.
    Costs: one decomposition of an embedding-wide matrix for each step, and 60 passes over all embeddings, in float64.
    """

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        z = views.embedding(view, "summed_gradients").double()
        spread, mean = torch.std_mean(z, dim=(0, 1), correction=0)
        z = (z - mean) / torch.where(spread > 1e-9 * mean.abs(), spread, torch.inf)
        x = torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)  # a bias has a gradient too
        # gradients with batches of one size, as sums of gradients that shrink would drown the later ones
        sums = torch.stack([a.mT @ b.double() for a, b in zip(x, views.scaled(views.gradient(view)), strict=True)])
        told = sums @ views.leading(sums.flatten(0, 1)[None])[0]  # (steps, columns)
        white, equations = _whitened(x, told)
        size = equations.square().mean(-1, keepdim=True).sqrt()  # (steps, 1)
        size = torch.where(size > 0, size, 1.0)
        visits = Visits.of(view)
        residual = _solved(white, equations / size, visits)
        score = _tail_up(residual)
        # on a CPU, where alone torch has the solver that takes singular equations; the shortest solution
        normal, target = (x.mT @ x).sum(0).cpu(), (told / size).sum(0).cpu()[:, None]
        slope = torch.linalg.lstsq(normal, target, driver="gelsd").solution.to(x.device)
        return Guess(visits.ids[None], score[None], baseline=_tail_up(visits.mean(x @ slope)[:, 0])[None])

    return views.named(summed_gradients, guess)


def _whitened(x: Tensor, told: Tensor) -> tuple[Tensor, Tensor]:
    """Each batch's columns made orthonormal, and what was told in these terms; zero where there is no direction."""
    energy, basis = torch.linalg.eigh(x.mT @ x)
    root = torch.where(energy > _FLAT * energy[:, -1:], energy.clamp_min(1e-300).rsqrt(), 0.0)
    basis = basis * root[:, None, :]  # (steps, columns, columns)
    return x @ basis, (told[:, None] @ basis).squeeze(1)


def _solved(white: Tensor, equations: Tensor, visits: Visits) -> Tensor:
    """One residual for each example, by conjugate gradients on the normal equations.  (examples,)"""

    def gathered(values: Tensor) -> Tensor:  # (steps, columns) -> (examples,)
        each = (white @ values[..., None]).squeeze(-1)
        return torch.zeros(visits.ids.numel(), dtype=white.dtype, device=white.device).index_add_(
            0, visits.slot.flatten(), each.flatten()
        )

    def applied(residual: Tensor) -> Tensor:
        return gathered((residual[visits.slot][:, None] @ white).squeeze(1)) + _RIDGE * residual

    left = gathered(equations)
    way, solution, size = left, torch.zeros_like(left), left @ left
    for _ in range(_ROUNDS):
        image = applied(way)
        step = size / (way @ image).clamp_min(1e-300)
        solution, left = solution + step * way, left - step * image
        before, size = size, left @ left
        way = left + size / before.clamp_min(1e-300) * way
    return solution


def _tail_up(x: Tensor) -> Tensor:
    """Turned so that the longer tail is positive."""
    x = x - x.mean()
    return -x if bool(x.pow(3).sum() < 0) else x
