"""Encoded rows as files that are mapped into memory: training reads them row by row and never holds them all.

They are made in two passes over a table, block by block. The first one learns the encoder from the training rows, the
second one encodes every row and puts it at its place. What was made once is used again as long as it is whole and
everything that it was made from is the same; the manifest, written last, says so.

>>> from tempfile import TemporaryDirectory
>>> table = pl.DataFrame({"seats": [10.0, 99.0, 30.0], "late": [1, 0, 0]})
>>> with TemporaryDirectory() as folder:
...     source, columns = Path(folder) / "table.parquet", Columns(numeric=("seats",))
...     table.write_parquet(source)
...     made = prepare(source, np.array([2, 0, 1]), columns, Path(folder) / "cache", train=2, label="late")
...     made.inputs.numeric.flatten().tolist(), made.labels.tolist()
([1.0, -1.0, 7.900000095367432], [0.0, 1.0, 0.0])
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.arrays import mapped, new_file, pieces, places_in
from tacit.align.encoder import Columns, Encoder, Inputs
from tacit.align.sources import blocks, rows_error
from tacit.align.tables import PLAIN, Spelling, inputs_digest, labels, labels_error, wrong_labels
from tacit.disk import held, storing, sync_folder, write, write_json
from tacit.errors import DataError, StorageError, UsageError
from tacit.progress import Count

MANIFEST = "manifest.json"
"""The file that says of what a folder's files were made."""

_FORMAT = 2  # of the files; another one is made anew
_ENCODER = "encoder.json"

Facts = dict[str, Any]
"""Facts that JSON gives back as they are."""


@dataclass(frozen=True)
class Prepared:
    """Tensors that a party trains on, and how they were made."""

    inputs: Inputs  # all rows in the common order, mapped from files. Writing to them changes a copy, never the files
    labels: Tensor | None  # as the loss takes them, mapped as well; None for a party without labels
    encoder: Encoder  # what was learnt from the training rows
    digest: bytes  # what `inputs_digest` gives for inputs and labels


def prepare(
    source: str | Path,
    rows: NDArray[np.int64] | None,
    columns: Columns,
    folder: str | Path,
    *,
    train: int,
    label: str | None = None,
    loss: str = "binary",
    spelling: Spelling = PLAIN,
    progress: Count | None = None,
) -> Prepared:
    """A party's inputs and labels in the common order, from the cache in a folder or made there.

    Memory grows with the vocabularies, not with the number of rows; a CSV file takes a few hundred MB more than a
    Parquet file, since it is read ahead. The same rows of the same content always give the same bits, wherever they
    stand in the file and whatever its format.

    Args:
        source: a `.parquet`, `.csv` or `.tsv` file with a header.
        rows: row numbers in the source, each once, in the common order; may be a memory map. Of a row -1, which the
            source no longer has, all values are missing. None for what was prepared before, whatever has become of the
            source since; a `StorageError` where that is not there whole.
        columns: which columns to use, and how.
        folder: of the cache, which belongs to it alone.
        train: how many of the rows, the first ones, are for training: the encoder learns from them alone.
        label: the column of the label; None for a party without labels.
        loss: "binary" or "softmax", where there are labels.
        spelling: what the label's column calls its classes.
        progress: see `Count`.
    """
    if rows is not None and (rows.ndim != 1 or rows.dtype != np.int64 or not 0 < train <= len(rows)):
        raise UsageError(
            f"{train} training rows of {rows.dtype} {rows.shape}: pass row numbers as a line of int64, and at least "
            "one of them for training"
        )
    names = list(dict.fromkeys((*columns.names, *(() if label is None else (label,)))))
    if not names:
        raise UsageError("no column is named, neither of inputs nor of the label: name at least one")
    facts: Facts = {
        "format": _FORMAT,
        "columns": {key: list(each) for key, each in asdict(columns).items()},
        "label": label,
        "loss": None if label is None else loss,
        "spelling": None if label is None else [spelling.positive, list(spelling.names)],
        "train": train,
    }
    folder = Path(folder)
    if rows is None:
        with busy(folder):
            found = _reused(folder, facts)
        if found is None:
            raise StorageError(
                f"{folder} is not what this run began with, or party.toml names other columns now: bring both back "
                "as they were, or start a new run under another name"
            )
        return found
    facts |= {"rows": _rows_digest(rows), "source": file_facts(Path(source))}

    def read() -> Iterator[pl.DataFrame]:
        yield from blocks(source, names)
        if file_facts(Path(source)) != facts["source"]:
            raise DataError(f"{source} was changed while it was read: wait until it is whole, and start again")

    with busy(folder):
        found = _reused(folder, facts)
        if found is not None:
            return found
        with _emptied(folder):
            places, gone = _places(folder, rows), np.flatnonzero(rows < 0)
            making = _Making(
                str(source), facts, read, places, gone, len(rows), train, columns, label, loss, spelling, progress
            )
            return making.make(folder)


def _rows_digest(rows: NDArray[np.int64]) -> str:
    found = hashlib.sha256()
    for some in pieces(rows):
        if some.min() < -1:
            raise UsageError(f"row number {some.min()} in the common order: rows are counted from 0")
        found.update(some.tobytes())
    return found.hexdigest()


def _places(folder: Path, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row of the source its place in the common order; a row that has two is refused."""
    places, start = places_in(folder / "places.new", rows), 1
    for some in pieces(rows):
        there = some >= 0
        twice = some[there][places[some[there]] != (start + np.flatnonzero(there))]
        if len(twice):
            raise UsageError(f"row {twice[0]} is twice in the common order: a row has one place; align again")
        start += len(some)
    return places


def file_facts(path: Path) -> Facts:
    """Facts by which a changed file is noticed, also where one with its size and time took its place (`cp -p`)."""
    path = path.resolve()
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror}): correct the path") from None
    times = {"modified_ns": status.st_mtime_ns, "changed_ns": status.st_ctime_ns}
    return {"path": str(path), "bytes": status.st_size, **times}


# --- making ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Making:
    """Work of encoding the rows of a table into files."""

    name: str  # of the table, for errors
    facts: Facts  # everything that the files depend on
    # the rows of the table, always in the same blocks; called once for each pass
    blocks: Callable[[], Iterable[pl.DataFrame]]
    # for each row of the table its place counted from 1, or 0 where it has none; rows beyond have none
    places: NDArray[np.int64]
    gone: NDArray[np.intp]  # the places, counted from 0, of rows that the table does not have: their values are missing
    count: int  # how many places there are
    train: int  # how many of them, the first ones, are for training
    columns: Columns  # which columns to use, and how
    label: str | None  # the column of the label; None where there is none
    loss: str  # that takes the labels
    spelling: Spelling  # what their column calls the classes
    progress: Count | None  # told how far it is

    @property
    def files(self) -> Facts:
        """The type and the shape of each file."""
        count, parts = self.count, self.columns.parts
        numbers = len(parts.numeric) + len(parts.flagged)
        files: Facts = {
            "categorical": {"dtype": "int64", "shape": [count, len(parts.categorical)]},
            "numeric": {"dtype": "float32", "shape": [count, numbers]},
        }
        if self.label is not None:
            files["labels"] = {"dtype": "float32" if self.loss == "binary" else "int64", "shape": [count]}
        return files

    def make(self, folder: Path) -> Prepared:
        """Write everything; the manifest last."""
        files = self.files
        encoder = self._fit()
        arrays = {name: new_file(folder / f"{name}.new", **about) for name, about in files.items()}
        self._encode(encoder, arrays)
        state = json.dumps(encoder.to_state()).encode()
        with storing(folder):
            for name, array in arrays.items():
                if isinstance(array, np.memmap):
                    array.flush()  # waits for the disk
                os.replace(folder / f"{name}.new", folder / f"{name}.bin")
        write(folder / _ENCODER, state)
        about: Facts = {"facts": self.facts, "files": files, "encoder": hashlib.sha256(state).hexdigest()}
        found = _opened(folder, about, encoder)
        about["digest"] = found.digest.hex()
        write_json(folder / MANIFEST, about)
        return found

    def _blocks(self, done: int) -> Iterator[tuple[pl.DataFrame, NDArray[np.int64], NDArray[np.int64]]]:
        """The rows of each block that have a place, with their numbers in the table and their places."""
        start = 0
        for block in self.blocks():
            at = np.array(self.places[start : start + len(block)]) - 1
            chosen = np.flatnonzero(at >= 0)
            yield block if len(chosen) == len(block) else block[chosen], chosen + start, at[chosen]
            start += len(block)
            done += len(chosen)
            if self.progress is not None:
                self.progress(done, 2 * self.count)
        if len(self.gone):
            names = dict.fromkeys((*self.columns.names, *(() if self.label is None else (self.label,))))
            missing = pl.DataFrame({name: pl.Series([None], dtype=pl.String) for name in names})
            yield missing[np.zeros(len(self.gone), np.int64)], np.full(len(self.gone), -1), self.gone

    def _fit(self) -> Encoder:
        """The first pass: learn from the training rows; see that all rows are there and that all labels can be used."""
        seen, wrong = 0, 0
        first: tuple[pl.Series, NDArray[np.int64]] | None = None

        def training() -> Iterator[tuple[pl.DataFrame, NDArray[np.int64]]]:
            nonlocal seen, wrong, first
            for table, rows, at in self._blocks(0):
                seen += len(table)
                if self.label is not None:
                    bad = wrong_labels(table, self.label, self.loss, self.spelling)
                    if len(bad) and not wrong:
                        first = table[self.label][int(bad[0]) : int(bad[0]) + 1], rows[bad[:1]]
                    wrong += len(bad)
                chosen = np.flatnonzero(at < self.train)
                yield table if len(chosen) == len(table) else table[chosen], rows[chosen]

        encoder = Encoder.fit_batches(training(), self.columns)
        if seen < self.count:
            raise rows_error(self.name, self.count, self.count - seen)
        if first is not None:
            raise labels_error(first[0], self.loss, 0, wrong, first[1], self.spelling)
        return encoder

    def _encode(self, encoder: Encoder, files: dict[str, NDArray[Any]]) -> None:
        """The second pass: every row to its place."""
        for table, rows, at in self._blocks(self.count):
            inputs = encoder.encode(table, rows)
            files["categorical"][at] = inputs.categorical.numpy()
            files["numeric"][at] = inputs.numeric.numpy()
            if self.label is not None:
                files["labels"][at] = labels(table, self.label, self.loss, rows, self.spelling).numpy()


@contextmanager
def busy(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made where there is none."""
    with storing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with held(folder / "lock", "another process prepares inputs in this folder: wait until it is done"):
        yield


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """Make a folder's files anew in here. What is old goes first: it takes room, and half old and half new is no cache.

    What was begun and not finished goes at the end, however it ends.
    """
    with storing(folder):
        for old in (folder / MANIFEST, folder / _ENCODER, *folder.glob("*.bin")):
            old.unlink(missing_ok=True)
        sync_folder(folder)
    try:
        yield
    finally:
        for begun in folder.glob("*.new"):
            begun.unlink(missing_ok=True)


# --- using what is there ---------------------------------------------------------------------------------------------


def _reused(folder: Path, facts: Facts) -> Prepared | None:
    """Inputs that were made there of these facts; None where there are none, or none that are whole."""
    try:
        about = json.loads((folder / MANIFEST).read_bytes())
        if any(about["facts"][name] != fact for name, fact in facts.items()):
            return None
        state = (folder / _ENCODER).read_bytes()
        if about["encoder"] != hashlib.sha256(state).hexdigest():
            return None
        found = _opened(folder, about, Encoder.from_state(json.loads(state)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # missing, cut short, or not ours
        return None
    return found if about.get("digest") == found.digest.hex() else None


def _opened(folder: Path, about: Facts, encoder: Encoder) -> Prepared:
    """The files as tensors; one of another size is a ValueError."""
    tensors = {name: mapped(folder / f"{name}.bin", **each) for name, each in about["files"].items()}
    inputs = Inputs(
        tensors["categorical"], tensors["numeric"], encoder.cardinalities, encoder.columns.inputs, encoder.values
    )
    targets = tensors.get("labels")
    return Prepared(inputs, targets, encoder, inputs_digest(inputs, targets))
