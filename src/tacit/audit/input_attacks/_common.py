"""What attacks on inputs do to a view and to what they are granted before they look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
class Pairs:
    """What a label party received, one row for each visit of an example, and which rows it learns from."""

    rows: Tensor  # ids of the examples. (visits,)
    z: Tensor  # their embeddings, standardized; a column that never changes is 0. (visits, width), float32
    shape: torch.Size  # of one input
    known: Tensor  # for each id its flat input, NaN where it is unknown, or its code. (number of ids, *)
    # for each row the fifth of the attacker's examples that it is in, all visits of an example in the same one; -1
    # where the attacker does not learn from it. (visits,)
    fold: Tensor
    hidden: Tensor  # whether nothing is known about a row, so that it may be judged. (visits,)

    def split(self, held: int = 0) -> tuple[Tensor, Tensor]:
        """Numbers of the rows to fit and of those to check with, which are of other examples."""
        return ((self.fold >= 0) & (self.fold != held)).nonzero()[:, 0], (self.fold == held).nonzero()[:, 0]

    def believed(self, flat: Tensor) -> Tensor:
        """Flat beliefs about each row in the shape of an input.

        An attacker does not believe in inputs that lie farther outside the range of those that it learnt from than
        that range is wide.
        """
        low, high = torch.aminmax(self.known[self.rows[self.fold >= 0]], dim=0)
        return torch.clamp(flat, 2 * low - high, 2 * high - low).reshape(flat.shape[0], *self.shape)


def pairs(
    view: View, known: KnownInputs, field: Literal["inputs", "attribute"], share: float, source: NoiseSource,
    attack: str,
) -> Pairs:  # fmt: skip
    """A share of the view's examples out of the granted ones, in fifths; where fewer are granted, all of those.

    The examples of a small share are among those of a larger one, from the same noise.
    """
    if not isinstance(known, KnownInputs):
        raise UsageError(
            f"the attack {attack!r} guesses inputs, not labels, and was granted a {type(known).__name__}: run it with "
            "attack_inputs, which grants it KnownInputs, or leave it out"
        )
    z = views.embedding(view, attack, sent=True).flatten(0, 1)  # (visits, width)
    if not z.numel():
        raise UsageError(f"the attack {attack!r} was shown no rows: record at least one batch")
    rows = view.rows.flatten()
    given = (_inputs if field == "inputs" else _codes)(known, attack, z.device)
    granted = _granted(rows, given, field)
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
    shape = torch.Size() if known.inputs is None else known.inputs.shape[1:]
    return Pairs(rows, _standardized(z), shape, given, fold[rows], ~granted[rows])


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


def _granted(rows: Tensor, known: Tensor, field: str) -> Tensor:
    """For each id whether it is known, if all ids of the view have an entry.  (number of ids,)"""
    low, high = (int(edge) for edge in torch.aminmax(rows))
    if low < 0 or high >= known.shape[0]:
        raise UsageError(f"row ids run from {low} to {high}, but known.{field} holds {known.shape[0]} entries")
    if not known.is_floating_point():
        return known >= 0
    hidden = known.isnan()
    if bool((hidden.any(1) != hidden.all(1)).any()) or bool(known.isinf().any()):
        raise TensorError(
            f"known.{field} holds rows that are NaN in part, or numbers that are not finite: a row is known whole or "
            "NaN whole"
        )
    return ~hidden.any(1)


def _inputs(known: KnownInputs, attack: str, device: torch.device) -> Tensor:
    """The granted inputs on the view's device, one flat row for each id; a refusal where none were granted."""
    if known.inputs is None:
        raise UsageError(f"the attack {attack!r} needs known.inputs: grant it some pairs, or leave it out")
    if known.inputs.ndim < 2 or not known.inputs.is_floating_point():
        raise TensorError(
            f"known.inputs are {tuple(known.inputs.shape)} {known.inputs.dtype}: pass floating point numbers, "
            "(number of ids, *input)"
        )
    return known.inputs.detach().to(device).float().flatten(1)


def _codes(known: KnownInputs, attack: str, device: torch.device) -> Tensor:
    """The granted codes on the view's device; a refusal where none were granted.  (number of ids,)"""
    if known.attribute is None:
        raise UsageError(f"the attack {attack!r} needs known.attribute: grant it some codes, or leave it out")
    if known.attribute.ndim != 1 or known.attribute.is_floating_point():
        raise LabelsError(
            f"known.attribute is {tuple(known.attribute.shape)} {known.attribute.dtype}: one code for each row id"
        )
    return known.attribute.to(device).long()
