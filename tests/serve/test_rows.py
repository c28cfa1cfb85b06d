"""A feature party's rows from a file, a database and a function: the same rows, and mistakes told at the start."""

import numpy as np
import polars as pl
import pytest
import sqlalchemy as sql
import torch

from tacit.align.ids import read_ids
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.contracts import Message
from tacit.errors import DataError, UsageError
from tacit.serve.answering import Answering
from tacit.serve.halves import load_embedder
from tacit.serve.rows import open_rows
from tacit.serve.tokens import token_key, tokens_of
from tests.serve.files import copied
from tests.serve.postgres import fill

COLUMNS = ("port", "wind", "rain")
URL = "TACIT_TEST_ROWS"
QUERY = "select id, port, wind, rain, 'half past 12:30, 100%' as remark from weather;"


@pytest.fixture(name="world")
def _world(exchanged, tmp_path):
    return copied(exchanged.path, tmp_path)


def airport(world, rows=""):
    settings = world / "airport" / "party.toml"
    kept = [line for line in settings.read_text().splitlines() if not line.startswith("serve.")]
    settings.write_text("\n".join([*kept, f"serve.rows = {{ {rows} }}\n"]))
    return Folder(world / "airport")


def by_query(world, query=QUERY):
    return airport(world, f'query = """{query}""", url_from = "{URL}"')


def table_of(world):
    return pl.read_parquet(world / "airport" / "data.parquet").select("id", *COLUMNS)


STORE = """
import polars as pl

class Store:
    def __init__(self, ids, columns):
        self.names = [*ids, *columns]
    def ids(self):
        return pl.read_parquet({path!r}, columns=["id"])
    def fetch(self, ids):
        return pl.read_parquet({path!r}).filter(pl.col("id").is_in(ids["id"].to_list())).select(self.names)
"""


def ways(world, engine):
    """The party's folder with its rows fetched in each of the two ways."""
    fill(engine, table_of(world))
    yield by_query(world)
    (world / "airport" / "store.py").write_text(STORE.format(path=str(world / "airport" / "data.parquet")))
    yield airport(world, 'factory = "store:Store"')


def test_the_same_rows_and_the_same_bytes_in_each_way(world, database):
    whole, embedder = table_of(world), load_embedder(world / "airport", "test")
    for folder in ways(world, database):
        rows = open_rows(folder, embedder.columns)
        known = rows.ids()
        assert sorted(known["id"]) == sorted(whole["id"])
        asked = known.sample(300, seed=1, shuffle=True)
        gone = pl.concat([asked.head(150), pl.DataFrame({"id": ["nobody's"]}), asked.tail(150)])
        found = rows.fetch(gone)
        assert found.columns == ["id", *embedder.columns]
        assert found["id"].to_list() == asked["id"].to_list(), "in the order of what was asked for"
        expected = asked.join(whole, on="id", maintain_order="left")
        assert np.array_equal(embedder.embed(found), embedder.embed(expected))
        assert not len(rows.fetch(asked.head(0)))
        assert not len(rows.fetch(pl.DataFrame({"id": ["nobody's"]})))


def test_a_file_is_held_as_the_model_takes_it(world):
    whole, embedder = table_of(world), load_embedder(world / "airport", "test")
    held = open_rows(airport(world), embedder.columns).held()
    assert held.ids.equals(whole.select("id"))
    some = torch.tensor([7, 300, 0, 41])
    expected = embedder.embed(whole[some.tolist()])
    assert np.array_equal(embedder.embed_inputs(held.inputs[some]), expected)
    assert np.array_equal(embedder.embed_inputs(held.inputs[some[:1]]), expected[:1])
    assert embedder.embed_inputs(held.inputs[some[:0]]).shape == (0, embedder.width)


def test_a_file_is_read_again_when_it_has_changed_and_a_spoilt_one_leaves_the_old_rows(world):
    path, embedder = world / "airport" / "data.parquet", load_embedder(world / "airport", "test")
    rows, before, logged = open_rows(airport(world), COLUMNS), table_of(world), []
    first = rows.held()
    assert rows.held() is first
    folder = airport(world)
    answering = Answering(
        folder, folder.run_folder(folder.terms), embedder, rows, lambda *what, **_: logged.append(what)
    )

    def known():
        """For each row of the first table whether it is known, and its bytes."""
        return answering.answer(Message(1, "tokens", torch.from_numpy(tokens), b"")).payload.numpy()

    tokens = tokens_of(token_key(aligned(folder)), read_ids(before, "id").hashes)
    told = known()
    assert told[:, 0].all()
    path.write_bytes(b"half a file")
    with pytest.raises(DataError, match=r"data\.parquet can't be read"):
        rows.held()
    assert np.array_equal(known(), told)
    before.drop("rain").write_parquet(path)
    with pytest.raises(DataError, match="has no column 'rain'"):
        rows.held()
    changed = before.head(5).with_columns(wind=pl.lit(7.0))
    changed.write_parquet(path)
    answering.refresh()
    assert rows.held().ids.equals(changed.select("id"))
    assert np.array_equal(known()[:5, 1:], embedder.embed(changed))
    assert not known()[5:].any(), "the others are gone"
    assert not logged
    answering.close()


def test_an_id_that_two_rows_have_is_nobodys(world, database):
    twice = pl.concat([table_of(world), table_of(world).head(1)])
    twice.write_parquet(world / "airport" / "twice.parquet")
    fill(database, twice)
    rows = open_rows(by_query(world), COLUMNS)
    assert rows.fetch(twice.select("id").head(3))["id"].to_list() == twice["id"][1:3].to_list()
    folder = airport(world, 'path = "twice.parquet"')
    embedder, rows = load_embedder(folder, "test"), open_rows(folder, COLUMNS)
    answering = Answering(folder, folder.run_folder(folder.terms), embedder, rows, lambda *_, **__: None)
    assert answering.known == len(twice) - 2
    answering.close()


def test_ids_of_several_columns_of_other_kinds(world, database):
    settings = world / "airport" / "party.toml"
    settings.write_text(settings.read_text().replace('ids = ["id"]', 'ids = ["day", "flight"]'))
    first, many = pl.date(2026, 1, 1), len(table_of(world))
    numbers = pl.Series("flight", np.arange(many) + 2**40)
    table = table_of(world).with_columns(numbers, day=first + pl.duration(days=pl.int_range(pl.len()) % 7)).drop("id")
    table = table.select("day", "flight", *COLUMNS)
    fill(database, table)
    cast = "date(day)" if database.dialect.name == "sqlite" else "day"
    rows = open_rows(by_query(world, f"select {cast} as day, flight, port, wind, rain from weather"), COLUMNS)
    known = rows.ids()
    assert len(known) == many
    found = rows.fetch(known.tail(700))
    assert found["flight"].to_list() == known["flight"][-700:].to_list()
    table.write_parquet(world / "airport" / "days.parquet")
    held = open_rows(airport(world, 'path = "days.parquet"'), COLUMNS).held()
    assert held.ids.equals(table.select("day", "flight"))


def test_a_value_never_becomes_part_of_a_query(world, database):
    bad = "x'); drop table weather; --"
    fill(database, pl.concat([table_of(world), table_of(world).head(1).with_columns(id=pl.lit(bad))]))
    rows = open_rows(by_query(world), COLUMNS)
    assert rows.fetch(pl.DataFrame({"id": [bad, "%s", ":id", "f1"]}))["id"].to_list() == [bad, "f1"]
    assert len(rows.ids()) == len(table_of(world)) + 1


# --- what is told at the start ---------------------------------------------------------------------------------------


def test_columns_that_are_missing_or_of_another_kind_are_named_at_the_start(world, database):
    table = table_of(world)
    (world / "airport" / "store.py").write_text(STORE.format(path=str(world / "airport" / "other.parquet")))
    for other, match in (
        (table.rename({"rain": "Rain"}), "no column 'rain'|columns 'rain' once|'rain' not found|unable to find column"),
        (table.with_columns(wind=pl.lit("strong")), "'wind' holds 'strong' in row 0"),
        (table.with_columns(id=pl.int_range(pl.len()) + 0.5), "has the id 0.5 in the column 'id'"),
    ):
        other.write_parquet(world / "airport" / "other.parquet")
        fill(database, other)
        for folder in (by_query(world, "select * from weather"), airport(world, 'factory = "store:Store"')):
            with pytest.raises(DataError, match=rf"\[serve\] rows\..*({match}|ColumnNotFoundError)"):
                open_rows(folder, COLUMNS)
        if other["id"].dtype == pl.String:
            with pytest.raises(DataError, match=match):
                open_rows(airport(world, 'path = "other.parquet"'), COLUMNS)


def test_a_bad_value_far_down_in_a_file_is_told_at_the_start(world):
    far = table_of(world).with_columns(
        wind=pl.when(pl.int_range(pl.len()) == 777).then(pl.lit("far")).otherwise(pl.lit("1"))
    )
    far.write_csv(world / "airport" / "far.csv")
    with pytest.raises(DataError, match=r"far\.csv: the column 'wind' holds 'far' in row 777"):
        open_rows(airport(world, 'path = "far.csv"'), COLUMNS)


def test_what_a_database_says_is_told_without_its_password(world, database, monkeypatch):
    with pytest.raises(DataError, match=r"rows\.query can't be run: .*nothing_here"):
        open_rows(by_query(world, "select * from nothing_here"), COLUMNS)
    monkeypatch.delenv(URL)
    with pytest.raises(UsageError, match=f"environment variable {URL} is not set"):
        open_rows(by_query(world), COLUMNS)
    for url, match in (
        ("sesame", "is no connection string"),
        ("postgresql+nothing://me:sesame@host/db", "is no connection string"),
        ("oracle+cx_oracle://me:sesame@host/db", "driver that is not installed"),
        ("postgresql+psycopg://me:sesame@127.0.0.1:1/db", "can't be run"),
    ):
        monkeypatch.setenv(URL, url)
        with pytest.raises(UsageError, match=match) as raised:
            open_rows(by_query(world), COLUMNS)
        assert "sesame" not in str(raised.value)


def test_a_failing_database_says_so_without_ids_and_is_asked_again(world, database):
    fill(database, table_of(world))
    rows = open_rows(by_query(world), COLUMNS)
    with database.begin() as connection:
        connection.execute(sql.text("drop table weather"))
    with pytest.raises(DataError, match=r"rows\.query failed with a \w+Error") as raised:
        rows.fetch(pl.DataFrame({"id": ["f17"]}))
    assert "f17" not in str(raised.value)
    fill(database, table_of(world))
    assert len(rows.fetch(pl.DataFrame({"id": ["f17"]}))) == 1


@pytest.mark.parametrize(
    ("store", "match"),
    [
        ("def Store(ids, columns): return 7", r"gave a int: return an object with the\s+methods"),
        ("class Store:\n  def __init__(*_): 0\n  ids = fetch = lambda *_: 1 / 0", "failed with a ZeroDivisionError"),
        ("class Store:\n  def __init__(*_): 0\n  ids = fetch = lambda *_: 7", "gave a int: give a polars"),
        ("def Shop(): 0", "there is no function 'Store'"),
    ],
)  # fmt: skip
def test_a_function_that_gives_something_else(world, store, match):
    (world / "airport" / "store.py").write_text(store)
    with pytest.raises(UsageError, match=match):
        open_rows(airport(world, 'factory = "store:Store"'), COLUMNS)


def test_settings_that_do_not_go_together_and_a_password_that_is_not_repeated(world):
    for rows, match in (
        ('path = "x.parquet", query = "select 1"', r"\[serve\] rows\.query: does not go with path"),
        ('url_from = "X"', r"\[serve\] rows\.url_from: is for a query alone"),
        ('query = "select 1", url_from = "postgresql://me:sesame@host"', "no name of an environment variable"),
    ):
        with pytest.raises(UsageError, match=match) as raised:
            _ = airport(world, rows).config
        assert "sesame" not in str(raised.value)
