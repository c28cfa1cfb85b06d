"""Id columns of a file or a table as text or bytes, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from tacit.errors import DataError

__all__ = ["SEPARATORS", "batches", "scan"]

_BATCH = 1 << 17

SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""What stands between the values of a text file, by the end of its name."""


def batches(source: str | Path | pl.DataFrame, name: str, columns: list[str]) -> Iterator[pl.DataFrame]:
    """The id columns of all rows, in order.

    Args:
        source: a file or a table.
        name: what to call it in errors.
        columns: the id columns.
    """
    if isinstance(source, pl.DataFrame):
        casts = _casts(name, source.schema, columns)
        for batch in source.select(columns).iter_slices(_BATCH):
            yield batch.with_columns(casts)
        return
    path = Path(source)
    try:
        table = _table(path)
        casts = _casts(name, table.collect_schema(), columns)
        yield from table.select(columns).with_columns(casts).collect_batches(chunk_size=_BATCH)
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror or error}): check the path") from error
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path} can't be read: {_cause(path, error)}") from error


def scan(path: Path) -> pl.LazyFrame | None:
    """A file by the end of its name, not yet read; None where that is no table's. Text stays text: '042' is not 42."""
    kind = path.suffix.lower()
    if kind in (".parquet", ".pq"):
        return pl.scan_parquet(path, glob=False)
    if kind in SEPARATORS:
        return pl.scan_csv(path, glob=False, infer_schema=False, separator=SEPARATORS[kind])
    return None


def _table(path: Path) -> pl.LazyFrame:
    if path.is_dir():
        raise DataError(f"{path} is a folder: pass one .parquet, .csv or .tsv file")
    table = scan(path)
    if table is None:
        raise DataError(f"{path} is neither .parquet nor .csv nor .tsv: convert it, or pass a polars table")
    return table


def _casts(name: str, schema: pl.Schema, columns: list[str]) -> list[pl.Expr]:
    """How each id column becomes text; bytes stay bytes."""
    missing = [column for column in columns if column not in schema]
    if missing:
        known = ", ".join(schema.names())
        raise DataError(f"{name} has no column {', '.join(map(repr, missing))}; it has: {known}: correct the names")
    for column in columns:
        dtype = schema[column]
        textual = dtype in (pl.String, pl.Binary, pl.Date, pl.Categorical, pl.Enum, pl.Null)
        if not dtype.is_integer() and not textual:
            raise DataError(
                f"{name}: the id column {column!r} is {dtype}, and two sides may write such values differently: cast "
                "it to an integer or to text, in the same way on both sides"
            )
    return [pl.col(column).cast(pl.String) for column in columns if schema[column] != pl.Binary]


def _cause(path: Path, error: Exception) -> str:
    """What is wrong with the file, with the line where that can be told."""
    if "utf-8" in str(error).lower() and path.suffix.lower() in SEPARATORS:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    line.decode()
                except UnicodeDecodeError as wrong:
                    return f"line {number} is not UTF-8 (byte {wrong.start}, {wrong.reason}): save the file as UTF-8"
    return f"{str(error).splitlines()[0]}: check that it is what its name says"
