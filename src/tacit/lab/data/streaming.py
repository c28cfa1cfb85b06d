"""Tables of any size as training and test rows: read once in chunks, learnt from, encoded, and mapped into memory.

The source becomes Parquet files first, one for each chunk. From these the rows are encoded as a company's are
(`tacit.align.cache`), only coded as in the papers: training rows before test rows, each sorted by day. What an earlier
call made is used again as long as the source and the options are the same; the Parquet files serve every choice of
options, and may be deleted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.arrays import new_file
from tacit.align.batches import scramble
from tacit.align.cache import MANIFEST, Making, Prepared, busy, emptied, reused
from tacit.align.encoder import Coding, Columns, Scaling
from tacit.disk import known_json, make_folder, replaced, storing, write_json
from tacit.errors import DataError, UsageError
from tacit.lab.data.faults import Faults
from tacit.lab.data.reading import DAY, ROW, Bad, Source
from tacit.lab.data.rows import Data, Rows, Table

Progress = Callable[[int, int], None]
"""Called with the work done and to do, in bytes of text or rows of Parquet, each of which counts three times."""

_FORMAT = 3  # of all files; another one is made anew
_ABOUT = "about.json"  # of the Parquet files, written last
TRAIN, TEST = 1, 2
"""What a row is for."""


@dataclass(frozen=True)
class Schema:
    """Which columns of a source are used, and by whom."""

    name: str  # of the data set
    label: str  # the column of the label
    categorical: tuple[str, ...] = ()  # columns of the feature party that become codes
    numeric: tuple[str, ...] = ()  # its columns of numbers
    own_categorical: tuple[str, ...] = ()  # the same of the label party
    own_numeric: tuple[str, ...] = ()  # its columns of numbers
    days: bool = False  # whether the source gives the day of each row

    @property
    def inputs(self) -> Columns:
        """The columns of both parties, those of the feature party first."""
        return Columns((*self.categorical, *self.own_categorical), (*self.numeric, *self.own_numeric))

    @property
    def names(self) -> list[str]:
        """All columns, each once."""
        return list(dict.fromkeys((self.label, *self.inputs.names, *((DAY,) if self.days else ()))))


@dataclass(frozen=True)
class Options:
    """Which rows are used, and how they are encoded."""

    rows: int | None = None  # only the first so many rows of the source; None for all
    sample: float = 1.0  # the share of these that is used, drawn at random
    test_share: float = 0.1  # the share of the used rows that is for testing
    seed: int = 0  # of both draws: whether a row is used, and for what, depends on its number and the seed alone
    min_count: int = 1  # a category that fewer training rows have shares the code 0 with those that none has
    scaling: Scaling = "range"  # of the numbers

    def __post_init__(self) -> None:
        for name, right, wanted in (
            ("rows", self.rows is None or self.rows > 1, "at least 2"),
            ("sample", 0 < self.sample <= 1, "above 0 and at most 1"),
            ("test_share", 0 < self.test_share < 1, "between 0 and 1"),
            ("min_count", self.min_count >= 1, "at least 1"),
            ("scaling", self.scaling in ("range", "standard"), "range or standard"),
        ):
            if not right:
                raise UsageError(f"{name}={getattr(self, name)!r}: give one that is {wanted}")

    def side(self, rows: NDArray[np.int64]) -> NDArray[np.int8]:
        """For each row number 1 for training, 2 for testing and 0 for neither."""
        drawn = scramble(rows, self.seed)
        side = np.where(drawn < self.sample * self.test_share, TEST, TRAIN)
        return np.where(drawn < self.sample, side, 0).astype(np.int8)


def cache_folder(path: Path, cache: str | Path | None) -> Path:
    """Where what is made of a file is kept: beside it, since there is room for files of its size, or where asked."""
    if cache is None:
        return path.with_name(f"{path.name}.tacit")
    return Path(cache) / f"{path.name}-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}.tacit"


def load(
    source: Source,
    schema: Schema,
    options: Options,
    *,
    cache: str | Path | None = None,
    bad: str = "raise",
    progress: Progress | None = None,
) -> Data:
    """Training and test rows of a source, from the cache or made there."""
    Faults(bad)  # a wrong word is told at once
    folder, facts = cache_folder(source.path, cache), _facts(source, schema, options)
    encoded = folder / f"encoded-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]}"
    found = reused(encoded, facts)
    if found is None:
        tell = progress or (lambda done, total: None)
        with busy(folder):
            _clear(folder, facts["source"])
            size, rows = source.size, options.rows
            read = _parts(source, folder / "parts", rows, bad == "skip", lambda done: tell(done, 3 * size))
            make_folder(encoded)
            with emptied(encoded):
                found = replace(
                    _making(source, schema, options, read, encoded), facts=facts,
                    progress=lambda done, of: tell(size + 2 * size * done // of, 3 * size),
                ).make(encoded)  # fmt: skip
    first = found.notes["first_bad"]
    if first is not None and bad == "raise":
        raise Bad(**first).error()
    return _data(found, schema)


def _facts(source: Source, schema: Schema, options: Options) -> dict[str, Any]:
    """Everything that the encoded files depend on."""
    about = {key: value for key, value in asdict(schema).items() if key != "name"}
    facts = {"format": _FORMAT, "source": source.facts(), "schema": about, "options": asdict(options)}
    plain: dict[str, Any] = json.loads(json.dumps(facts))
    return plain


def _clear(folder: Path, source: object) -> None:
    """Delete what was encoded from a source that has changed since: it takes room, and nobody asks for it again."""
    for old in folder.glob("encoded-*"):
        if ((known_json(old / MANIFEST) or {}).get("facts") or {}).get("source") != source:
            shutil.rmtree(old, ignore_errors=True)


@dataclass(frozen=True)
class _Parts:
    """The readable rows of a source, or of its beginning, as Parquet files."""

    files: list[Path]  # in the order of the rows
    bad: list[Bad]  # the rows that could not be read
    rows: int  # how many of the source's rows they are of, bad ones included

    def tables(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """These columns of the rows, and their numbers in `ROW`, a part at a time."""
        for file in self.files:
            try:
                table = pl.read_parquet(file, columns=[ROW, *columns], glob=False)
            except (OSError, pl.exceptions.PolarsError) as error:
                cause = str(error).partition("\n")[0]
                raise DataError(f"{file} can't be read ({cause}): delete {file.parent}, it is made anew") from None
            if len(table) and int(table[ROW][-1]) >= self.rows:
                table = table.filter(pl.col(ROW) < self.rows)
            if len(table):
                yield table


def _parts(source: Source, folder: Path, rows: int | None, skip: bool, progress: Callable[[int], None]) -> _Parts:
    """The parts of a source in a folder, made anew unless its rows are there; bad ones are skipped, or raised."""
    facts = {"format": _FORMAT, **source.facts()}
    about = known_json(folder / _ABOUT)
    if not about or about["facts"] != facts or not (about["whole"] or (rows and rows <= about["rows"])):
        with storing(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True)
        about = {"facts": facts, "parts": 0, "bad": [], "rows": 0, "whole": True}
        for chunk in source.chunks():
            write = partial(chunk.table.write_parquet, compression="zstd", compression_level=1, statistics=False)
            replaced(folder / f"part-{about['parts']:05d}.parquet", write)
            about["parts"], about["rows"] = about["parts"] + 1, chunk.rows
            about["bad"] += [asdict(each) for each in chunk.bad]
            progress(chunk.done)
            _raise_first(about["bad"], rows, skip)
            if rows is not None and chunk.rows >= rows:
                about["whole"] = False
                break
        if {"format": _FORMAT, **source.facts()} != facts:
            raise DataError(f"{source.path} was changed while it was read: wait until it is whole, and start again")
        write_json(folder / _ABOUT, about)
    _raise_first(about["bad"], rows, skip)
    limit = about["rows"] if rows is None else min(rows, about["rows"])
    bad = [Bad(**each) for each in about["bad"] if each["row"] < limit]
    return _Parts([folder / f"part-{number:05d}.parquet" for number in range(about["parts"])], bad, limit)


def _raise_first(bad: list[dict[str, Any]], rows: int | None, skip: bool) -> None:
    if bad and not skip and (rows is None or bad[0]["row"] < rows):
        raise Bad(**bad[0]).error()


Side = tuple[int, int]
"""What rows are for, and their day."""


def _making(source: Source, schema: Schema, options: Options, read: _Parts, folder: Path) -> Making:
    """What is to be encoded, with the place of each row: those for training first, each side in the order of its days.

    Only which rows there are, and of which days, is read for that, and twice: once to count.
    """
    rows, counts = 0, dict[Side, int]()
    for height, chosen in _sides(read, schema, options):
        rows += height
        for side, places in chosen.items():
            counts[side] = counts.get(side, 0) + len(places)
    count, train = sum(counts.values()), sum(each for (what, _), each in counts.items() if what == TRAIN)
    if train in (0, count):
        raise DataError(
            f"{source.path} leaves no row for training or none for testing ({read.rows} rows were read, "
            f"{len(read.bad)} of them were skipped): use more rows, a larger sample or another test_share"
        )
    following = dict(
        zip(sorted(counts), accumulate((counts[side] for side in sorted(counts)), initial=1), strict=False)
    )
    all_places: NDArray[np.int64] = new_file(folder / "places.new", "int64", [rows])
    first = 0
    for height, chosen in _sides(read, schema, options):
        for side, places in chosen.items():
            all_places[first + places] = following[side] + np.arange(len(places))
            following[side] += len(places)
        first += height
    return Making(
        str(source.path), {}, lambda: read.tables(schema.names), all_places, count, train, schema.inputs, schema.label,
        coding=Coding(by_frequency=True, min_count=options.min_count, scaling=options.scaling),
        copied={"days": (DAY, min(day for _, day in counts))} if schema.days else {},
        large=True,
        notes={"train": train, "skipped": len(read.bad), "first_bad": asdict(read.bad[0]) if read.bad else None},
    )  # fmt: skip


def _sides(read: _Parts, schema: Schema, options: Options) -> Iterator[tuple[int, dict[Side, NDArray[np.intp]]]]:
    """Of each part how many rows it has, and which of them belong to each side; rows that are not used to none."""
    for table in read.tables([DAY] if schema.days else []):
        what = options.side(table[ROW].to_numpy())
        day = table[DAY].to_numpy() if schema.days else np.zeros(len(table), np.int32)
        sides = ((side, on) for side in (TRAIN, TEST) for on in np.unique(day[what == side]).tolist())
        yield len(table), {(side, on): np.flatnonzero((what == side) & (day == on)) for side, on in sides}


def _data(found: Prepared, schema: Schema) -> Data:
    """The data set, parted between the parties and into training and test rows; all of it stays mapped."""
    codes, numbers, sizes = found.inputs.categorical, found.inputs.numeric, found.inputs.cardinalities
    wide, many = len(schema.categorical), len(schema.numeric)
    features, mine = (codes[:, :wide], numbers[:, :many]), tuple[Tensor, ...]()
    inputs = Table(sizes[:wide], many, sizes[wide:], len(schema.own_numeric))
    if schema.own_categorical or schema.own_numeric:
        mine = (codes[:, wide:], numbers[:, many:])
    assert found.labels is not None
    rows, train = Rows(features, mine, found.labels, found.others.get("days")), found.notes["train"]
    return Data(schema.name, rows[:train], rows[train:], inputs, found.notes["skipped"])
