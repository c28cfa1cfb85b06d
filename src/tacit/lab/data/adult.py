"""UCI Adult, the census of 1994: an employer has work and schooling, a tax office has families and incomes.

The data (CC BY 4.0) is not shipped: take it from archive.ics.uci.edu (`adult.data` and `adult.test`) or as one CSV
file with a header, as Kaggle has it, unpacked. The label says who earns more than 50,000
dollars a year. The census weight `fnlwgt` is nobody's feature and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from tacit.align.tables import Columns
from tacit.errors import DataError
from tacit.lab.data.joined import Joint, read, truth
from tacit.lab.data.reading import Text, found, header
from tacit.lab.data.rows import Data

FILES = ("adult.csv", "adult.data")
"""What a folder is searched for, in this order; `adult.test` is read as well where it lies beside `adult.data`."""

EMPLOYER_INPUTS = Columns(
    categorical=("workclass", "education", "occupation", "race", "gender", "native_country"),
    numeric=("age", "education_years", "hours_per_week"),
)
"""What the feature party's half of the model sees: the person and the work."""

TAX_OFFICE_INPUTS = Columns(categorical=("marital_status", "relationship"), numeric=("capital_gain", "capital_loss"))
"""What the label party's half of the model sees: the family and the capital."""

LABEL = "over_50k"
"""The label's column."""

# The columns in the order of the official files, which have no header; other names of the same column are mapped.
_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education_years", "marital_status", "occupation", "relationship"),
    *("race", "gender", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income"),
)
_OTHER_NAMES: Mapping[str, str] = {
    "education_num": "education_years",
    "educational_num": "education_years",
    "sex": "gender",
    "class": "income",
    "country": "native_country",
}
_INCOMES = {"<=50K": False, ">50K": True, "<=50K.": False, ">50K.": True}
_NUMBERS = ("age", "education_years", "capital_gain", "capital_loss", "hours_per_week")
_REMEDY = "take adult.data and adult.test from archive.ics.uci.edu (data set 2), or an adult.csv with a header"


def load(folder: str | Path, *, rows: int | None = None, sample: float = 1.0, seed: int = 0) -> Data:
    """All people of the files, those of `adult.data` and `adult.test` together.

    Args:
        folder: holds one of `FILES`, or is such a file itself.
    """
    joint = Joint(people(folder), EMPLOYER_INPUTS, TAX_OFFICE_INPUTS, label=LABEL)
    return joint.data("adult", rows, seed, sample=sample)


def people(path: str | Path) -> pl.DataFrame:
    """All people of a file or folder, in its order, with an `id` for each; a "?" is a missing value."""
    path = found(Path(path), FILES, f"{_REMEDY}, and pass their folder")
    beside = path.with_name("adult.test")
    files = [path, *([beside] if path.name == "adult.data" and beside.is_file() else [])]
    return pl.concat([_table(file) for file in files]).with_row_index("id")


def _table(path: Path) -> pl.DataFrame:
    """One file's people. The official files have no header; `adult.test` begins with a remark, and ends its labels with
    a full stop.
    """
    first = header(path, ",", _REMEDY)
    headed, remark = "age" in map(str.lower, first), first[0].startswith("|")
    names = tuple(map(_own_name, first)) if headed else _COLUMNS
    missing = sorted(set(_COLUMNS) - set(names) - {"fnlwgt"})
    if missing or not (remark or len(first) == len(names)):
        raise DataError(
            f"{path} has {len(first)} columns" + (f" and lacks {', '.join(missing)}" if missing else "")
            + f", where Adult has {len(_COLUMNS)}: {_REMEDY}"
        )  # fmt: skip
    wanted = [column for column in _COLUMNS if column not in ("fnlwgt", "income")]
    kinds = {name: "number" if name in _NUMBERS else "category" for name in (*wanted, "income")}
    source = Text(path, names, kinds, header=headed or remark, quoted=headed, remedy=_REMEDY)
    table = read(source)
    return table.select(*wanted, truth(source, table, "income", _INCOMES).alias(LABEL)).with_columns(
        pl.col(pl.String).str.strip_chars().replace(["?", ""], None), pl.col(_NUMBERS).cast(pl.Float32)
    )


def _own_name(cell: str) -> str:
    plain = cell.lower().replace("-", "_").replace(".", "_").replace(" ", "_")
    return _OTHER_NAMES.get(plain, plain)
