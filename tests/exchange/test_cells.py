"""Cells of a score: cut where flips tell most, each with rows enough, the same for a row alone."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import entropy

from tacit.errors import DataError, TensorError
from tacit.exchange._rows import Target
from tacit.exchange.cells import Cells

ROWS = 4000


def drawn(seed=0, rows=ROWS):
    """A score, and flips that rise with it."""
    draw = np.random.default_rng(seed)
    score = draw.normal(size=rows)
    sent = (draw.random(rows) < 0.4 + 0.2 / (1 + np.exp(-2 * score))).astype(np.int64)
    return score[:, None], Target(sent, 2)


@pytest.mark.parametrize("bits", [1, 2, 3, 5])
def test_each_cell_has_its_share_of_the_rows(bits):
    z, received = drawn()
    codes = Cells.fit(z, bits=bits, smallest=0.02, received=received).code(z)
    share = np.bincount(codes[:, 0], minlength=1 << bits) / ROWS
    assert (len(share) == 1 << bits) or bits == 5, "32 cells of a fiftieth at least may not be had in groups"
    assert share[share > 0].min() >= 0.02
    assert (share > 0).sum() >= min(1 << bits, 24)
    assert np.array_equal(np.argsort(z[:, 0], kind="stable"), np.lexsort((z[:, 0], codes[:, 0]))), (
        "a cell is an interval"
    )


def test_no_other_cut_of_few_values_keeps_more_of_what_is_received():
    """Eight values of 500 rows with rising rates: all ways to cut them into three."""
    z, rates = np.repeat(np.arange(8.0), 500)[:, None], np.array([0.1, 0.12, 0.2, 0.4, 0.41, 0.45, 0.8, 0.82])
    sent = np.concatenate([np.arange(500) < round(500 * rate) for rate in rates]).astype(np.int64)

    def kept(cuts):
        groups = np.split(sent, [500 * cut for cut in cuts])
        return -sum(len(group) * entropy([group.mean(), 1 - group.mean()]) for group in groups if len(group))

    codes = Cells.fit(z, bits=2, smallest=0.01, received=Target(sent, 2)).code(z)
    found = [int(np.flatnonzero(codes[:, 0] == cell)[0] / 500) for cell in range(1, 4)]
    assert kept(found) == pytest.approx(max(kept(cuts) for cuts in combinations(range(1, 8), 3)))
    large = Cells.fit(z, bits=2, smallest=0.25, received=Target(sent, 2)).code(z)
    found = [int(np.flatnonzero(large[:, 0] == cell)[0] / 500) for cell in range(1, large.max() + 1)]
    allowed = [
        cuts for count in (1, 2, 3) for cuts in combinations(range(2, 7), count) if min(np.diff([0, *cuts, 8])) > 1
    ]
    assert kept(found) == pytest.approx(max(map(kept, allowed)))


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_classes_and_numbers_are_cut_where_they_are_told_apart(kind):
    draw = np.random.default_rng(1)
    z = draw.random(9000)[:, None]
    step = np.searchsorted([0.2, 0.7], z[:, 0])
    noise = draw.random(9000) < 0.3
    values = np.where(noise, draw.integers(0, 3, 9000), step)
    received = Target(values, 3) if kind == "classes" else Target(values.astype(float), None)
    (edges,) = Cells.fit(z, bits=2, smallest=0.02, received=received).edges
    assert min(abs(edge - 0.2) for edge in edges) < 0.02
    assert min(abs(edge - 0.7) for edge in edges) < 0.02


def test_without_labels_all_numbers_are_cut_in_equal_shares():
    z = np.random.default_rng(2).normal(size=(ROWS, 3))
    codes = Cells.fit(z, bits=3, smallest=0.02).code(z)
    assert [np.bincount(number).tolist() for number in codes.T] == [[ROWS // 8] * 8] * 3


def test_equal_shares_hold_the_smallest_cell_where_values_are_equal():
    values = np.repeat([0.0, 1.0, 2.0, 3.0], [480, 40, 1480, 2000])[:, None]
    codes = Cells.fit(values, bits=3, smallest=0.02).code(values)
    assert np.bincount(codes[:, 0]).tolist() == [520, 1480, 2000], "40 equal rows join the smaller of their neighbours"
    assert np.bincount(Cells.fit(values, bits=3, smallest=0.125).code(values)[:, 0]).tolist() == [520, 1480, 2000]
    assert np.bincount(Cells.fit(values, bits=2, smallest=0.2).code(values)[:, 0]).tolist() == [2000, 2000]


def test_only_the_first_number_is_cut_by_what_is_received():
    z, received = drawn()
    both = np.concatenate([z, np.random.default_rng(3).normal(size=(ROWS, 1))], axis=1)
    cells = Cells.fit(both, bits=2, smallest=0.02, received=received)
    assert cells.edges[0] == Cells.fit(z, bits=2, smallest=0.02, received=received).edges[0]
    assert cells.edges[1] == Cells.fit(both[:, 1:], bits=2, smallest=0.02).edges[0]


def test_equal_scores_share_a_cell_and_few_values_have_few():
    z = np.array([[0.0]] * 50 + [[1.0]] * 50)
    cells = Cells.fit(z, bits=3, smallest=0.02, received=Target(np.arange(100) // 50, 2))
    assert cells.edges == ((0.5,),)
    assert Cells.fit(np.ones((9, 1)), bits=3, smallest=0.02).edges == ((),)
    assert Cells.fit(np.ones((1, 1)), bits=3, smallest=0.02, received=Target(np.ones(1, int), 2)).edges == ((),)


def test_a_row_has_the_same_cell_alone_and_stored():
    z, received = drawn()
    cells = Cells.fit(z, bits=3, smallest=0.02, received=received)
    again = Cells.read(cells.state())
    assert again == cells
    assert np.array_equal(again.code(z[7:8]), cells.code(z)[7:8])


@pytest.mark.parametrize(
    "state",
    [{}, {"bits": 3}, {"bits": 1, "edges": [[0.0, 1.0]]}, {"bits": 3, "edges": [[1.0, 0.0]]},
     {"bits": 3, "edges": [[float("nan")]]}, {"bits": 99, "edges": [[0.0]]}],
)  # fmt: skip
def test_what_is_no_state_is_refused(state):
    with pytest.raises(DataError, match="no cells"):
        Cells.read(state)


def test_an_embedding_that_diverged_is_refused():
    with pytest.raises(TensorError, match="row 1, number 0"):
        Cells.fit(np.array([[0.0], [np.inf]]), bits=1, smallest=0.02)
    with pytest.raises(TensorError, match="2 numbers"):
        Cells.fit(np.zeros((3, 1)), bits=1, smallest=0.02).code(np.zeros((3, 2)))
