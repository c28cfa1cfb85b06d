"""A party's inputs as files that are mapped into memory: training reads them row by row and never holds them all.

They are made in two passes over the party's table, block by block. The first one learns the encoder from the training
rows, the second one encodes every row and puts it at its place in the common order. What was made once is used again
as long as it is whole and everything that it was made from is the same; the manifest, written last, says so.

>>> from tempfile import TemporaryDirectory
>>> table = pl.DataFrame({"seats": [10.0, 99.0, 30.0], "late": [1, 0, 0]})
>>> with TemporaryDirectory() as folder:
...     made = prepare(table, np.array([2, 0, 1]), Columns(numeric=("seats",)), folder, train=2, label="late")
...     made.inputs.numeric.flatten().tolist(), made.labels.tolist()
([1.0, -1.0, 7.900000095367432], [0.0, 1.0, 0.0])
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from tacit.align._mapped import locked, mapped, new_file, sync_folder, write, writing
from tacit.align.encoder import Columns, Encoder, Inputs
from tacit.align.tables import blocks, inputs_digest, labels, labels_error, rows_error, wrong_labels
from tacit.errors import DataError, UsageError

__all__ = ["Prepared", "prepare"]

_FORMAT = 1  # of the files; another one is made anew
_MANIFEST, _ENCODER = "manifest.json", "encoder.json"
_TENSORS, _PLACES = ("categorical", "numeric", "labels"), "places"
_CHUNK = 1 << 16  # row numbers that are looked at at once

Facts = dict[str, Any]


@dataclass(frozen=True)
class Prepared:
    """What a party trains on.

    Attributes:
        inputs: all rows in the common order, mapped from files. Writing to them changes a copy, never the files.
        labels: as the loss takes them, mapped as well; None for a party without labels.
        encoder: what was learnt from the training rows.
        digest: what `inputs_digest` gives for inputs and labels.
    """

    inputs: Inputs
    labels: Tensor | None
    encoder: Encoder
    digest: bytes


def prepare(
    source: str | Path | pl.DataFrame,
    rows: NDArray[np.int64],
    columns: Columns,
    folder: str | Path,
    *,
    train: int,
    label: str | None = None,
    loss: str = "binary",
    progress: Callable[[int, int], None] | None = None,
) -> Prepared:
    """A party's inputs and labels in the common order, from the cache in a folder or made there.

    Memory grows with the vocabularies, not with the number of rows; a CSV file takes a few hundred MB more than a
    Parquet file, since it is read ahead. The statistics of numbers are summed up block by block, so they agree with
    `Encoder.fit` to about nine digits, not to the last bit; the same rows of the same content always give the same
    bits, however the file is laid out.

    Args:
        source: a `.parquet`, `.csv` or `.tsv` file with a header, or a table.
        rows: row numbers in the source counted from 0, each once, in the common order; may be a memory map.
        columns: which columns to use, and how.
        folder: of the cache, which belongs to it alone; it is made where there is none.
        train: how many of the rows, the first ones, are for training: the encoder learns from them alone.
        label: the column of the label; None for a party without labels.
        loss: "binary" or "softmax", where there are labels.
        progress: called with the rows done and to do; every row counts twice, once for each pass.
    """
    made = _Making(source, rows, columns, Path(folder), train, label, loss, progress)
    facts = made.facts()
    with locked(made.folder):
        return _reused(made.folder, facts) or made.make(facts)


@dataclass(frozen=True)
class _Making:
    """One call of `prepare`."""

    source: str | Path | pl.DataFrame
    rows: NDArray[np.int64]
    columns: Columns
    folder: Path
    train: int
    label: str | None
    loss: str
    progress: Callable[[int, int], None] | None

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys((*self.columns.names, *(() if self.label is None else (self.label,)))))

    def facts(self) -> Facts:
        """Everything that the files depend on, in a form that JSON gives back as it is."""
        if self.rows.ndim != 1 or self.rows.dtype != np.int64 or not 0 < self.train <= len(self.rows):
            raise UsageError(
                f"{self.train} training rows of {self.rows.dtype} {self.rows.shape}: pass row numbers as a line of "
                "int64, and at least one of them for training"
            )
        if not self.names:
            raise UsageError("no column is named, neither of inputs nor of the label: name at least one")
        count, numbers = len(self.rows), len(self.columns.numeric) + len(self.columns.flagged)
        files: Facts = {
            "categorical": {"dtype": "int64", "shape": [count, len(self.columns.categorical)]},
            "numeric": {"dtype": "float32", "shape": [count, numbers]},
        }
        if self.label is not None:
            files["labels"] = {"dtype": "float32" if self.loss == "binary" else "int64", "shape": [count]}
        return {
            "format": _FORMAT,
            "columns": {key: list(names) for key, names in asdict(self.columns).items()},
            "label": self.label,
            "loss": None if self.label is None else self.loss,
            "train": self.train,
            "rows": _digest(part.tobytes() for _, part in self._row_numbers()),
            "source": self._source_facts(),
            "files": files,
        }

    def _row_numbers(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Places in the common order counted from 1, and the rows there."""
        for start in range(0, len(self.rows), _CHUNK):
            part = np.array(self.rows[start : start + _CHUNK])
            if part.min() < 0:
                raise UsageError(f"row number {part.min()} in the common order: rows are counted from 0")
            yield np.arange(start + 1, start + 1 + len(part)), part

    def _source_facts(self) -> Facts:
        """By which a changed source is noticed: a table's content; of a file only what the file system knows."""
        if isinstance(self.source, pl.DataFrame):
            return {"table": _digest(map(_as_bytes, blocks(self.source, self.names)))}
        path = Path(self.source).resolve()
        try:
            found = path.stat()
        except OSError as error:
            raise DataError(f"{path} can't be read ({error.strerror}): correct the path") from None
        return {"path": str(path), "bytes": found.st_size, "modified_ns": found.st_mtime_ns}

    # --- making ------------------------------------------------------------------------------------------------------

    def make(self, facts: Facts) -> Prepared:
        """Write everything anew. What is old goes first: it takes room, and half old and half new is no cache."""
        files: Facts = facts["files"]
        with writing(self.folder):
            for old in (_MANIFEST, _ENCODER, *(f"{name}.bin" for name in _TENSORS)):
                (self.folder / old).unlink(missing_ok=True)
        try:
            places = self._places()
            encoder = self._fit(places)
            self._encode(places, encoder, files)
            if self._source_facts() != facts["source"]:
                raise DataError(f"{self.source} was changed while it was read: wait until it is whole, and start again")
            state = json.dumps(encoder.to_state()).encode()
            with writing(self.folder):
                for name in files:
                    os.replace(self.folder / f"{name}.new", self.folder / f"{name}.bin")
                write(self.folder / _ENCODER, state)
                sync_folder(self.folder)
                made = _opened(self.folder, files, encoder)
                about = {"facts": facts, "encoder": _digest([state]), "digest": made.digest.hex()}
                write(self.folder / _MANIFEST, json.dumps(about, indent=1).encode())
                sync_folder(self.folder)
        finally:
            for name in (_PLACES, *_TENSORS):
                (self.folder / f"{name}.new").unlink(missing_ok=True)
        return made

    def _places(self) -> NDArray[np.int64]:
        """For each row of the source its place in the common order counted from 1; 0 where it has none."""
        last = max(int(part.max()) for _, part in self._row_numbers())
        places: NDArray[np.int64] = new_file(self.folder / f"{_PLACES}.new", "int64", [last + 1])
        for at, part in self._row_numbers():
            places[part] = at
        for at, part in self._row_numbers():
            twice = part[places[part] != at]
            if len(twice):
                raise UsageError(f"row {twice[0]} is twice in the common order: a row has one place; align again")
        return places

    def _blocks(
        self, places: NDArray[np.int64], done: int
    ) -> Iterator[tuple[pl.DataFrame, NDArray[np.int64], NDArray[np.int64]]]:
        """The aligned rows of each block of the source, with their row numbers and their places."""
        start = 0
        for block in blocks(self.source, self.names):
            at = np.array(places[start : start + len(block)]) - 1
            kept = np.flatnonzero(at >= 0)
            yield block[kept], kept + start, at[kept]
            start += len(block)
            done += len(kept)
            if self.progress is not None:
                self.progress(done, 2 * len(self.rows))

    def _fit(self, places: NDArray[np.int64]) -> Encoder:
        """The first pass: learn from the training rows; see that all rows are there and that all labels can be used."""
        found, wrong = 0, 0
        first: tuple[int, object] = (0, None)

        def training() -> Iterator[tuple[pl.DataFrame, NDArray[np.int64]]]:
            nonlocal found, wrong, first
            for table, rows, at in self._blocks(places, 0):
                found += len(table)
                if self.label is not None:
                    bad = wrong_labels(table, self.label, self.loss)
                    if len(bad) and not wrong:
                        first = (int(rows[bad[0]]), table[self.label][int(bad[0])])
                    wrong += len(bad)
                kept = np.flatnonzero(at < self.train)
                yield table[kept], rows[kept]

        encoder = Encoder.fit_batches(training(), self.columns)
        if found < len(self.rows):
            raise rows_error(self.source, len(self.rows), len(self.rows) - found)
        if self.label is not None and wrong:
            raise labels_error(self.label, self.loss, *first, wrong)
        return encoder

    def _encode(self, places: NDArray[np.int64], encoder: Encoder, files: Facts) -> None:
        """The second pass: every row to its place, and all of it to the disk."""
        new = {name: new_file(self.folder / f"{name}.new", **about) for name, about in files.items()}
        for table, rows, at in self._blocks(places, len(self.rows)):
            inputs = encoder.encode(table, rows)
            new["categorical"][at] = inputs.categorical.numpy()
            new["numeric"][at] = inputs.numeric.numpy()
            if self.label is not None:
                new["labels"][at] = labels(table, self.label, self.loss, rows).numpy()
        with writing(self.folder):
            for written in new.values():
                if isinstance(written, np.memmap):
                    written.flush()  # waits for the disk


# --- using what is there ---------------------------------------------------------------------------------------------


def _reused(folder: Path, facts: Facts) -> Prepared | None:
    """What an earlier call made of the same; None where there is nothing, or nothing that is whole."""
    try:
        about = json.loads((folder / _MANIFEST).read_bytes())
        state = (folder / _ENCODER).read_bytes()
        if not isinstance(about, dict) or about.get("facts") != facts or about.get("encoder") != _digest([state]):
            return None
        found = _opened(folder, facts["files"], Encoder.from_state(json.loads(state)))
    except (OSError, ValueError, RecursionError):  # missing, cut short, or not ours
        return None
    return found if about.get("digest") == found.digest.hex() else None


def _opened(folder: Path, files: Facts, encoder: Encoder) -> Prepared:
    """The files as tensors; one of another size is a ValueError."""
    tensors = {name: mapped(folder / f"{name}.bin", **about) for name, about in files.items()}
    inputs = Inputs(tensors["categorical"], tensors["numeric"], encoder.cardinalities)
    found = tensors.get("labels")
    return Prepared(inputs, found, encoder, inputs_digest(inputs, found))


def _digest(parts: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def _as_bytes(table: pl.DataFrame) -> bytes:
    """All of its content, types included."""
    stream = io.BytesIO()
    table.write_ipc_stream(stream, compat_level=pl.CompatLevel.oldest())
    return stream.getvalue()
