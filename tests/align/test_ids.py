"""The same id gives the same hash whatever it is stored as, different ones never do, and every row is accounted for."""

import datetime
import re
import unicodedata
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.align import ids, sources
from tacit.align.ids import LONGEST, hash_of, read_ids
from tacit.align.sources import load
from tacit.errors import DataError, UsageError

FIXED = "228e748fa85c30ce4badbafbe797eb9ef1745b5131a74988c5551c50d86e9f20"
INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]
CELLS = st.one_of(st.text(min_size=1, max_size=6), st.binary(min_size=1, max_size=6), st.integers(-(2**63), 2**63 - 1))


def hashes(values, dtype=None):
    return read_ids(pl.DataFrame({"id": pl.Series(values, dtype=dtype)}), "id").hashes.tolist()


def canonical(cell):
    """Once more, and slowly."""
    if isinstance(cell, bytes):
        return cell
    whole, point, zeros = str(cell).partition(".")
    if point and zeros and not zeros.strip("0") and re.fullmatch("-?[0-9]+", whole):
        return whole.encode()
    return unicodedata.normalize("NFC", str(cell)).encode()


# --- one form --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_integer_is_its_digits_in_every_type(dtype):
    assert hashes([42, 7, 0], dtype) == hashes(["42", "7", "0"]) == hashes([b"42", b"7", b"0"])


def test_signs_leading_zeros_case_and_spaces_make_another_id():
    spellings = ["42", "042", "-42", "+42", "42 ", " 42", "42.5", "A.0", "A", "a"]
    assert len({bytes(each) for each in hashes(spellings)}) == len(spellings)
    assert hashes([-42]) == hashes(["-42"])


def test_whole_numbers_with_decimals_are_whole_numbers():
    """What pandas writes of a column of ids in which one was missing."""
    assert hashes([122163.0, None, 7.0]) == hashes(["122163.0", None, "7.00"]) == hashes([122163, None, 7])
    assert hashes([Decimal("7.00")]) == hashes([7])
    assert hash_of(["122163.0"]) == bytes(hashes([122163])[0])
    found = read_ids(pl.DataFrame({"id": [122163.0, None, 7.0]}), "id").report
    assert (found.missing, found.spelling) == (1, "whole numbers, for example '122163'")
    assert (
        read_ids(pl.DataFrame({"id": ["A-1", "7"]}), "id").report.spelling
        == "text and whole numbers, for example 'A-1'"
    )
    two = read_ids(pl.DataFrame({"a": ["x"], "b": [1]}), ["a", "b"]).report
    assert two.spelling == "text, for example 'x', '1' (2 columns)"


@pytest.mark.parametrize(("value", "shown"), [(12.5, "12.5"), (2.0**60, "1.15"), (float("inf"), "inf")])
def test_a_number_that_is_not_whole_is_no_id(value, shown):
    with pytest.raises(DataError, match=f"row 1 .counted from 0. has the id {shown}.*in the column 'id'.*as text"):
        read_ids(pl.DataFrame({"id": [1.0, value]}), "id")


def test_composed_and_decomposed_text_is_one_id():
    assert hashes(["é", "Å"]) == hashes(["e\u0301", "\u212b"])
    assert hashes(["ﬁ"]) != hashes(["fi"])  # only looks alike


def test_dates_and_categories_are_their_text():
    day = datetime.date(2026, 1, 31)
    assert hashes([day]) == hashes(["2026-01-31"])
    assert hashes(["x", "y"], pl.Categorical) == hashes(["x", "y"], pl.Enum(["y", "x"])) == hashes(["x", "y"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=2, max_size=2))
def test_pairs_have_one_hash_only_where_both_cells_are_equal(pairs):
    def hashed(pair):
        table = pl.DataFrame({"a": [pair[0]], "b": [pair[1]]})
        return read_ids(table, ["a", "b"]).hashes.tobytes()

    same = [canonical(cell) for cell in pairs[0]] == [canonical(cell) for cell in pairs[1]]
    assert (hashed(pairs[0]) == hashed(pairs[1])) == same


def test_cells_do_not_run_into_each_other():
    table = pl.DataFrame({"a": ["ab", "a", "abc"], "b": ["c", "bc", "x"]})
    assert len(np.unique(read_ids(table, ["a", "b"]).hashes, axis=0)) == 3
    assert read_ids(table, ["b", "a"]).hashes.tolist() != read_ids(table, ["a", "b"]).hashes.tolist()


def test_a_hash_never_changes():
    """Two companies may run different versions: what an id is must not depend on that."""
    assert bytes(hashes(["42"])[0]).hex() == FIXED


# --- where they come from --------------------------------------------------------------------------------------------


@pytest.fixture(name="table")
def _table():
    draw = np.random.default_rng(3)
    return pl.DataFrame(
        {"id": draw.permutation(5000), "name": [f"user {n}, “{n}”" for n in range(5000)], "x": draw.random(5000)}
    )


@pytest.mark.parametrize("columns", ["id", "name", ["name", "id"]])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_a_file_gives_what_the_table_gives_in_many_batches(columns, suffix, table, tmp_path, monkeypatch):
    for bound in ("_SMALLEST", "_LARGEST"):
        monkeypatch.setattr(sources, bound, 700)
    path = tmp_path / f"ids[1]{suffix}"
    if suffix == ".parquet":
        table.write_parquet(path, row_group_size=900)
    else:
        table.write_csv(path, separator="," if suffix == ".csv" else "\t")
    from_file, from_table = read_ids(path, columns), read_ids(table, columns)
    assert np.array_equal(from_file.hashes, from_table.hashes)
    assert from_file.rows.tolist() == list(range(5000))
    assert from_file.report.source == path.name
    assert read_ids(str(path), columns).hashes.shape == (5000, 32)


def test_a_csv_file_may_begin_with_a_byte_order_mark_and_end_without_a_newline(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfid,x\r\n007,1\r\n"a,b",2\r\n1e3,3')
    assert read_ids(path, "id").hashes.tolist() == hashes(["007", "a,b", "1e3"])


# --- what is left out ------------------------------------------------------------------------------------------------


def test_nulls_and_empty_cells_are_left_out_and_counted(tmp_path):
    table = pl.DataFrame({"a": ["x", None, "", "y", "z"], "b": [1, 2, 3, None, 5]})
    found = read_ids(table, ["a", "b"])
    assert found.rows.tolist() == [0, 4]
    assert (found.report.total, found.report.missing, found.report.kept) == (5, 3, 2)
    (tmp_path / "a.csv").write_text('a,b\nx,1\n,2\n"",3\ny,\nz,5\n')
    from_csv = read_ids(tmp_path / "a.csv", ["a", "b"])
    assert from_csv.rows.tolist() == [0, 4]
    assert np.array_equal(from_csv.hashes, found.hashes)


def test_ids_in_several_rows():
    table = pl.DataFrame({"id": ["a", "b", "c", "a", "d", "c", "a"]})
    found = read_ids(table, "id")
    assert found.rows.tolist() == [1, 4]
    assert found.hashes.tolist() == hashes(["b", "d"])
    assert found.report.repeated_ids == 2
    assert found.report.repeated_rows == 5
    assert found.report.alike == (0, 3)


def test_repeated_ids_can_be_an_error():
    with pytest.raises(
        DataError, match=r"table: rows 1 and 3 have the same id, and 1 ids are in several rows: make them unique"
    ):
        read_ids(pl.DataFrame({"id": [5, 6, 7, 6]}), "id", unique=True)
    assert len(read_ids(pl.DataFrame({"id": [5, 6]}), "id", unique=True)) == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.sampled_from("abcdefgh")), min_size=1, max_size=30), st.integers(1, 7))
def test_every_row_is_kept_or_counted(values, batch):
    expected = [row for row, value in enumerate(values) if value is not None and values.count(value) == 1]
    table = pl.DataFrame({"id": pl.Series(values, dtype=pl.String)})
    with pytest.MonkeyPatch.context() as patch:
        for bound in ("_SMALLEST", "_LARGEST"):
            patch.setattr(sources, bound, batch)
        if not expected:
            with pytest.raises(DataError, match="no row has an id that can be used"):
                read_ids(table, "id")
            return
        found = read_ids(table, "id")
    assert found.rows.tolist() == expected
    report = found.report
    assert report.total == len(values) == report.kept + report.missing + report.repeated_rows


def test_the_report_says_what_to_look_at():
    table = pl.DataFrame({"id": ["007", "-01", "0", "a ", "\tb", "e\u0301", None, "x", "x"]})
    report = read_ids(table, "id").report
    assert (report.zeros, report.spaces, report.recomposed) == (2, 2, 1)
    assert str(report).splitlines() == [
        "table: 6 of 9 rows take part",
        "  1 rows have no id and were left out",
        "  1 ids are in several rows (for example rows 7 and 8, counted from 0); 2 rows were left out",
        "  2 ids begin or end with white space, which counts: strip it on both sides",
        "  2 ids are numbers with leading zeros: '042' is another id than 42",
        "  1 ids were brought to Unicode's composed form (NFC)",
    ]
    assert read_ids(pl.DataFrame({"id": [1, 10]}), "id").report.hints == []


# --- what can't be used ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[True, False], [datetime.datetime(2026, 1, 1)], [[1]], [{"a": 1}]])
def test_columns_that_have_no_one_spelling(values):
    with pytest.raises(DataError, match=r"the id column 'id' is .*: cast it to an integer or to text"):
        read_ids(pl.DataFrame({"id": values}), "id")


def test_a_column_that_is_not_there(tmp_path):
    pl.DataFrame({"a": [1], "b": [2]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t.parquet has no column 'id'; it has: a, b"):
        read_ids(tmp_path / "t.parquet", ["a", "id"])


def test_an_id_that_is_surely_none():
    table = pl.DataFrame({"id": ["x", "y" * LONGEST, None, "z" * (LONGEST + 1)]})
    with pytest.raises(DataError, match=f"table, row 3: an id of {LONGEST + 1} bytes is longer than {LONGEST}"):
        read_ids(table, "id")
    assert len(read_ids(table[:3], "id")) == 2


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        (
            "a.csv",
            b"id,x\n1,2\nM\xfcller,3\n",
            r"a.csv can't be read: line 3 is not UTF-8 \(byte 1, .*save the file as",
        ),
        ("a.csv", b"", "a.csv can't be read: "),
        ("a.csv", b"id,x\n", "no row has an id that can be used"),
        ("a.parquet", b"PAR1 but no more", "a.parquet can't be read: .*check that it is what its name says"),
        ("a.xlsx", b"PK", "a.xlsx is neither .parquet nor .csv nor .tsv"),
        ("a.csv", None, "a.csv can't be read .*: check the path"),
        ("a.parquet", None, "a.parquet can't be read .*: check the path"),
    ],
)
def test_files_that_can_not_be_read(name, content, match, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=match):
        read_ids(tmp_path / name, "id")


def test_a_folder(tmp_path):
    with pytest.raises(DataError, match="is a folder: pass one"):
        read_ids(tmp_path, "id")


@pytest.mark.parametrize("options", [{"columns": []}, {"columns": ["id", "id"]}])
def test_wrong_use(options):
    with pytest.raises(UsageError, match="name one or more, each once"):
        read_ids(pl.DataFrame({"id": [1]}), **options)


def test_hashes_that_agree_in_their_first_half_are_still_two_ids():
    same = np.zeros((3, 32), np.uint8)
    same[1, 20] = 1
    keep, repeated, example = ids.distinct(same)
    assert keep.tolist() == [False, True, False]
    assert (repeated, example) == (1, (0, 2))


@pytest.mark.parametrize("name", ["a.pq", "a.PARQUET", "a.CSV", "a.Tsv"])
def test_ids_come_from_every_file_that_rows_come_from(tmp_path, name):
    path, table = tmp_path / name, pl.DataFrame({"id": [3, 5]})
    if name.lower().endswith("sv"):
        table.write_csv(path, separator="," if name == "a.CSV" else "\t")
    else:
        table.write_parquet(path)
    assert len(read_ids(path, "id")) == 2
    assert load(path, np.array([1]), ["id"])["id"].cast(pl.Int64).to_list() == [5]
