"""Whose row it is never depends on where it stands: aligned ids are looked up in a table as it is now."""

from __future__ import annotations

import sqlite3
import time

import numpy as np
import polars as pl
import pytest

from tacit.align.ids import read_ids
from tacit.company.aligned import aligned, facts_of, pin, store
from tacit.errors import DataError, StorageError, UsageError
from tests.companies import contract, two_companies

COUNT = 400
COMMON = np.random.default_rng(5).permutation(COUNT)[:250]


def table(seed: int = 0) -> pl.DataFrame:
    noise = np.random.default_rng(seed)
    ids = np.arange(COUNT) + 1000
    return pl.DataFrame({"id": ids, "x": ids / 7, "y": noise.integers(0, 2, COUNT)})


@pytest.fixture
def airline(tmp_path):
    airline, _ = two_companies(tmp_path, (table(), table()), port=1)
    put(airline)
    return airline


def put(folder, name="ab", positions=COMMON):
    own = read_ids(folder.data, "id")
    return store(folder, own, positions, id=name, seed=3, digest="cd", columns=["id"])


def people(folder):
    """The ids of the aligned rows, -1 where one is gone."""
    return aligned(folder).table(folder.data, ["id"]).cast(pl.Int64)["id"].fill_null(-1).to_list()


EXPECTED = (COMMON + 1000).tolist()


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.sort("x", descending=True),
        lambda one: pl.concat([table().head(50).with_columns(pl.col("id") - 500), one]),
        lambda one: one.with_columns(pl.col("id").cast(pl.String)),
        lambda one: one.with_columns(x=pl.lit(0.0)),
    ],
    ids=["sorted", "rows on top", "another type", "other values"],
)
def test_rows_are_found_wherever_they_stand(airline, change):
    change(table()).write_parquet(airline.data)
    assert people(airline) == EXPECTED


def test_another_format(airline):
    before = airline.data
    text = (airline.path / "party.toml").read_text()
    (airline.path / "party.toml").write_text(text.replace("data.parquet", "data.csv"))
    table().sample(fraction=1.0, shuffle=True, seed=2).write_csv(before.with_suffix(".csv"))
    assert people(type(airline)(airline.path)) == EXPECTED


def test_a_row_that_is_gone_and_one_that_is_there_twice(airline):
    first, second = EXPECTED[7], EXPECTED[100]
    left = table().filter(pl.col("id") != first)
    pl.concat([left, table().filter(pl.col("id") == second)]).write_parquet(airline.data)
    assert people(airline) == [-1 if one in (first, second) else one for one in EXPECTED]
    assert aligned(airline).found(airline.data).gone == 2


def test_too_much_is_gone_counted_over_the_whole_table(airline):
    """Over the aligned rows it would tell about rows that the partner has picked."""
    others = np.setdiff1d(np.arange(COUNT), COMMON) + 1000
    table().filter(~pl.col("id").is_in(others[:4])).write_parquet(airline.data)
    assert people(airline) == EXPECTED
    for gone in (others[:5], np.array(EXPECTED[:5])):
        table().filter(~pl.col("id").is_in(gone)).write_parquet(airline.data)
        with pytest.raises(
            DataError, match=r"5 of the 400 ids that were aligned are no longer in .*tacit align --again"
        ):
            people(airline)


def test_a_table_that_changes_while_it_is_read(airline):
    rows = aligned(airline)
    assert (rows.rows >= 0).all()
    time.sleep(0.01)
    table().reverse().write_parquet(airline.data)
    with pytest.raises(DataError, match="was changed while it was read"):
        rows.table(airline.data, ["x"])


def test_an_alignment_belongs_to_the_party_and_a_run_that_has_begun_keeps_its_own(airline):
    (airline.path / "contract.toml").write_text(contract(run="second"))
    second = type(airline)(airline.path)
    assert aligned(second).id == pin(second).id == "ab"
    assert people(second) == EXPECTED
    put(airline, "ef", COMMON[::-1])
    assert aligned(airline).id == "ef"  # it has not begun
    assert aligned(second).id == "ab"
    put(airline, "01", COMMON[:100])
    kept = {row[0] for row in sqlite3.connect(facts_of(airline).path).execute("SELECT id FROM alignments")}
    assert kept == {"ab", "01"}  # what nobody asks for any more is gone


@pytest.mark.parametrize("what", ["UPDATE aligned SET keys = zeroblob(16 * 400)", "DELETE FROM aligned"])
def test_what_was_edited_is_not_used(airline, what):
    with sqlite3.connect(facts_of(airline).path) as db:
        db.execute(what)
    with pytest.raises(StorageError, match="not as it was written down"):
        people(airline)


def test_a_file_of_a_later_version_and_one_of_an_older(airline, tmp_path):
    with sqlite3.connect(facts_of(airline).path) as db:
        db.execute("PRAGMA user_version = 2")
    with pytest.raises(StorageError, match="later version"):
        aligned(airline)
    facts_of(airline).path.unlink()
    with pytest.raises(UsageError, match="nothing is aligned"):
        aligned(airline)
    (airline.run_folder(airline.terms) / "alignment.json").write_text("{}")
    with pytest.raises(UsageError, match="aligned by an older version"):
        aligned(airline)


def test_no_id_can_be_tried(airline):
    """Neither ids nor hashes that anybody could compute are in the file."""
    content = facts_of(airline).path.read_bytes()
    own = read_ids(airline.data, "id")
    assert not any(own.hashes[place, :8].tobytes() in content for place in range(COUNT))
    assert airline.path.joinpath("facts.sqlite").stat().st_mode & 0o777 == 0o600
