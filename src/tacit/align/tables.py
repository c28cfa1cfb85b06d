"""Labels of a party's table in the common order, and a digest of all that the party trains on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.encoder import Columns, Encoder, Inputs, decimal_comma, require, row_named, spelled
from tacit.contracts import raw_bytes
from tacit.errors import LabelsError, UsageError

__all__ = [
    "PLAIN", "Columns", "Encoder", "Inputs", "Spelling", "inputs_digest", "labels", "labels_error", "tensors_digest",
    "wrong_labels",
]  # fmt: skip


@dataclass(frozen=True)
class Spelling:
    """Spelling of a column's classes: yes and no, true and false or numbers where nothing else is said."""

    positive: str | None = None  # of two classes the value that is 1; the other one, whatever it is, is 0
    names: tuple[str, ...] = ()  # of all classes, from 0 on

    def read(self, column: pl.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Labels as numbers, NaN where there is none, and where something stands that is no label.

        >>> [part.tolist() for part in Spelling().read(pl.Series(["yes", "No", "NA", "2", "maybe"]))]
        [[1.0, 0.0, nan, 2.0, nan], [False, False, False, False, True]]
        >>> Spelling("churned").read(pl.Series(["churned", None, "stayed"]))[0].tolist()
        [1.0, nan, 0.0]
        """
        if (column.dtype.is_numeric() or column.dtype == pl.Boolean) and self.positive is None and not self.names:
            return column.cast(pl.Float64).fill_null(np.nan).to_numpy(), np.zeros(len(column), np.bool_)
        text = self.words(column)
        if self.positive is not None:
            values = (text == self.positive).cast(pl.Float64)
        elif self.names:
            known = pl.DataFrame({"word": self.names, "value": np.arange(len(self.names), dtype=np.float64)})
            values = text.to_frame("word").join(known, on="word", how="left", maintain_order="left")["value"]
        else:
            values = text.str.to_lowercase().replace(_YES_OR_NO).cast(pl.Float64, strict=False)
        found = values.fill_null(np.nan).to_numpy()
        return found, text.is_not_null().to_numpy() & np.isnan(found)

    def words(self, column: pl.Series) -> pl.Series:
        """Labels as a column spells them; null where there is none."""
        text = spelled(column).str.strip_chars()
        named = (*self.names, *(() if self.positive is None else (self.positive,)))
        missing = text.str.to_lowercase().is_in(_MISSING) & ~text.is_in(named)
        return text.set(missing.fill_null(False), None)

    @property
    def definition(self) -> str:
        """Words beside the number of classes, for good; none where the classes say it themselves."""
        if self.names:
            return f": {', '.join(map(repr, self.names))}"
        plain = self.positive is None or _YES_OR_NO.get(self.positive.lower(), self.positive) == "1"
        return "" if plain else f", 1 is {self.positive!r}"

    def remedy(self, column: pl.Series, row: int) -> str:
        """Words on what to do about a value that is no label."""
        value = column[row]
        if comma := decimal_comma(value):
            return f"write {comma}"
        if isinstance(value, str) and not self.names and self.positive is None:
            return (
                "where there are two classes, write which of them is 1 in contract.toml, for example positive = "
                f"{json.dumps(value, ensure_ascii=False)}, and where there are more, class_names with all of them"
            )
        return "correct them, or leave them empty"


_YES_OR_NO = {
    **dict.fromkeys(("yes", "y", "true", "t", "ja", "j", "wahr", "1"), "1"),
    **dict.fromkeys(("no", "n", "false", "f", "nein", "falsch", "0"), "0"),
}
_MISSING = ("", "na", "n/a", "nan", "null")
PLAIN = Spelling()


def labels(
    table: pl.DataFrame,
    column: str,
    loss: str,
    rows: NDArray[np.int64] | None = None,
    spelling: Spelling = PLAIN,
) -> Tensor:
    """The labels as the loss takes them: 0 or 1 as float32 for "binary", class numbers as int64 for "softmax".

    A row without a label has NaN, or -1. `rows` are their numbers in the party's file, so that an error can name them.
    """
    wrong = wrong_labels(table, column, loss, spelling)
    if len(wrong):
        raise labels_error(table[column], loss, int(wrong[0]), len(wrong), rows, spelling)
    values, _ = spelling.read(table[column])
    if loss == "binary":
        return torch.from_numpy(values.astype(np.float32))
    return torch.from_numpy(np.where(np.isnan(values), -1, values).astype(np.int64))


def wrong_labels(table: pl.DataFrame, column: str, loss: str, spelling: Spelling = PLAIN) -> NDArray[np.intp]:
    """The rows of a table whose label the loss can't take."""
    if loss not in ("binary", "softmax"):
        raise UsageError(f"there is no loss {loss!r}; there are: binary, softmax")
    require(table, [column])
    values, odd = spelling.read(table[column])
    allowed = (values == 0) | (values == 1) if loss == "binary" else (values >= 0) & (values == np.floor(values))
    return np.flatnonzero(odd | ~np.isnan(values) & (~allowed | (values >= 2**31)))


def labels_error(
    column: pl.Series,
    loss: str,
    row: int,
    count: int,
    rows: NDArray[np.int64] | None = None,
    spelling: Spelling = PLAIN,
) -> LabelsError:
    """Error: so many rows have labels that the loss can't take, the first of them in this row."""
    wanted = "0 or 1" if loss == "binary" else "class numbers 0, 1, ..."
    return LabelsError(
        f"{row_named(row, rows)} has the label {column[row]!r} in the column {column.name!r} (and {count - 1} others): "
        f"the loss {loss!r} takes {wanted}; {spelling.remedy(column, row)}"
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
