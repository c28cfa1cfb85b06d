"""What a program hands over as columns: tables, arrays and tensors, read as the companies' files are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.encoder import Columns, Encoder, Inputs
from tacit.errors import DataError, TensorError, UsageError

_FLAGGED = 0.01  # the share of missing numbers from which on that one is missing is a column of its own


@dataclass(frozen=True)
class Reader:
    """How rows of one kind are read: fitted on training rows, any other row is read alike."""

    columns: Columns  # the names: those of a table, x0, x1, ... of an array, c0, ... and x0, ... of `Inputs`
    encoder: Encoder | None  # of tables and arrays of numbers; None for `Inputs`
    kind: str  # in words

    @classmethod
    def fit(cls, given: Any, train: NDArray[np.intp], what: str) -> Self:
        """A reader of rows like these."""
        rows = _plain(given, what)
        if isinstance(rows, Inputs):
            return cls(_counted(rows), None, "inputs")
        kinds, known = rows.schema, rows[train]
        numeric = tuple(name for name, kind in kinds.items() if kind.is_numeric() or kind == pl.Boolean)
        flagged = tuple(name for name in numeric if known[name].null_count() >= max(1, _FLAGGED * len(known)))
        dates = tuple(name for name, kind in kinds.items() if kind == pl.Date)
        times = tuple(name for name, kind in kinds.items() if kind == pl.Datetime)
        codes = tuple(name for name in rows.columns if name not in {*numeric, *dates, *times})
        columns = Columns(codes, numeric, flagged, dates, times)
        return cls(columns, Encoder.fit(rows, columns, train), "table")

    def read(self, given: Any, what: str) -> Inputs:
        """Rows as a learner takes them."""
        rows = _plain(given, what)
        found = "inputs" if isinstance(rows, Inputs) else "table"
        if found != self.kind:
            raise TensorError(f"{what}: this is {found}, where {self.kind} was learnt from: pass rows of the same kind")
        if isinstance(rows, Inputs):
            return rows
        assert self.encoder is not None  # of a table
        return self.encoder.encode(rows)


def _counted(rows: Inputs) -> Columns:
    categories, numbers = rows.categorical.shape[1], rows.numeric.shape[1]
    return Columns(tuple(f"c{place}" for place in range(categories)), tuple(f"x{place}" for place in range(numbers)))


def _plain(given: Any, what: str) -> pl.DataFrame | Inputs:
    """One of the two kinds: a table, or `Inputs`."""
    if isinstance(given, Inputs | pl.DataFrame):
        return given
    if hasattr(given, "__arrow_c_stream__") and type(given).__module__.startswith("pyarrow"):
        found = pl.from_arrow(given)
        return found if isinstance(found, pl.DataFrame) else found.to_frame()
    if hasattr(given, "columns") and hasattr(given, "dtypes"):  # pandas', which need not be installed
        return pl.DataFrame({str(name): _column(given[name]) for name in given.columns})
    try:
        array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
        numbers: NDArray[Any] = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TensorError(f"{what}: these are no numbers ({error}): pass text and categories as a DataFrame") from None
    if numbers.ndim != 2 or not numbers.shape[1]:
        raise TensorError(f"{what} is of shape {numbers.shape}: pass one row of numbers for each example")
    table = pl.DataFrame({f"x{place}": column for place, column in enumerate(numbers.T)})
    return table.fill_nan(None)


def like(given: Any, scores: NDArray[np.float64]) -> Any:
    """Scores in the kind of the rows: a Series of pandas with their index, or of polars, a pyarrow Array, or NumPy's.

    Of several classes there are several columns: a DataFrame, or a two-dimensional array.
    """
    kind = type(given).__module__.partition(".")[0]
    names = [f"score_{place}" for place in range(scores.shape[1])] if scores.ndim == 2 else ["score"]
    if kind == "pandas":
        import pandas as pd

        columns = pd.DataFrame(scores, index=given.index, columns=names)
        return columns if scores.ndim == 2 else columns["score"]
    if kind not in ("polars", "pyarrow"):
        return scores
    table = pl.DataFrame(scores, schema=names)
    if kind == "pyarrow":
        return table.to_arrow() if scores.ndim == 2 else table["score"].to_arrow()
    return table if scores.ndim == 2 else table["score"]


def check_index(features: Any, others: Mapping[str, Any]) -> None:
    """Refuse pandas' tables of which the rows stand in different orders: rows are taken by where they stand."""
    index: Any = getattr(features, "index", None)
    for what, given in others.items():
        its: Any = getattr(given, "index", None)
        if hasattr(index, "equals") and hasattr(its, "equals") and len(index) == len(its) and not index.equals(its):
            raise UsageError(
                f"the index of {what} differs from that of features, and rows are taken by where they stand: bring "
                f"both in one order, as with {what}.loc[features.index], or reset both indexes"
            )


def _column(series: Any) -> pl.Series:
    """A column of pandas' as one of polars': numbers as they are, all others by their spelling."""
    values, missing = series.to_numpy(), np.asarray(series.isna())
    if values.dtype.kind in "biu":
        return pl.Series(values)
    if values.dtype.kind == "f":
        return pl.Series(values).fill_nan(None)
    if values.dtype.kind == "M":
        return pl.Series(values).cast(pl.Datetime("us"))
    spelled = [None if gone else str(value) for value, gone in zip(values, missing, strict=True)]
    return pl.Series(spelled, dtype=pl.String)


def labels_of(given: Any) -> pl.Series:
    """Labels as a column, whatever holds them."""
    if isinstance(given, pl.Series):
        return given.rename("labels")
    if type(given).__module__.startswith("pyarrow"):
        return pl.Series("labels", pl.from_arrow(given))
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if array.ndim != 1:
        raise DataError(f"labels are of shape {array.shape}: pass one for each row")
    found = pl.Series("labels", array)
    return found.fill_nan(None) if found.dtype.is_float() else found
