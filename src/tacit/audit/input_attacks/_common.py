"""What several attacks on inputs do to a view and to what they are granted before they look at it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.audit import views
from tacit.contracts import KnownInputs, NoiseSource, View
from tacit.errors import LabelsError, TensorError, UsageError

_OUTLIER = 10.0  # in deviations: no normal column ever goes there

FOLDS = 5  # one of them only chooses when to stop, or how strongly to shrink


def check_share(attack: str, share: object) -> None:
    """Refuse a share that is no number above 0 and at most 1."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise UsageError(f"{attack}(share={share!r}): a share of the rows is a number above 0 and at most 1")


@dataclass(frozen=True)
class Seen:
    """What a label party received, one row for each visit of an example."""

    rows: Tensor  # ids of the examples. (visits,)
    # their embeddings, each column with mean 0 and deviation 1; a column that never changes is 0. (visits, width),
    # float32
    z: Tensor


def seen(view: View, known: KnownInputs, attack: str) -> Seen:
    """The embeddings of a view, flattened to rows and standardized; a refusal where there are none."""
    if not isinstance(known, KnownInputs):
        raise UsageError(
            f"the attack {attack!r} guesses inputs, not labels, and was granted a {type(known).__name__}: run it with "
            "attack_inputs, which grants it KnownInputs, or leave it out"
        )
    z = views.embedding(view, attack, sent=True).flatten(0, 1)  # (visits, width)
    if not z.numel():
        raise UsageError(f"the attack {attack!r} was shown no rows: record at least one batch")
    return Seen(view.rows.flatten(), _standardized(z))


def _standardized(z: Tensor) -> Tensor:
    """Each column with mean 0 and deviation 1, and far outliers pulled in.

    Some trainings blow a few embeddings up a hundredfold. An attacker who let them set the scale, or who read them
    like any others, would be worse off than one who answers the mean, and a leak would look like none.
    """
    near = z.double()
    for _ in range(3):  # each time outliers weigh less in the deviation that says what an outlier is
        spread, mean = torch.std_mean(near, dim=0, correction=0)
        near = torch.clamp(near, mean - _OUTLIER * spread, mean + _OUTLIER * spread)
    spread, mean = torch.std_mean(near, dim=0, correction=0)
    flat = spread <= 1e-6 * mean.abs()  # what is left there is rounding
    return ((near - mean) / torch.where(flat, torch.inf, spread)).float()


def known_rows(rows: Tensor, known: Tensor, attack: str, field: str) -> Tensor:
    """For each id whether it is known, if all ids of the view have an entry.  (number of ids,)

    Args:
        rows: ids of the view.  (visits,)
        known: for each id what is known of it, NaN or -1 where nothing is.  (number of ids, *)
        attack: on whose behalf.
        field: the name of what is known, for messages.
    """
    low, high = (int(edge) for edge in torch.aminmax(rows))
    if low < 0 or high >= known.shape[0]:
        raise UsageError(f"row ids run from {low} to {high}, but known.{field} holds {known.shape[0]} entries")
    if not known.is_floating_point():
        return known >= 0
    hidden = known.isnan().flatten(1)
    if bool((hidden.any(1) != hidden.all(1)).any()) or bool(known.isinf().any()):
        raise TensorError(
            f"known.{field} holds rows that are NaN in part, or numbers that are not finite: a row is known whole or "
            "NaN whole"
        )
    return ~hidden.any(1)


@dataclass(frozen=True)
class Pairs:
    """Which rows of a view an attacker learns from."""

    # for each row the fifth of the attacker's examples that it is in, all visits of an example in the same one; -1
    # where the attacker does not learn from it. (visits,)
    fold: Tensor
    hidden: Tensor  # whether nothing is known about a row, so that it may be judged. (visits,)

    def split(self, held: int = 0) -> tuple[Tensor, Tensor]:
        """Numbers of the rows to fit and of those to check with, which are of other examples."""
        return ((self.fold >= 0) & (self.fold != held)).nonzero()[:, 0], (self.fold == held).nonzero()[:, 0]


def pairs(rows: Tensor, granted: Tensor, share: float, source: NoiseSource, attack: str) -> Pairs:
    """A share of the view's examples out of the granted ones, in fifths.

    The examples of a small share are among those of a larger one, from the same noise.

    Args:
        rows: ids of the view.  (visits,)
        granted: for each id whether it is known.  (number of ids,)
        share: of all examples of the view; where fewer are granted, all of those are taken.
        source: draws which.
        attack: on whose behalf.
    """
    examples = rows.unique()
    ticket = source.uniform((granted.numel(), 2), dtype=torch.float64, device=rows.device)
    mine = examples[granted[examples]]
    mine = mine[ticket[mine, 0].argsort()][: max(2, round(share * examples.numel()))]
    if mine.numel() < 2:
        raise UsageError(
            f"the attack {attack!r} knows {mine.numel()} of the {examples.numel()} examples: grant it two or more, one "
            "to fit and one to check with, or leave it out"
        )
    fold = torch.full_like(granted, -1, dtype=torch.int8)
    fold[mine[ticket[mine, 1].argsort()]] = (torch.arange(mine.numel(), device=rows.device) % FOLDS).to(torch.int8)
    return Pairs(fold[rows], ~granted[rows])


@dataclass(frozen=True)
class Inputs:
    """What is known of the inputs, flat."""

    x: Tensor  # for each id its input, NaN where it is unknown. (number of ids, inputs), float32
    shape: torch.Size  # of one input

    def like(self, flat: Tensor, learnt: Tensor) -> Tensor:
        """Flat beliefs in the shape of the inputs, not far beyond those that were learnt from.

        Args:
            flat: what an attacker makes of each row.  (rows, inputs)
            learnt: ids of the examples that it learnt from: it does not believe in inputs that lie farther outside
                their range than that range is wide.
        """
        low, high = torch.aminmax(self.x[learnt], dim=0)
        return torch.clamp(flat, 2 * low - high, 2 * high - low).reshape(flat.shape[0], *self.shape)


def inputs(known: KnownInputs, attack: str, device: torch.device) -> Inputs:
    """The granted inputs on the view's device, one flat row for each id; a refusal where none were granted."""
    if known.inputs is None:
        raise UsageError(f"the attack {attack!r} needs known.inputs: grant it some pairs, or leave it out")
    if known.inputs.ndim < 2 or not known.inputs.is_floating_point():
        raise TensorError(
            f"known.inputs are {tuple(known.inputs.shape)} {known.inputs.dtype}: pass floating point numbers, "
            "(number of ids, *input)"
        )
    return Inputs(known.inputs.detach().to(device).float().flatten(1), known.inputs.shape[1:])


def codes(known: KnownInputs, attack: str, device: torch.device) -> Tensor:
    """The granted codes on the view's device; a refusal where none were granted.  (number of ids,)"""
    if known.attribute is None:
        raise UsageError(f"the attack {attack!r} needs known.attribute: grant it some codes, or leave it out")
    if known.attribute.ndim != 1 or known.attribute.is_floating_point():
        raise LabelsError(
            f"known.attribute is {tuple(known.attribute.shape)} {known.attribute.dtype}: one code for each row id"
        )
    return known.attribute.to(device).long()
