"""Numbers and names in files of many forms, mapped into memory where they can be, never unpickled."""

from __future__ import annotations

import math
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tacit.errors import DataError

_BATCH = re.compile(r"(?:batch_|arr_|step_)?(\d+)")
_DAMAGE = (ValueError, zipfile.BadZipFile, SafetensorError, pl.exceptions.PolarsError)


@dataclass(frozen=True)
class Named:
    """What a file holds, row by row."""

    name: str  # of the file, and of the part of it that is meant
    path: Path  # of the file
    parts: Sequence[NDArray[Any]]  # its rows, in one piece or in several, each (rows, *cut)
    lengths: tuple[int, ...]  # rows of each batch, or all rows where they are not batched
    # whether the file says where batches begin: a list of them, or a dimension more than rows and columns
    batched: bool
    shape: str  # of what the file holds, in words, for errors

    @property
    def cut(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self.parts[0].shape[1:])

    @property
    def width(self) -> int:
        """Numbers in one row."""
        return math.prod(self.cut)

    def rows(self, start: int, end: int) -> Tensor:
        """Some rows, as numbers, which must be finite."""
        numbers, place = [], 0
        for part in self.parts:
            if part.dtype.kind in "US":
                raise DataError(f"{self.name} holds text where numbers belong: pass numbers")
            if start < place + len(part) and end > place:
                exact = part.dtype.kind == "f" and part.dtype.itemsize >= 8
                some = part[max(0, start - place) : end - place].astype(np.float64 if exact else np.float32)
                numbers.append(torch.from_numpy(some))
            place += len(part)
        found = torch.cat(numbers)
        wrong = ~torch.isfinite(found.flatten(1)).all(1)
        if bool(wrong.any()):
            row = start + int(wrong.nonzero()[0])
            raise DataError(
                f"{self.name}: row {row} (counted from 0) holds a number that is not finite: leave such rows out of "
                "all files"
            )
        return found

    def column(self) -> NDArray[Any]:
        """All rows as one column of numbers or texts."""
        return np.concatenate([part.reshape(-1) for part in self.parts])


@dataclass(frozen=True)
class _File:
    path: Path
    key: str | None  # of the part that is meant, where somebody said so
    what: str  # is looked for

    def unnamed(self, content: Any) -> Any:
        """What a file holds that holds one thing alone."""
        if self.key is not None:
            raise DataError(f"{self.path} holds one thing without a name: leave out :{self.key}")
        return content

    def chosen(self, names: list[str], take: Callable[[str], Any]) -> Any:
        """The part that is meant, or all of them where their names count batches."""
        if not names:
            raise DataError(f"{self.path} holds nothing: save the {self.what} in it")
        counted = {name: _BATCH.fullmatch(name) for name in names}
        if self.key is None and len(names) > 1 and all(counted.values()):
            return [take(name) for name in sorted(names, key=lambda name: int(counted[name][1]))]  # type: ignore[index]
        return take(self.one(names))

    def one(self, names: list[str]) -> str:
        """The name that is meant, of several."""
        for name in [self.what, self.what.removesuffix("s")] if self.key is None else [self.key]:
            if name in names:
                return name
        if self.key is None and len(names) == 1:
            return names[0]
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        if self.key is not None:
            raise DataError(f"{self.path} holds nothing of the name {self.key!r}, only: {shown}")
        raise DataError(
            f"{self.path} holds several things ({shown}): say which are the {self.what}, for example "
            f"{self.path.name}:{names[0]}"
        )


def read_named(spelled: str | Path, what: str) -> Named:
    """What a file holds, of several things the one that is called `what`; `foreign_files` says how it is spelled."""
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
                "put there: save plain numbers, or batches of different lengths with numpy.savez(path, *batches)"
            ) from None
        raise DataError(f"{path} can't be read as {path.suffix}: {cause}: write the file anew") from error
    listed = isinstance(content, list | tuple)
    name = str(path) if key is None else f"{path}:{key}"
    return _rows(name, what, path, [_array(part, name) for part in (content if listed else [content])], listed=listed)


def _rows(name: str, what: str, path: Path, parts: list[NDArray[Any]], *, listed: bool) -> Named:
    """Refuse what is empty, or batches that do not belong together; a stack of batches becomes rows."""
    if any(part.ndim == 0 for part in parts):
        raise DataError(f"{name} holds a single number: pass the {what} of all rows")
    shape = f"of shape {tuple(parts[0].shape)}" if parts else "an empty list"
    if len(parts) > 1:
        shape = f"{len(parts)} batches, the first {shape}"
    if not parts or any(0 in part.shape for part in parts):
        raise DataError(f"{name} is {shape}, which holds nothing: pass the {what} of at least one batch")
    shapes = {tuple(part.shape[1:]) for part in parts}
    if len(shapes) > 1:
        raise DataError(f"{name} holds batches of different rows, {sorted(shapes)}: pass batches of one cut")
    least = 2 if what in ("labels", "ids") else 3  # dimensions of what is batched
    lengths = tuple(len(part) for part in parts)
    stacked = not listed and parts[0].ndim >= least and parts[0].shape[1:] != (1,)
    if stacked:
        (stack,) = parts
        lengths, parts = (stack.shape[1],) * len(stack), [stack.reshape(-1, *stack.shape[2:])]
    return Named(name, path, parts, lengths, listed or stacked, shape)


def _array(part: Any, name: str) -> NDArray[Any]:
    if isinstance(part, Tensor):
        dense = part.detach() if part.layout is torch.strided else part.detach().to_dense()
        part = (dense.float() if dense.dtype == torch.bfloat16 else dense.resolve_conj()).numpy()  # numpy has no such
    array = np.asarray(part)
    if array.dtype.kind not in "buifUS":
        raise DataError(f"{name} holds {array.dtype}: pass floating or whole numbers, or texts for labels and ids")
    return array


# --- forms of files --------------------------------------------------------------------------------------------------


def _npz(file: _File) -> Any:
    with np.load(file.path, allow_pickle=False) as held:
        return file.chosen(held.files, held.__getitem__)


def _safetensors(file: _File) -> Any:
    with safe_open(file.path, framework="pt") as held:
        return file.chosen(list(held.keys()), held.get_tensor)


def _pt(file: _File) -> Any:
    path = file.path
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise DataError(
            f"{path} can't be read as tensors alone, and nothing else is ever unpickled: save a tensor, a list or a "
            "dict of tensors with torch.save"
        ) from error
    if isinstance(found, Mapping):
        named = {str(name): part for name, part in found.items()}
        return file.chosen(list(named), named.__getitem__)
    several = isinstance(found, list | tuple) and found and all(isinstance(part, Tensor) for part in found)
    if isinstance(found, Tensor) or several:
        return file.unnamed(found)
    raise DataError(f"{path} holds a {type(found).__name__}: save a tensor, a list or a dict of tensors")


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
    ".npy": lambda file: file.unnamed(np.load(file.path, mmap_mode="c", allow_pickle=False)),  # no write goes back
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".parquet": lambda file: _table(file, pl.read_parquet(file.path, glob=False)),
    ".csv": _csv,
    ".pt": _pt,
    ".pth": _pt,
}
