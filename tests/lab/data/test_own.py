"""One's own files: one or two, text or Parquet, described in TOML."""

import numpy as np
import polars as pl
import pytest
import torch

from tacit.errors import DataError, UsageError
from tacit.lab.data import load as load_by_name
from tacit.lab.data import own
from tests.lab.data.official import sides

ROWS = 400


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "id": [f"u{number}" for number in rng.permutation(ROWS)],
            "site": rng.choice(["a", "b, with comma", 'c "quoted"', None], ROWS),
            "device": rng.integers(0, 5, ROWS),
            "age": pl.Series(rng.normal(40, 10, ROWS)).set(pl.Series(rng.random(ROWS) < 0.1), None),
            "basket": rng.normal(size=ROWS),
            "date": pl.Series(np.datetime64("2024-01-01") + rng.integers(0, 6, ROWS)).cast(pl.Date),
            "clicked": rng.random(ROWS) < 0.3,
        }
    )


ONE = """
file = "{file}"
label = "clicked"
day = "date"
test_share = 0.25
[features]
categorical = ["site", "device"]
numeric = ["age"]
[own]
numeric = ["basket"]
"""


def described(folder, text, name="own.toml"):
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize("name", ["table.parquet", "table.csv", "table.tsv"])
def test_one_file(tmp_path, table, name):
    if name.endswith("parquet"):
        table.write_parquet(tmp_path / name)
    else:
        table.write_csv(tmp_path / name, separator="\t" if name.endswith("tsv") else ",")
    data = load_by_name(described(tmp_path, ONE.format(file=name)))
    side = sides(ROWS, test_share=0.25)
    train = table.filter(pl.Series(side == 1)).sort("date", maintain_order=True)
    assert data.train.labels.tolist() == train["clicked"].cast(pl.Float32).to_list()
    assert data.train.days.tolist() == (train["date"] - table["date"].min()).dt.total_days().to_list()
    ages = train["age"]
    wanted = ((ages.fill_null(ages.mean()) - ages.mean()) / ages.std(ddof=0)).to_torch().float()
    torch.testing.assert_close(data.train.features[1][:, 0], wanted, atol=1e-5, rtol=1e-5)
    assert data.inputs.cardinalities == (4, 6)
    assert data.inputs.own_cardinalities == ()
    assert data.train.own[0].shape == (len(train), 0)
    assert data.inputs.own_numeric == 1
    assert ((data.train.features[0][:, 0] == 0).numpy() == train["site"].is_null().to_numpy()).all()


def test_bad_rows_of_either_kind_of_file(tmp_path, table):
    labels = table["clicked"].cast(pl.Int8).set(pl.Series(np.arange(ROWS) == 7), 3)
    wrong = table.with_columns(clicked=labels)
    wrong.write_parquet(tmp_path / "t.parquet")
    wrong.write_csv(tmp_path / "t.csv")
    for name in ("t.parquet", "t.csv"):
        file = described(tmp_path, ONE.format(file=name))
        with pytest.raises(DataError, match=f"{name}: row 7 .*has the label .?3.? in the column 'clicked'.*0 or 1"):
            own.load(file)
    for column, value, said in (("age", "old", "holds 'old' in row 7"), ("date", "", "row 7 .* has no 'date'")):
        cells = pl.when(pl.int_range(pl.len()) == 7).then(pl.lit(value)).otherwise(pl.col(column).cast(pl.String))
        table.with_columns(cells.alias(column)).write_csv(tmp_path / "t.csv")
        with pytest.raises(DataError, match=said):
            own.load(described(tmp_path, ONE.format(file="t.csv")))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("label =", "lable ="), "lable: there is no such key"),
        (('"site"', '"sight"'), r"\[features\] categorical: t.csv has no column 'sight'"),
        (('"basket"', '"bucket"'), r"\[own\] numeric: t.csv has no column 'bucket'"),
        (('day = "date"', 'day = "when"'), "day: t.csv has no column 'when'"),
        (("0.25", '"many"'), "test_share"),
        (("0.25", "2.0"), "test_share: 2 is no share between 0 and 1"),
        (('file = "t.csv"', 'file = "nowhere.csv"'), "file: .*nowhere.csv can't be read .no such file"),
        (('file = "t.csv"', 'file = "own.toml"'), "own.toml is neither .parquet nor .csv nor .tsv"),
        (('file = "t.csv"', ""), "file: is missing"),
        (('file = "t.csv"', 'file = "t.csv"\nid = "id"'), "id: there is no such key"),
        (('"age"', '"clicked"'), "holds the label"),
        (('"age"', '"site"'), "both categorical and numeric"),
    ],
)
def test_what_is_wrong_in_a_description_is_named(tmp_path, table, change, said):
    table.write_csv(tmp_path / "t.csv")
    file = described(tmp_path, ONE.format(file="t.csv").replace(*change))
    with pytest.raises(UsageError, match=said) as error:
        own.load(file)
    assert "own.toml" in str(error.value) or "test_share" in str(error.value)


def test_columns_of_the_feature_party_alone(tmp_path, table):
    table.write_parquet(tmp_path / "t.parquet")
    text = 'file = "t.parquet"\nlabel = "clicked"\n[features]\nnumeric = ["age", "basket"]\n'
    data = own.load(described(tmp_path, text))
    assert data.train.own == ()
    assert data.train.days is None
    assert data.train.features[0].shape == (len(data.train), 0)
    assert data.train.features[1].mean(0).abs().max() < 1e-6
