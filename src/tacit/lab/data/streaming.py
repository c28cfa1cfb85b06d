"""Tables of any size as training and test rows: scanned, cast and written to a Parquet file as a stream, then encoded
column by column into arrays that training maps into memory.

Rows for training come first, each side sorted by day and otherwise in the order of the file. Everything is learnt from
the training rows alone. What was made of a file is used again as long as the file and the options are the same.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.batches import scramble
from tacit.align.cache import busy
from tacit.disk import known_json, write_json
from tacit.errors import DataError, UsageError
from tacit.lab.data.reading import DAY, ROW, WHY, Text, collected, refuse_wrong, unreadable
from tacit.lab.data.rows import Data, Rows, Table
from tacit.made_once import made_once
from tacit.progress import Count

_FORMAT = 5  # of all files; another one is made anew
_ABOUT = "about.json"
_LOOKED_AT = 1000  # rows that are looked at before the others are read

TEST = "tacit test"
"""The column that says whether a row is for testing."""


@dataclass(frozen=True)
class Schema:
    """Which columns of a source are used, and by whom."""

    name: str  # of the data set
    label: str  # the column of the label
    categorical: tuple[str, ...] = ()  # columns that become codes
    numeric: tuple[str, ...] = ()  # columns of numbers, scaled to [0, 1] by their range; a missing one is 0
    days: bool = False  # whether the source gives the day of each row


@dataclass(frozen=True)
class Options:
    """Which rows are used, and how they are encoded."""

    rows: int | None = None  # only the first so many rows of the source; None for all
    sample: float = 1.0  # the share of these that is used, drawn at random
    test_share: float = 0.1  # the share of the used rows that is for testing
    seed: int = 0  # of both draws: whether a row is used, and for what, depends on its number and the seed alone
    min_count: int = 1  # a category that fewer training rows have shares the code 0 with those that none has

    def __post_init__(self) -> None:
        for name, right, wanted in (
            ("rows", self.rows is None or self.rows > 1, "at least 2"),
            ("sample", 0 < self.sample <= 1, "above 0 and at most 1"),
            ("test_share", 0 < self.test_share < 1, "between 0 and 1"),
            ("min_count", self.min_count >= 1, "at least 1"),
        ):
            if not right:
                raise UsageError(f"{name}={getattr(self, name)!r}: give one that is {wanted}")

    def used(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """The rows that are used, and of each whether it is for testing."""
        drawn = pl.col(ROW).map_batches(self._drawn, pl.Float64, is_elementwise=True)
        rows = table if self.rows is None else table.filter(pl.col(ROW) < self.rows)
        rows = rows.with_columns(drawn.alias(TEST)).filter(pl.col(TEST) < self.sample)
        return rows.with_columns(pl.col(TEST) < self.sample * self.test_share)

    def _drawn(self, rows: pl.Series) -> pl.Series:
        """A number in [0, 1) for each row, by its number in the file and the seed alone."""
        return pl.Series(scramble(rows.to_numpy(), self.seed))


def cache_folder(path: Path, cache: str | Path | None) -> Path:
    """Where what is made of a file is kept: beside it, since there is room for files of its size, or where asked."""
    if cache is None:
        return path.with_name(f"{path.name}.tacit")
    return Path(cache) / f"{path.name}-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}.tacit"


def load(
    source: Text,
    schema: Schema,
    options: Options,
    *,
    cache: str | Path | None = None,
    progress: Count | None = None,
) -> Data:
    """Training and test rows of a source, from the cache or made there."""
    about = {key: value for key, value in asdict(schema).items() if key != "name"}
    facts = {"format": _FORMAT, "source": source.facts(), "schema": about, "options": asdict(options)}
    facts = json.loads(json.dumps(facts))
    name = f"encoded-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]}"
    folder = cache_folder(source.path, cache)
    making = _Making(source, schema, options, facts, progress or (lambda done, total: None))
    with busy(folder):
        _clear(folder, facts["source"])
        encoded = made_once(folder, name, making.write)
        try:
            return _opened(encoded, schema)
        except (OSError, ValueError, KeyError):  # cut short, or not ours
            shutil.rmtree(encoded)
        return _opened(made_once(folder, name, making.write), schema)


def _clear(folder: Path, source: object) -> None:
    """Delete what was made of a file that has changed since: it takes room, and nobody asks for it again."""
    for old in folder.glob("encoded-*"):
        if ((known_json(old / _ABOUT) or {}).get("facts") or {}).get("source") != source:
            shutil.rmtree(old, ignore_errors=True)


def _opened(encoded: Path, schema: Schema) -> Data:
    """The data set, parted between the parties and into training and test rows; all of it stays mapped."""
    about = json.loads((encoded / _ABOUT).read_bytes())

    def mapped(name: str) -> Tensor:  # a page is this process's own once it is written to: torch wants that it could be
        return torch.from_numpy(np.load(encoded / f"{name}.npy", mmap_mode="c"))

    days, train = mapped("days") if schema.days else None, about["train"]
    rows = Rows((mapped("categorical"), mapped("numeric")), (), mapped("labels"), days)
    return Data(schema.name, rows[:train], rows[train:], Table(tuple(about["cardinalities"]), len(schema.numeric)))


# --- making ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Making:
    """All that it takes to make the arrays of a table."""

    source: Text
    schema: Schema
    options: Options
    facts: dict[str, Any]
    progress: Count

    def write(self, folder: Path) -> None:
        """Cast the rows into a Parquet file, and bring it column by column into arrays.

        One column is in memory at a time, with its vocabulary.
        """
        schema, file = self.schema, folder / "rows.parquet"
        categorical, numeric = schema.categorical, schema.numeric
        steps = 2 * (len(categorical) + len(numeric))
        try:
            self._cast(file)
            table = pl.scan_parquet(file, glob=False)
            place, train = self._places(table)
            learning, sizes = table.filter(~pl.col(TEST)), list[int]()

            def new(name: str, dtype: str, *width: int) -> NDArray[Any]:
                return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, (len(place), *width))

            codes, numbers = new("categorical", "int32", len(categorical)), new("numeric", "float32", len(numeric))
            for at, name in enumerate(categorical):
                self.progress(steps // 2 + at, steps)
                known = collected(self.source, _vocabulary(learning, name, self.options.min_count))
                codes[place, at] = self._column(_coded(table, name, known))
                sizes.append(len(known) + 2)
            for at, name in enumerate(numeric, start=len(categorical)):
                self.progress(steps // 2 + at, steps)
                x = pl.col(name).cast(pl.Float64).fill_null(0.0)
                low, high = collected(self.source, learning.select(low=x.min(), high=x.max())).row(0)
                scaled = ((x - low) / ((high - low) or np.inf)).clip(0.0, 1.0)
                numbers[place, at - len(categorical)] = self._column(table.select(scaled))
            new("labels", "float32")[place] = self._column(table.select(schema.label))
            if schema.days:
                new("days", "int64")[place] = self._column(table.select(pl.col(DAY) - pl.col(DAY).min()))
        finally:
            file.unlink(missing_ok=True)
        write_json(folder / _ABOUT, {"facts": self.facts, "cardinalities": sizes, "train": train})
        self.progress(steps, steps)

    def _cast(self, file: Path) -> None:
        """Write the rows that are used into a Parquet file."""
        before, table = self.source.facts(), self.source.table(self.options.used)
        # A wrong file is told before hours of reading.
        refuse_wrong(self.source, collected(self.source, table.head(_LOOKED_AT)))
        try:
            table.sink_parquet(file, compression="zstd", compression_level=1)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise unreadable(self.source, error) from None
        if self.source.facts() != before:
            raise DataError(
                f"{self.source.path} was changed while it was read: wait until it is whole, and start again"
            )
        refuse_wrong(self.source, collected(self.source, pl.scan_parquet(file, glob=False).select(ROW, WHY)))

    def _places(self, table: pl.LazyFrame) -> tuple[NDArray[np.int64], int]:
        """For each row its place among all, those for training first, and how many these are."""
        sides = collected(self.source, table.select(TEST, *([DAY] if self.schema.days else [])))
        tests = sides[TEST].to_numpy()
        train = len(tests) - int(tests.sum())
        if train in (0, len(tests)):
            raise DataError(
                f"{self.source.path} leaves no row for training or none for testing ({len(tests)} rows are "
                f"used): use more rows, a larger sample or another test_share"
            )
        order = np.lexsort((sides[DAY].to_numpy(), tests)) if self.schema.days else np.argsort(tests, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return place, train

    def _column(self, table: pl.LazyFrame) -> NDArray[Any]:
        """A table's one column, in memory."""
        return collected(self.source, table).to_series().to_numpy()


def _vocabulary(learning: pl.LazyFrame, name: str, min_count: int) -> pl.LazyFrame:
    """The categories of a column and their codes, from 2 on by falling frequency, equally frequent ones by value."""
    counted = learning.group_by(name).len().filter(pl.col(name).is_not_null() & (pl.col("len") >= min_count))
    ordered = counted.sort("len", name, descending=[True, False])
    return ordered.select(name, (pl.int_range(pl.len(), dtype=pl.Int32) + 2).alias("code"))


def _coded(table: pl.LazyFrame, name: str, known: pl.DataFrame) -> pl.LazyFrame:
    """A column's codes: 1 for a missing category, 0 for one that is not known."""
    joined = table.select(name).join(known.lazy(), on=name, how="left", maintain_order="left")
    return joined.select(pl.when(pl.col(name).is_null()).then(1).otherwise(pl.col("code").fill_null(0)))
