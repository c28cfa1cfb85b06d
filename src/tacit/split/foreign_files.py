"""Somebody else's messages, read from a file: what was sent in a split training that Tacit had no part in.

One `.npz` file holds all of it, each thing as an array under its name in `ARRAYS`. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.contracts import View
from tacit.errors import DataError

ARRAYS = ("gradients", "embeddings", "clean", "labels", "inputs", "ids")
"""What a file can hold: the first of them that it does says which rows are a batch."""

_MOST = 1 << 27  # numbers of one kind of message that are audited at once: half a GiB of float32
_DAMAGE = (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)  # RuntimeError: under a password


@dataclass(frozen=True)
class Messages:
    """What was sent, and the truth about it."""

    view: View  # what the receiver saw; each example has the same id at each of its visits
    labels: Tensor | None  # of each id, 0 or 1; None where only embeddings are audited. (number of ids,)
    clean: Tensor | None  # gradients before they were protected, where they were given. (steps, batch, *cut)
    inputs: Tensor | None  # the features of each id, where they were given. (number of ids, inputs)
    named: bool  # whether ids say which example each row is about
    revisited: bool  # whether any example came more than once
    notes: tuple[str, ...]  # what was done to the file's content on the way, in sentences
    files: dict[str, str]  # the digest of the file that was read, by its name


def read_messages(
    path: str | Path, *, needed: Collection[str], leave: Collection[str] = (), batch_size: int = 1024
) -> Messages:
    """Read messages and what belongs to them; every mistake is a `DataError` that names the file and the array.

    A file holds, of rows in the same order,

    - `gradients`: what the feature party received, (rows, width) or (steps, batch, *cut);
    - `labels`: one for each row, two numbers or two names;
    - `embeddings`: what the feature party sent, in the shape of the gradients;
    - `inputs`: what the embeddings are made of, one line for each row, (rows, inputs);
    - `ids`: of the example in each row; without them every row counts as another example;
    - `clean`: gradients before they were protected, in the shape of the gradients.

    Args:
        needed: arrays that must be there.
        leave: arrays that are not looked at.
        batch_size: of rows that are not batched yet.
    """
    if batch_size < 2:
        raise DataError(f"batch_size = {batch_size}: a batch has at least two rows, of both classes")
    path = Path(path)
    read = _arrays(path, needed, leave)
    batches = _Batches.of(next(iter(read.values())), batch_size)
    sent = {name: batches.cut(read[name]) for name in ("gradients", "embeddings", "clean") if name in read}
    if "clean" in sent and read["clean"].width != batches.main.width:
        raise DataError(
            f"{read['clean'].name} is {read['clean'].shape} and {batches.main.name} is {batches.main.shape}: clean "
            "gradients have as many numbers for each row as those that were sent"
        )
    codes = _ids(read.get("ids"), batches)
    truth, notes = _labels(read["labels"], batches, codes) if "labels" in read else (None, ())
    hidden = None
    if "inputs" in read:
        hidden = batches.of_each_id(batches.cut(read["inputs"]).flatten(0, 1).flatten(1).float(), read["inputs"], codes)
    rows = codes.reshape(batches.steps, batches.size)
    if "gradients" in sent:
        view = View.of(sent["gradients"], rows=rows, embedding=sent.get("embeddings"))
    else:
        view = View.of_embeddings(sent["embeddings"], rows=rows)
    with path.open("rb") as file:
        digests = {path.name: hashlib.file_digest(file, "sha256").hexdigest()}
    revisited = bool(codes.numel() > codes.unique().numel())
    return Messages(view, truth, sent.get("clean"), hidden, "ids" in read, revisited, (*batches.notes, *notes), digests)


@dataclass(frozen=True)
class _Named:
    """An array of a file, row by row."""

    name: str  # of the file, and of the array in it
    rows: NDArray[Any]  # (rows, *cut)
    batch: int | None  # rows of a batch, where the array says so: by a dimension more than rows and columns
    shape: str  # of the array as the file holds it, in words, for errors

    @property
    def width(self) -> int:
        """Numbers in one row."""
        return math.prod(self.rows.shape[1:])


@dataclass(frozen=True)
class _Batches:
    """Which rows are which batch: the same for all arrays of one audit."""

    main: _Named  # the array that says so
    size: int  # rows of a batch
    steps: int  # batches that are audited
    start: int  # the first row of them
    notes: tuple[str, ...]

    @classmethod
    def of(cls, main: _Named, batch_size: int) -> _Batches:
        """The batches of an array, and as many of the last ones as fit into memory."""
        rows, notes = len(main.rows), []
        size = main.batch or min(batch_size, rows)
        if size < 2:
            raise DataError(f"{main.name} is {main.shape}: batches of one row can't be told apart; pass more rows")
        whole, left = divmod(rows, size)
        steps = min(whole, max(1, _MOST // max(1, main.width * size)))
        if steps < whole:
            notes.append(f"{main.name} is large: only the last {steps} of {whole} batches were looked at")
        if left:
            notes.append(f"{left} of {rows} rows of {main.name} fill no whole batch and were left out")
        return cls(main, size, steps, (whole - steps) * size, tuple(notes))

    @property
    def _seen(self) -> slice:
        return slice(self.start, self.start + self.steps * self.size)

    def cut(self, named: _Named) -> Tensor:
        """The audited batches of an array, in float32 or better and finite.  (steps, batch, *cut)"""
        if len(named.rows) != len(self.main.rows):
            raise DataError(
                f"{named.name} is {named.shape}, {len(named.rows)} rows in all, and {self.main.name} has "
                f"{len(self.main.rows)}: pass the same rows in the same order"
            )
        if named.rows.ndim < 2:
            raise DataError(
                f"{named.name} is {named.shape}, one number for each row: pass (rows, width) or (steps, batch, *cut)"
            )
        if named.rows.dtype.kind in "US":
            raise DataError(f"{named.name} holds text where numbers belong: pass numbers")
        exact = named.rows.dtype.kind == "f" and named.rows.dtype.itemsize >= 8
        numbers = torch.from_numpy(named.rows[self._seen].astype(np.float64 if exact else np.float32))
        wrong = ~torch.isfinite(numbers.flatten(1)).all(1)
        if bool(wrong.any()):
            raise DataError(
                f"{named.name}: row {self.start + int(wrong.nonzero()[0])} (counted from 0) holds a number that is not "
                "finite: leave such rows out of all arrays"
            )
        return numbers.reshape(self.steps, self.size, *numbers.shape[1:])

    def column(self, named: _Named) -> NDArray[Any]:
        """One value for each audited row."""
        values = named.rows.reshape(-1)
        if len(values) != len(self.main.rows):
            raise DataError(
                f"{named.name} is {named.shape}, {len(values)} values in all, and {self.main.name} has "
                f"{len(self.main.rows)} rows: pass one value for each row, in the same order"
            )
        return values[self._seen]

    def of_each_id(self, values: Tensor, named: _Named, codes: Tensor) -> Tensor:
        """What the audited rows say of each id, which all rows of it must say alike."""
        found = torch.empty(int(codes.max()) + 1, *values.shape[1:], dtype=values.dtype)
        found[codes] = values
        differs = (found[codes] != values).reshape(len(values), -1).any(1)
        if bool(differs.any()):
            row = self.start + int(differs.nonzero()[0])
            raise DataError(
                f"{named.name}: row {row} (counted from 0) has another value than a later row with the same id: "
                "compare ids and rows"
            )
        return found


def _ids(named: _Named | None, batches: _Batches) -> Tensor:
    """The code of the example in each audited row, from 0 on.  (rows,)"""
    if named is None:
        return torch.arange(batches.steps * batches.size)
    values = batches.column(named)
    if values.dtype.kind == "f" and not np.array_equal(values, np.round(values.astype(np.float64))):
        raise DataError(f"{named.name}: ids are whole numbers or texts, and these have fractions")
    return torch.from_numpy(np.unique(values, return_inverse=True)[1].astype(np.int64))


def _labels(named: _Named, batches: _Batches, codes: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """The label of each id, and what was taken for a positive one where that is not plain."""
    values = batches.column(named)
    if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
        row = batches.start + int(np.argmin(finite))
        raise DataError(f"{named.name}: row {row} (counted from 0) has no label: leave such rows out of all arrays")
    kinds, where = np.unique(values, return_inverse=True)
    if len(kinds) != 2:
        shown = ", ".join(str(kind) for kind in kinds[:5]) + (", ..." if len(kinds) > 5 else "")
        several = "leak AUC is about two classes; pass one against all"
        remedy = "pass rows of both classes" if len(kinds) < 2 else several
        raise DataError(f"{named.name} holds {len(kinds)} kinds of labels ({shown}) where there must be two: {remedy}")
    truth = batches.of_each_id(torch.from_numpy(where.astype(np.int64)), named, codes)
    plain = kinds.dtype.kind in "buif" and kinds.astype(np.float64).tolist() == [0.0, 1.0]
    return truth, () if plain else (f"labels {kinds[1]!s} count as positive, {kinds[0]!s} as negative",)


# --- the file --------------------------------------------------------------------------------------------------------


def _arrays(path: Path, needed: Collection[str], leave: Collection[str]) -> dict[str, _Named]:
    """The arrays of a file that are to be looked at, in the order of `ARRAYS`."""
    if not path.is_file():
        state = "is a folder" if path.is_dir() else "is not there"
        raise DataError(f"{path} {state}: pass the .npz file with the messages")
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is no .npz file, or only a part of one: write the arrays into one with numpy.savez")
    try:
        with np.load(path, allow_pickle=False) as held:
            unknown = [name for name in held.files if name not in ARRAYS]
            if unknown:
                raise DataError(
                    f"{path} holds an array {unknown[0]!r}: arrays are called {', '.join(ARRAYS[:-1])} and {ARRAYS[-1]}"
                )
            absent = [name for name in needed if name not in held.files]
            if absent:
                raise DataError(
                    f"{path} holds no array {absent[0]!r}, which this side needs: add it, or take the other --side"
                )
            found = {name: held[name] for name in ARRAYS if name in held.files and name not in leave}
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror or error}): check the file") from error
    except _DAMAGE as error:
        cause = str(error).partition("\n")[0][:200]
        if "Object arrays" in cause:  # of numpy
            raise DataError(
                f"{path} holds Python objects, which only unpickling would bring back, and that runs whatever somebody "
                "put there: save plain numbers, (rows, width) or (steps, batch, *cut)"
            ) from None
        raise DataError(f"{path} can't be read as .npz: {cause}: write the file anew") from error
    return {name: _named(f"{path}:{name}", np.asarray(array)) for name, array in found.items()}


def _named(name: str, array: NDArray[Any]) -> _Named:
    if array.ndim == 0:
        raise DataError(f"{name} holds a single number: pass one for each row")
    if array.dtype.kind not in "buifUS":
        raise DataError(f"{name} holds {array.dtype}: pass floating or whole numbers, or texts for labels and ids")
    shape, batch = f"of shape {array.shape}", None
    if 0 in array.shape:
        raise DataError(f"{name} is {shape}, which holds nothing: pass at least one batch")
    if array.ndim > 2:
        batch, array = array.shape[1], array.reshape(-1, *array.shape[2:])
    return _Named(name, array, batch, shape)
