"""Text as a table: which cells are read as what, and what can't be read is named."""

import gzip
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DataError
from tacit.lab.data.reading import DAY, ROW, WHY, Text, cast, collected, header, refuse_wrong

COLUMNS = {"y": "label", "n": "integer", "c": "hex"}
GOOD = b"1\t5\tff\n0\t\t\n1\t-7\t0a\n0\t12\tdeadbeef\n"
CELLS = (
    "", "0", "1", "1.0", "true", "False", " 1", "1 ", "-3", "+4", "2.5", "1e3", ".5", "5.", "nan", "NaN", "inf", "-inf",
    "x", "ff", "0FF", "123456789", "ffffffffff", "14102105", "14130105", "14102124", "2024-02-29", "2023-02-29",
    "2024-01-05 10:00", "2024-1-5", "é", "9" * 18, "9" * 30, "1_000", "0x1f", "- 1", "٣",
)  # fmt: skip


def rows(text):
    """The rows that can be used, and the numbers and reasons of the others."""
    source = Text(text, tuple(COLUMNS), COLUMNS, "\t", header=False)
    table = collected(source, source.table())
    wrong = table.filter(pl.col(WHY).is_not_null()).select(ROW, WHY)
    if len(wrong) in (0, len(table)):
        refuse_wrong(source, table)
    else:
        with pytest.raises(DataError, match=re.escape(f"{source.place(wrong[ROW][0])}: {wrong[WHY][0]}: correct it")):
            refuse_wrong(source, table)
    return table.filter(pl.col(WHY).is_null()), wrong.rows()


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n\n", b"\r\n"])
def test_the_rows_of_a_file(tmp_path, ending):
    file = tmp_path / "t.txt"
    file.write_bytes(GOOD.rstrip(b"\n") + ending)
    table, wrong = rows(file)
    assert not wrong
    assert table["y"].to_list() == [1, 0, 1, 0]
    assert table["n"].to_list() == [5, None, -7, 12]
    assert table["c"].to_list() == [255, None, 10, 0xDEADBEEF]
    assert table[ROW].to_list() == [0, 1, 2, 3]


def test_packed_lines_with_windows_ends_are_the_same(tmp_path):
    plain, file = tmp_path / "t.txt", tmp_path / "t.txt.gz"
    plain.write_bytes(GOOD)
    file.write_bytes(gzip.compress(GOOD.replace(b"\n", b"\r\n")))
    assert rows(file)[0].equals(rows(plain)[0])


def test_rows_that_are_not_kept_are_not_looked_at(tmp_path):
    file = tmp_path / "t.txt"
    file.write_bytes(GOOD + b"wrong\n" + GOOD)
    source = Text(file, tuple(COLUMNS), COLUMNS, "\t", header=False)
    some = collected(source, source.table(lambda lines: lines.filter(pl.col(ROW) % 4 == 1)))
    assert some[ROW].to_list() == [1, 5]
    assert some[WHY].null_count() == 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"1\t5", "2 fields, not 3"),
        (b"1\t5\tff\t", "4 fields, not 3"),
        (b"2\t5\tff", "y is '2', not 0 or 1"),
        (b"\t5\tff", "y is '', not 0 or 1"),
        (b"1\tfive\tff", "n is 'five', not a whole number"),
        (b"1\t5.5\tff", "n is '5.5', not a whole number"),
        (b"1\t5\txyz", "c is 'xyz', not a hexadecimal"),
        (b"1\t5\t\xff", "no text"),
    ],
)
def test_a_bad_line_is_found_and_only_it_is_left_out(tmp_path, line, why):
    file = tmp_path / "t.txt"
    file.write_bytes(GOOD + line + b"\n" + GOOD)
    table, wrong = rows(file)
    assert [row for row, _ in wrong] == [4]
    assert why in wrong[0][1]
    assert Text(file, tuple(COLUMNS), COLUMNS, header=False).place(4) == f"{file}, line 5"
    assert table[ROW].to_list() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert table["n"].to_list() == [5, None, -7, 12] * 2


def test_an_empty_line_is_no_row_and_is_counted(tmp_path):
    file = tmp_path / "t.txt"
    file.write_bytes(GOOD + b"\n\r\n" + GOOD)
    table, wrong = rows(file)
    assert not wrong
    assert table[ROW].to_list() == [0, 1, 2, 3, 6, 7, 8, 9]


def test_two_lines_whose_cells_add_up_are_found(tmp_path):
    file = tmp_path / "t.txt"
    file.write_bytes(GOOD + b"1\t5\n" + GOOD + b"1\t5\tff\t9\n")
    assert [row for row, _ in rows(file)[1]] == [4, 9]


READ = {
    "label": {"0", "1", "1.0", "true", "False", " 1", "1 "},
    "integer": {"", "0", "1", " 1", "1 ", "-3", "+4", "123456789", "14102105", "14130105", "14102124", "9" * 18},
    "number": {
        *("", "0", "1", "1.0", " 1", "1 ", "-3", "+4", "2.5", "1e3", ".5", "5.", "nan", "NaN", "true", "False"),
        *("123456789", "14102105", "14130105", "14102124", "9" * 18, "9" * 30),
    },
    "hex": {"", "0", "1", "+4", "1e3", "ff", "0FF", "14102105", "14130105", "14102124"},
    "hour": {"14102105"},
}


@pytest.mark.parametrize("kind", sorted(READ))
@pytest.mark.parametrize("cell", CELLS)
def test_which_cells_are_read_as_what(kind, cell):
    table = pl.LazyFrame({ROW: [0], "a": [cell]}, schema={ROW: pl.UInt32, "a": pl.String})
    assert (cast(table, {"a": kind}).collect()[WHY][0] is not None) == (cell not in READ[kind])


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=5),
                         min_size=3, max_size=3), min_size=1, max_size=5))  # fmt: skip
def test_quoted_cells_come_back(tmp_path_factory, lines):
    file = tmp_path_factory.mktemp("quoted") / "t.csv"
    table = pl.DataFrame(lines, schema=["a", "b", "c"], orient="row")
    table.write_csv(file, quote_style="always")
    source = Text(file, header(file, ",", "-"), {"a": "category", "c": "category"}, quoted=True)
    found = collected(source, source.table())
    assert found[WHY].null_count() == len(found) == len(table)
    assert found.select("a", "c").fill_null("").equals(table.select("a", "c"))


def test_a_quote_that_does_not_close_is_one_bad_line(tmp_path):
    (tmp_path / "t.csv").write_text('a,b\n"x, y",1\n"z,2\n"w",3\n')
    source = Text(tmp_path / "t.csv", ("a", "b"), {"a": "category", "b": "integer"}, quoted=True)
    table = collected(source, source.table())
    assert table[WHY].to_list() == [None, "a quote of the line does not close", None]
    assert table["a"].to_list()[::2] == ["x, y", "w"]


def test_hours_and_days():
    hours = pl.LazyFrame({"hour": ["14102105", "14103023"]})
    found = cast(hours, {"hour": "hour"}).collect()
    assert found["hour"].to_list() == [5, 23]
    assert found[DAY].diff().to_list() == [None, 9]


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (b"", "t.txt", "is empty"),
        (b"\n\n", "t.txt", "is empty"),
        (gzip.compress(GOOD * 100, mtime=0)[:-20], "t.txt.gz", "cut short"),
        (b"no gzip at all", "t.txt.gz", "no line near it is better"),
        (b"x" * 5000, "t.txt", "no line near it is better"),
        (b"<html>\n" * 50, "t.txt", "no line near it is better"),
    ],
)
def test_files_that_are_no_tables(tmp_path, content, name, said):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(DataError, match=said) as error:
        rows(file)
    assert str(file) in str(error.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.txt can't be read"):
        rows(tmp_path / "nowhere.txt")
