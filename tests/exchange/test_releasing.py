"""What is sent of an embedding: its cells where the limit holds; else nothing, and what would hold."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from tacit.align.encoder import Columns, Inputs
from tacit.config import Exchange
from tacit.errors import LimitError, UsageError
from tacit.exchange.learn.own import OwnBottom
from tacit.exchange.releasing import Home, release, shown

ROWS, TRAIN = 5000, 4000
COLUMNS = Columns((), tuple("abcdef"))


class Sum:
    """The sum of all columns; without one of them something that tells nothing of any."""

    def transform(self, rows):
        return rows.sum(1, keepdims=True) if rows.shape[1] in (2, 6) else np.sin(300 * rows).sum(1, keepdims=True)


def learnt(rows):
    return OwnBottom(Sum(), 1, f"{rows.numeric.shape[1]} columns")


@pytest.fixture(scope="module", name="rows")
def _rows():
    """One column is most of a sum, five are little of it."""
    numbers = np.random.default_rng(0).normal(size=(ROWS, 6)) * np.array([3.0] + [1.0] * 5)
    return Inputs(torch.zeros(ROWS, 0, dtype=torch.int64), torch.from_numpy(numbers.astype(np.float32)), ())


def home(rows, **options):
    return Home(rows, COLUMNS, TRAIN, Exchange(bits=3), **options)


def test_what_holds_the_limit_is_sent_as_it_is(rows):
    found = release(learnt(rows), None, home(rows, limit=1.0), learnt)
    assert found.codes.max() == 7
    assert np.array_equal(found.codes, found.cells.code(learnt(rows).embed(rows)))
    assert found.audit.worst <= 1.0
    assert found.as_dict()["bottom"] == "own"
    assert np.array_equal(release(learnt(rows), None, home(rows), learnt).codes, found.codes), "a limit changes nothing"


def test_without_an_attack_nothing_is_held_against_a_limit(rows):
    assert release(learnt(rows), None, home(rows, attacked=False), learnt).audit is None


def test_a_refusal_names_the_column_and_what_would_hold_measured(rows):
    """Fewer bits blur the sum; without the large column no other is read as surely; each says how much is read then."""
    with pytest.raises(LimitError) as refused:
        release(learnt(rows), None, home(rows, limit=0.9), learnt)
    said = str(refused.value)
    assert re.search(r"limit = 0\.9: decoders recovered up to [01]\.\d+ of 'a'", said)
    bits, read = re.search(r"bits = (\d), which needs a new `run` \((\d\.\d+)\)", said).groups()
    fewer = Home(rows, COLUMNS, TRAIN, Exchange(bits=int(bits)))
    assert release(learnt(rows), None, fewer, learnt).audit.worst == pytest.approx(float(read), abs=1e-3)
    assert float(read) < 0.9
    more = Home(rows, COLUMNS, TRAIN, Exchange(bits=int(bits) + 1))
    assert release(learnt(rows), None, more, learnt).audit.worst > 0.9, "it is the largest"
    read = re.search(r"withheld = \['a'\], in this run \((\d\.\d+)\)", said)[1]
    without = home(rows, withheld=("a",))
    found = release(learnt(without.shown), None, without, learnt).audit
    assert found.worst == pytest.approx(float(read), abs=1e-3)
    raised = float(re.search(r"raise the limit to (\d\.\d+)", said)[1])
    assert release(learnt(rows), None, home(rows, limit=raised), learnt).audit.holds(raised)


def test_where_nothing_holds_that_is_said(rows):
    few, columns = Inputs(rows.categorical, rows.numeric[:, :2], ()), Columns((), ("a", "b"))
    with pytest.raises(LimitError, match="neither fewer bits nor columns hold"):
        release(learnt(few), None, Home(few, columns, TRAIN, Exchange(bits=2), limit=0.01), learnt)


def test_withheld_columns_are_not_shown():
    rows = Inputs(torch.arange(4).reshape(2, 2), torch.arange(6.0).reshape(2, 3), (4, 4))
    columns = Columns(("port", "day"), ("wind", "rain"), ("rain",))
    found = shown(rows, columns, ["day", "rain"])
    assert found.categorical.tolist() == [[0], [2]]
    assert found.numeric.tolist() == [[0.0], [3.0]]
    assert found.cardinalities == (4,)
    with pytest.raises(UsageError, match="mind"):
        shown(rows, columns, ["mind"])
    with pytest.raises(UsageError, match="no column is left"):
        shown(rows, columns, columns.names)
