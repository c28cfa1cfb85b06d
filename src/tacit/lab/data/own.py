"""Your own Parquet, CSV or TSV file, by a small description of which column belongs to whom.

`docs/ref-data-sets.md` shows one. Its path is relative to the description.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import polars as pl
from pydantic import Field

from tacit.config.files import File, Name, Names, Number, Problem, Section, Text, Whole
from tacit.errors import DataError
from tacit.lab.data import reading
from tacit.lab.data.rows import Data
from tacit.lab.data.streaming import Options, Schema
from tacit.lab.data.streaming import load as load_streamed
from tacit.progress import Count

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_REMEDY = "look at the file, or write it anew"


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
        min_count: a category that fewer training rows have shares the code 0 with unknown ones.
        scaling: "standard" for mean 0 and variance 1, "range" for [0, 1] as the papers scale Criteo.
    """

    FILE: ClassVar[str] = "the description"

    name: Name = "own"
    file: Text = Field(examples=['"clicks.csv"'])
    label: Text = Field(examples=['"clicked"'])
    day: Text | None = None
    features: Columns
    own: Columns = Columns()
    test_share: Number = 0.1
    min_count: Whole = 1
    scaling: Literal["standard", "range"] = "standard"

    def _problems(self) -> Iterator[Problem]:
        if not self.features.categorical and not self.features.numeric:
            yield "features", "has no column: name some under categorical or numeric"
        for key, columns in (("features", self.features), ("own", self.own)):
            for kind, names in (("categorical", columns.categorical), ("numeric", columns.numeric)):
                if self.label in names:
                    yield f"{key}.{kind}", f"holds the label {self.label!r}: take it out"
        both = {*self.features.categorical, *self.own.categorical} & {*self.features.numeric, *self.own.numeric}
        if both:
            yield "features", f"{', '.join(sorted(both))} can't be both categorical and numeric: decide for one"


def load(
    description: str | Path,
    *,
    rows: int | None = None,
    sample: float = 1.0,
    seed: int = 0,
    cache: str | Path | None = None,
    progress: Count | None = None,
) -> Data:
    """Training and test rows of your own files, mapped from files like those of Criteo.

    Args:
        description: the path of a TOML file.
    """
    asked, where, folder = Description.load(description), str(description), Path(description).parent
    features, own = asked.features, asked.own
    schema = Schema(
        asked.name, asked.label, features.categorical, features.numeric, own.categorical, own.numeric,
        days=asked.day is not None,
    )  # fmt: skip
    source = _source(folder / asked.file, asked, where)
    options = Options(rows, sample, asked.test_share, seed, asked.min_count, asked.scaling)
    return load_streamed(source, schema, options, cache=cache, progress=progress)


def _source(path: Path, asked: Description, where: str) -> reading.Source:
    """A file by the end of its name, which must have the columns that are asked for."""
    if not path.is_file():
        raise DataError(f"{where}, file: {path} is no file: correct the path")
    separator = _SEPARATORS.get(path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix)
    if separator is not None:
        names = reading.header(path, separator, _REMEDY)
        reading.require(path, names, (), _REMEDY)
    elif path.suffix in (".parquet", ".pq"):
        try:
            names = tuple(pl.read_parquet_schema(path))
        except (OSError, pl.exceptions.PolarsError) as error:
            cause = str(error).partition("\n")[0]
            raise DataError(f"{where}, file: {path} can't be read ({cause}): {_REMEDY}") from None
    else:
        raise DataError(f"{where}, file: {path.name} is no .parquet, .csv or .tsv file: convert it")
    wanted = [("label", asked.label, "label"), *([] if asked.day is None else [("day", asked.day, "day")])]
    for section, columns in (("features", asked.features), ("own", asked.own)):
        wanted += [(f"[{section}] categorical", name, "category") for name in columns.categorical]
        wanted += [(f"[{section}] numeric", name, "number") for name in columns.numeric]
    for key, name, _ in wanted:
        if name not in names:
            raise DataError(f"{where}, {key}: {path.name} has no column {name!r}; it has: {', '.join(names)}")
    kinds = {name: kind for _, name, kind in wanted}
    if separator is None:
        return reading.Stored(path, kinds)
    return reading.Text(path, names, kinds, separator, quoted=True)
