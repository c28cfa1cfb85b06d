"""Tokens in a file find the rows that tokens in memory find, whatever is there twice."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.align.directory import Directory
from tacit.align.ids import read_ids
from tacit.errors import DataError
from tacit.serve.tokens import TokenTable, tokens_of

KEY = b"k" * 32


@given(st.lists(st.none() | st.integers(0, 60), min_size=1, max_size=80))
def test_rows_and_report_are_those_of_ids_in_memory(tmp_path_factory, ids):
    table, folder = pl.DataFrame({"id": ids}, schema={"id": pl.Int64}), tmp_path_factory.getbasetemp()
    asked = tokens_of(KEY, read_ids(pl.DataFrame({"id": range(70)}), "id").hashes)
    if table["id"].drop_nulls().is_duplicated().all():
        with pytest.raises(DataError) as told:
            read_ids(table, "id")
        with pytest.raises(DataError) as also:
            TokenTable.read(table, ("id",), KEY, folder)
        assert str(also.value) == str(told.value)
        return
    known = read_ids(table, "id")
    found = TokenTable.read(table, ("id",), KEY, folder)
    assert found.report == known.report
    directory = Directory(tokens_of(KEY, known.hashes), known.rows)
    assert found.directory.rows(asked).tolist() == directory.rows(asked).tolist()
    assert len(found) == len(table) - known.report.missing
    if not known.report.repeated_ids:
        assert np.array_equal(found.tokens(0, len(found)), tokens_of(KEY, known.hashes))
        assert found.rows(0, len(found)).tolist() == known.rows.tolist()


def test_many_rows_in_blocks(tmp_path):
    table = pl.DataFrame({"id": np.random.default_rng(0).permutation(1000), "x": 0})
    table.write_parquet(tmp_path / "table.parquet")
    found = TokenTable.read(tmp_path / "table.parquet", ("id",), KEY, tmp_path)
    tokens = np.concatenate([found.tokens(start, 300) for start in range(0, 1000, 300)])
    rows = np.concatenate([found.rows(start, 300) for start in range(0, 1000, 300)])
    assert rows.tolist() == list(range(1000))
    assert found.directory.rows(tokens).tolist() == list(range(1000))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.parquet"], "the file has no name"
