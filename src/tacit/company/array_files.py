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

Part = Tensor | NDArray[Any]
"""A tensor; an array only where it holds text."""


@dataclass(frozen=True)
class Named:
    """What a file holds, row by row."""

    name: str  # of the file, and of the part of it that is meant
    path: Path  # of the file
    parts: Sequence[Part]  # its rows, in one piece or in several, each (rows, *cut)
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
            if not isinstance(part, Tensor):
                raise DataError(f"{self.name} holds text where numbers belong: pass numbers")
            if start < place + len(part) and end > place:
                some = part[max(0, start - place) : end - place]
                numbers.append(some if some.is_floating_point() else some.float())
            place += len(part)
        found = torch.cat(numbers)
        wrong = ~torch.isfinite(found.flatten(1)).all(1)
        if bool(wrong.any()):
            row = start + int(wrong.nonzero()[0])
            raise DataError(
                f"{self.name}: row {row} (counted from 0) holds a number that is not finite: leave such rows out of "
                "all files"
            )
        return found if found.dtype == torch.float64 else found.float()

    def column(self) -> NDArray[Any]:
        """All rows as one column of numbers or texts."""
        columns = []
        for part in self.parts:
            if isinstance(part, Tensor):
                part = (part.float() if part.dtype == torch.bfloat16 else part).numpy()
            columns.append(part.reshape(-1))
        return np.concatenate(columns)


def read_named(spelled: str | Path, what: str) -> Named:
    """What a file holds; see `tacit.company.foreign_files` for how it is spelled.

    Args:
        spelled: the path, with `:name` after it where the file holds several things.
        what: is looked for: of several things, the one of this name is taken.
    """
    path, key = Path(spelled), None
    if not path.exists() and ":" in str(spelled):
        before, _, key = str(spelled).rpartition(":")
        path = Path(before)
    if not path.is_file():
        state = "is a folder" if path.is_dir() else "is not there"
        raise DataError(f"{path} {state}: pass the file with the {what}")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path} is none of {', '.join(_READERS)}: write the {what} in one of these forms, with numpy for example"
        )
    try:
        content = reader(path, key, what)
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror or error}): check the file") from error
    except _DAMAGE as error:
        cause = str(error).partition("\n")[0][:200]
        raise DataError(f"{path} can't be read as {path.suffix}: {cause}: write the file anew") from error
    listed = isinstance(content, list | tuple)
    name = str(path) if key is None else f"{path}:{key}"
    return _rows(name, what, path, [_tensor(part, name) for part in (content if listed else [content])], listed=listed)


def _rows(name: str, what: str, path: Path, parts: list[Part], *, listed: bool) -> Named:
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


def _tensor(part: Any, name: str) -> Part:
    """A tensor of what was read; text stays an array."""
    if isinstance(part, Tensor):
        dense = part.detach().to_dense() if part.layout is not torch.strided else part.detach()
        if dense.is_complex():
            raise DataError(f"{name} holds complex numbers: pass real ones")
        return dense
    array = np.asarray(part)
    if array.dtype.kind in "US":
        return array
    if array.dtype.kind not in "buif":
        raise DataError(f"{name} holds {array.dtype}: pass floating or whole numbers, or texts for labels and ids")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    if not array.dtype.isnative or array.dtype == np.float128:
        array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


# --- forms of files --------------------------------------------------------------------------------------------------


def _npy(path: Path, key: str | None, what: str) -> Any:
    _no_key(path, key)
    return _without_objects(
        path, lambda: np.load(path, mmap_mode="c", allow_pickle=False)
    )  # private: no write goes back


def _npz(path: Path, key: str | None, what: str) -> Any:
    with np.load(path, allow_pickle=False) as file:
        return _without_objects(path, lambda: _chosen(path, key, what, file.files, file.__getitem__))


def _without_objects(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ValueError as error:
        if "Python objects" in str(error) or "Object arrays" in str(error):
            raise DataError(
                f"{path} holds Python objects, which only unpickling would bring back, and that runs whatever somebody "
                "put there: save plain numbers, or batches of different lengths with numpy.savez(path, *batches)"
            ) from None
        raise


def _safetensors(path: Path, key: str | None, what: str) -> Any:
    with safe_open(path, framework="pt") as file:
        return _chosen(path, key, what, list(file.keys()), file.get_tensor)


def _pt(path: Path, key: str | None, what: str) -> Any:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise DataError(
            f"{path} can't be read as tensors alone, and nothing else is ever unpickled: save a tensor, a list or a "
            "dict of tensors with torch.save"
        ) from error
    if isinstance(found, Mapping):
        named = {str(name): part for name, part in found.items()}
        return _chosen(path, key, what, list(named), named.__getitem__)
    _no_key(path, key)
    several = isinstance(found, list | tuple) and found and all(isinstance(part, Tensor) for part in found)
    if isinstance(found, Tensor) or several:
        return found
    raise DataError(f"{path} holds a {type(found).__name__}: save a tensor, a list or a dict of tensors")


def _csv(path: Path, key: str | None, what: str) -> Any:
    with path.open("rb") as file:
        first = file.readline(1 << 16).split(b",")[0].strip()
    headed = re.fullmatch(rb"[-+]?[\d.]+(?:[eE][-+]?\d+)?", first) is None
    return _table(path, key, what, pl.read_csv(path, glob=False, has_header=headed, infer_schema_length=None))


def _table(path: Path, key: str | None, what: str, table: pl.DataFrame) -> Any:
    """A column by name, the one column of lists, or all columns where each is a number."""
    nested = [name for name, kind in table.schema.items() if isinstance(kind, pl.List | pl.Array)]
    by_name = key is not None or what in ("labels", "ids")
    if by_name or nested:
        return _column(path, table[_one(path, key, what, table.columns if by_name else nested)])
    wrong = [name for name, kind in table.schema.items() if not kind.is_numeric() and kind != pl.Boolean]
    if wrong:
        raise DataError(
            f"{path} has a column {wrong[0]!r} of {table.schema[wrong[0]]}: pass numbers alone, or PATH:COLUMN"
        )
    for column in table.iter_columns():
        _full(path, column)
    return table.to_numpy()


def _column(path: Path, column: pl.Series) -> Any:
    _full(path, column)
    if not isinstance(column.dtype, pl.List | pl.Array):
        return column.cast(pl.String).to_numpy().astype(str) if column.dtype == pl.String else column.to_numpy()
    lengths = column.list.len() if isinstance(column.dtype, pl.List) else None
    if lengths is not None and lengths.n_unique() != 1:
        raise DataError(
            f"{path}:{column.name} has rows of {lengths.min()!r} to {lengths.max()!r} numbers: all must be of one width"
        )
    inner = column.explode()
    if inner.null_count() or not inner.dtype.is_numeric():
        raise DataError(f"{path}:{column.name} holds lists of {inner.dtype} with gaps or without numbers: pass numbers")
    return inner.to_numpy().reshape(len(column), -1)


def _full(path: Path, column: pl.Series) -> None:
    if column.null_count():
        row = int(column.is_null().arg_max() or 0)
        raise DataError(f"{path}:{column.name}: row {row} (counted from 0) is empty: leave such rows out of all files")


def _one(path: Path, key: str | None, what: str, names: list[str]) -> str:
    wanted = [key] if key is not None else [what, what.removesuffix("s")]
    for name in wanted:
        if name in names:
            return name
    if key is None and len(names) == 1:
        return names[0]
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    if key is not None:
        raise DataError(f"{path} holds nothing of the name {key!r}, only: {shown}")
    raise DataError(
        f"{path} holds several things ({shown}): say which are the {what}, for example {path.name}:{names[0]}"
    )


def _chosen(path: Path, key: str | None, what: str, names: list[str], take: Callable[[str], Any]) -> Any:
    """The part that is meant, or all of them where their names count batches."""
    if not names:
        raise DataError(f"{path} holds nothing: save the {what} in it")
    counted = {name: _BATCH.fullmatch(name) for name in names}
    if key is None and len(names) > 1 and all(counted.values()):
        order = sorted(names, key=lambda name: int(counted[name][1]))  # type: ignore[index]
        return [take(name) for name in order]
    return take(_one(path, key, what, names))


def _no_key(path: Path, key: str | None) -> None:
    if key is not None:
        raise DataError(f"{path} holds one thing without a name: leave out :{key}")


_READERS: dict[str, Callable[[Path, str | None, str], Any]] = {
    ".npy": _npy, ".npz": _npz, ".safetensors": _safetensors,
    ".parquet": lambda path, key, what: _table(path, key, what, pl.read_parquet(path, glob=False)),
    ".csv": _csv, ".pt": _pt, ".pth": _pt,
}  # fmt: skip
