"""The cosine attack: gradients of one class point one way, those of the other class the other way."""

from __future__ import annotations

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View
from tacit.errors import UsageError

FACTS = Facts(order=20, needs=("clean",), joined=("mean", "precise"), steers=True, live=True, sweep="every batch")


def cosine() -> Attack:
    """Scores a row by the cosine of its gradient with one clean positive gradient.

    The direction-based scoring function (Li 2022, section 3.3, attack 2): an oracle hands the attacker one unprotected
    gradient of a positive example at every step.

    Knows: the gradients; known.positive_gradient.
    Costs: one pass over the gradients.
    """

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        gradient, clean = views.gradient(view), known.positive_gradient
        if clean is None:
            raise UsageError("the attack 'cosine' needs known.positive_gradient: grant clean gradients or leave it out")
        steps, _, width = gradient.shape
        if clean.shape != (steps, width):
            raise UsageError(
                f"known.positive_gradient is {tuple(clean.shape)}, but the view has {steps} steps of width {width}: "
                f"grant clean gradients of this layer"
            )
        positive = views.unit(clean.to(gradient)[..., None, :])  # (steps, 1, width)
        return Guess(view.rows, (views.unit(gradient) @ positive.mT).squeeze(-1))

    return views.named(cosine, guess)
