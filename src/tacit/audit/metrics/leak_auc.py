"""Leak AUC: how well an attacker's scores tell positive rows from negative ones, with its confidence interval.

An attacker that is always wrong is as good as one that is always right, so a leak is folded: max(a, 1 - a). The fold
is taken once, of the mean over batches: folding every batch would turn chance into leak, because |a - 1/2| of a small
batch is never zero. The papers' quantile, which sweeps have, does fold each batch; compare it only with itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from scipy.special import chdtri
from torch import Tensor, nn

from tacit.audit.metrics import _checks
from tacit.contracts import Estimate, Guess
from tacit.errors import LabelsError

_LACKING = "no batch holds both classes among the rows that count: take more rows or larger batches"
_Z90 = 1.6448536269514722  # the standard normal's 95% quantile


def fold(a: Tensor) -> Tensor:
    """max(a, 1 - a): what an attacker reaches that may turn its scores around."""
    return torch.maximum(a, 1 - a)


def auc(score: Tensor, label: Tensor, counted: Tensor | None = None) -> Tensor:
    """Area under the ROC curve along the last dimension, ties counted half.

    Args:
        score: any leading stack, one score for each row.  (..., batch)
        label: 0 or 1, of any dtype.  (..., batch)
        counted: False where a row must not be judged.  (..., batch)

    Returns:
        One float64 for each batch, on the device of the scores.  (...)
        NaN where a batch lacks a class; on CUDA, where nothing is checked so that nothing waits for the device, also
        NaN where a score is not finite or a label is not 0 or 1.

    >>> auc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])).item()
    0.75
    """
    score, positive, negative, broken = _split(score, label, counted)
    n1, n0 = positive.sum(-1).double(), negative.sum(-1).double()
    area = (below(score, negative) * positive).sum(-1) / (n1 * n0)  # 0 / 0 is the NaN of a batch that lacks a class
    return area.masked_fill(broken, torch.nan)


def delong(score: Tensor, label: Tensor, counted: Tensor | None = None, *, pairs: float = 0.0) -> tuple[Tensor, Tensor]:
    """AUC and its variance by DeLong, DeLong and Clarke-Pearson (1988), along the last dimension.

    The variance comes from the placements: for each positive the share of negatives below it, for each negative the
    share of positives above it. With `pairs` > 0 that many pairs of made-up placements, one 0 and one 1, widen it (the
    idea of Agresti and Coull's interval for a share), so that ten rows in perfect order are not taken for certainty.

    Returns:
        AUC and variance of each batch, float64.  (...), (...)
    """
    return _ranked(score, label, counted).delong(pairs)


def judged(guess: Guess, truth: Tensor) -> tuple[Estimate, float]:
    """Both figures of a guess, with its scores ranked once: that is what takes time.

    Returns:
        Its leak AUC, and what a limit is held against: the leak that 95 of 100 batches stay under, chance taken out.
    """
    ranked = _ranked(*_checked(guess, truth))
    leak = _estimate(ranked)
    return leak, _held(ranked, leak.high, guess, truth)


def leak_auc(guess: Guess, truth: Tensor) -> Estimate:
    """Leak AUC of a guess: the folded mean over the batches that hold both classes, with a 95% interval.

    The standard error is the larger of two: DeLong's, pooled over the batches, and the spread between the batches,
    which also sees that some steps of a training leak more than others. It speaks about rows like these seen as often
    as these; visits of one example in many batches are not more examples.

    Args:
        guess: what an attack returned.
        truth: the label of each row id.  (number of ids,)
    """
    return _estimate(_ranked(*_checked(guess, truth)))


def placements(score: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """For each positive the share of negatives below it, for each negative that of positives above; ties count half.

    NaN where a class is lacking; what is neither has no meaning.  (..., batch)
    """
    ordered, order = score.sort(-1)  # once for both classes
    place = torch.arange(1, score.shape[-1] + 1, device=score.device).expand(score.shape)
    new = nn.functional.pad(ordered[..., 1:] != ordered[..., :-1], (1, 1), value=True)  # at which places a value begins
    first = torch.where(new[..., :-1], place - 1, 0).cummax(-1).values
    last = torch.where(new[..., 1:], place, score.shape[-1]).flip(-1).cummin(-1).values.flip(-1)
    shares = []
    for member in (negative, positive):
        until = nn.functional.pad(member.gather(-1, order).cumsum(-1), (1, 0))
        found = (until.gather(-1, first) + until.gather(-1, last)).double() / 2
        shares.append(torch.empty_like(found).scatter_(-1, order, found) / member.sum(-1, keepdim=True).double())
    return torch.where(positive, shares[0], 1 - shares[1])


def of_placements(placed: Tensor, positive: Tensor, negative: Tensor, pairs: float) -> tuple[Tensor, Tensor]:
    """AUC and DeLong's variance from placements, or from differences of them; `pairs` as in `delong`.  (...), (...)"""
    n1, n0 = positive.sum(-1).double(), negative.sum(-1).double()
    a = (placed * positive).sum(-1) / n1
    return a, _variance(placed, positive, a, n1, pairs) + _variance(placed, negative, a, n0, pairs)


def _estimate(ranked: _Ranked) -> Estimate:
    whole = ~ranked.auc().isnan()
    batches = int(whole.sum())
    if batches == 0:
        raise LabelsError(_LACKING)
    a, spread = (each[whole] for each in ranked.delong(1 / batches))
    error = (spread.mean() / batches).sqrt()
    if batches > 1:
        error = torch.maximum(error, a.std() / batches**0.5)
    mean = a.mean()
    value, half = torch.stack([fold(mean), _checks.Z95 * error]).tolist()
    return Estimate(value, max(0.5, value - half), min(1.0, value + half))


def _held(ranked: _Ranked, high: float, guess: Guess, truth: Tensor) -> float:
    """What a limit is held against: the leak that 95 of 100 batches stay under, chance taken out.

    It is the 95% quantile over batches of the leak itself, or the upper end of the mean's interval where that is
    higher. Batches of few positives scatter without leaking anything, so only what they scatter beyond DeLong's
    variance counts, and of that no more than is certain at 95%: where steps are alike, the quantile is the mean.
    The papers' quantile would break every limit by chance alone.

    An attacker that knows something without any message scatters as that does. Of it, what counts is the difference
    between both on the same rows: this is then its baseline, and the upper end of that difference.
    """
    if guess.baseline is None:
        a, chance = ranked.delong(0.0)
        return min(1.0, _upper(1 - a if float(a.nanmean()) < 0.5 else a, chance, high))
    before = _ranked(*_checked(replace(guess, score=guess.baseline), truth))
    added, chance = _difference(ranked, before)
    whole = ~(added.isnan() | chance.isnan())
    batches = int(whole.sum())
    if not batches:
        return high
    mean, error = float(added[whole].mean()), float((chance[whole].mean() / batches).sqrt())
    if batches > 1:
        error = max(error, float(added[whole].std()) / batches**0.5)
    known = float(fold(before.auc()[whole].mean()))
    return min(1.0, known + _upper(added, chance, mean + _checks.Z95 * error))


def _upper(a: Tensor, chance: Tensor, high: float) -> float:
    """What 95 of 100 batches stay under: from the figure of each, its variance by chance, and the mean's upper end."""
    whole = ~(a.isnan() | chance.isnan())
    batches = int(whole.sum())
    if batches < 2:
        return high
    mean = float(a[whole].mean())
    certain = float(a[whole].var()) * (batches - 1) / float(chdtri(batches - 1, 0.05))
    spread = max(0.0, certain - float(chance[whole].mean()))
    return max(high, mean + _Z90 * math.sqrt(spread))


def _difference(one: _Ranked, two: _Ranked) -> tuple[Tensor, Tensor]:
    """How far the AUC of one lies above that of two in each batch, both as the mean folds them, and its variance.

    Their rows are the same, so their errors go together: this is DeLong's variance of correlated curves.
    """
    turned = [-1.0 if float(each.auc().nanmean()) < 0.5 else 1.0 for each in (one, two)]
    apart = turned[0] * one.placed - turned[1] * two.placed
    a, spread = of_placements(apart, one.positive, one.negative, 0.0)
    return a + (turned[1] - turned[0]) / 2, spread


@dataclass(frozen=True)
class _Ranked:
    """Scores against each other: all that the figures of a guess need of them."""

    positive: Tensor  # rows of class 1 that count. (..., batch)
    negative: Tensor  # rows of class 0 that count
    placed: Tensor  # see `placements`

    def auc(self) -> Tensor:
        return self.delong(0.0)[0]

    def delong(self, pairs: float) -> tuple[Tensor, Tensor]:
        return of_placements(self.placed, self.positive, self.negative, pairs)


def _ranked(score: Tensor, label: Tensor, counted: Tensor | None) -> _Ranked:
    """Checked on every device: whoever asks for a variance waits for it anyway."""
    score, positive, negative, _ = _split(score, label, counted, always=True)
    return _Ranked(positive, negative, placements(score, positive, negative))


def _checked(guess: Guess, truth: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores, labels and mask of a guess, which must fit each other."""
    if truth.dim() != 1:
        raise LabelsError(f"truth is one label for each row id, (number of ids,), not {tuple(truth.shape)}")
    low, high = (int(edge) for edge in torch.aminmax(guess.rows))
    if low < 0 or high >= truth.numel():
        raise LabelsError(f"row ids run from {low} to {high}, but truth holds {truth.numel()} labels")
    return guess.score, truth.to(guess.rows.device)[guess.rows], guess.counted


def _split(
    score: Tensor, label: Tensor, counted: Tensor | None, *, always: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores in float64, who is positive, who is negative, and which batches hold what can't be judged."""
    _checks.same_shape(score, label, counted)
    counts = _checks.all_counted(score, counted)
    _checks.readable(score, label, counts, always=always)
    positive, negative = (label == 1) & counts, (label == 0) & counts
    broken = (counts & ~(score.isfinite() & (positive | negative))).any(-1)
    return score.double().masked_fill(~counts, 0.0), positive, negative, broken


def below(score: Tensor, among: Tensor) -> Tensor:
    """For each row, how many of `among` score below it; equal ones count half.  (..., batch)"""
    ladder = score.masked_fill(~among, torch.inf).sort(-1).values
    score = score.contiguous()
    return (torch.searchsorted(ladder, score) + torch.searchsorted(ladder, score, right=True)).double() / 2


def _variance(placement: Tensor, member: Tensor, mean: Tensor, n: Tensor, pairs: float) -> Tensor:
    """Variance of a class's mean placement, after adding `pairs` made-up pairs (0, 1) to the class.  (...)"""
    squares = ((placement - mean[..., None]) ** 2 * member).sum(-1)
    squares = squares + pairs / 2 + 2 * pairs * n / (n + 2 * pairs) * (mean - 0.5) ** 2
    return squares / (n - 1 + 2 * pairs) / n
