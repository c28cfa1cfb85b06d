"""The likelihood attack: with half of the labels, fit both classes and compare."""

from __future__ import annotations

from tacit.audit import views
from tacit.audit.attacks import _gaussian
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View

FACTS = Facts(order=80, needs=("labels",), joined=("mean", "spread"), steers=True, sweep="last batches")


def likelihood(components: int = 256) -> Attack:
    """Scores a row by the likelihood ratio of two Gaussians, fitted on the rows whose label is known.

    Means and full covariances of both classes, with shrinkage; against a protection that really sends Gaussians this
    is the best score there is. Each batch is scaled to one root mean square first, because gradients shrink as a model
    learns. Rows wider than `components` are seen along that many leading directions plus the energy outside them.
    Known rows are used for fitting and not judged.

    Knows: the gradients; known.labels.
    Costs: O(rows * width^2) once, in float64.
    """
    views.check_count("likelihood", "components", components, "component")

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        gradient = views.scaled(views.gradient(view))
        label = views.labels(view, known, "likelihood")
        white, _ = _gaussian.whitened(gradient, components, noise)
        return Guess(view.rows, _gaussian.log_ratio(white, label, "likelihood"), counted=label < 0)

    return views.named(likelihood, guess, components=components)
