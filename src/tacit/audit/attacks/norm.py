"""The norm attack: the model is less sure about positives, so their gradients are longer."""

from __future__ import annotations

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View

FACTS = Facts(order=10, joined=("mean",), steers=True, live=True, sweep="every batch")


def norm() -> Attack:
    """Scores a row by the length of its gradient.

    The norm attack (Li 2020, section 2.2; Li 2022, section 3.3, attack 1).

    Knows: the gradients, nothing else.
    Costs: one pass over the gradients.
    """

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        return Guess(view.rows, views.row_norm(views.gradient(view)))

    return views.named(norm, guess)
