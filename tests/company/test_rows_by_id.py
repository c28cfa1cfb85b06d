"""Whose row it is never depends on where it stands: aligned ids are looked up in a table as it is now."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace

import numpy as np
import polars as pl
import pytest

from benchmarks._companies import contract, two_companies
from tacit.align.ids import read_ids
from tacit.cli.run import train
from tacit.company import aligned as alignments
from tacit.company.agreed import agree
from tacit.company.align import align
from tacit.company.aligned import aligned, counted_facts, facts_of, pin, store
from tacit.company.facts import PREDICTION, SPLIT_RUN, SplitRun
from tacit.company.folder import Folder
from tacit.errors import DataError, StorageError, UsageError
from tests.exchange.companies import Companies
from tests.exchange.companies import table as rows
from tests.torture.world import free_port

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


@pytest.mark.parametrize("mode", ["split", "one_shot"])
def test_ids_are_read_and_hashed_once_a_command(mode, tmp_path, monkeypatch, capsys):
    """With the report at its end, and with the audit."""
    if mode == "split":
        companies = two_companies(tmp_path, (table(), table(1)), port=free_port(), text=contract(batch_size=64))
        folders = [company.path for company in companies]
    else:
        made = Companies(tmp_path, rows(900))
        made.set("airport", columns='numeric = ["wind"]', more='learn = { learner = "linear" }')
        folders = [made.path / "airline", made.path / "airport"]
    for folder in folders:
        agree(Folder(folder))
    with ThreadPoolExecutor(2) as both:
        list(both.map(align, folders, timeout=120))
    read, known = [], alignments.read_ids
    monkeypatch.setattr(alignments, "read_ids", lambda *args: read.append(args[0]) or known(*args))
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda folder: train(folder=folder, as_json=True, quiet=True), folders, timeout=120))
    assert sorted(read) == sorted(folder / "data.parquet" for folder in folders)


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
        db.execute("PRAGMA user_version = 3")
    with pytest.raises(StorageError, match="later version"):
        aligned(airline)
    facts_of(airline).path.unlink()
    with pytest.raises(UsageError, match="nothing is aligned"):
        aligned(airline)
    (airline.run_folder(airline.terms) / "alignment.json").write_text("{}")
    with pytest.raises(UsageError, match="aligned by an older version"):
        aligned(airline)


def test_a_file_of_the_first_version_is_read(airline):
    """There split runs were a table of their own, without seals."""
    facts, rows = facts_of(airline), aligned(airline).rows
    split = SplitRun("ab", "small", "cd", "late", "matched(leak_auc=0.6, visits=3)", 3)
    with sqlite3.connect(facts.path) as db:
        db.execute("DROP TABLE records")
        db.execute(
            "CREATE TABLE split_runs (contract TEXT PRIMARY KEY, run TEXT NOT NULL, alignment TEXT NOT NULL, "
            "label TEXT, protection TEXT NOT NULL, epochs INTEGER NOT NULL, time TEXT NOT NULL)"
        )
        db.execute("INSERT INTO split_runs VALUES (?, ?, ?, ?, ?, ?, 'then')", astuple(split))
        db.execute("PRAGMA user_version = 1")
    assert facts.split_runs() == [split]
    assert np.array_equal(aligned(airline).rows, rows)
    facts.enter(split)
    assert facts.split_runs() == [split]
    facts.enter(replace(split, contract="ef"))
    assert [one.contract for one in facts.split_runs()] == ["ab", "ef"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET fields = replace(fields, 'late', 'other') WHERE number = 2",
        "UPDATE records SET fields = replace(fields, '\"epochs\": 3', '\"epochs\": 1') WHERE number = 1",
        "UPDATE records SET kind = 'prediction' WHERE number = 2",
        "DELETE FROM records WHERE number = 1",
        "DELETE FROM records WHERE number = 2",
        "UPDATE records SET number = 9 WHERE number = 3",
        "INSERT INTO records SELECT 4, kind, fields, seal FROM records WHERE number = 3",
    ],
)
def test_a_record_that_was_changed_is_noticed(airline, change):
    facts = facts_of(airline)
    for run in ("ab", "cd", "ef"):
        facts.enter(SplitRun(run, run, "00", "late", "matched", 3))
    with sqlite3.connect(facts.path) as db:
        assert db.execute(change).rowcount == 1
    for ask in (facts.split_runs, lambda: facts.records(PREDICTION), lambda: facts.enter(SplitRun(*"abcde", 3))):
        with pytest.raises(StorageError, match=r"facts.sqlite: record \d is gone, or not as it was written"):
            ask()


def test_an_end_that_was_cut_off_is_an_older_copy(airline):
    with counted_facts(airline, SPLIT_RUN) as facts:
        facts.enter(SplitRun("ab", "small", "00", "late", "matched", 3))
    with sqlite3.connect(facts.path) as db:
        db.execute("DELETE FROM records")
    with pytest.raises(StorageError, match="knows of 0 split runs, and something left in 1"):
        counted_facts(airline, SPLIT_RUN).__enter__()


def test_no_id_can_be_tried(airline):
    """Neither ids nor hashes that anybody could compute are in the file."""
    content = facts_of(airline).path.read_bytes()
    own = read_ids(airline.data, "id")
    assert not any(own.hashes[place, :8].tobytes() in content for place in range(COUNT))
    assert airline.path.joinpath("facts.sqlite").stat().st_mode & 0o777 == 0o600
