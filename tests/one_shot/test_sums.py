"""Sums: the noise's own distribution, exact samples, and partitions that may be anything."""

import json
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import binomtest

from tacit.errors import LabelsError, ProtocolError, UsageError
from tacit.one_shot.sums import BITS, KeyedBits, Sums, discrete_gaussian, masses_of, sums

SECRET = bytes(range(32))
ROWS = 640
PARTITION = np.arange(ROWS) * 7 % 20
LABELS = np.arange(ROWS) * 5 // 3 % 3 - 1


def gaussian(variance: float, reach: int) -> np.ndarray:
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    return weights / weights.sum()


def auc_by_brute_force(variance: float, copies: int, shift: int) -> float:
    """In floats, over the sum of all copies: larger sums speak for the label, ties count half."""
    masses = np.ones(1)
    for _ in range(copies):
        masses = np.convolve(masses, gaussian(variance, math.ceil(12 * math.sqrt(variance)) + 2))
    ones, zeros = (np.pad(masses, pad) for pad in ((copies * shift, 0), (0, copies * shift)))
    return float(ones @ (np.cumsum(zeros) - zeros / 2))


@pytest.mark.parametrize(
    ("names", "copies", "shift"),
    [
        ({}, 4, 1),
        ({"partitions": 1}, 1, 1),
        ({"span": 20, "partitions": 2}, 2, 20),
        ({"span": 3, "partitions": 3}, 3, 3),
    ],
)
@pytest.mark.parametrize("limit", [0.6, 0.9])
def test_the_certificate_is_that_of_brute_force_and_within_the_limit(names, copies, shift, limit):
    made = sums(limit, **names)
    assert made.auc <= limit < made.auc + 1e-3
    assert made.auc == pytest.approx(auc_by_brute_force(float(made.variance), copies, shift), abs=1e-9)
    continuous = copies * shift**2 / (2 * NormalDist().inv_cdf(limit) ** 2)
    assert float(made.variance) == pytest.approx(continuous, rel=0.2)


def test_little_noise_tells_more_than_the_formula_says():
    formula = Sums(math.floor((1 << 16) / (2 * NormalDist().inv_cdf(0.99) ** 2)), 1, 32)
    assert formula.auc == pytest.approx(0.9956, abs=5e-5)
    made = sums(0.99, partitions=1)
    assert made.auc <= 0.99
    assert made.scaled > formula.scaled


def test_two_values_by_hand():
    """Sigma**2 of 1/8 (exp(-4 x**2)), one copy: AUC over all pairs of values."""
    made = Sums(1 << 13, 1, 32)
    weights = {x: math.exp(-4 * x * x) for x in range(-9, 10)}
    total = sum(weights.values())
    expected = sum(
        (1.0 if x + 1 > y else 0.5 if x + 1 == y else 0.0) * weights[x] * weights[y] / total**2
        for x in weights
        for y in weights
    )
    assert made.auc == pytest.approx(expected, abs=1e-12)


def test_odds_are_for_all_but_a_share_of_the_rows():
    made = sums(0.6)
    assert made.loss().odds() == math.inf
    normal, mu = NormalDist(), math.sqrt(2) * NormalDist().inv_cdf(0.6)
    for share in (1e-6, 0.0019, 0.1):  # the likeliest event under the one label of this probability, continuous noise
        assert made.odds(share) == pytest.approx(share / normal.cdf(normal.inv_cdf(share) - mu), rel=0.02)
    strict = sums(0.6, odds=3, delta=1e-4)
    assert strict.odds(1e-4) <= 3
    assert strict.auc < made.auc
    assert strict.scaled > made.scaled


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(7, 3), Fraction(2042105, 1 << 16)])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_masses_are_those_of_the_noise_and_never_above(variance, count):
    first, masses = masses_of(variance, count)
    expected, reach = np.ones(1), math.ceil(13 * math.sqrt(variance)) + 3
    for _ in range(count):
        expected = np.convolve(expected, gaussian(float(variance), reach))
    found = np.zeros(len(expected))
    found[first + count * reach :][: len(masses)] = np.array(masses, float) / 2**BITS
    assert np.allclose(found, expected, rtol=0, atol=1e-14)
    assert 0 < 1 - Fraction(sum(masses), 1 << BITS) < Fraction(1, 10**15)
    assert masses == masses[::-1]


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(1), Fraction(7, 3), Fraction(2042105, 1 << 16)])
def test_samples_have_exact_chances(variance):
    """Exact tests at a fixed key, each with a false-alarm rate of 1 in a million."""
    bits, count = KeyedBits(SECRET, b"samples", str(variance).encode()), 8000
    samples = np.array([discrete_gaussian(bits, variance) for _ in range(count)])
    reach = math.ceil(12 * math.sqrt(variance)) + 2
    chances = gaussian(float(variance), reach)
    for value in range(-3, 4):
        assert binomtest(int((samples == value).sum()), count, float(chances[reach + value])).pvalue > 1e-6
    beyond = 2 * math.ceil(math.sqrt(variance))
    tail = float(chances[np.abs(np.arange(-reach, reach + 1)) >= beyond].sum())
    assert binomtest(int((np.abs(samples) >= beyond).sum()), count, tail).pvalue > 1e-6
    true = float((np.arange(-reach, reach + 1) ** 2 * chances).sum())
    fourth = float((np.arange(-reach, reach + 1) ** 4 * chances).sum())
    assert abs((samples**2).mean() - true) < 5 * math.sqrt((fourth - true**2) / count)


def test_numbers_below_a_bound():
    bits = KeyedBits(SECRET, b"below")
    for bound in (1, 3, 256, 10**20):
        found = [bits.below(bound) for _ in range(2000)]
        assert all(0 <= number < bound for number in found)
        assert (
            bound == 1
            or binomtest(sum(number < bound // 2 for number in found), 2000, bound // 2 / bound).pvalue > 1e-6
        )


def answer(mechanism=None, partition=PARTITION, labels=LABELS, number=0, run="run", secret=SECRET):
    mechanism = mechanism or sums(0.6)
    return mechanism.answer(secret, partition, labels, number=number, run=run)


def test_an_answer_is_the_sum_and_noise_of_the_certified_variance():
    rows = 64_000
    partition = np.arange(rows) % 2000
    labels = np.arange(rows) // 2000 % 2
    mechanism = sums(0.6)
    noise = answer(mechanism, partition, labels) - 16
    variance = float(mechanism.variance)
    assert abs(noise.mean()) < 5 * math.sqrt(variance / 2000)
    assert abs(noise.var() / variance - 1) < 5 * math.sqrt(2 / 2000)


def test_sums_of_labels_and_numbers_and_rows_without_a_label():
    quiet = Sums(1 << 9, 1, 32)  # sigma**2 of 1/128: the noise is 0 but for once in 10**27
    assert answer(quiet).tolist() == np.bincount(PARTITION, LABELS == 1).astype(int).tolist()
    numbers = answer(Sums(1 << 9, 1, 32, 9), labels=np.arange(ROWS) % 10)
    assert numbers.tolist() == np.bincount(PARTITION, np.arange(ROWS) % 10).astype(int).tolist()


def test_asked_again_the_same_and_for_anything_else_unrelated():
    first = answer()
    assert (first == answer()).all()
    moved = PARTITION.copy()
    moved[[0, 1]] = moved[[1, 0]] if moved[0] != moved[1] else [moved[0], (moved[1] + 1) % 20]
    others = [answer(partition=moved), answer(number=1), answer(run="other"), answer(secret=bytes(32))]
    others.append(answer(sums(0.6, partitions=5)))
    assert all((first != other).sum() > 10 for other in others)


def test_answers_are_pinned():
    assert answer(Sums(1 << 21, 4, 32))[:6].tolist() == [12, 7, 12, 11, 13, 16]


@pytest.mark.parametrize(
    "partition",
    [
        None,
        PARTITION.tolist(),
        PARTITION[:-1],
        PARTITION.astype(float),
        PARTITION[:, None],
        PARTITION - 1,
        np.where(PARTITION == 3, 99, PARTITION),
        np.where(PARTITION == 3, 4, PARTITION),  # group 3 is empty
        np.where(np.arange(ROWS) == 5, 20, PARTITION),  # a group of one row
        np.full(ROWS, 2**62),
    ],
)
def test_partitions_that_are_none(partition):
    with pytest.raises(ProtocolError, match=r"partition"):
        answer(partition=partition)


@pytest.mark.parametrize("labels", [LABELS + 1, LABELS - 1, LABELS.astype(float), LABELS[:, None]])
def test_labels_that_do_not_fit(labels):
    with pytest.raises(LabelsError):
        answer(labels=labels)


def test_other_bad_questions():
    for number in (-1, 4, True, "0"):
        with pytest.raises(ProtocolError, match="4 are agreed"):
            answer(number=number)
    with pytest.raises(UsageError, match="32 random bytes"):
        answer(secret=b"short")


@pytest.mark.parametrize(
    "names",
    [
        {"limit": 0.5},
        {"limit": 1},
        {"odds": 3},
        {"delta": 0.01},
        {"odds": 3, "delta": 0},
        {"odds": 3, "delta": 2},
        {"odds": 1, "delta": 0.01},
        {"groups": 1},
        {"partitions": 0},
        {"partitions": 1.0},
        {"span": 0},
        {"limit": 0.501, "span": 1023},
    ],
)
def test_bad_input_is_refused(names):
    with pytest.raises(UsageError):
        sums(**{"limit": 0.6, **names})


def test_parameters_come_back_through_json():
    for made in (sums(0.6), sums(0.7, span=9, groups=8)):
        assert Sums.read(json.loads(json.dumps(made.parameters()))) == made


@pytest.mark.parametrize(
    "change",
    [
        {"mechanism": "flips"},
        {"version": 3},
        {"version": True},
        {"scaled": "0"},
        {"scaled": 77},
        {"scaled": str((1 << 64) - 1)},
        {"partitions": 10**9},
        {"partitions": True},
        {"classes": 3},
        {"rows": 2},
        {"rows": True},
        {"groups": "32"},
        {"more": 1},
    ],
)
def test_nothing_from_a_peer_is_trusted(change):
    with pytest.raises(ProtocolError):
        Sums.read({**sums(0.6).parameters(), **change})
