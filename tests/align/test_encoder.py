"""An encoder that learns from rows in batches, and the batches that a file is read in."""

from __future__ import annotations

import itertools
import math
from datetime import date, datetime
from fractions import Fraction

import numpy as np
import polars as pl
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.align.encoder import Columns, Encoder
from tacit.align.sources import blocks

COLUMNS = Columns(categorical=("carrier",), numeric=("seats", "price"), flagged=("seats",))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 500), max_size=8), st.integers(0, 3))
def test_any_batches_teach_the_same(cuts, seed):
    noise = np.random.default_rng(seed)
    table = pl.DataFrame(
        {
            "carrier": [f"carrier number {n}" if n < 60 else None for n in noise.integers(0, 64, 500)],
            "seats": [None if n % 9 == 0 else n for n in noise.integers(1, 400, 500).tolist()],
            "price": noise.normal(1e6, 3.0, 500),
        }
    )
    edges, order = sorted([0, 500, *cuts]), noise.permutation(500)
    batches = [(table[order[a:b]], order[a:b]) for a, b in itertools.pairwise(edges)]
    found, whole = Encoder.fit_batches(batches, COLUMNS), Encoder.fit(table, COLUMNS, np.arange(500))
    assert found.to_state() == whole.to_state()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e150, 1e150), min_size=2, max_size=60))
def test_mean_and_deviation_are_those_of_exact_arithmetic(values):
    ((mean, spread),) = Encoder.fit(
        pl.DataFrame({"x": values}), Columns(numeric=("x",)), np.arange(len(values))
    ).statistics
    exact = [Fraction(value) for value in values]
    middle = sum(exact) / len(exact)
    square = sum((value - middle) ** 2 for value in exact) / len(exact)
    expected = (float(middle), math.sqrt(square) or 1.0) if len(set(values)) > 1 else (values[0], 1.0)
    assert (mean, spread) == expected


def test_rounding_is_no_spread():
    """The sum of 0.1 over seven rows is not seven times 0.1."""
    table = pl.DataFrame({"x": [0.1] * 7})
    for batches in ([(table, np.arange(7))], [(table, np.arange(7)), (table[:3], np.arange(3))]):
        assert Encoder.fit_batches(batches, Columns(numeric=("x",))).statistics == ((0.1, 1.0),)


def test_batches_of_nothing_and_of_another_kind():
    number, text, nothing = (pl.DataFrame({"x": values}) for values in ([3, 3], ["3", "a", None], [None, None]))
    row = np.arange(2)
    columns = Columns(categorical=("x",))
    fitted = Encoder.fit_batches([(nothing, row), (number, row), (nothing, row)], columns)
    assert fitted.vocabularies[0].to_list() == ["3"]
    assert Encoder.fit_batches([], columns).cardinalities == (1,)
    assert Encoder.fit_batches([(number, row), (text, row)], columns).vocabularies[0].to_list() == ["3", "a"]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 130), st.integers(1, 60))
def test_blocks_of_any_size(tmp_path_factory, size, group):
    path = tmp_path_factory.mktemp("blocks") / "t.parquet"
    pl.DataFrame({"x": np.arange(100), "y": np.arange(100)}).write_parquet(path, row_group_size=group)
    for source in (path, pl.read_parquet(path)):
        found = list(blocks(source, ["x"], size))
        assert {len(block) for block in found[:-1]} <= {size}
        assert pl.concat(found)["x"].to_list() == list(range(100))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_a_row_alone_is_encoded_as_among_many(seed):
    draw = np.random.default_rng(seed)

    def column(values):
        return [values[place] if place < len(values) else None for place in draw.integers(0, len(values) + 2, 60)]

    table = pl.DataFrame(
        {
            "text": column(["", "a", "A", "é", "z", "\U0001f6e9", "\uffee"]),
            "whole": column([-(2**63), -1, 0, 7, 2**63 - 1]),
            "yes": column([True, False]),
            "small": pl.Series(column([1, 2]), dtype=pl.Int8),
            "x": column([-0.0, 0.0, 1e-300, 1e9]),
        }
    )
    columns = Columns(("text", "whole", "yes", "small", "x"), ("x", "small"), ("x",))
    encoder = Encoder.fit_batches([(table[:30], np.arange(30))], columns)
    whole = encoder.encode(table)
    alone = [encoder.encode(table[row : row + 1]) for row in range(len(table))]
    assert torch.equal(torch.cat([one.categorical for one in alone]), whole.categorical)
    assert torch.equal(torch.cat([one.numeric for one in alone]), whole.numeric)


VALUES = {
    "whole": [10, 9, None, 2, -1],
    "real": [10.0, 9.5, None, 1e20, -1.25],
    "yes": [True, False, None, True, True],
    "day": [date(2013, 1, 2), date(2012, 5, 1), None, date(2013, 1, 3), date(2011, 1, 1)],
    "moment": [datetime(2013, 1, 2, 3, 4, 5, 6), None, datetime(2013, 1, 2), datetime(1, 1, 1), datetime(2013, 1, 2)],
    "text": ["b", "", None, "a\n, b", "Ab"],
}


def test_categories_are_the_same_whatever_file_they_lie_in(tmp_path):
    table = pl.DataFrame(VALUES)
    table.write_csv(tmp_path / "table.csv")
    columns = Columns(categorical=tuple(VALUES))
    (text,) = blocks(tmp_path / "table.csv", list(VALUES))
    ours, theirs = (Encoder.fit(one, columns, np.arange(5)) for one in (table, text))
    assert ours.to_state() == theirs.to_state()
    assert (ours.encode(text).categorical == theirs.encode(table).categorical).all()
    codes = dict(zip(VALUES, ours.encode(table).categorical.T.tolist(), strict=True))
    assert codes["whole"] == [4, 3, 0, 2, 1]  # in the order of the numbers, not of their signs
    assert codes["real"] == [3, 2, 0, 4, 1]
    assert codes["day"] == [3, 2, 0, 4, 1]
    assert codes["text"] == [3, 0, 0, 2, 1]  # an empty text is a missing one, as in a CSV file


def test_what_columns_are_encoded_to_has_names_each_once():
    columns = Columns(("hour", "port"), ("hour", "wind"), ("wind",), ("day",), ())
    assert columns.inputs == (
        "hour", "port", "day weekday", "day month", "hour number", "wind", "day day", "wind missing",
    )  # fmt: skip
    table = pl.DataFrame({"hour": [1, 2], "port": ["a", "b"], "wind": [1.0, None], "day": [date(2026, 1, 5)] * 2})
    encoded = Encoder.fit(table, columns, np.arange(2)).encode(table)
    assert len(encoded.names) == encoded.categorical.shape[1] + encoded.numeric.shape[1]
