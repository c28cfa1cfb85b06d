"""Id columns of a file or a table as text or bytes, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from tacit.errors import DataError

__all__ = ["batches"]

_BATCH = 1 << 17
_SEPARATORS = {".csv": ",", ".tsv": "\t"}


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
        table = _scan(path)
        casts = _casts(name, table.collect_schema(), columns)
        yield from table.select(columns).with_columns(casts).collect_batches(chunk_size=_BATCH)
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror or error}): check the path") from error
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path} can't be read: {_cause(path, error)}") from error


def _scan(path: Path) -> pl.LazyFrame:
    if path.is_dir():
        raise DataError(f"{path} is a folder: pass one .parquet, .csv or .tsv file")
    if path.suffix == ".parquet":
        return pl.scan_parquet(path, glob=False)
    if path.suffix in _SEPARATORS:
        # Without a guess at types: '042' and '4.20' stay what the file says.
        return pl.scan_csv(path, infer_schema=False, separator=_SEPARATORS[path.suffix], glob=False)
    raise DataError(f"{path} is neither .parquet nor .csv nor .tsv: convert it, or pass a polars table")


def _casts(name: str, schema: pl.Schema, columns: list[str]) -> list[pl.Expr]:
    """How each id column becomes text; bytes stay bytes."""
    missing = [column for column in columns if column not in schema]
    if missing:
        raise DataError(f"{name} has no column {', '.join(map(repr, missing))}: it has {', '.join(schema.names())}")
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
    if "utf-8" in str(error).lower() and path.suffix in _SEPARATORS:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    line.decode()
                except UnicodeDecodeError as wrong:
                    return f"line {number} is not UTF-8 (byte {wrong.start}, {wrong.reason}): save the file as UTF-8"
    return f"{str(error).splitlines()[0]}: check that it is what its name says"
