"""What a party's own table says about its settings and about the contract."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tacit.company.draft import read_data, read_labels
from tacit.company.folder import Folder, create
from tacit.config import OneShotContract
from tacit.errors import DataError, UsageError

ROWS = 400
DRAW = np.random.default_rng(0)
AMOUNTS = DRAW.exponential(1e5, ROWS)

LABELS = {
    "numbers 0 and 1": ([0, 1] * 200, {}, {}),
    "floats with a missing one": ([0.0, 1.0, None, 0.0] * 100, {}, {}),
    "yes and no": (["yes", "no"] * 200, {"positive": "yes"}, {"positive": "yes"}),
    "a rare yes": (["ja", *["nein"] * 9] * 40, {"positive": "ja", "rare": "positive"}, {"positive": "ja"}),
    "a rare no": (["no", *["yes"] * 9] * 40, {"positive": "yes", "rare": "negative"}, {"positive": "yes"}),
    "booleans": ([True, False] * 200, {"positive": "true"}, {"positive": "true"}),
    "other words": (["stayed", "stayed", "churned", "NA"] * 100, {"positive": "churned"}, {"positive": "churned"}),
    "1 and 2": ([1, 2, 2, 2, 2] * 80, {"positive": "1", "rare": "positive"}, {"positive": "1"}),
    "class numbers": ([0, 1, 2, 3] * 100, {"classes": 4}, {"loss": "softmax"}),
    "names of classes": (
        ["none", "basic", "premium", ""] * 100,
        {"classes": 3, "class_names": ["basic", "none", "premium"]},
        {"loss": "softmax", "class_names": ["basic", "none", "premium"]},
    ),
    "amounts": (AMOUNTS.tolist(), {"target": "number", "low": 0.0, "high": 500_000.0}, {}),
    "of one kind": ([1] * ROWS, {}, {}),
    "too many words": ([f"x{row}" for row in range(ROWS)], {}, {}),
}


@pytest.mark.parametrize(("values", "exchange", "split"), LABELS.values(), ids=LABELS)
def test_labels_are_said_as_they_are(values, exchange, split, tmp_path):
    path = tmp_path / "table.parquet"
    pl.DataFrame({"y": values}).write_parquet(path)
    assert read_labels(path, "y", "one_shot") == exchange
    assert read_labels(path, "y", "split") == split


def test_the_range_of_numbers_says_nothing_of_a_single_one(tmp_path):
    path = tmp_path / "table.parquet"
    for last in (AMOUNTS.max(), 10 * AMOUNTS.max()):
        pl.DataFrame({"y": [*AMOUNTS[:-1], last]}).write_parquet(path)
        assert read_labels(path, "y", "one_shot")["high"] == 500_000.0


def customers(path):
    table = pl.DataFrame(
        {
            "Kunde Nr": [float(row) for row in range(ROWS)],
            "Kunde seit": [f"2014-01-{row % 28 + 1:02}" for row in range(ROWS)],
            "Umsatz in €": AMOUNTS,
            "Kanal": ["Büro", "Web"] * 200,
            "Land": ["DE"] * ROWS,
            "Vertrag": [f"V-{row}" for row in range(ROWS)],
            "gekauft": ["ja", "nein"] * 200,
        }
    )
    table.write_parquet(path)
    return path


def test_all_other_columns_are_used_as_what_they_are(tmp_path):
    table = customers(tmp_path / "kunden.parquet")
    data, left_out = read_data(table, tmp_path / "bank", ids=["Kunde Nr"], label="gekauft", exclude=["Kanal"])
    assert (data.path, data.ids, data.label) == ("../kunden.parquet", ("Kunde Nr",), "gekauft")
    assert (data.categorical, data.numeric, data.dates, data.times) == ((), ("Umsatz in €",), ("Kunde seit",), ())
    assert left_out == {
        "Land": "is 'DE' in every row",
        "Vertrag": "is another in every row, as an id is",
        "Kanal": "is excluded",
    }
    inside, _ = read_data(table, tmp_path, ids=["Kunde Nr"], label="gekauft", exclude=[])
    far, _ = read_data(table, tmp_path / "a" / "b", ids=["Kunde Nr"], label="gekauft", exclude=[])
    assert (inside.path, far.path) == ("kunden.parquet", str(table))


def test_what_can_not_be_read(tmp_path):
    table = customers(tmp_path / "kunden.parquet")
    with pytest.raises(DataError, match="has no column 'Kunde'; it has: Kunde Nr, Kunde seit"):
        read_data(table, tmp_path, ids=["Kunde"], label="gekauft", exclude=[])
    rest = ["Kunde seit", "Umsatz in €", "Kanal", "gekauft"]
    with pytest.raises(UsageError, match="has no column to learn from: 'Land' is 'DE' in every row; 'Vertrag' is"):
        read_data(table, tmp_path, ids=["Kunde Nr"], label=None, exclude=rest)


def test_a_label_partys_draft_says_what_its_labels_are(tmp_path):
    table = customers(tmp_path / "kunden.parquet")
    data, _ = read_data(table, tmp_path / "bank", ids=["Kunde Nr"], label="gekauft", exclude=[])
    bank = create(tmp_path / "bank", role="label", data=data)
    assert bank.data.resolve() == table
    assert OneShotContract.load(bank.draft_contract()).positive == "ja"
    split = create(tmp_path / "other", role="label", mode="split", data=data)
    split.draft_contract("split")
    assert (Folder(split.path).contract.positive, Folder(split.path).contract.batch_size) == ("ja", 64)
