"""What a part of a training leaked: every batch's AUC summed up, and the attacks that need recorded batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from scipy.special import ndtr, stdtrit
from torch import Tensor
from torch.nn import functional

from tacit.audit.attacks import attack, chosen, facts
from tacit.audit.metrics.calibration_error import calibration_error
from tacit.audit.metrics.leak_auc import auc, fold
from tacit.audit.run import attack_all
from tacit.audit.standard import ACCUMULATED, joined
from tacit.contracts import Attack, Estimate
from tacit.errors import TensorError
from tacit.lab.stack.measuring import EVERY_BATCH, SAMPLED
from tacit.lab.stack.recording import Replica
from tacit.lab.sweeping.results import leak_column
from tacit.split.record import Transcript

RECORDED = chosen(lambda known: known.sweep == "last batches")
"""What is tried at the cut on the last batches, on gradients, which the protection answers for, and not on embeddings,
which every trained model pulls apart."""

_Z95 = 1.959963984540054  # the standard normal's 97.5% quantile
_NORMAL = NormalDist()
_PARTS = 10  # of a training at most
_AT_ONCE = 1 << 20  # logits that are judged together


@dataclass(frozen=True)
class Leak:
    """A leak AUC and, where single batches were judged, the papers' quantile of them and their mean as it is."""

    leak: Estimate
    q95: float | None = None
    mean: float | None = None  # of single batches, not folded


@dataclass(frozen=True)
class Part:
    """What an attack reached in a part of a training."""

    first: int  # the first update that it was tried at, counted from 1
    last: int  # the last one
    leak: Estimate  # the folded mean, with an interval at a level that holds for all parts of the training together

    @property
    def spelled(self) -> str:
        """As a results file has it."""
        return f"updates {self.first} to {self.last}"


def leaks(each: Tensor, fewest: float) -> list[Leak | None]:
    """Every batch's unfolded AUC of one attack, summed up for each replica; None where no batch had both classes.

    The mean over the batches is folded once. Its interval is Student's from the spread between batches, which also
    sees that some steps leak more than others, and never narrower than perfect order in so few rows of the rarer class
    allows. A single batch has no spread: it gets the widest interval that its AUC can have.

    `each` is (steps, replicas), NaN where a batch lacks a class; `fewest` are the rows of the rarer class in a batch,
    on average.
    """
    each = each.double()
    counts = (~each.isnan()).sum(0)
    mean = each.nanmean(0)
    deviation = ((each - mean).square().nansum(0) / (counts - 1).clamp(min=1)).sqrt()
    ladder = fold(each).sort(0).values  # NaN come last
    place = 0.95 * (counts - 1).clamp(min=0).double()
    below, above = (ladder.gather(0, end.long()[None]).squeeze(0) for end in (place.floor(), place.ceil()))
    figures = torch.stack([counts, mean, deviation, below.lerp(above, place.frac())], dim=1)
    return [_leak(int(count), middle, spread, q95, fewest) for count, middle, spread, q95 in figures.tolist()]


def parts(each: Tensor, fewest: float, *, least: int = 16) -> list[list[Part]]:
    """The parts of a training, about equally long, for each replica; none where there are too few batches for two.

    What leaks for a while only is diluted in the mean over the whole, and an attack whose sign turns on the way has a
    mean of a coin flip. To look at several parts is to have several chances of being wrong, so each interval is at the
    level of 5% over their number (Bonferroni): that all of them hold the truth is as sure as one at 5% is. The spread
    between batches is that within all parts together: a part of few batches does not know its own.
    """
    return [_parts(column, fewest, least) for column in each.double().unbind(1)]


def _parts(each: Tensor, fewest: float, least: int) -> list[Part]:
    looked = (~each.isnan()).nonzero().squeeze(1)
    count = min(_PARTS, len(looked) // least)
    if count < 2:
        return []
    split = looked.tensor_split(count)
    within = torch.cat([each[some] - each[some].mean() for some in split])
    freedom = len(looked) - count
    wide = student(freedom, _NORMAL.inv_cdf(1 - 0.025 / count)) * float((within.square().sum() / freedom).sqrt())
    found = []
    for some in split:
        half = max(wide / len(some) ** 0.5, _Z95 / max(1.0, fewest * len(some)))
        found.append(Part(int(some[0]) + 1, int(some[-1]) + 1, _around(float(each[some].mean()), half)))
    return found


def _leak(batches: int, mean: float, deviation: float, q95: float, fewest: float) -> Leak | None:
    if not batches:
        return None
    rows = max(1.0, fewest * batches)
    if batches == 1:
        half = _Z95 * (mean * (1 - mean) / rows + 1 / rows**2) ** 0.5
    else:
        half = max(student(batches - 1) * deviation / batches**0.5, _Z95 / rows)
    return Leak(_around(mean, half), q95, mean)


def _around(mean: float, half: float) -> Estimate:
    value = max(mean, 1 - mean)
    return Estimate(value, max(0.5, value - half), min(1.0, value + half))


def student(freedom: int, z: float = _Z95) -> float:
    """Student's quantile at the level at which the normal one is z."""
    return float(stdtrit(freedom, ndtr(z)))


def utility(logits: Tensor, labels: Tensor) -> list[dict[str, float | None]]:
    """Test loss, AUC and calibration error of each replica; all None where its model has run away."""
    found: list[dict[str, float | None]] = []
    for some in logits.split(max(1, _AT_ONCE // logits.shape[1])):
        finite = some.isfinite().all(-1)
        x = torch.where(finite[:, None], some, 0.0).double()
        y = labels.to(x).expand_as(x)
        loss = functional.binary_cross_entropy_with_logits(x, y, reduction="none").mean(-1)
        figures = torch.stack([loss, auc(x, y), calibration_error(x.sigmoid(), y)], dim=-1)
        for known, values in zip(finite.tolist(), figures.tolist(), strict=True):
            told = [value if known and value == value else None for value in values]
            found.append(dict(zip(("test_loss", "test_auc", "test_ace"), told, strict=True)))
    return found


def wanted(recipe: Mapping[str, Any]) -> list[str]:
    """The leak columns of a sweep that left no attack out: what is missing there was not tried, whatever the reason."""
    usual = dict.fromkeys([*recipe["attacks"], *EVERY_BATCH, *SAMPLED])
    layers = dict.fromkeys(["cut", *recipe["layers"]])
    over = _over_visits() if recipe["epochs"] > 1 else ()
    return [leak_column(name, layer) for layer in layers for name in usual] + [
        leak_column(name) for name in (*RECORDED, *over)
    ]


def recorded_leaks(recorder: Replica, truth: Tensor, *, visits: bool, seed: int) -> tuple[dict[str, Leak], list[str]]:
    """The attacks on recorded batches and on all visits of the followed examples: what leaked, by the name of its
    column, and a note for each attack that could not run.
    """
    tried: list[tuple[Transcript, Mapping[str, Attack]]] = [
        (recorder.batches(), {name: attack(name, **facts(name).on_gradients) for name in RECORDED})
    ]
    if visits:
        tried.append((recorder.visits(), dict(zip(_over_visits(), joined(ACCUMULATED), strict=True))))
    found, notes = dict[str, Leak](), list[str]()
    for transcript, named in tried:
        if not bool(transcript.view.gradient.isfinite().all()):
            raise TensorError("recorded gradients are not finite: the training ran away, take a lower learning rate")
        for name, one in named.items():
            skipped: dict[str, str] = {}
            noise = torch.Generator().manual_seed(seed)
            for finding in attack_all(transcript.view, truth, [one], noise=noise, skipped=skipped):
                found[leak_column(name)] = Leak(finding.leak)
            notes += [f"{name}: {reason}" for reason in skipped.values()]
    return found, notes


def _over_visits() -> list[str]:
    """The names that attacks on all visits have here: the attack on one of them, and how they are joined."""
    named = [(inner if isinstance(inner, str) else inner[0], how) for inner, how in ACCUMULATED]
    return [f"accumulated({inner}{'' if how == 'mean' else f', {how}'})" for inner, how in named]
