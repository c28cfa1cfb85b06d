"""Numbers: the label bound by brute force over all pairs of cells, no bias, and coins that follow the table."""

import hashlib
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from tacit.errors import LabelsError, ProtocolError, UsageError
from tacit.labels.coins import Coins
from tacit.labels.flips import WHOLE, flips
from tacit.labels.loss import Loss
from tacit.labels.numbers import NumberFlips, number_flips

SKEWED = [0.5, 0.2, 0.1, 0.08, 0.05, 0.04, 0.02, 0.01]
SETTINGS = [(0.6, None), (0.6, 7.4), (None, 3), (0.9, 20), (0.8, 4), (0.51, 1.1)]


def made(limit=0.6, odds=3.0, cells=8, prior=None):
    return number_flips(limit, odds, low=-10.0, high=60.0, cells=cells, prior=prior)


def several(prior=None):
    """A table of four outputs, as former versions made some: as often two of them are sent as the two others."""
    near, far = made(None, 19, prior=prior), made(None, 3, prior=prior)
    rows = []
    for one, other in zip(near.table, far.table, strict=True):
        low, lowest = one[0] // 2, other[0] // 2
        rows.append((lowest, low, WHOLE // 2 - low, WHOLE // 2 - lowest))
    outputs = (far.outputs[0], *near.outputs, far.outputs[1])
    return NumberFlips(near.low, near.high, outputs, tuple(rows), near.prior)


@pytest.mark.parametrize("prior", [None, SKEWED])
@pytest.mark.parametrize(("limit", "odds"), SETTINGS)
def test_every_two_cells_keep_to_both_limits_and_outputs_are_right_on_average(limit, odds, prior):
    found = made(limit, odds, prior=prior)
    assert all(sum(row) == WHOLE and min(row) > 0 for row in found.table)
    for one, other in itertools.combinations(found.table, 2):
        pair = Loss.counted(zip(one, other, strict=True), WHOLE)
        assert pair.atoms.auc() <= Fraction(found.auc) <= Fraction(limit or 1)
        assert pair.most <= Fraction(found.odds) <= Fraction(odds or 20)
    means = [
        sum(Fraction(p, WHOLE) * Fraction(v) for p, v in zip(row, found.outputs, strict=True)) for row in found.table
    ]
    assert np.allclose([float(mean) for mean in means], found.grid, rtol=0, atol=1e-9 * found.outputs[-1])


@pytest.mark.parametrize(("limit", "odds"), SETTINGS)
def test_no_worse_than_a_symmetric_coin_between_the_ends(limit, odds):
    coin = flips(limit, odds)
    rho = float(coin.a - coin.b)
    ends = [-10 - 70 * float(coin.b) / rho, 60 + 70 * float(1 - coin.a) / rho]
    found = made(limit, odds)
    shares = float(coin.b) + rho * np.linspace(0, 1, 8)
    variance = np.mean((1 - shares) * (ends[0] - found.grid) ** 2 + shares * (ends[1] - found.grid) ** 2)
    assert found.spread() <= math.sqrt(variance) * (1 + 1e-9)


def test_a_skewed_coin_helps_where_the_prior_is_skewed():
    skewed, even = made(0.6, 7.4, prior=SKEWED), made(0.6, None, prior=SKEWED)
    assert skewed.spread() < 0.75 * even.spread()
    assert skewed.odds == pytest.approx(7.4)


@pytest.mark.parametrize("found", [made(0.8, 4), several()], ids=["two outputs", "four"])
def test_losses_add_up_to_more_than_any_pair_does(found):
    twice = found.loss().times(2).auc()
    for one, other in itertools.combinations(found.table, 2):
        assert Loss.counted(zip(one, other, strict=True), WHOLE).times(2).auc() <= twice
    assert found.loss().times(2).odds() == pytest.approx(found.odds**2)


def test_cells_and_values():
    found = made()
    assert found.cell_of(np.array([-99, -10, -5.1, -4.9, 60, 1e300, np.nan, np.inf])).tolist() == [
        0,
        0,
        0,
        1,
        7,
        7,
        -1,
        7,
    ]
    assert found.value_of(np.array([0, len(found.outputs) - 1])).tolist() == [found.outputs[0], found.outputs[-1]]
    for wrong in (np.array([-1]), np.array([len(found.outputs)]), np.array([0.5])):
        with pytest.raises(LabelsError, match="sent outputs"):
            found.value_of(wrong)
    with pytest.raises(LabelsError, match="shape"):
        found.cell_of(np.zeros((2, 2)))


def test_coins_follow_the_table():
    """Exact tests on fixed keys; each would be a false alarm once in a million choices of keys."""
    rows = 40_000
    raw = b"".join(hashlib.blake2b(row.to_bytes(8, "little"), digest_size=16).digest() for row in range(rows))
    keys = np.frombuffer(raw, np.uint8).reshape(-1, 16)
    coins = Coins(bytes(range(32)), column="delay", definition="minutes", epoch=0)
    found = several(prior=[*SKEWED[:-1], 0.0])
    for cell in (0, 3, 7):
        sent = coins.draw(found, keys, np.full(rows, cell))
        assert sent.dtype == np.int16
        for output, part in enumerate(found.table[cell]):
            assert binomtest(int((sent == output).sum()), rows, part / WHOLE).pvalue > 1e-6
        error = found.value_of(sent).mean() - found.grid[cell]
        assert abs(error) < 5 * found.value_of(sent).std() / math.sqrt(rows)
    missing = coins.draw(found, keys, np.full(rows, -1))
    shares = np.array(found.prior, float) @ (np.array(found.table, float) / WHOLE) / WHOLE
    for output, share in enumerate(shares):
        assert binomtest(int((missing == output).sum()), rows, share).pvalue > 1e-6
    assert (
        coins.draw(found, keys[::7], np.full(len(keys[::7]), 3)) == coins.draw(found, keys, np.full(rows, 3))[::7]
    ).all()
    assert (coins.draw(made(cells=2), keys[:9], np.zeros(9, np.int64))).dtype == np.int16


def test_thresholds_are_exact_at_the_ends():
    found = NumberFlips(0.0, 1.0, (-1.0, 2.0), ((WHOLE - 1, 1), (1, WHOLE - 1)), (WHOLE, 0))
    assert found.thresholds.tolist() == [[WHOLE - 1], [1]]
    assert found.prior_thresholds.tolist() == []


@pytest.mark.parametrize("found", [made(0.8, 20, prior=SKEWED), several(SKEWED)], ids=["two outputs", "four"])
def test_parameters_come_back_through_json(found):
    again = NumberFlips.read(json.loads(json.dumps(found.parameters())))
    assert again == found
    assert again.series == found.series != made(0.7, 20, prior=SKEWED).series


@pytest.mark.parametrize(
    "change",
    [
        {"mechanism": "flips"},
        {"version": 2},
        {"version": 1.0},
        {"low": "nan"},
        {"low": "inf"},
        {"low": 0.0},
        {"low": "0x1p+9999"},
        {"low": (61.0).hex()},
        {"low": (-20.0).hex()},  # not right on average then
        {"outputs": []},
        {"outputs": ["0x0p+0", "0x0p+0"]},
        {"outputs": "12"},
        {"table": [["1", "2"]]},
        {"table": [[str(WHOLE - 1), "1"], ["1", str(WHOLE - 1)]]},
        {"table": None},
        {"prior": ["1"] * 8},
        {"prior": ["1"] * 3},
        {"more": 1},
    ],
)
def test_nothing_from_a_peer_is_trusted(change):
    with pytest.raises(ProtocolError):
        NumberFlips.read({**made().parameters(), **change})


def test_odds_over_20_and_impossible_outputs_are_refused_from_a_peer():
    for table in ([[str(WHOLE - 1), "1"], ["1", str(WHOLE - 1)]], [[str(WHOLE - 9), "9"], ["0", str(WHOLE - 1)]]):
        with pytest.raises(ProtocolError):
            NumberFlips.read({**made(cells=2).parameters(), "table": table})


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": None, "odds": None},
        {"limit": 0.5},
        {"limit": 1},
        {"odds": 1},
        {"odds": 21},
        {"cells": 1},
        {"cells": 65},
        {"cells": 2.0},
        {"prior": [1.0, 2.0]},
        {"prior": [0.0] * 8},
        {"prior": [-1.0, *[1.0] * 7]},
        {"prior": [math.nan, *[1.0] * 7]},
    ],
)
def test_bad_input_is_refused(wrong):
    with pytest.raises(UsageError):
        made(**wrong)


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (math.nan, 1), (0, math.inf), (-1.7e308, 1.7e308)])
def test_ranges_that_are_none(low, high):
    with pytest.raises(UsageError, match="range"):
        number_flips(0.6, 3, low=low, high=high)
