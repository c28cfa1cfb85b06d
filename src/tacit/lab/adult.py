"""UCI Adult, the census of 1994: an employer knows work and schooling, a tax office knows families and incomes.

The data (CC BY 4.0) is not shipped: take it from archive.ics.uci.edu (`adult.data` and `adult.test`) or as one CSV
file with a header, as Kaggle has it; a zip file around either is opened. The label says who earns more than 50,000
dollars a year. The census weight `fnlwgt` is nobody's feature and is left out.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from tacit.align.tables import Columns
from tacit.errors import DataError
from tacit.lab.tables import Split, split

__all__ = ["EMPLOYER_INPUTS", "FILES", "LABEL", "TAX_OFFICE_INPUTS", "aligned", "load"]

FILES = ("adult.csv", "adult.csv.zip", "adult.zip", "adult.data")
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
_NUMBERS = ("age", "education_years", "capital_gain", "capital_loss", "hours_per_week")
_REMEDY = "take adult.data and adult.test from archive.ics.uci.edu (data set 2), or an adult.csv with a header"


def load(path: str | Path) -> pl.DataFrame:
    """All people of a file or folder, in its order, with an `id` for each; a "?" is a missing value.

    Args:
        path: a folder that holds one of `FILES`, or such a file itself.
    """
    path = Path(path)
    if path.is_dir():
        path = _found(path)
    texts = _texts(path)
    beside = path.with_name("adult.test")
    if path.name == "adult.data" and beside.is_file():
        texts |= _texts(beside)
    return pl.concat([_table(text, name) for name, text in texts.items()]).with_row_index("id")


def aligned(path: str | Path, test_share: float = 0.2, seed: int = 0, limit: int | None = None) -> Split:
    """Training and test tensors of both parties; the arguments after the path are those of `tacit.lab.tables.split`."""
    return split(
        load(path),
        key="id",
        label=LABEL,
        features=EMPLOYER_INPUTS,
        own=TAX_OFFICE_INPUTS,
        test_share=test_share,
        seed=seed,
        limit=limit,
    )


def _found(folder: Path) -> Path:
    for name in FILES:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} holds none of {', '.join(FILES)}: {_REMEDY}, and pass their folder")


def _texts(path: Path) -> dict[str, str]:
    """The text of a file, or of each table in a zip file, by the name that errors call it."""
    try:
        if path.suffix != ".zip":
            return {str(path): path.read_text(encoding="utf-8")}
        with zipfile.ZipFile(path) as packed:
            inside = [
                name for name in packed.namelist() if Path(name).name in ("adult.csv", "adult.data", "adult.test")
            ]
            found = {f"{path}/{name}": packed.read(name).decode() for name in inside}
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {_REMEDY}, and pass its path") from None
    except (OSError, UnicodeDecodeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} can't be read ({error}): get the file anew: {_REMEDY}") from error
    if not found:
        raise DataError(f"{path} holds no adult.csv or adult.data: {_REMEDY}")
    return found


def _table(text: str, name: str) -> pl.DataFrame:
    """One file's people. The official files have no header; `adult.test` begins with a remark, and ends its labels with
    a full stop.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("|")]
    if not lines:
        raise DataError(f"{name} is empty: {_REMEDY}")
    first = [cell.strip().strip('"').lower() for cell in lines[0].split(",")]
    headed = "age" in first
    columns = [_own_name(cell) for cell in first] if headed else list(_COLUMNS)
    missing = sorted(set(_COLUMNS) - set(columns) - {"fnlwgt"})
    if missing or len(first) != len(columns):
        raise DataError(
            f"{name} has {len(first)} columns" + (f" and lacks {', '.join(missing)}" if missing else "")
            + f", where Adult has {len(_COLUMNS)}: {_REMEDY}"
        )  # fmt: skip
    try:
        table = pl.read_csv(
            io.StringIO("\n".join(lines)), has_header=headed, new_columns=columns, infer_schema=False, null_values=None
        )
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{name} can't be read as a table ({str(error).splitlines()[0]}): {_REMEDY}") from None
    table = table.with_columns(pl.all().str.strip_chars()).with_columns(pl.all().replace("?", None))
    return _typed(table, name).select(*(column for column in _COLUMNS if column not in ("fnlwgt", "income")), LABEL)


def _own_name(cell: str) -> str:
    plain = cell.replace("-", "_").replace(".", "_").replace(" ", "_")
    return _OTHER_NAMES.get(plain, plain)


def _typed(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """Numbers as numbers and the label as a truth value; a row where that fails is named."""
    income = table["income"].str.strip_chars_end(".")
    wrong = (~income.is_in(["<=50K", ">50K"]).fill_null(False)).arg_true()
    if len(wrong):
        found = table["income"][wrong[0]]
        raise DataError(f"{name}, row {wrong[0]}: the income is {found!r}, neither '<=50K' nor '>50K': {_REMEDY}")
    numbers = table.select(pl.col(_NUMBERS).cast(pl.Float32, strict=False))
    for column in _NUMBERS:
        lost = (numbers[column].is_null() & table[column].is_not_null()).arg_true()
        if len(lost):
            raise DataError(f"{name}, row {lost[0]}: {column} is {table[column][lost[0]]!r}, no number: {_REMEDY}")
    return table.with_columns(numbers).with_columns((income == ">50K").alias(LABEL))
