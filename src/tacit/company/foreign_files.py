"""Somebody else's messages, read from files: what was sent in a split training that Tacit had no part in.

Numbers come as `.npy`, `.npz`, `.safetensors`, `.parquet`, `.csv` or `.pt`; a file that holds several things is
followed by a colon and the name of the one that is meant (`run.npz:grads`, `run.parquet:label`). Nothing is ever
unpickled but tensors, and large files are mapped into memory, not read.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tacit.contracts import View
from tacit.errors import DataError

_MOST = 1 << 27  # numbers of one kind of message that are audited at once: half a GiB of float32
_DAMAGE = (ValueError, zipfile.BadZipFile, SafetensorError, pl.exceptions.PolarsError)


@dataclass(frozen=True)
class Messages:
    """What was sent, and the truth about it."""

    view: View  # what the receiver saw; each example has the same id at each of its visits
    labels: Tensor | None  # of each id, 0 or 1; None where only embeddings are audited. (number of ids,)
    clean: Tensor | None  # gradients before they were protected, where they were given. (steps, batch, *cut)
    inputs: Tensor | None  # the features of each id, where they were given. (number of ids, inputs)
    revisited: bool  # whether any example came more than once
    notes: tuple[str, ...]  # what was done to the files' content on the way, in sentences
    files: dict[str, str]  # digests of the files that were read, by name


def read_messages(
    *,
    gradients: str | Path | None = None,
    labels: str | Path | None = None,
    embeddings: str | Path | None = None,
    inputs: str | Path | None = None,
    ids: str | Path | None = None,
    clean: str | Path | None = None,
    batch_size: int = 1024,
) -> Messages:
    """Read messages and what belongs to them; every mistake is a `DataError` that names the file.

    Args:
        gradients: what the feature party received: (rows, width), (steps, batch, *cut), or a list of batches.
        labels: one for each row: two numbers or two names.
        embeddings: what the feature party sent, in the shape of the gradients.
        inputs: what the embeddings are made of, one line for each row.  (rows, inputs)
        ids: of the example in each row; without them every row counts as another example.
        clean: gradients before they were protected, in the shape of the gradients.
        batch_size: of rows that are not batched yet.
    """
    if batch_size < 2:
        raise DataError(f"batch_size = {batch_size}: a batch has at least two rows, of both classes")
    if gradients is None and embeddings is None:
        raise DataError("there is nothing to audit: pass gradients with labels, or embeddings with inputs")
    given = {
        "gradients": gradients, "embeddings": embeddings, "clean": clean, "labels": labels, "inputs": inputs,
        "ids": ids,
    }  # fmt: skip
    read = {name: read_named(path, name) for name, path in given.items() if path is not None}
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
    digests = {}
    for named in read.values():
        with named.path.open("rb") as file:
            digests[named.path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    revisited = bool(codes.numel() > codes.unique().numel())
    return Messages(view, truth, sent.get("clean"), hidden, revisited, (*batches.notes, *notes), digests)


@dataclass(frozen=True)
class Named:
    """What a file holds, row by row."""

    name: str  # of the file, and of the part of it that is meant
    path: Path  # of the file
    rows: NDArray[Any]  # (rows, *cut)
    batch: int | None  # rows of a batch, where the file says so: by a dimension more than rows and columns
    shape: str  # of what the file holds, in words, for errors

    @property
    def width(self) -> int:
        """Numbers in one row."""
        return math.prod(self.rows.shape[1:])


@dataclass(frozen=True)
class _Batches:
    """Which rows of a file are which batch: the same for all files of one audit."""

    main: Named  # the file that says so
    size: int  # rows of a batch
    steps: int  # batches that are audited
    start: int  # the first row of them
    notes: tuple[str, ...]

    @classmethod
    def of(cls, main: Named, batch_size: int) -> _Batches:
        """The batches of a file, and as many of the last ones as fit into memory."""
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

    def cut(self, named: Named) -> Tensor:
        """The audited batches of a file, in float32 or better and finite.  (steps, batch, *cut)"""
        if len(named.rows) != len(self.main.rows):
            raise DataError(
                f"{named.name} is {named.shape}, {len(named.rows)} rows in all, and {self.main.name} has "
                f"{len(self.main.rows)}: pass files of the same rows in the same order"
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
                "finite: leave such rows out of all files"
            )
        return numbers.reshape(self.steps, self.size, *numbers.shape[1:])

    def column(self, named: Named) -> NDArray[Any]:
        """One value for each audited row."""
        values = named.rows.reshape(-1)
        if len(values) != len(self.main.rows):
            raise DataError(
                f"{named.name} is {named.shape}, {len(values)} values in all, and {self.main.name} has "
                f"{len(self.main.rows)} rows: pass one value for each row, in the same order"
            )
        return values[self._seen]

    def of_each_id(self, values: Tensor, named: Named, codes: Tensor) -> Tensor:
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


def _ids(named: Named | None, batches: _Batches) -> Tensor:
    """The code of the example in each audited row, from 0 on.  (rows,)"""
    if named is None:
        return torch.arange(batches.steps * batches.size)
    values = batches.column(named)
    if values.dtype.kind == "f" and not np.array_equal(values, np.round(values.astype(np.float64))):
        raise DataError(f"{named.name}: ids are whole numbers or texts, and these have fractions")
    return torch.from_numpy(np.unique(values, return_inverse=True)[1].astype(np.int64))


def _labels(named: Named, batches: _Batches, codes: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """The label of each id, and what was taken for a positive one where that is not plain."""
    values = batches.column(named)
    if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
        row = batches.start + int(np.argmin(finite))
        raise DataError(f"{named.name}: row {row} (counted from 0) has no label: leave such rows out of all files")
    kinds, where = np.unique(values, return_inverse=True)
    if len(kinds) != 2:
        shown = ", ".join(str(kind) for kind in kinds[:5]) + (", ..." if len(kinds) > 5 else "")
        several = "leak AUC is about two classes; pass one against all"
        remedy = "pass rows of both classes" if len(kinds) < 2 else several
        raise DataError(f"{named.name} holds {len(kinds)} kinds of labels ({shown}) where there must be two: {remedy}")
    truth = batches.of_each_id(torch.from_numpy(where.astype(np.int64)), named, codes)
    plain = kinds.dtype.kind in "buif" and kinds.astype(np.float64).tolist() == [0.0, 1.0]
    return truth, () if plain else (f"labels {kinds[1]!s} count as positive, {kinds[0]!s} as negative",)


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    path: Path
    key: str | None  # of the part that is meant, where somebody said so
    what: str  # is looked for

    def one(self, names: list[str]) -> str:
        """The name that is meant, of several."""
        for name in [self.what, self.what.removesuffix("s")] if self.key is None else [self.key]:
            if name in names:
                return name
        if self.key is None and len(names) == 1:
            return names[0]
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "") or "nothing"
        if self.key is not None or not names:
            raise DataError(f"{self.path} holds nothing of the name {self.key or self.what!r}, only: {shown}")
        raise DataError(
            f"{self.path} holds several things ({shown}): say which are the {self.what}, for example "
            f"{self.path.name}:{names[0]}"
        )


def read_named(spelled: str | Path, what: str) -> Named:
    """What a file holds, of several things the one that is called `what`."""
    path, key = Path(spelled), None
    if not path.exists() and ":" in str(spelled):
        before, _, key = str(spelled).rpartition(":")
        path = Path(before)
    if not path.is_file():
        state = "is a folder" if path.is_dir() else "is not there"
        raise DataError(f"{path} {state}: pass the file with the {what}")
    if path.suffix.lower() not in _READERS:
        raise DataError(
            f"{path} is none of {', '.join(_READERS)}: write the {what} in one of these forms, with numpy for example"
        )
    try:
        content = _READERS[path.suffix.lower()](_File(path, key, what))
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror or error}): check the file") from error
    except _DAMAGE as error:
        cause = str(error).partition("\n")[0][:200]
        if "Python objects" in cause or "Object arrays" in cause:  # of numpy
            raise DataError(
                f"{path} holds Python objects, which only unpickling would bring back, and that runs whatever somebody "
                "put there: save plain numbers, (rows, width) or (steps, batch, *cut)"
            ) from None
        raise DataError(f"{path} can't be read as {path.suffix}: {cause}: write the file anew") from error
    name = str(path) if key is None else f"{path}:{key}"
    array = _array(content, name)
    shape, batch = f"of shape {array.shape}", None
    if array.ndim == 0:
        raise DataError(f"{name} holds a single number: pass the {what} of all rows")
    if 0 in array.shape:
        raise DataError(f"{name} is {shape}, which holds nothing: pass the {what} of at least one batch")
    if array.ndim > 2:
        batch, array = array.shape[1], array.reshape(-1, *array.shape[2:])
    return Named(name, path, array, batch, shape)


def _array(content: Any, name: str) -> NDArray[Any]:
    if isinstance(content, Tensor):
        dense = content.detach() if content.layout is torch.strided else content.detach().to_dense()
        content = (dense.float() if dense.dtype == torch.bfloat16 else dense.resolve_conj()).numpy()  # numpy has none
    array = np.asarray(content)
    if array.dtype.kind not in "buifUS":
        raise DataError(f"{name} holds {array.dtype}: pass floating or whole numbers, or texts for labels and ids")
    return array


def _npy(file: _File) -> Any:
    if file.key is not None:
        raise DataError(f"{file.path} holds one thing without a name: leave out :{file.key}")
    return np.load(file.path, mmap_mode="c", allow_pickle=False)  # no write goes back


def _npz(file: _File) -> Any:
    with np.load(file.path, allow_pickle=False) as held:
        return held[file.one(held.files)]


def _safetensors(file: _File) -> Any:
    with safe_open(file.path, framework="pt") as held:
        return held.get_tensor(file.one(list(held.keys())))


def _pt(file: _File) -> Any:
    path = file.path
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise DataError(
            f"{path} can't be read as tensors alone, and nothing else is ever unpickled: save a tensor, a list of "
            "batches or a dict of tensors with torch.save"
        ) from error
    if isinstance(found, Mapping):
        named = {str(name): part for name, part in found.items()}
        found = named[file.one(list(named))]
    elif file.key is not None:
        raise DataError(f"{path} holds one thing without a name: leave out :{file.key}")
    if isinstance(found, list | tuple) and found and all(isinstance(one, Tensor) for one in found):
        if not all(one.ndim for one in found):
            raise DataError(f"{path} is a list of single numbers: save them as one tensor")
        if len({one.shape[1:] for one in found}) > 1:
            raise DataError(f"{path} holds batches whose rows differ in shape: save batches of one cut")
        alike = len({len(one) for one in found}) == 1
        return torch.stack(tuple(found)) if alike else torch.cat(tuple(found))  # rows, where the last one is shorter
    if not isinstance(found, Tensor):
        raise DataError(f"{path} holds a {type(found).__name__}: save a tensor, a list of batches or a dict of tensors")
    return found


def _csv(file: _File) -> Any:
    with file.path.open("rb") as content:
        first = content.readline(1 << 16).split(b",")[0].strip()
    headed = re.fullmatch(rb"[-+]?[\d.]+(?:[eE][-+]?\d+)?", first) is None
    return _table(file, pl.read_csv(file.path, glob=False, has_header=headed, infer_schema_length=None))


def _table(file: _File, table: pl.DataFrame) -> Any:
    """A column by name, the one column of lists, or all columns where each is a number."""
    nested = [name for name, kind in table.schema.items() if isinstance(kind, pl.List | pl.Array)]
    by_name = file.key is not None or file.what in ("labels", "ids")
    if by_name or nested:
        table = table.select(file.one(table.columns if by_name else nested))
    for column in table.iter_columns():
        if column.null_count():
            raise DataError(
                f"{file.path}:{column.name}: row {int(column.is_null().arg_max() or 0)} (counted from 0) is empty: "
                "leave such rows out of all files"
            )
    if by_name or nested:
        return _column(file.path, table.to_series())
    wrong = [name for name, kind in table.schema.items() if not kind.is_numeric() and kind != pl.Boolean]
    if wrong:
        raise DataError(
            f"{file.path} has a column {wrong[0]!r} of {table.schema[wrong[0]]}: pass numbers alone, or PATH:COLUMN"
        )
    return table.to_numpy()


def _column(path: Path, column: pl.Series) -> Any:
    if not isinstance(column.dtype, pl.List | pl.Array):
        return column.to_numpy().astype(str) if column.dtype == pl.String else column.to_numpy()
    lengths = column.list.len() if isinstance(column.dtype, pl.List) else None
    if lengths is not None and lengths.n_unique() != 1:
        raise DataError(
            f"{path}:{column.name} has rows of {lengths.min()!r} to {lengths.max()!r} numbers: all must be of one width"
        )
    inner = column.explode()
    if inner.null_count() or not inner.dtype.is_numeric():
        raise DataError(f"{path}:{column.name} holds lists of {inner.dtype} with gaps or without numbers: pass numbers")
    return inner.to_numpy().reshape(len(column), -1)


_READERS: dict[str, Callable[[_File], Any]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".parquet": lambda file: _table(file, pl.read_parquet(file.path, glob=False)),
    ".csv": _csv,
    ".pt": _pt,
    ".pth": _pt,
}
