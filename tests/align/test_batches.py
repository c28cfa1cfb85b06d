"""Batches are a matter of the seed, and every row is in at most one of them."""

import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from tacit.align.batches import batches, digest, shuffled
from tacit.errors import UsageError


def lists(count, size, **options):
    return [batch.tolist() for batch in batches(count, size, **options)]


@st.composite
def sizes(draw):
    count = draw(st.integers(1, 300))
    return count, draw(st.integers(1, count))


@given(sizes(), st.integers(0, 50), st.integers(-(2**62), 2**62))
def test_an_epoch_visits_each_row_at_most_once_in_batches_of_one_size(sizes, epoch, seed):
    count, size = sizes
    made = lists(count, size, epoch=epoch, seed=seed)
    assert [len(batch) for batch in made] == [size] * (count // size)
    rows = [row for batch in made for row in batch]
    assert len(set(rows)) == len(rows)
    assert set(rows) <= set(range(count))
    assert made == lists(count, size, epoch=epoch, seed=seed)


def test_the_order_is_another_for_every_epoch_and_seed():
    orders = {str(lists(64, 16, epoch=epoch, seed=seed)) for epoch in range(6) for seed in range(-3, 3)}
    assert len(orders) == 36


def test_torchs_own_generator_is_left_alone():
    before = torch.get_rng_state()
    lists(10, 2, epoch=0, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_who_sits_out_changes():
    """11 rows in batches of 4 leave 3 out; in 60 epochs nobody is always in (a false alarm has 11 (8/11)^60 < 1e-7)."""
    everyone = set(range(11))
    out = [everyone - {row for batch in lists(11, 4, epoch=epoch, seed=1) for row in batch} for epoch in range(60)]
    assert all(len(rows) == 3 for rows in out)
    assert set().union(*out) == everyone


@pytest.mark.parametrize("size", [0, -1, 11, 2.5, True, None])
def test_a_size_out_of_range(size):
    with pytest.raises(UsageError, match=r"batch_size = .* 10 rows: choose a whole number between 1 and 10"):
        batches(10, size, epoch=0, seed=0)


@given(st.lists(st.integers(-(2**62), 2**62), max_size=20), st.lists(st.integers(-(2**62), 2**62), max_size=20))
def test_digests_are_equal_where_ids_and_order_are(one, two):
    digests = [digest(torch.tensor(ids, dtype=torch.int64)) for ids in (one, two)]
    assert (digests[0] == digests[1]) == (one == two)


def test_a_digest_sees_order_ids_and_number_but_not_layout():
    rows = torch.tensor([3, 1, 2])
    others = ([1, 3, 2], [3, 1, 4], [3, 1], [3, 1, 2, 0], [])
    assert len({digest(rows), *(digest(torch.tensor(other, dtype=torch.int64)) for other in others)}) == 6
    assert digest(rows) == digest(rows.int()) == digest(torch.tensor([[3, 0], [1, 0], [2, 0]])[:, 0])
    assert len(digest(rows)) == 16


@given(st.integers(1, 5000), st.text(max_size=5), st.data())
def test_a_shuffle_is_an_order_of_all_rows_and_any_part_of_it_can_be_asked_for(count, key, data):
    order = shuffled(count, 0, count, key=key)
    assert sorted(order.tolist()) == list(range(count))
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    assert torch.equal(shuffled(count, start, stop, key=key), order[start:stop])


def test_all_orders_of_five_rows_are_equally_likely():
    """Chi-squared over 120 orders; a false alarm has 1e-6."""
    counts = Counter(tuple(shuffled(5, 0, 5, key=str(key)).tolist()) for key in range(6000))
    expected = 6000 / 120
    statistic = sum((counts[order] - expected) ** 2 / expected for order in itertools.permutations(range(5)))
    assert statistic < chi2.isf(1e-6, 119)


def test_rows_of_a_large_table_land_anywhere_and_neighbours_part():
    """Where 64 places of 4,096 rows go over 2,000 keys, and how far apart neighbours go; false alarms 1e-6 each."""
    rows = torch.stack([shuffled(4096, 0, 64, key=str(key)) for key in range(2000)])
    for values in (rows.flatten(), (rows[:, 1:] - rows[:, :-1]).flatten() % 4096):
        counts = torch.bincount(values // 64, minlength=64).double()
        expected = counts.sum() / 64
        assert float(((counts - expected) ** 2 / expected).sum()) < chi2.isf(1e-6, 63)


def test_an_epoch_may_begin_in_its_middle():
    whole = lists(300_000, 1000, epoch=2, seed=5)
    assert lists(300_000, 1000, epoch=2, seed=5, first=137) == whole[137:]
