"""A party's own table in the common order: which rows of a file, which of them for training, and their labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.encoder import Columns, Encoder, Inputs, require, to_float
from tacit.align.sources import SEPARATORS, scan
from tacit.errors import DataError, LabelsError, UsageError

__all__ = [
    "Columns",
    "Encoder",
    "Inputs",
    "blocks",
    "check_columns",
    "inputs_digest",
    "labels",
    "labels_error",
    "load",
    "rows_error",
    "scramble",
    "wrong_labels",
]

_SMALLEST, _LARGEST = 1 << 12, 1 << 16  # rows of a block
_VALUES = 1 << 21  # in a block, where its rows allow


def check_columns(source: str | Path | pl.DataFrame, columns: Sequence[str]) -> None:
    """See that a source is a table with these columns, without reading it; a `DataError` says what is missing."""
    with _reading(_name(source)):
        _open(source, columns)


def load(source: str | Path | pl.DataFrame, rows: NDArray[np.int64], columns: Sequence[str]) -> pl.DataFrame:
    """The named columns of the rows with these numbers, in this order.

    A file is streamed: memory grows with the rows that are asked for, not with the file. The columns of a CSV file are
    all text, because its types could only be guessed; `Encoder` and `labels` read numbers from text.

    Args:
        source: a `.parquet`, `.csv` or `.tsv` file with a header, or a table.
        rows: row numbers counted from 0 (in a CSV file from the line after the header), in the wanted order.
        columns: the names of the columns that are needed.
    """
    order = np.argsort(rows, kind="stable")
    wanted, start = rows[order], 0
    with _reading(_name(source)):
        parts = [_open(source, columns).head(0).collect()]
    for block in blocks(source, columns):
        here = slice(*np.searchsorted(wanted, [start, start + len(block)]))
        parts.append(block[wanted[here] - start])
        start += len(block)
    found = pl.concat(parts)
    if len(found) != len(rows):
        raise rows_error(source, len(rows), len(rows) - len(found))
    return found[np.argsort(order)]


def blocks(
    source: str | Path | pl.DataFrame, columns: Sequence[str], size: int | None = None
) -> Iterator[pl.DataFrame]:
    """The named columns of all rows, so many rows at a time: memory grows neither with the rows nor with the file.

    Every block but the last one has exactly `size` rows, however the file is laid out, so that what is computed block
    by block is the same every time.

    Args:
        source: as for `load`.
        columns: the names of the columns that are needed, at least one.
        size: rows of a block; None for fewer the more columns there are.

    >>> [block["x"].to_list() for block in blocks(pl.DataFrame({"x": [1, 2, 3], "y": [4, 5, 6]}), ["x"], size=2)]
    [[1, 2], [3]]
    """
    size = size or max(_SMALLEST, min(_LARGEST, _VALUES // len(columns)))
    with _reading(_name(source)):
        left = pl.DataFrame()
        for batch in _batches(source, columns, size):
            left = pl.concat([left, batch]) if len(left) else batch
            while len(left) >= size:
                yield left[:size]
                left = left[size:]
        if len(left):
            yield left


def _batches(source: str | Path | pl.DataFrame, columns: Sequence[str], size: int) -> Iterator[pl.DataFrame]:
    """The named columns of all rows, in batches of about this size."""
    frame = _open(source, columns)
    if isinstance(source, pl.DataFrame):
        yield from source.select(columns).iter_slices(size)
    elif Path(source).suffix.lower() in SEPARATORS:
        yield from frame.collect_batches(chunk_size=size)
    else:
        # As a stream it would be read ahead by many row groups, which takes several times the memory.
        start = 0
        while len(batch := frame.slice(start, size).collect(engine="streaming")):
            yield batch
            start += size


def rows_error(source: str | Path | pl.DataFrame, count: int, missing: int) -> DataError:
    """What to raise where a source lacks so many of the rows that were aligned."""
    return DataError(
        f"{_name(source)} has no longer all of the {count} aligned rows ({missing} are missing): put the file back "
        "that was aligned, or run `tacit align --again` on all sides"
    )


def labels(table: pl.DataFrame, column: str, loss: str, rows: NDArray[np.int64] | None = None) -> Tensor:
    """The labels as the loss takes them: 0 or 1 as float32 for "binary", class numbers as int64 for "softmax".

    Args:
        table: all rows, in the common order.
        column: of the label.
        loss: "binary" or "softmax".
        rows: the row numbers in the party's file, so that an error can name them.
    """
    wrong = wrong_labels(table, column, loss)
    if len(wrong):
        row = int(wrong[0])
        raise labels_error(column, loss, row if rows is None else int(rows[row]), table[column][row], len(wrong))
    return torch.from_numpy(_label_values(table, column).astype(np.float32 if loss == "binary" else np.int64))


def wrong_labels(table: pl.DataFrame, column: str, loss: str) -> NDArray[np.intp]:
    """The rows of a table whose label the loss can't take."""
    if loss not in ("binary", "softmax"):
        raise UsageError(f"there is no loss {loss!r}; there are: binary, softmax")
    require(table, [column])
    values = _label_values(table, column)
    allowed = (values == 0) | (values == 1) if loss == "binary" else (values >= 0) & (values == np.floor(values))
    return np.flatnonzero(~allowed | (values >= 2**31))


def labels_error(column: str, loss: str, row: int, value: object, count: int) -> LabelsError:
    """What to raise where so many rows have labels that the loss can't take.

    Args:
        column: of the label.
        loss: "binary" or "softmax".
        row: the first of them.
        value: what stands there.
        count: how many there are.
    """
    what = "has no label" if value is None else f"has the label {value!r}"
    wanted = "0 or 1" if loss == "binary" else "class numbers 0, 1, ..."
    return LabelsError(
        f"row {row} {what} in the column {column!r} (and {count - 1} others): the loss {loss!r} takes {wanted}; "
        "correct them, or leave those rows out of the file and run `tacit align --again` on all sides"
    )


def _label_values(table: pl.DataFrame, column: str) -> NDArray[np.float64]:
    return to_float(table[column]).fill_null(np.nan).to_numpy()


def inputs_digest(inputs: Inputs, targets: Tensor | None = None) -> bytes:
    """SHA-256 of everything that a party trains on, so that changed data is noticed when a run goes on."""
    found = hashlib.sha256(repr(inputs.cardinalities).encode())
    for tensor in (*inputs.tensors, *(() if targets is None else (targets,))):
        found.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(memoryview(tensor.contiguous().numpy()).cast("B") if tensor.numel() else b"")
    return found.digest()


def scramble(ids: NDArray[np.integer[Any]], seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each id that depends on nothing but the id and the seed.

    It is the same on every machine and with every version of every library, so what it chooses stays chosen.

    >>> scramble(np.array([7, 8, 7]), seed=0).round(4).tolist()
    [0.3935, 0.8927, 0.3935]
    """
    key = _mix(np.array([seed % 2**64], dtype=np.uint64))
    return (_mix(ids.astype(np.uint64) ^ key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One round of splitmix64."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _name(source: str | Path | pl.DataFrame) -> str:
    """What to call it in errors."""
    return "the table" if isinstance(source, pl.DataFrame) else str(source)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Say of which source it is that something can't be read."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        cause = str(error).partition("\n")[0]
        raise DataError(f"{what} can't be read ({cause}): look at the file, or write it anew") from None


def _open(source: str | Path | pl.DataFrame, columns: Sequence[str]) -> pl.LazyFrame:
    """These columns of a source, not yet read."""
    frame = source.lazy() if isinstance(source, pl.DataFrame) else _scan(Path(source))
    names = frame.collect_schema().names()
    missing = [name for name in columns if name not in names]
    if missing:
        raise DataError(
            f"{_name(source)} has no column {', '.join(map(repr, missing))}; it has: {', '.join(names)}: correct the "
            "names"
        )
    return frame.select(columns)


def _scan(path: Path) -> pl.LazyFrame:
    """The file, not yet read."""
    if not path.is_file():
        raise DataError(f"{path} is no file: correct the path")
    table = scan(path)
    if table is None:
        raise DataError(f"{path} ends with {path.suffix.lower()!r}: use a .parquet, .csv or .tsv file")
    return table
