"""Your own Parquet, CSV or TSV file, by a small description of which column belongs to whom.

::

    file = "clicks.parquet"
    label = "clicked"
    day = "date"                        # if there is one: for a training day by day
    test_share = 0.2

    [features]                          # what the feature party has
    categorical = ["site", "device"]
    numeric = ["age"]

    [own]                               # what the label party has beside the labels, if anything
    numeric = ["basket"]

Two files with a common id have no `file` of their own; the label party's one holds the labels, and the day, if there
is one, stands in the feature party's::

    id = "customer"
    label = "clicked"

    [features]
    file = "platform.parquet"
    categorical = ["site", "device"]

    [own]
    file = "shop.csv"
    numeric = ["basket"]

Paths are relative to the description. `min_count` (1) and `scaling` ("standard" or "range") may be given as well; see
`tacit.lab.data.streaming`. Missing values are empty cells; line ends within quotes are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import polars as pl
from pydantic import Field

from tacit.config.files import File, Name, Names, Number, Problem, Section, Text, Whole
from tacit.errors import DataError
from tacit.lab.data import _text
from tacit.lab.data._sources import Source
from tacit.lab.data._stored import Joined, Stored
from tacit.lab.data.rows import Data
from tacit.lab.data.streaming import Options, Progress, Schema
from tacit.lab.data.streaming import load as load_streamed

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_REMEDY = "look at the file, or write it anew"


class Columns(Section):
    """The columns of one party.

    Attributes:
        file: its own file, where there are two.
        categorical: columns that become codes.
        numeric: columns of numbers.
    """

    file: Text | None = None
    categorical: Names = ()
    numeric: Names = ()


class Description(File):
    """What a description may say; an unknown key is an error, and all errors are told at once.

    Attributes:
        name: of the data set.
        file: the one file, if it is one.
        id: the common column of two files.
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
    file: Text | None = None
    id: Text | None = None
    label: Text = Field(examples=['"clicked"'])
    day: Text | None = None
    features: Columns
    own: Columns = Columns()
    test_share: Number = 0.1
    min_count: Whole = 1
    scaling: Literal["standard", "range"] = "standard"

    def _problems(self) -> Iterator[Problem]:
        two = self.id is not None
        for key, present, wanted in (
            ("file", self.file is not None, not two),
            ("features.file", self.features.file is not None, two),
            ("own.file", self.own.file is not None, two),
        ):
            if wanted and not present:
                yield key, "is missing: give one `file`, or an `id` with `file` under [features] and [own]"
            if present and not wanted:
                yield key, "does not fit: give one `file`, or an `id` with `file` under [features] and [own]"
        if not self.features.categorical and not self.features.numeric:
            yield "features", "has no column: name some under categorical or numeric"
        for key, columns in (("features", self.features), ("own", self.own)):
            for kind, names in (("categorical", columns.categorical), ("numeric", columns.numeric)):
                if self.label in names:
                    yield f"{key}.{kind}", f"holds the label {self.label!r}: take it out"
        both = sorted({*self.features.categorical, *self.own.categorical}
                      & {*self.features.numeric, *self.own.numeric})  # fmt: skip
        if both and not two:
            yield "features", f"{', '.join(both)} can't be both categorical and numeric: decide for one"


def load(
    description: str | Path | Mapping[str, Any],
    *,
    rows: int | None = None,
    sample: float = 1.0,
    test_share: float | None = None,
    seed: int = 0,
    cache: str | Path | None = None,
    bad: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
) -> Data:
    """Training and test rows of your own files, mapped from files like those of Criteo.

    Args:
        description: the path of a TOML file, or what would stand in it; paths are then relative to the current folder.
        rows: only the first so many rows.
        sample: the share of the rows to use.
        test_share: in the place of the description's.
        seed: of both draws.
        cache: a folder for what is kept; None for one beside the (feature party's) file.
        bad: "raise" an error that names a row that can't be read, or "skip" and count such rows.
        progress: called with the work done and to do.
    """
    if isinstance(description, Mapping):
        asked, where, folder = Description.of(description), Description.FILE, Path()
    else:
        asked, where, folder = Description.load(description), str(description), Path(description).parent
    if asked.id is None:
        source, schema = _one_file(asked, where, folder)
    else:
        source, schema = _two_files(asked, where, folder)
    share = asked.test_share if test_share is None else test_share
    made = [
        f"{source.path.name} was read"
        + ("." if asked.id is None else f" and joined with {asked.own.file} by {asked.id} in the clear.")
    ]
    options = Options(rows, sample, share, seed, asked.min_count, asked.scaling)
    return load_streamed(source, schema, options, cache=cache, bad=bad, progress=progress, made=made)


Wanted = Sequence[tuple[str, str, str]]
"""Columns with the key of the description that names them, and their kinds."""


def _wanted(key: str, columns: Columns) -> list[tuple[str, str, str]]:
    categorical = [(f"[{key}] categorical", name, "category") for name in columns.categorical]
    return categorical + [(f"[{key}] numeric", name, "number") for name in columns.numeric]


def _one_file(asked: Description, where: str, folder: Path) -> tuple[Source, Schema]:
    features, own = asked.features, asked.own
    wanted = [
        ("label", asked.label, "label"),
        *(() if asked.day is None else (("day", asked.day, "day"),)),
        *_wanted("features", features),
        *_wanted("own", own),
    ]
    schema = Schema(
        asked.name, asked.label, features.categorical, features.numeric, own.categorical, own.numeric,
        days=asked.day is not None,
    )  # fmt: skip
    return _source(folder / str(asked.file), wanted, where, "file"), schema


def _two_files(asked: Description, where: str, folder: Path) -> tuple[Source, Schema]:
    features, own, key = asked.features, asked.own, str(asked.id)
    day = () if asked.day is None else (("day", asked.day, "day"),)
    one = _source(
        folder / str(features.file), [("id", key, "key"), *day, *_wanted("features", features)], where,
        "[features] file",
    )  # fmt: skip
    two = _source(
        folder / str(own.file), [("id", key, "key"), ("label", asked.label, "label"), *_wanted("own", own)], where,
        "[own] file",
    )  # fmt: skip
    joined = Joined(one, two, key)
    categorical, numeric = (tuple(joined.prefix + name for name in names) for names in (own.categorical, own.numeric))
    schema = Schema(
        asked.name, joined.prefix + asked.label, features.categorical, features.numeric, categorical, numeric,
        days=bool(day),
    )  # fmt: skip
    return joined, schema


def _source(path: Path, wanted: Wanted, where: str, key: str) -> Source:
    """A file by the end of its name, with these columns."""
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if not path.is_file():
        raise DataError(f"{where}, {key}: {path} is no file: correct the path")
    kinds = {name: kind for _, name, kind in wanted}
    if kind in _SEPARATORS:
        names = _text.header(path, _SEPARATORS[kind], _REMEDY)
        _require(path, names, wanted, where)
        return _text.Text(path, _text.Layout(names, kinds, _SEPARATORS[kind], quoted=True))
    if path.suffix not in (".parquet", ".pq"):
        raise DataError(f"{where}, {key}: {path.name} is no .parquet, .csv or .tsv file: convert it")
    try:
        names = tuple(pl.read_parquet_schema(path))
    except (OSError, pl.exceptions.PolarsError) as error:
        cause = str(error).partition("\n")[0]
        raise DataError(f"{where}, {key}: {path} can't be read ({cause}): {_REMEDY}") from None
    _require(path, names, wanted, where)
    return Stored(path, kinds)


def _require(path: Path, names: Sequence[str], wanted: Wanted, where: str) -> None:
    for key, name, _ in wanted:
        if name not in names:
            raise DataError(f"{where}, {key}: {path.name} has no column {name!r}; it has: {', '.join(names)}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}, line 1: the column {twice[0]!r} stands there twice: name them apart")
