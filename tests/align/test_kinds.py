"""What the columns of a party's own table are taken for, as they come."""

from __future__ import annotations

from datetime import date, datetime, time

import polars as pl
import pytest

from tacit.align import kinds as module
from tacit.align.kinds import kinds

ROWS = 240


def every(*values):
    return [values[row % len(values)] for row in range(ROWS)]


COLUMNS = {
    "text": (every("Büro", "Web", None), "categorical"),
    "yes": (every("ja", "nein"), "categorical"),
    "boolean": (every(True, False, None), "categorical"),
    "few": (every(0, 1, 2, 3), "categorical"),
    "few floats": (every(0.0, 1.0, None), "categorical"),
    "post code": (every("01067", "80331"), "categorical"),
    "one value or none": (every("x", None), "categorical"),
    "numbers": ([row / 7 for row in range(ROWS)], "numeric"),
    "many whole": ([row % 50 for row in range(ROWS)], "numeric"),
    "numbers as text": ([f"{row / 7}" for row in range(ROWS)], "numeric"),
    "numbers with NA": ([f"{row / 7}" if row else "NA" for row in range(ROWS)], "numeric"),
    "dates": (every(date(2014, 1, 19), date(2014, 2, 1), None), "dates"),
    "dates as text": (every("2014-01-19", "2014-02-01", ""), "dates"),
    "german dates": (every("19.01.2014", "1.2.2014"), "dates"),
    "at midnight": (every(datetime(2014, 1, 19), datetime(2014, 2, 1)), "dates"),
    "times": (every(datetime(2014, 1, 19, 8, 30), datetime(2014, 2, 1)), "times"),
    "times as text": (every("2014-01-19T08:30:00Z", "2014-02-01 00:00"), "times"),
}


@pytest.fixture(params=["frame", "csv"], name="source")
def _source(request, tmp_path):
    """The same table as its owner holds it, and as text, of which types can only be guessed."""

    def made(columns):
        table = pl.DataFrame(columns, strict=False)
        if request.param == "frame":
            return table
        table.write_csv(tmp_path / "table.csv")
        return tmp_path / "table.csv"

    return made


def test_columns_are_what_they_look_like(source):
    found = kinds(source({name: values for name, (values, _) in COLUMNS.items()}))
    assert {one.name: one.what for one in found} == {name: what for name, (_, what) in COLUMNS.items()}
    assert not any(one.why for one in found)


LEFT_OUT = {
    "constant": (every("DE"), "is 'DE' in every row"),
    "constant number": (every(7.0), "is '7' in every row"),
    "id": ([f"V-{row}" for row in range(ROWS)], "is another in every row, as an id is"),
    "number of the row": (list(range(ROWS)), "is another in every row, as an id is"),
    "decimal commas": (
        [f"{row},5" for row in range(ROWS)],
        "holds '0,5' in row 0 (counted from 0), which is not a number: write 0.5 with a point, and name it under "
        "numeric",
    ),
    "a word among numbers": (
        [f"{row / 7}" if row != 3 else "n.v." for row in range(ROWS)],
        "holds 'n.v.' in row 3 (counted from 0), which is not a number: leave it empty, and name it under numeric",
    ),
    "a word among dates": (
        [f"2014-01-{row % 28 + 1:02}" if row != 5 else "unknown" for row in range(ROWS)],
        "holds 'unknown' in row 5 (counted from 0), which is not a date: leave it empty, and name it under dates",
    ),
    "american dates": (
        [f"01/{row % 28 + 1:02}/2014" for row in range(ROWS)],
        "has dates such as '01/01/2014': write them as 2014-01-19, and name it under dates",
    ),
}


def test_what_nothing_can_be_learnt_of_is_left_out_with_a_word(source):
    found = kinds(source({name: values for name, (values, _) in LEFT_OUT.items()}))
    assert {one.name: one.why for one in found} == {name: why for name, (_, why) in LEFT_OUT.items()}
    assert {one.what for one in found} == {"left out"}


def test_columns_of_other_types_are_left_out():
    table = pl.DataFrame({"empty": [None, None], "list": [[1], [2]], "time": [time(8), time(9)], "x": [0.5, 1.5]})
    assert {one.name: one.why for one in kinds(table)} == {
        "empty": "is empty",
        "list": "holds List(Int64): neither text nor numbers nor dates",
        "time": "holds Time: neither text nor numbers nor dates",
        "x": "",
    }


def test_some_columns_are_not_asked_for_and_a_table_without_others_has_none():
    table = pl.DataFrame({"id": [1, 2], "x": [0.5, 1.5]})
    assert [one.name for one in kinds(table, but=("id",))] == ["x"]
    assert kinds(table, but=("id", "x")) == []


def test_of_a_long_table_the_first_rows_are_looked_at(monkeypatch):
    monkeypatch.setattr(module, "_LOOKED_AT", 100_000)
    monkeypatch.setattr(module, "blocks", lambda source, names: source.select(names).iter_slices(100_000))
    table = pl.DataFrame({"x": ["a", "b"] * 50_000 + [str(row) for row in range(100_000)]})
    assert [one.what for one in kinds(table)] == ["categorical"]
