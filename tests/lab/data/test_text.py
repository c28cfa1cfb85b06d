"""Chunks of text: any size of chunk gives the same rows, and what can't be read is named."""

import gzip

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DataError
from tacit.lab.data.reading import DAY, KINDS, ROW, Text, header

COLUMNS = {"y": "label", "n": "integer", "c": "hex"}
GOOD = b"1\t5\tff\n0\t\t\n1\t-7\t0a\n0\t12\tdeadbeef\n"
CELLS = (
    "", "0", "1", "1.0", "true", "False", " 1", "1 ", "-3", "+4", "2.5", "1e3", ".5", "5.", "nan", "NaN", "inf", "-inf",
    "x", "ff", "0FF", "123456789", "ffffffffff", "14102105", "14130105", "14102124", "2024-02-29", "2023-02-29",
    "2024-01-05 10:00", "2024-1-5", "é", "9" * 18, "9" * 30, "1_000", "0x1f", "- 1", "٣",
)  # fmt: skip


def rows(text, chunk=1 << 20):
    chunks = list(Text(text, tuple(COLUMNS), COLUMNS, "\t", header=False, chunk=chunk).chunks())
    return pl.concat(chunk.table for chunk in chunks), [bad for chunk in chunks for bad in chunk.bad]


@pytest.mark.parametrize("chunk", [16, 20, 27, 1000])
@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n\n"])
def test_every_size_of_chunk_gives_the_same_rows(tmp_path, chunk, ending):
    file = tmp_path / "t.txt"
    file.write_bytes(GOOD.rstrip(b"\n") + ending)
    table, bad = rows(file, chunk)
    assert not bad
    assert table["y"].to_list() == [1, 0, 1, 0]
    assert table["n"].to_list() == [5, None, -7, 12]
    assert table["c"].to_list() == [255, None, 10, 0xDEADBEEF]
    assert table[ROW].to_list() == [0, 1, 2, 3]


def test_packed_lines_with_windows_ends_are_the_same(tmp_path):
    plain, file = tmp_path / "t.txt", tmp_path / "t.txt.gz"
    plain.write_bytes(GOOD)
    file.write_bytes(gzip.compress(GOOD.replace(b"\n", b"\r\n")))
    assert rows(file, 20)[0].equals(rows(plain)[0])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"1\t5", "2 fields, not 3"),
        (b"1\t5\tff\t", "4 fields, not 3"),
        (b"", "1 fields, not 3"),
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
    for chunk in (24, 1000):
        table, bad = rows(file, chunk)
        assert [each.row for each in bad] == [4]
        assert f"{file}, line 5" in str(bad[0].error())
        assert why in str(bad[0].error())
        assert 'bad="skip"' in str(bad[0].error())
        assert table[ROW].to_list() == [0, 1, 2, 3, 5, 6, 7, 8]
        assert table["n"].to_list() == [5, None, -7, 12] * 2


def test_two_lines_whose_cells_add_up_are_found(tmp_path):
    file = tmp_path / "t.txt"
    file.write_bytes(GOOD + b"1\t5\n" + GOOD + b"1\t5\tff\t9\n")
    _, bad = rows(file)
    assert [each.row for each in bad] == [4, 9]


READ = {
    "label": {"0", "1", "1.0", "true", "False", " 1", "1 "},
    "integer": {"", "0", "1", " 1", "1 ", "-3", "+4", "123456789", "14102105", "14130105", "14102124", "9" * 18},
    "number": {
        *("", "0", "1", "1.0", " 1", "1 ", "-3", "+4", "2.5", "1e3", ".5", "5.", "nan", "NaN", "true", "False"),
        *("123456789", "14102105", "14130105", "14102124", "9" * 18, "9" * 30),
    },
    "hex": {"", "0", "1", "+4", "1e3", "ff", "0FF", "14102105", "14130105", "14102124"},
    "hour": {"14102105"},
    "day": {"2024-02-29", "2024-01-05 10:00"},
}


@pytest.mark.parametrize("kind", sorted(READ))
@pytest.mark.parametrize("cell", CELLS)
def test_which_cells_are_read_as_what(kind, cell):
    column = pl.Series("a", [cell or None], dtype=pl.String)
    (*_, wrong) = KINDS[kind][1](column)
    assert wrong.to_list() == [cell not in READ[kind]]


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=5),
                         min_size=3, max_size=3), min_size=1, max_size=5))  # fmt: skip
def test_quoted_cells_come_back(tmp_path_factory, lines):
    file = tmp_path_factory.mktemp("quoted") / "t.csv"
    table = pl.DataFrame(lines, schema=["a", "b", "c"], orient="row")
    table.write_csv(file, quote_style="always")
    source = Text(file, header(file, ",", "-"), {"a": "category", "c": "category"}, quoted=True, chunk=64)
    found = pl.concat(chunk.table for chunk in source.chunks())
    assert found.select("a", "c").fill_null("").equals(table.select("a", "c"))


def test_hours_and_days():
    (hour, day), _ = KINDS["hour"][1](pl.Series("hour", [14102105, 14103023]))
    assert hour.to_list() == [5, 23]
    assert (day[1] - day[0], day.name) == (9, DAY)
    assert KINDS["day"][1](pl.Series(["1970-01-03", "1970-01-01 23:00"]))[0][0].to_list() == [2, 0]
    assert KINDS["day"][1](pl.Series([7, 8]))[0][0].to_list() == [7, 8]


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (b"", "t.txt", "is empty"),
        (b"\n\n", "t.txt", "is empty"),
        (gzip.compress(GOOD * 100, mtime=0)[:-20], "t.txt.gz", "cut short"),
        (b"no gzip at all", "t.txt.gz", "damaged or cut short"),
        (b"x" * 5000, "t.txt", "no end of a line"),
        (b"<html>\n" * 50, "t.txt", "no line near it is better"),
    ],
)
def test_files_that_are_no_tables(tmp_path, content, name, said):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(DataError, match=said) as error:
        rows(file, 1000)
    assert str(file) in str(error.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="is missing"):
        rows(tmp_path / "nowhere.txt")
