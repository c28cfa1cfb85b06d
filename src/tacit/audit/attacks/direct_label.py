"""Direct label inference: where the top only adds up logits, what comes back is the residual itself."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View

FACTS = Facts(order=60, joined=("mean", "precise"), steers=True)


def direct_label() -> Attack:
    """Scores a row by the sign of its gradient at a cut of logits, which is prediction minus label.

    After Fu 2022. It applies where the top has
    no weights of its own and only sums the parties' logits, as in federated logistic regression and many tree and
    linear systems: the gradient of the loss is then p - y, negative for a positive row whatever the model is worth. At
    a cut of width 1 the score is minus that number, at width 2 (two logits, softmax) minus the second one. A wider
    cut is no sum of logits, but behind a top that is nearly linear there all gradients still lie along one line: the
    score is the cosine with the leading direction of the batch, turned so that the fewer rows are positive. There it
    needs labels that are not balanced to know its sign; which rows belong together it knows in any case.

    Knows: the gradients; at wide cuts also that positives are the smaller class.
    Costs: one pass over the gradients; at wide cuts one decomposition of a matrix of size min(batch, width) a step.
    """

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        gradient = views.gradient(view)
        steps, batch, width = gradient.shape
        if width <= 2:
            return Guess(view.rows, -gradient[..., -1])
        each = batch * width + min(batch, width) ** 2
        found = [_along(gradient[part]) for part in views.slices(steps, each)]
        score, direction = (torch.cat(part) for part in zip(*found, strict=True))
        score = score * views.turns(direction)[:, None]
        return Guess(view.rows, -score if bool(score.sign().sum() > 0) else score)

    return views.named(direct_label, guess)


def _along(x: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine of each row with the leading direction of its batch's unit rows, and that direction."""
    x = views.unit(x.double())
    direction = views.leading(x)
    return (x @ direction[..., None]).squeeze(-1), direction
