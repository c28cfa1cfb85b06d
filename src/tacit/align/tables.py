"""What a party trains on, from its table in the common order: its labels, and a digest of all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.encoder import Columns, Encoder, Inputs, require, to_float
from tacit.contracts import raw_bytes
from tacit.errors import LabelsError, UsageError

__all__ = ["Columns", "Encoder", "Inputs", "inputs_digest", "labels", "labels_error", "tensors_digest", "wrong_labels"]


def labels(table: pl.DataFrame, column: str, loss: str, rows: NDArray[np.int64] | None = None) -> Tensor:
    """The labels as the loss takes them: 0 or 1 as float32 for "binary", class numbers as int64 for "softmax".

    A row without a label has NaN, or -1. `rows` are their numbers in the party's file, so that an error can name them.
    """
    wrong = wrong_labels(table, column, loss)
    if len(wrong):
        row = int(wrong[0])
        raise labels_error(column, loss, row if rows is None else int(rows[row]), table[column][row], len(wrong))
    values = to_float(table[column]).fill_null(np.nan).to_numpy()
    if loss == "binary":
        return torch.from_numpy(values.astype(np.float32))
    return torch.from_numpy(np.where(np.isnan(values), -1, values).astype(np.int64))


def wrong_labels(table: pl.DataFrame, column: str, loss: str) -> NDArray[np.intp]:
    """The rows of a table whose label the loss can't take."""
    if loss not in ("binary", "softmax"):
        raise UsageError(f"there is no loss {loss!r}; there are: binary, softmax")
    require(table, [column])
    told = table[column] if not table[column].dtype.is_float() else table[column].fill_nan(None)
    values = to_float(told).fill_null(np.nan).to_numpy()
    allowed = (values == 0) | (values == 1) if loss == "binary" else (values >= 0) & (values == np.floor(values))
    return np.flatnonzero(told.is_not_null().to_numpy() & (~allowed | (values >= 2**31)))


def labels_error(column: str, loss: str, row: int, value: object, count: int) -> LabelsError:
    """What to raise where so many rows have labels that the loss can't take, the first of them in this row."""
    wanted = "0 or 1" if loss == "binary" else "class numbers 0, 1, ..."
    return LabelsError(
        f"row {row} has the label {value!r} in the column {column!r} (and {count - 1} others): the loss {loss!r} takes "
        f"{wanted}; correct them, or leave them empty"
    )


def inputs_digest(inputs: Inputs, targets: Tensor | None = None) -> bytes:
    """SHA-256 of everything that a party trains on, so that changed data is noticed when a run goes on."""
    tensors = inputs.tensors if targets is None else (*inputs.tensors, targets)
    return tensors_digest(tensors, repr(inputs.cardinalities))


def tensors_digest(tensors: Iterable[Tensor], about: str = "") -> bytes:
    """SHA-256 of some tensors, their types and shapes included, and of what else is said about them."""
    found = hashlib.sha256(about.encode())
    for tensor in tensors:
        found.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(raw_bytes(tensor))
    return found.digest()
