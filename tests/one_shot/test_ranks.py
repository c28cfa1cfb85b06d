"""Ranks: at most 256, equal values equal, nothing of the float left."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DataError, TensorError, UsageError
from tacit.one_shot import ranks as ranks_of
from tacit.one_shot.ranks import Ranks


def column(*values):
    return np.array(values, dtype=np.float64)[:, None]


def test_ranks_hold_about_equally_many_rows():
    z = np.arange(10_000.0)[:, None] ** 3
    codes = Ranks.fit(z).code(z)
    counts = np.bincount(codes[:, 0], minlength=256)
    assert codes.dtype == np.uint8
    assert counts.min() >= 39
    assert counts.max() <= 40


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60), st.integers(2, 8))
def test_ranks_keep_order_and_ties(values, levels):
    z = column(*values)
    codes = Ranks.fit(z, levels).code(z)[:, 0].astype(int)
    assert codes.max() < levels
    order = np.argsort(z[:, 0], kind="stable")
    assert (np.diff(codes[order]) >= 0).all()
    for value in set(values):
        assert len(set(codes[z[:, 0] == value])) == 1


def test_few_values_have_a_rank_each_and_others_are_clipped():
    ranks = Ranks.fit(column(1, 1, 2, 5))
    assert ranks.code(column(-9, 1, 2, 3, 5, 99)).ravel().tolist() == [0, 0, 1, 1, 2, 2]
    assert ranks.values == ((1, 2, 5),)


def test_one_common_value_does_not_cost_all_ranks():
    z = np.concatenate([np.zeros(9000), np.arange(1.0, 1001.0)])[:, None]
    assert len(np.unique(Ranks.fit(z).code(z))) >= 26


def test_a_constant_number_has_one_rank():
    ranks = Ranks.fit(column(3, 3, 3))
    assert ranks.code(column(-1, 3, 7)).ravel().tolist() == [0, 0, 0]


def test_the_last_digit_of_a_sum_decides_no_rank():
    z = column(*np.repeat(np.arange(400) / 7, 3))
    ranks = Ranks.fit(z)
    assert (ranks.code(z * (1 + 1e-12)) == ranks.code(z)).all()


def plainly(column, levels):
    """Edges and values as they are defined, with every array in full precision."""
    ordered = np.sort(column.astype(np.float64))
    steps = np.flatnonzero(np.diff(ordered)) + 1
    if len(steps) >= levels:
        wanted = np.arange(1, levels) * (len(ordered) / levels)
        steps = np.unique(steps[np.minimum(np.searchsorted(steps, wanted), len(steps) - 1)])
    edges = np.unique((ordered[steps - 1] + ordered[steps]) / 2)
    ranks = np.searchsorted(edges, ordered, side="right")
    counts = np.maximum(np.bincount(ranks, minlength=len(edges) + 1), 1)
    return edges.tolist(), (np.bincount(ranks, weights=ordered, minlength=len(edges) + 1) / counts).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("levels", [2, 7, 256])
def test_ranks_of_many_rows_have_the_bits_of_the_plain_sums(dtype, levels, monkeypatch):
    monkeypatch.setattr(ranks_of, "_BLOCK", 100)
    z = np.random.default_rng(0).standard_normal(3000)
    last_digit = 1 + np.random.default_rng(1).integers(0, 300, 3000) * 2.0**-52
    for some in (z, z.round(1), z.round(2), np.exp(20 * z), z * 1e-45, last_digit, np.full(9, -0.0), z[:1]):
        column = some.astype(dtype)
        ranks = Ranks.fit(column[:, None], levels)
        assert repr((list(ranks.edges[0]), list(ranks.values[0]))) == repr(plainly(column, levels))
        wide = np.searchsorted(np.asarray(ranks.edges[0]), column.astype(np.float64), side="right")
        assert (ranks.code(column[:, None])[:, 0] == wide).all()


def test_ranks_take_little_more_memory_than_the_numbers_once_more():
    z = np.random.default_rng(0).standard_normal((2_000_000, 1), dtype=np.float32)
    tracemalloc.start()
    try:
        Ranks.fit(z).code(z)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 6 * len(z)  # bytes: 4 in order, 1 whether it is finite


def test_state_goes_through_json():
    z = np.random.default_rng(0).normal(size=(500, 3))
    ranks = Ranks.fit(z, levels=16)
    assert Ranks.read(json.loads(json.dumps(ranks.state()))) == ranks
    assert ranks.width == 3


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"edges": 3, "values": 4},
        {"edges": [[1]], "values": []},
        {"edges": [[1]], "values": [[0]]},
        {"edges": [[1, 1]], "values": [[0, 0, 0]]},
        {"edges": [[float("nan")]], "values": [[0, 1]]},
    ],
)
def test_a_state_that_is_none_is_refused(state):
    with pytest.raises(DataError, match="no ranks"):
        Ranks.read(state)


def test_wrong_use_is_named():
    with pytest.raises(UsageError, match="levels"):
        Ranks.fit(column(1, 2), levels=257)
    with pytest.raises(TensorError, match="row 1"):
        Ranks.fit(column(1, np.nan))
    with pytest.raises(TensorError, match="ranks are for 1"):
        Ranks.fit(column(1, 2)).code(np.zeros((2, 2)))
