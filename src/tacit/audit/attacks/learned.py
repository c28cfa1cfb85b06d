"""The learned attack: a small network, for protections whose gradients are not Gaussian."""

from __future__ import annotations

from tacit.audit import views
from tacit.audit.attacks._network import learned_score
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View

FACTS = Facts(order=90, needs=("labels",), sweep="last batches")


def learned() -> Attack:
    """Scores a row by a small network, trained on the rows whose label is known.

    The network sees the whitened gradient, its place along the leading directions and the squares of that, its log
    length, its log energy outside the batch's leading directions, and the Gaussian likelihood ratio, from which it
    starts, so that it has to learn only what the Gaussians miss. A fifth of the known examples chooses when to stop.
    Known rows are used for fitting and not judged.

    Knows: the gradients; known.labels.
    Costs: three likelihood fits, one residual pass, and a fixed number of updates of two small layers.
    """

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        label = views.labels(view, known, "learned")
        score = learned_score([views.gradient(view)], view, known, noise, "learned")
        return Guess(view.rows, score, counted=label < 0)

    return views.named(learned, guess)
