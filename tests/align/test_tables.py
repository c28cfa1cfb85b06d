"""From a party's file to tensors in the common order."""

from __future__ import annotations

import json
from datetime import date, datetime

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.align.batches import scramble
from tacit.align.sources import blocks, load
from tacit.align.tables import Columns, Encoder, Inputs, inputs_digest, labels
from tacit.errors import DataError, LabelsError, UsageError

TABLE = pl.DataFrame(
    {
        "id": [5, 6, 7, 8, 9],
        "carrier": ["UA", "AA", None, "UA", "DL"],
        "seats": [100, None, 300, 140, 60],
        "late": [True, False, False, True, False],
    }
)
COLUMNS = Columns(categorical=("carrier",), numeric=("seats",), flagged=("seats",))


def same(one: Inputs, other: Inputs) -> bool:
    return (
        torch.equal(one.categorical, other.categorical)
        and torch.equal(one.numeric, other.numeric)
        and one.cardinalities == other.cardinalities
    )


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["frame", "parquet", "csv", "tsv"])
def source(request, tmp_path):
    if request.param == "frame":
        return TABLE
    path = tmp_path / f"table.{request.param}"
    if request.param == "parquet":
        TABLE.write_parquet(path)
    else:
        TABLE.write_csv(path, separator="," if request.param == "csv" else "\t")
    return path


def test_rows_come_in_the_wanted_order_with_the_wanted_columns(source):
    found = load(source, np.array([3, 0, 2]), ["seats", "carrier"])
    assert found.columns == ["seats", "carrier"]
    assert found["seats"].cast(pl.Int64).to_list() == [140, 100, 300]
    assert found["carrier"].to_list() == ["UA", "UA", None]


def test_every_kind_of_source_gives_the_same_tensors(source):
    rows = np.array([4, 2, 1, 0, 3])
    table = load(source, rows, [*COLUMNS.names, "late"])
    inputs = Encoder.fit(table, COLUMNS, np.arange(4)).encode(table)
    assert inputs.categorical.tolist() == [[2], [0], [1], [3], [3]]  # AA, DL, UA: of the training rows, sorted
    assert inputs.cardinalities == (4,)
    seen = np.array([60.0, 300.0, 100.0])
    numbers = (np.array([60.0, 300.0, seen.mean(), 100.0, 140.0]) - seen.mean()) / seen.std()
    assert np.allclose(inputs.numeric[:, 0], numbers, atol=1e-6)
    assert inputs.numeric[:, 1].round(decimals=3).tolist() == pytest.approx([-0.577, -0.577, 1.732, -0.577, -0.577])
    assert labels(table, "late", "binary").tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]


def test_no_rows_are_an_empty_table(source):
    assert load(source, np.array([], dtype=np.int64), ["carrier"]).shape == (0, 1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 199), max_size=300), st.integers(1, 64))
def test_any_rows_of_a_file_in_row_groups(tmp_path_factory, rows, group):
    path = tmp_path_factory.mktemp("groups") / "t.parquet"
    pl.DataFrame({"x": np.arange(200) * 3}).write_parquet(path, row_group_size=group)
    assert load(path, np.array(rows, dtype=np.int64), ["x"])["x"].to_list() == [row * 3 for row in rows]


def test_a_file_that_lost_rows_is_not_the_one_that_was_aligned(source):
    with pytest.raises(
        DataError, match=r"no longer has all of the 3 aligned rows \(2 are missing\).*tacit align --again"
    ):
        load(source, np.array([0, 5, 99]), ["carrier"])


def test_a_missing_column_is_named_with_those_that_are_there(source):
    with pytest.raises(DataError, match=r"no column 'seat', 'x'; it has: id, carrier, seats, late"):
        load(source, np.array([0]), ["seat", "carrier", "x"])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.parquet", None, "no such file"),
        ("t.xlsx", b"x", r"t\.xlsx .*: use a \.parquet, \.csv or \.tsv file"),
        ("t.parquet", b"not parquet at all", r"t\.parquet can't be read"),
        ("t.csv", b"a,b\n1,2\n3,4,5\n", r"t\.csv can't be read"),
        ("t.csv", b"a,b\n1,\xff\n", r"t\.csv can't be read"),
        ("t.csv", b"", r"t\.csv can't be read"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        load(tmp_path / name, np.array([0]), ["a", "b"])


def test_memory_follows_the_rows_that_are_asked_for_not_the_file(tmp_path, alone):
    """A file of 400 MB as a table, read in its own process; a thousand rows of it, spread over the whole."""
    path = tmp_path / "large.parquet"
    block = pl.DataFrame({f"c{i}": np.random.default_rng(i).random(1_000_000) for i in range(10)})
    pl.concat([block] * 5).write_parquet(path, compression="uncompressed", row_group_size=100_000)
    code = (
        "import numpy as np, polars as pl\n"
        "from tacit.align.sources import load\n"
        "before = peak()\n"
        f"table = load({str(path)!r}, np.arange(0, 5_000_000, 5000), [f'c{{i}}' for i in range(10)])\n"
        "assert table.shape == (1000, 10)\n"
        "print((peak() - before) // 2**20)"
    )
    taken = int(alone(code))
    assert taken < 200, f"{taken} MiB for 0.08 MB of rows"


# --- encoding --------------------------------------------------------------------------------------------------------


def test_what_training_never_saw_is_code_0_and_moves_nothing():
    encoder = Encoder.fit(TABLE, COLUMNS, np.array([0, 1]))
    assert encoder.encode(TABLE).categorical[:, 0].tolist() == [2, 1, 0, 2, 0]
    strange = TABLE.with_columns(carrier=pl.lit("ZZ"), seats=pl.lit(None, pl.Int64))
    inputs = encoder.encode(strange)
    assert (inputs.categorical == 0).all()
    assert (inputs.numeric[:, 0] == 0).all()
    assert same(
        Encoder.fit(pl.concat([TABLE, strange]), COLUMNS, np.array([0, 1])).encode(TABLE), encoder.encode(TABLE)
    )


def test_the_state_is_json_and_encodes_to_the_same_bits():
    table = pl.DataFrame(
        {
            "text": ["b", "a", None, "ü"],
            "small": pl.Series([3, None, 1, 2], dtype=pl.UInt8),
            "yes": [True, False, None, True],
            "float": [0.1, float("nan"), -0.0, 1e300],
            "day": [date(2013, 1, 2), date(2013, 1, 1), None, date(2012, 1, 1)],
            "huge": pl.Series([2**64 - 1, 0, None, 5], dtype=pl.UInt64),
            "enum": pl.Series(["x", "y", "x", None], dtype=pl.Enum(["y", "x"])),
            "code": [1, 2, 3, 4],
            "number": [1 / 3, 2 / 7, 1e-9, 5.5],
        }
    )
    columns = Columns(categorical=tuple(table.columns[:-1]), numeric=("number", "small"), flagged=("small",))
    encoder = Encoder.fit(table, columns, np.array([0, 1, 2]))
    again = Encoder.from_state(json.loads(json.dumps(encoder.to_state(), allow_nan=False)))
    assert same(again.encode(table), encoder.encode(table))
    assert encoder.encode(table).categorical.tolist() == [
        [2, 2, 2, 2, 2, 2, 1, 1],
        [1, 0, 1, 0, 1, 1, 2, 2],
        [0, 1, 0, 1, 0, 0, 1, 3],
        [0, 0, 2, 0, 0, 0, 0, 0],
    ]


@pytest.mark.parametrize("dtype", [pl.UInt16, pl.String, pl.Int64])
def test_how_numbers_are_stored_does_not_matter_for_categories(dtype):
    encoder = Encoder.fit(TABLE, Columns(categorical=("seats",)), np.arange(5))
    assert same(encoder.encode(TABLE.with_columns(pl.col("seats").cast(dtype))), encoder.encode(TABLE))


def test_a_column_of_nothing_is_allowed_on_both_sides():
    nothing = TABLE.with_columns(carrier=pl.lit(None), seats=pl.lit(None))
    inputs = Encoder.fit(nothing, COLUMNS, np.arange(5)).encode(TABLE)
    assert inputs.cardinalities == (1,)
    assert (inputs.categorical == 0).all()
    assert (Encoder.fit(TABLE, COLUMNS, np.arange(5)).encode(nothing).categorical == 0).all()


def test_text_that_says_true_and_false_are_numbers():
    table = pl.DataFrame({"x": ["true", "False ", None, "0", "1"]})
    encoder = Encoder.fit(table, Columns(numeric=("x",)), np.arange(5))
    assert encoder.statistics == ((0.5, 0.5),)
    assert encoder.encode(table).numeric.flatten().tolist() == [1.0, -1.0, 0.0, -1.0, 1.0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["1", "2.5", "many"], r"'x' holds 'many' in row 2 .*leave missing values empty"),
        ([1.0, float("inf"), 2.0], r"'x' holds inf in row 1 .*not a finite number"),
        ([1e308, -1e308, 1e308], r"'x' are too large"),
        ([date(2013, 1, 1)] * 3, r"'x' holds Date, no numbers"),
    ],
)
def test_numbers_that_are_none(values, words):
    with pytest.raises(DataError, match=words):
        Encoder.fit(pl.DataFrame({"x": values}), Columns(numeric=("x",)), np.arange(3))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["1", "12,5"], "has decimal commas, '12,5' in row 1 .counted from 0.: write 12.5 with a point"),
        (["1", "1.234,50"], "write 1234.50 with a point"),
        (["1", "2014-01-19"], "holds '2014-01-19' in row 1 .counted from 0., which is not a finite number"),
    ],
)
def test_numbers_that_are_written_otherwise(values, words):
    with pytest.raises(DataError, match=words):
        Encoder.fit(pl.DataFrame({"x": values}), Columns(numeric=("x",)), np.arange(2))


def test_words_for_a_missing_number():
    values = ["1", "NA", "n/a", "NULL", " ", None, "nan", "3"]
    encoder = Encoder.fit(pl.DataFrame({"x": values}), Columns(numeric=("x",)), np.arange(8))
    assert encoder.statistics == ((2.0, 1.0),)


# --- dates -----------------------------------------------------------------------------------------------------------

DAYS = Columns(("carrier",), ("seats",), (), ("since",), ("at",))


def test_dates_are_a_number_of_days_and_codes(tmp_path):
    table = pl.DataFrame(
        {
            "carrier": ["A", "B", "A"],
            "seats": [1.0, 2.0, 3.0],
            "since": [date(2014, 1, 19), date(2014, 1, 20), None],
            "at": [datetime(2026, 3, 1, 23, 59), datetime(2026, 3, 2, 0, 0), datetime(2026, 5, 1, 8, 30)],
        }
    )
    encoder = Encoder.fit(table, DAYS, np.arange(3))
    inputs = encoder.encode(table)
    assert DAYS.encoded.categorical == ("carrier", "since", "since", "at", "at", "at")
    assert DAYS.encoded.numeric == ("seats", "since", "at")
    assert DAYS.names == ("carrier", "seats", "since", "at")
    known = [vocabulary.to_list() for vocabulary in encoder.vocabularies]
    assert known == [["A", "B"], ["1", "7"], ["1"], ["1", "5", "7"], ["3", "5"], ["0", "23", "8"]]
    assert inputs.categorical.tolist() == [[1, 2, 1, 3, 1, 3], [2, 1, 1, 1, 1, 1], [1, 0, 0, 2, 2, 2]]
    assert inputs.numeric[:, 1].tolist() == [-1.0, 1.0, 0.0]  # a missing one is the mean
    assert Encoder.from_state(json.loads(json.dumps(encoder.to_state()))).encode(table).numeric.equal(inputs.numeric)
    table.write_csv(tmp_path / "t.csv")
    (text,) = blocks(tmp_path / "t.csv", table.columns)
    spelled = Encoder.fit(text, DAYS, np.arange(3))
    assert spelled.to_state() == encoder.to_state()
    assert spelled.encode(text[2:3]).categorical.equal(inputs.categorical[2:3]), "a row alone, too"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["2014-01-19", "2014-02-30"], "column 'd' holds '2014-02-30' in row 8 .counted from 0., which is not a date"),
        (["19.01.2014", "01/19/2014"], "holds '01/19/2014' in row 8"),
        (["2014-01-19", "2014-01-19x"], "holds '2014-01-19x' in row 8"),
        ([20140119, 20140120], "holds Int64, no dates: write it as 2014-01-19"),
    ],
)
def test_what_is_no_date(values, words):
    with pytest.raises(DataError, match=words):
        Encoder.fit_batches([(pl.DataFrame({"d": values}), np.array([7, 8]))], Columns(dates=("d",)))


def test_missing_columns_are_named():
    with pytest.raises(DataError, match=r"no column 'dest'; it has: id, carrier"):
        Encoder.fit(TABLE, Columns(categorical=("carrier", "dest")), np.arange(2))


# --- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[1, 0], [True, False], [1.0, 0.0], ["1", "0"], ["True", " false"]])
def test_binary_labels_in_every_spelling(values):
    found = labels(pl.DataFrame({"y": values}), "y", "binary")
    assert found.dtype == torch.float32
    assert found.tolist() == [1.0, 0.0]


def test_class_numbers():
    found = labels(pl.DataFrame({"y": [3, 0, 7]}), "y", "softmax")
    assert (found.dtype, found.tolist()) == (torch.int64, [3, 0, 7])


@pytest.mark.parametrize(
    ("values", "loss", "words"),
    [
        ([0, 2, None, 3], "binary", r"row 1 .* has the label 2 in the column 'y' \(and 1 others\).*0 or 1"),
        ([0.0, 0.5, 1.0, 1.0], "softmax", r"row 1 .* has the label 0\.5.*class numbers"),
        (["0", "maybe", "1", "0"], "binary", r"row 1 .* has the label 'maybe'"),
        ([0, -1, 1, 0], "softmax", r"row 1 .* has the label -1"),
        ([0.0, float("nan"), 1, 7.0], "binary", r"row 3 .* has the label 7\.0 .*\(and 0 others\)"),
    ],
)
def test_labels_that_cannot_be_learnt(values, loss, words):
    with pytest.raises(LabelsError, match=words):
        labels(pl.DataFrame({"y": values}), "y", loss)


def test_the_row_is_named_as_the_file_counts_it():
    with pytest.raises(LabelsError, match=r"row 91 .* has the label 2"):
        labels(pl.DataFrame({"y": [0, 2]}), "y", "binary", rows=np.array([40, 91]))


@pytest.mark.parametrize("values", [[1, None, 0], [1.0, float("nan"), 0.0], ["1", None, "0"]])
def test_a_row_without_a_label(values):
    table = pl.DataFrame({"y": values})
    assert labels(table, "y", "binary").isnan().tolist() == [False, True, False]
    assert labels(table, "y", "softmax").tolist() == [1, -1, 0]


def test_an_unknown_loss():
    with pytest.raises(UsageError, match="no loss 'hinge'"):
        labels(TABLE, "late", "hinge")


# --- what is trained on ----------------------------------------------------------------------------------------------


def test_the_digest_sees_every_change():
    encoder = Encoder.fit(TABLE, COLUMNS, np.arange(5))
    inputs, targets = encoder.encode(TABLE), labels(TABLE, "late", "binary")
    first = inputs_digest(inputs, targets)
    assert first == inputs_digest(encoder.encode(TABLE), labels(TABLE, "late", "binary"))
    changed = [
        inputs_digest(inputs),
        inputs_digest(inputs, 1 - targets),
        inputs_digest(inputs, targets.double()),
        inputs_digest(Inputs(inputs.categorical, inputs.numeric, (9,)), targets),
        inputs_digest(Inputs(inputs.categorical.roll(1, 0), inputs.numeric, inputs.cardinalities), targets),
        inputs_digest(Inputs(inputs.categorical, inputs.numeric * 2, inputs.cardinalities), targets),
        inputs_digest(Inputs(inputs.categorical, inputs.numeric[:, :0], inputs.cardinalities), targets),
        inputs_digest(Inputs(inputs.categorical, inputs.numeric.T.reshape(5, 2), inputs.cardinalities), targets),
    ]
    assert len({first, *changed}) == 1 + len(changed)


def test_scrambled_numbers_are_uniform():
    """Kolmogorov-Smirnov distance of 100,000 numbers: 2.6 / sqrt(n) is passed by chance once in 400,000."""
    numbers = np.sort(scramble(np.arange(100_000), seed=3))
    assert np.abs(numbers - (np.arange(100_000) + 0.5) / 100_000).max() < 2.6 / 100_000**0.5
