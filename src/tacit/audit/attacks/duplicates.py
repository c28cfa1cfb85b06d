"""Duplicate averaging: the same question answered several times, each time with fresh noise."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.attacks._visits import Visits, on_means
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View, noise_source
from tacit.errors import UsageError

_TOLERANCE = 1e-3  # of an embedding's length: the same up to this
_FEWEST = 32  # examples that were asked about again: of fewer an AUC tells nothing

FACTS = Facts(order=160, needs=("labels", "embedding"))


def duplicates(attack: Attack | str = "likelihood") -> Attack:
    """Scores an example by another attack on the mean of all answers to one and the same question.

    A feature party that sends the same embedding of an example again (a repeated request, a batch that comes twice, a
    bottom that it stopped training) and gets an answer with fresh noise averages the noise away, and the gradient under
    it has not changed meanwhile. Rows are answers to one question where the example is the same and its own embedding
    is the same up to a thousandth of its length. The other attack sees one batch of means; what came once is left out.
    Ordinary training has no such rows, and then there is nothing to do: `accumulated` is the attack for visits between
    which the model has moved.

    Knows: the row ids and the party's own embeddings; whatever the other attack knows, of known.positive_gradient its
        mean.
    Costs: one pass over embeddings and gradients, and the other attack on as many rows as there are questions.
    """
    single = views.built(attack)

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        views.gradient(view)  # a transcript that can't be read is told before one that has no duplicates
        questions = _questions(view, views.embedding(view, "duplicates"), noise)
        again = int((questions.count > 1).sum())
        if again < _FEWEST:
            found = f"only {again} examples that were" if again else "no example that was"
            raise UsageError(
                f"the attack 'duplicates' found {found} asked about twice with the same embedding: there is "
                "nothing to average here, leave it out"
            )
        return on_means(single, view, questions, known, noise, least=2)

    return views.Named(f"duplicates({single.name})", guess)


def _questions(view: View, z: Tensor, noise: Noise) -> Visits:
    """Rows of one example whose embedding is the same, as groups.

    Visits of an example are sorted by their place along a random direction, where the same ones are neighbours.
    """
    ids, z = view.rows.flatten(), z.flatten(0, 1)
    axis = noise_source(noise).normal((z.shape[1],), dtype=z.dtype, device=z.device)
    order = (z @ axis).argsort(stable=True)
    order = order[ids[order].argsort(stable=True)]
    first = torch.ones_like(ids, dtype=torch.bool)  # whether a row, in this order, asks something new
    length = views.row_norm(z)[order]
    for part in views.slices(len(ids) - 1, z.shape[1]):
        before, after = order[:-1][part], order[1:][part]
        moved = views.row_norm(z[after] - z[before])
        far = moved > _TOLERANCE * torch.minimum(length[:-1][part], length[1:][part])
        first[1:][part] = far | (ids[after] != ids[before])
    slot = torch.empty_like(ids)
    slot[order] = first.long().cumsum(0) - 1
    return Visits(ids[order[first]], slot.reshape(view.rows.shape), slot.bincount(minlength=int(first.sum())))
