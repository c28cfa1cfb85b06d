"""The accumulated attack: an example comes again at every epoch, and what is said about it adds up."""

from __future__ import annotations

from typing import Literal

import torch

from tacit.audit import views
from tacit.audit.attacks._visits import Visits, on_means
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View
from tacit.errors import UsageError

How = Literal["mean", "precise", "sum", "spread"]

FACTS = Facts(order=170, audited=False)


def accumulated(attack: Attack | str = "residual", how: How = "mean") -> Attack:
    """Scores an example by another attack on all of its visits together.

    - "mean" averages the gradients of an example over its visits, which averages fresh noise away, and shows the other
      attack one large batch of averages.
    - "precise" is the mean with quieter visits weighing more: each by one over the size of what came with it. In
      a plain mean loud visits drown quiet ones.
    - "sum" lets the other attack look at every visit and adds its scores, each standardized within its batch.
    - "spread" shows the other attack each visit minus the example's mean: the example's own gradient drops out, what
      stays is bare noise, which may differ between the classes. Scores are added as in "sum"; examples that came only
      once are not judged.

    Visits are scaled to one root mean square for each batch before they are averaged, because noise shrinks together
    with the gradients and the first epoch would drown the others.

    Knows: the row ids; whatever the other attack knows, of known.positive_gradient (for "mean") its mean.
    Costs: one pass over the gradients, and the other attack.
    """
    if how not in ("mean", "precise", "sum", "spread"):
        raise UsageError(f"how is 'mean', 'precise', 'sum' or 'spread', not {how!r}")
    single = views.built(attack)
    name = f"accumulated({single.name}{'' if how == 'mean' else f', {how}'})"

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        visits = Visits.of(view)
        if how in ("mean", "precise"):
            return on_means(single, view, visits, known, noise, precise=how == "precise")
        counted = torch.ones_like(view.rows, dtype=torch.bool)
        if how == "spread":
            counted = (visits.count > 1)[visits.slot]
            if not bool(counted.any()):
                raise UsageError(f"{name!r} needs examples that came twice, but every row id came once")
            around = visits.spread(views.scaled(views.gradient(view)))
            view = View(view.role, view.rows, {**view.crossed, "gradient": around})
        each = single(view, known, noise)
        counted = counted if each.counted is None else counted & each.counted
        score, seen = visits.summed(each.score, counted)
        baseline = None if each.baseline is None else visits.summed(each.baseline, counted)[0]
        return Guess(visits.ids[None], score, counted=seen, baseline=baseline)

    return views.Named(name, guess)
