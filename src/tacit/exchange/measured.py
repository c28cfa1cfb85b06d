"""What can be measured of flipped labels, beside the bounds that hold anyway: each figure is a check of one of them."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logit

from tacit.align.encoder import Inputs
from tacit.audit.metrics.leak_auc import delong
from tacit.contracts import Estimate
from tacit.exchange.decoders import forest
from tacit.exchange.findings import Z95
from tacit.exchange.learn import learner
from tacit.exchange.questions import areas
from tacit.labels.coins import KEY_SIZE, Coins
from tacit.labels.flips import Flips
from tacit.labels.mechanisms import Mechanism
from tacit.labels.numbers import NumberFlips

_SURE = 5.0  # deviations; above a bound by so many once in three million
_LEAST = 10  # rows of either kind
_ATTACKED = 60_000  # rows that a partner knows, and that it is judged on, at most
_MANY = 1_000_000  # rows that tell as much as any number of them
_TAIL = 0.1  # of numbers: the lowest and the highest tenth are told apart


@dataclass(frozen=True)
class Area:
    """A measured AUC."""

    value: float  # of it
    error: float  # its standard error
    rows: int  # that it was measured on

    @property
    def estimate(self) -> Estimate:
        """With its 95% interval."""
        ends = (self.value - Z95 * self.error, self.value + Z95 * self.error)
        return Estimate(self.value, max(0.0, ends[0]), min(1.0, ends[1]))

    def holds(self, most: float) -> bool:
        """Whether a bound is not surely passed."""
        return self.value - _SURE * self.error <= most


def told_truth(mechanism: Mechanism, sent: NDArray[np.generic], labels: NDArray[np.int64]) -> Area | None:
    """How well what was sent tells labels apart: the two classes, or the two most frequent, or both ends of numbers.

    None where there are too few rows of either kind. No mixture of labels can be told apart better than the two that
    are told apart best, so the label bound holds for it.
    """
    sent, labels = sent[:_MANY], labels[:_MANY]  # their order is the alignment's, which no label had a part in
    known = labels[labels >= 0]
    if isinstance(mechanism, NumberFlips):
        low, high = np.quantile(known, [_TAIL, 1 - _TAIL]) if len(known) else (0.0, 0.0)
        return _area(sent.astype(np.float64), (labels >= 0) & (labels <= low), (labels >= high) & (labels > low))
    one, other = _most_frequent(labels, mechanism.classes)
    return _area(_leaning(sent, one, other), labels == one, labels == other)


@dataclass(frozen=True)
class Added:
    """What flipped labels add for somebody who has columns that tell of labels anyway."""

    without: Area  # how well the columns alone tell labels apart
    together: Area  # how well they do with what was sent
    # the difference, on the same rows. With labels independent given the columns it is at most the label bound less
    # 1/2, whatever the columns are
    gain: Area


def added(
    mechanism: Mechanism, columns: NDArray[np.uint8], sent: NDArray[np.generic], labels: NDArray[np.int64], *, seed: int
) -> Added | None:
    """How much better a partner tells labels apart with what was sent than by its columns alone.

    The partner is granted the true labels of half of the rows, and is judged on the other half: trees read its columns
    there, and what was sent adds its log odds. Of several classes the two most frequent are told apart.

    There is no such figure of numbers. The columns are what the partner is known to have, as its embedding.
    """
    if not isinstance(mechanism, Flips):
        return None
    one, other = _most_frequent(labels, mechanism.classes)
    rows = np.random.default_rng(seed).permutation(np.flatnonzero((labels == one) | (labels == other)))
    known, asked = (half[:_ATTACKED] for half in np.array_split(rows, 2))
    truth = (labels == other).astype(np.float32)[:, None]
    if min(np.bincount(truth[half, 0].astype(np.intp), minlength=2).min() for half in (known, asked)) < _LEAST:
        return None
    chance = forest(columns[known], truth[known], columns[asked], seed=seed, trees=24, depth=7)
    before = np.asarray(logit(np.clip(chance[:, 0].astype(np.float64), 1e-6, 1 - 1e-6)))
    a, b = float(mechanism.a), float(mechanism.b)
    against = log((1 - a) / (1 - b)) if mechanism.classes == 2 else -log(a / b)
    said = sent[asked]
    after = before + np.where(said == other, log(a / b), np.where(said == one, against, 0.0))
    kinds = truth[asked, 0] < 0.5, truth[asked, 0] > 0.5
    without, together = _area(before, *kinds), _area(after, *kinds)
    assert without is not None  # there are rows enough
    assert together is not None
    gain, error = areas(after[:, None].astype(np.float32), truth[asked], before[:, None].astype(np.float32))
    return Added(without, together, Area(float(gain[0]) / 2, float(error[0]) / 2, len(asked)))


def canaries(coins: Coins, mechanism: Mechanism, count: int, secret: bytes) -> Area | None:
    """The same on rows that do not exist: their labels are fair coins, and the label party's coins flip them.

    Whatever real labels are like, and whatever one knows of them, a canary's label hangs on nothing: what is read of it
    is read from what is sent alone.
    """
    draw = np.random.default_rng(np.frombuffer(hmac.digest(secret, b"canaries", "sha256"), np.uint64))
    one, other = 0, mechanism.cells - 1 if isinstance(mechanism, NumberFlips) else 1
    labels = np.where(draw.random(count) < 0.5, one, other).astype(np.int64)
    names = hashlib.shake_256(secret + b"canaries").digest(KEY_SIZE * count)
    sent = coins.draw(mechanism, np.frombuffer(names, np.uint8).reshape(count, KEY_SIZE), labels)
    score = sent.astype(np.float64) if isinstance(mechanism, NumberFlips) else _leaning(sent, one, other)
    return _area(score, labels == one, labels == other)


def read_flips(inputs: Inputs, sent: NDArray[np.generic], mechanism: Mechanism, *, seed: int) -> Area | None:
    """How well a linear score of one's own columns tells flips of rows that it has not learnt from; of two classes."""
    if not isinstance(mechanism, Flips) or mechanism.classes != 2:
        return None
    order = np.random.default_rng(seed).permutation(len(sent))[:_MANY]
    held, learnt = np.split(order, [len(order) // 5])
    bottom = learner("linear").fit(inputs[torch.from_numpy(learnt)], sent[learnt], mechanism, 1, seed=seed)
    score = bottom.embed(inputs[torch.from_numpy(held)])[:, 0].astype(np.float64)
    return _area(score, sent[held] == 0, sent[held] == 1)


def most_of_flips(mechanism: Mechanism) -> float | None:
    """The best AUC with which anybody who knows every true label could tell flips, whatever the labels' share is.

    A model of one's own columns that tells flips better than that has not learnt labels: something else was sent.
    """
    if not isinstance(mechanism, Flips) or mechanism.classes != 2:
        return None
    a, b, share = float(mechanism.a), float(mechanism.b), np.linspace(0.0, 1.0, 10_001)[1:-1]
    after = [one * share / (one * share + other * (1 - share)) for one, other in ((a, b), (1 - a, 1 - b))]
    return float((1 + after[0] - after[1]).max() / 2)


def _most_frequent(labels: NDArray[np.int64], classes: int) -> tuple[int, int]:
    """The two most frequent classes, the lower one first."""
    often = np.argsort(-np.bincount(labels[labels >= 0], minlength=classes), kind="stable")[:2]
    low, high = sorted(often.tolist())
    return low, high


def _leaning(sent: NDArray[np.generic], one: int, other: int) -> NDArray[np.float64]:
    """Which of two classes what was sent speaks for: -1, 1, or 0 where it is a third."""
    return np.where(sent == other, 1.0, np.where(sent == one, -1.0, 0.0))


def _area(score: NDArray[np.float64], low: NDArray[np.bool_], high: NDArray[np.bool_]) -> Area | None:
    if min(low.sum(), high.sum()) < _LEAST:
        return None
    both = low | high
    found, variance = delong(torch.from_numpy(score[both]), torch.from_numpy(high[both]).long(), pairs=1.0)
    return Area(float(found), float(variance) ** 0.5, int(both.sum()))
