"""UCI Bank marketing: a register knows the client and his money, a bank knows its calls and who opened a deposit.

The data (CC BY 4.0) comes from archive.ics.uci.edu (data set 222) as `bank-full.csv`; copies in two files, `train.csv`
and `test.csv`, are read as one. `duration`, the length of the very call that is to be foretold, is known only after it
and is left out, as its authors advise. A `pdays` of -1 (never called before) is a missing value, and a column of its
own says so.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tacit.align.tables import Columns
from tacit.errors import DataError
from tacit.lab.data.faults import Faults
from tacit.lab.data.joined import Good, Joint
from tacit.lab.data.reading import Text, header, packed, require
from tacit.lab.data.rows import Data

REGISTER_INPUTS = Columns(
    categorical=("job", "marital", "education", "default", "housing", "loan"), numeric=("age", "balance")
)
"""What the feature party's half of the model sees: the client and the money."""

BANK_INPUTS = Columns(
    categorical=("contact", "day", "month", "poutcome"), numeric=("campaign", "pdays", "previous"), flagged=("pdays",)
)
"""What the label party's half of the model sees: the calls."""

_LABEL = "tacit label"  # no file has a column of that name
_NUMBERS = ("age", "balance", "campaign", "pdays", "previous")
_REMEDY = "take bank-full.csv from archive.ics.uci.edu (data set 222) and pass its folder (folder=, --folder)"


def load(folder: str | Path, *, rows: int | None = None, seed: int = 0, bad: str = "raise") -> Data:
    """All clients of the files.

    Args:
        folder: holds `bank-full.csv`, or `train.csv` and `test.csv`, packed (`.gz`) or not.
    """
    faults = Faults(bad)
    table = pl.concat([_table(path, faults) for path in _paths(Path(folder))]).with_row_index("id")
    never = pl.col("pdays") < 0
    table = table.with_columns(pl.when(never).then(None).otherwise(pl.col("pdays")).alias("pdays"))
    joint = Joint(table, REGISTER_INPUTS, BANK_INPUTS, label=_LABEL)
    return joint.data("bank", rows, seed, skipped=faults.skipped)


def _paths(folder: Path) -> list[Path]:
    whole, *halves = (packed(folder / name) for name in ("bank-full.csv", "train.csv", "test.csv"))
    paths = [path for path in ([whole] if whole else halves) if path]
    if not whole and len(paths) < 2:
        raise DataError(f"{folder} holds neither bank-full.csv nor both train.csv and test.csv: {_REMEDY}")
    return paths


def _table(path: Path, faults: Faults) -> pl.DataFrame:
    """One file; the official one calls its label y, the copies in two files call it deposit."""
    wanted = [*REGISTER_INPUTS.names, *BANK_INPUTS.names]
    separator = ";" if len(header(path, ";", _REMEDY)) > 1 else ","
    names = header(path, separator, _REMEDY)
    require(path, names, wanted, _REMEDY)
    label = next((name for name in ("y", "deposit") if name in names), None)
    if label is None:
        raise DataError(f"{path} has neither a column y nor a column deposit, which say who opened one: {_REMEDY}")
    kinds = {name: "number" if name in _NUMBERS else "category" for name in (*wanted, label)}
    good = Good.of(Text(path, names, kinds, separator, quoted=True, remedy=_REMEDY), faults)
    return good.truth(label, {"yes": True, "no": False}, _LABEL).table.select(*wanted, _LABEL)
