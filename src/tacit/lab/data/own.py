"""Your own Parquet, CSV or TSV file, by a small description of which column belongs to whom.

`docs/ref-data-sets.md` shows one. Its path is relative to the description.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import polars as pl
from pydantic import Field

from tacit.align.encoder import Columns as Encoded
from tacit.align.encoder import days_of, numbers
from tacit.align.sources import blocks, columns_in
from tacit.align.tables import labels
from tacit.config.files import File, Name, Names, Number, Problem, Section, Text
from tacit.errors import DataError, LabelsError
from tacit.lab.data.joined import Joint
from tacit.lab.data.reading import DAY
from tacit.lab.data.rows import Data

_ROW, _LABEL = "tacit row", "tacit label"  # no file has columns of these names


class Columns(Section):
    """The columns of one party.

    Attributes:
        categorical: columns that become codes.
        numeric: columns of numbers.
    """

    categorical: Names = ()
    numeric: Names = ()


class Description(File):
    """What a description may say; an unknown key is an error, and all errors are told at once.

    Attributes:
        name: of the data set.
        file: with the columns of both parties.
        label: the column of the label, which is 0 or 1.
        day: the column of the day, a date or a number of days.
        features: what the feature party has.
        own: what the label party has beside the labels.
        test_share: the share of rows for testing.
    """

    FILE: ClassVar[str] = "the description"

    name: Name = "own"
    file: Text = Field(examples=['"clicks.csv"'])
    label: Text = Field(examples=['"clicked"'])
    day: Text | None = None
    features: Columns
    own: Columns = Columns()
    test_share: Number = 0.1

    def _problems(self) -> Iterator[Problem]:
        if not self.features.categorical and not self.features.numeric:
            yield "features", "has no column: name some under categorical or numeric"
        if not 0 < self.test_share < 1:
            yield "test_share", f"{self.test_share:g} is no share between 0 and 1: write one such as 0.1"
        for key, columns in (("features", self.features), ("own", self.own)):
            for kind, names in (("categorical", columns.categorical), ("numeric", columns.numeric)):
                if self.label in names:
                    yield f"{key}.{kind}", f"holds the label {self.label!r}: take it out"
        both = {*self.features.categorical, *self.own.categorical} & {*self.features.numeric, *self.own.numeric}
        if both:
            yield "features", f"{', '.join(sorted(both))} can't be both categorical and numeric: decide for one"


def load(description: str | Path, *, rows: int | None = None, sample: float = 1.0, seed: int = 0) -> Data:
    """Training and test rows of your own file, read as a company's table and encoded as `flights`.

    Args:
        description: the path of a TOML file.
    """
    asked, where = Description.load(description), str(description)
    path = Path(description).parent / asked.file
    features, own = (Encoded(one.categorical, one.numeric) for one in (asked.features, asked.own))
    keys: dict[str, tuple[str, ...]] = {"label": (asked.label,), "day": () if asked.day is None else (asked.day,)}
    for section, columns in (("features", features), ("own", own)):
        keys |= {f"[{section}] categorical": columns.categorical, f"[{section}] numeric": columns.numeric}
    try:
        known = columns_in(path)
    except DataError as error:
        raise DataError(f"{where}, file: {error}") from None
    for key, named in keys.items():
        for name in named:
            if name not in known:
                raise DataError(f"{where}, {key}: {path.name} has no column {name!r}; it has: {', '.join(known)}")
    try:
        table = pl.concat(blocks(path, list(dict.fromkeys(name for named in keys.values() for name in named))))
        truth = labels(table, asked.label, "binary").numpy()
        numbers(table, Encoded(numeric=(*features.numeric, *own.numeric)), None)  # what is none is named by its row
    except (DataError, LabelsError) as error:
        raise DataError(f"{path}: {error}") from None
    made = [pl.Series(_LABEL, truth)]
    if asked.day is not None:
        day = table[asked.day]
        since = (day if day.dtype.is_integer() else days_of(day).to_physical()).cast(pl.Int32)
        made.append((since - since.min()).alias(DAY))
    for column, of in zip(made, (asked.label, asked.day), strict=False):
        missing = column.fill_nan(None).is_null() if column.dtype.is_float() else column.is_null()
        if missing.any():
            row = int(missing.arg_max() or 0)
            raise DataError(f"{path}: row {row} (counted from 0) has no {of!r}: fill it in, or take the row out")
    joint = Joint(table.with_columns(made).with_row_index(_ROW), features, own, _ROW, _LABEL, asked.test_share)
    return joint.data(asked.name, rows, seed, sample=sample)
