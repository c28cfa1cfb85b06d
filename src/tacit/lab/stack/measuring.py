"""The cheap attacks on every batch of every replica, at the cut and at other layers: AUC, nothing else is kept.

They are the attacks of `tacit.audit.attacks` themselves: to them, the replicas of a stack are the steps of a view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tacit.audit.attacks import attack, chosen
from tacit.audit.metrics.detection_error import detection_error
from tacit.audit.metrics.leak_auc import auc
from tacit.contracts import Attack, Known, View
from tacit.errors import UsageError
from tacit.lab.sweeping.settings import spelled_options
from tacit.split.protect.gradient import fused

EVERY_BATCH = chosen(lambda known: known.sweep == "every batch")
"""What is tried on every batch if nothing else is said: what takes no more than a few passes over it."""

SAMPLED = chosen(lambda known: known.sweep == "some batches")
"""What is tried on the middle batch of every stretch, at every layer: `majority` compares every row with every other
one and `residual` decomposes, which on every batch would double the cost of training and more."""

CHEAP = (*EVERY_BATCH, *SAMPLED)
"""What needs one batch alone, so that it can be tried on every one."""

_AT_ONCE = 1 << 26  # numbers of a layer's gradients that are looked at together
_PAIRS = 1 << 26  # of rows up to which, on CUDA, comparing them all in one kernel beats sorting


def named(text: str) -> Attack:
    """An attack by its name, with its options behind it where they are not the usual ones.

    >>> named("hint(k=3, similarity=cosine)").name
    'hint(k=3, similarity=cosine)'
    """
    name, bracket, options = text.partition("(")
    built: Attack = attack(name, **(spelled_options(text, options.rstrip(") ")) if bracket else {}))
    return built


class Measure:
    """Runs attacks out of `CHEAP` on what each replica received, where attackers know the labels of `granted` rows.

    Of the attacks in `errors` the detection error is measured as well. `often` says that compiling it for CUDA pays;
    other threads can't run what is compiled.
    """

    def __init__(
        self, attacks: Sequence[str], labels: Tensor, granted: Tensor, *, errors: Sequence[str] = (),
        often: bool = False,
    ) -> None:  # fmt: skip
        unknown = [name for name in attacks if name.partition("(")[0] not in CHEAP]
        if unknown:
            raise UsageError(
                f"{', '.join(unknown)} can't be tried on every batch: name some of {', '.join(CHEAP)}; the others run "
                "on what is recorded"
            )
        missing = [name for name in errors if name not in attacks]
        if missing:
            raise UsageError(f"the detection error of {', '.join(missing)} needs the attack itself: name it there too")
        self.names, self.errors = tuple(attacks), tuple(errors)
        self.labels = labels
        self._attacks = [named(name) for name in attacks]
        known = torch.where(granted, labels.long(), -1)
        self._known = Known(labels=known, share=float(labels.double().mean()))
        self._noise = torch.Generator()  # none of these attacks draws; the contract wants a source
        self._guesses, self._often = fused(_guesses) if often else _guesses, often

    def __call__(self, rows: Tensor, gradients: Mapping[str, Tensor], positives: Mapping[str, Tensor]) -> Tensor:
        """For every layer the AUC of every attack, unfolded, then detection errors; NaN where a batch lacks a class.

        (layers * (attacks + errors), replicas)

        `rows` are the ids of the batch (replicas, batch); by layer come the gradients that were received (replicas,
        batch, *layer) and the clean gradient of one positive row (replicas, width).
        """
        scores, counted = [], []
        for layer, gradient in gradients.items():
            for score, counts in self._scores(rows, gradient.flatten(2), positives[layer]):
                scores.append(score)
                counted.append(torch.ones_like(rows, dtype=torch.bool) if counts is None else counts)
        judged = torch.stack(scores)
        truth = self.labels[rows].expand_as(judged)
        by_pairs = self._often and rows.is_cuda and judged.numel() * rows.shape[-1] <= _PAIRS
        counts = torch.stack(counted)
        areas = (pairwise_auc if by_pairs else auc)(judged, truth, counts)
        if not self.errors:
            return areas
        wanted = [self.names.index(name) for name in self.errors]
        each = (x.unflatten(0, (len(gradients), -1))[:, wanted] for x in (judged, truth, counts))
        return torch.cat([areas.unflatten(0, (len(gradients), -1)), detection_error(*each)], dim=1).flatten(0, 1)

    def _scores(self, rows: Tensor, gradient: Tensor, positive: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """Every attack's scores at one layer, for as many replicas at a time as fit."""
        size = max(1, _AT_ONCE // gradient[0].numel())
        parts = []
        for some in (slice(first, first + size) for first in range(0, len(rows), size)):
            known = replace(self._known, positive_gradient=positive[some])
            parts.append(self._guesses(rows[some], gradient[some], known, self._attacks, self._noise))
        if len(parts) == 1:
            return parts[0]
        return [_joined([part[place] for part in parts]) for place in range(len(self.names))]


def _guesses(
    rows: Tensor, gradient: Tensor, known: Known, attacks: Sequence[Attack], noise: torch.Generator
) -> list[tuple[Tensor, Tensor | None]]:
    view = View("features", rows, {"gradient": gradient})
    return [(guess.score.double(), guess.counted) for guess in (one(view, known, noise) for one in attacks)]


@fused
def pairwise_auc(score: Tensor, label: Tensor, counted: Tensor) -> Tensor:
    """`auc` by its definition: the share of pairs of a positive and a negative row in which the positive scores higher.

    Ties count half. NaN where a batch lacks a class, or holds a score that is NaN.  (..., batch) -> (...)
    """
    positive, negative = (label == 1) & counted, (label == 0) & counted
    mine, other = score[..., :, None], score[..., None, :]
    above = (mine > other).double() + (mine >= other).double()  # 2, 1 or 0
    below = (above * negative[..., None, :]).sum(-1)  # for each row first: that is where the work can be spread
    won = (below * positive).sum(-1) / 2
    pairs = positive.sum(-1).double() * negative.sum(-1).double()
    return (won / pairs).masked_fill((score.isnan() & counted).any(-1), torch.nan)


def _joined(parts: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    counted = [part[1] for part in parts if part[1] is not None]
    return torch.cat([part[0] for part in parts]), torch.cat(counted) if counted else None
