"""The contextual attack: the party looks at its own embeddings and at the gradients it got for them, together."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.audit.attacks import _common
from tacit.audit.attacks._learning import learned_score
from tacit.contracts import Attack, Guess, Known, Noise, View

__all__ = ["contextual"]


def contextual() -> Attack:
    """Scores a row by a small network that sees its own embedding and the received gradient.

    What a gradient says depends on where it was taken, and features tell something about labels without any message.
    So the guess carries a baseline: the same network with the embedding alone. The leak is what lies above it.

    Knows: the party's own embeddings and the gradients; known.labels.
    Costs: twice the learned attack, at the width of both together.
    """
    return _Contextual()


@dataclass(frozen=True)
class _Contextual:
    name: str = "contextual"

    def __call__(self, view: View, known: Known, noise: Noise) -> Guess:
        label = _common.labels(view, known, self.name)
        gradient, own = _common.gradient(view), _common.embedding(view, self.name)
        score = learned_score([own, gradient], view, known, noise, self.name)
        baseline = learned_score([own], view, known, noise, self.name)
        return Guess(view.rows, score, counted=label < 0, baseline=baseline)
