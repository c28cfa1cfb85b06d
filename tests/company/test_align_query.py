"""A party's table from a query: its rows as they were when they were aligned, some in memory at a time."""

import functools
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from tacit.align import sql as queries
from tacit.company.aligned import Log, aligned
from tacit.company.facts import ALIGNMENT
from tacit.company.folder import Folder
from tacit.company.ready import checks
from tacit.errors import DataError, RefusedError, UsageError
from tacit.split.train import train
from tests.at_once import all_of
from tests.serve import postgres

URL = "TACIT_TEST_ROWS"
QUERY = "select id, x, 'half past 12:30, 100%' as remark from weather where x > -100;"


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(queries, "_BLOCK", 16)


def by_query(company, query=QUERY):
    """The company's folder with a query in the place of its file."""
    settings = company.path / "party.toml"
    named = f'query = """{query}""", url_from = "{URL}"'
    settings.write_text(settings.read_text().replace('path = "data.parquet"', named))
    return Folder(company.path)


def both(companies, act):
    return all_of(*(functools.partial(act, Folder(one.path)) for one in companies))


def test_rows_of_a_query_are_those_that_were_aligned_whatever_becomes_of_the_database(companies, database):
    airline, airport = companies
    table = pl.read_parquet(airport.data)
    postgres.fill(database, table)
    airport.data.unlink()
    airport = by_query(airport)
    found = both(companies, Folder.align)[1]
    assert airport.data == airport.path / "runs" / "small" / "table.parquet"
    assert airport.data.stat().st_mode & 0o77 == 0
    assert {path.name for path in airport.data.parent.iterdir()} >= {"table.parquet"}
    assert not (airport.data.parent / "aligning").exists()
    expected = pl.read_parquet(airline.data)["id"].to_numpy()[aligned(airline).rows]
    assert found.table(airport.data, ["id"])["id"].to_list() == expected.tolist()

    postgres.fill(database, table.reverse().head(20))
    settings = airline.path / "party.toml"
    settings.write_text(settings.read_text() + "align.runs_a_month = 1\n")
    with pytest.raises(RefusedError, match="has aligned 1 times"):
        both(companies, lambda folder: folder.align(again=True))
    read = aligned(airport).table(airport.data, ["id", "x"])
    assert read["id"].to_list() == expected.tolist(), "a refused alignment leaves numbers and rows as they belong"
    assert np.allclose(read["x"], expected / 10)
    assert [trained.folder.name for trained in both(companies, train)] == ["small", "small"]


def test_a_check_asks_the_query(companies, database):
    _, airport = companies
    postgres.fill(database, pl.read_parquet(airport.data))
    airport = by_query(airport)
    (said,) = (one for one in checks(airport.path) if one.name == "data")
    assert said.words == "the query can be run, and has all 2 columns that are named"


@pytest.mark.parametrize(
    ("query", "match"),
    [
        (
            "select * from nothing_here",
            r"\[data\] query can't be run: .*nothing_here.*: correct it, or TACIT_TEST_ROWS",
        ),
        ("select id, x as y from weather", r"each of the columns 'x' once; it has: id, y: correct the names"),
        ("select id, x, id from weather", r"each of the columns 'id' once; it has: id, x, id"),
        ("select id, x from weather where x < -100", "gives no rows"),
    ],
)
def test_a_query_that_can_not_be_used_is_told_before_anybody_is_met(companies, database, query, match):
    _, airport = companies
    postgres.fill(database, pl.read_parquet(airport.data))
    with pytest.raises(DataError, match=match):
        by_query(airport, query).align()
    assert not Log(Folder(airport.path), ALIGNMENT).read()
    assert not list((airport.path / "runs").rglob("*.parquet*"))


def test_settings_of_a_query(companies):
    _, airport = companies
    settings = airport.path / "party.toml"
    text = settings.read_text()
    for old, new, match in (
        ("path =", 'query = "select 1", path =', r"\[data\] query: does not go with path"),
        ("path =", 'url_from = "X", path =', r"\[data\] url_from: is for a query alone"),
        ('path = "data.parquet",', "", r"\[data\] path: is missing: add it.* or an SQL query in its place"),
        ("path =", 'url_from = "postgresql://me:sesame@host", path =', "no name of an environment variable"),
    ):
        settings.write_text(text.replace(old, new))
        with pytest.raises(UsageError, match=match) as raised:
            _ = Folder(airport.path).config
        assert "sesame" not in str(raised.value)


# --- the copy --------------------------------------------------------------------------------------------------------


def copied(query, path, wanted=()):
    queries.copy_rows(query, URL, wanted, path, lambda _: None)
    return pl.read_parquet(path)


def test_types_hold_all_values_of_a_column(database, tmp_path):
    """Nothing, then whole numbers, then others: in blocks of 16 rows."""
    late, never = [None] * 40 + [*range(20)], [None] * 60
    table = pl.DataFrame({"id": [*range(60)], "late": late, "never": never, "text": [str(n) for n in range(60)]},
                         schema={"id": pl.Int64, "late": pl.Int64, "never": pl.Int64, "text": pl.String})  # fmt: skip
    postgres.fill(database, table)
    found = copied("select *, case when id < 30 then 1 else 0.5 end as half from weather order by id", tmp_path / "t")
    assert found.schema == {"id": pl.Int64, "late": pl.Int64, "never": pl.Null, "text": pl.String, "half": pl.Float64}
    assert found.select("id", "late", "text").equals(table.select("id", "late", "text"))
    assert found["half"].to_list() == [1.0] * 30 + [0.5] * 30
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["t"]


def test_a_number_is_never_made_text(databases, monkeypatch, tmp_path):
    monkeypatch.setenv(URL, databases["sqlite"])
    monkeypatch.setattr(queries, "_BLOCK", 16)
    numbers = "with recursive n(i) as (select 0 union all select i + 1 from n where i < 99) "
    with pytest.raises(DataError, match=r"the column 'id' holds Int64, and further down String: cast it"):
        copied(numbers + "select case when i < 48 then i else 'x' || i end as id from n", tmp_path / "t")
    with pytest.raises(DataError, match=r"\[data\] query failed with a \w+Error.*: look into the log") as raised:
        copied(
            numbers + "select abs(case when i < 50 then i else -9223372036854775808 end) as id from n", tmp_path / "t"
        )
    assert "overflow" not in str(raised.value)


PROGRAM = """
import json, re, sys, threading
from pathlib import Path
from tacit.align import sql

sql._BLOCK, most, over = 1 << 12, 0, threading.Event()

def watch():
    global most
    while not over.wait(0.005):
        most = max(most, int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)

watching = threading.Thread(target=watch)
watching.start()
try:
    sql.copy_rows(sys.argv[1], "TACIT_TEST_ROWS", ["id"], Path(sys.argv[2]), lambda _: None)
finally:
    over.set()
    watching.join()
print(json.dumps(most))
"""


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
def test_memory_does_not_grow_with_the_rows(name, databases, monkeypatch, tmp_path):
    if name not in databases:
        pytest.skip("no PostgreSQL is installed here: apt-get install postgresql")
    monkeypatch.setenv(URL, databases[name])
    numbers = "with recursive n(i) as (select 0 union all select i + 1 from n where i < {last}) select"
    series = "select" if name == "postgresql" else numbers
    source = "generate_series(0, {last}) as g(i)" if name == "postgresql" else "n"
    most = []
    for rows in (30_000, 600_000):
        query = f"{series} i as id, i * 0.5 as x, i || ' and some more words' as words from {source}"
        command = [sys.executable, "-c", PROGRAM, query.format(last=rows - 1), str(tmp_path / "t")]
        most.append(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
        assert pl.scan_parquet(tmp_path / "t").select("id").collect()["id"].to_list() == [*range(rows)]
    assert most[1] - most[0] < 60, most  # MB; all rows in memory would be 200 more
