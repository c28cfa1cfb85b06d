"""Tables of a database, over SQLAlchemy (extra `sql`): connections, rows as tables, and a query's rows in a file.

Where values were asked for, what the database says is not repeated, since they may stand in it; nor is a connection
string.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

from tacit.disk import make_folder, remove, replaced
from tacit.errors import DataError, UsageError

try:
    import sqlalchemy as sql
except ImportError:  # an extra
    raise UsageError("a query needs SQLAlchemy: pip install 'tacit[sql]'") from None

_BLOCK = 1 << 16  # rows that are read at once
_NAME = "[data] query"


def copy_rows(query: str, url_from: str, wanted: Sequence[str], path: Path, told: Callable[[int], None]) -> None:
    """Write what a query gives now to a Parquet file, some rows at a time: memory does not grow with them.

    Args:
        query: of the table.
        url_from: the environment variable with the connection string.
        wanted: columns that it must have.
        path: of the file, in a folder that somebody else empties where this is killed.
        told: how many rows have come.
    """
    room = path.with_name("parts")
    make_folder(room)
    schema, parts, count = pl.Schema(), dict[Path, pl.Schema](), 0
    with closing(_answers(query, url_from, wanted)) as answers:
        names = next(answers)
        for rows in answers:
            block = table_of(_NAME, names, rows)
            schema = _widened(schema, block.schema)
            part = room / f"{len(parts):06}.parquet"
            block.cast(schema).write_parquet(part)
            parts[part] = schema
            count += len(block)
            told(count)
    if not parts:
        raise DataError(f"{_NAME} gives no rows: correct it, or fill the table that it asks")
    for part, known in parts.items():
        if known != schema:  # a column had whole numbers alone by then, or nothing
            pl.read_parquet(part).cast(schema).write_parquet(part)
    whole = pl.scan_parquet(list(parts), glob=False)
    replaced(path, lambda file: whole.sink_parquet(file, row_group_size=_BLOCK))
    for part in parts:
        remove(part)


def check_query(query: str, url_from: str, wanted: Sequence[str], name: str = _NAME) -> None:
    """See that a query can be run and has these columns; of its rows none is used. `name` is that of the setting."""
    with closing(_answers(query, url_from, wanted, name)) as answers:
        next(answers)


def _answers(query: str, url_from: str, wanted: Sequence[str], name: str = _NAME) -> Generator[Any, None, None]:
    """The names of a query's columns, then its rows in blocks, by a cursor that the database keeps."""
    engine, begun = engine_of(name, url_from), False
    try:
        with (
            engine.connect() as connection,
            connection.execution_options(yield_per=_BLOCK).execute(text_of(query)) as found,
        ):
            names, begun = list(found.keys()), True
            wrong = [each for each in wanted if each not in names] or [n for n in names if names.count(n) > 1][:1]
            if wrong:
                raise DataError(
                    f"{name} does not have each of the columns {', '.join(map(repr, wrong))} once; it has: "
                    f"{', '.join(names)}: correct the names, there or in the query with `as`"
                )
            yield names
            yield from found.partitions(_BLOCK)
    except sql.exc.SQLAlchemyError as error:
        raise (failed(name, error) if begun else not_run(name, url_from, error)) from None
    finally:
        engine.dispose()


def _widened(known: pl.Schema, more: pl.Schema) -> pl.Schema:
    """The types that hold the values of both; a number is never made text, for it would name another row then."""
    for column, dtype in known.items():
        kinds = {dtype, more[column]} - {pl.Null()}
        if len(kinds) > 1 and not all(kind.is_numeric() for kind in kinds):
            raise DataError(f"{_NAME}: the column {column!r} holds {dtype}, and further down {more[column]}: cast it")
    empty = [pl.DataFrame(schema=each) for each in (known, more) if each]
    return pl.concat(empty, how="vertical_relaxed").schema


# --- for rows that are asked for one by one, too ---------------------------------------------------------------------


def engine_of(name: str, url_from: str) -> sql.Engine:
    """Connections by what an environment variable says; `name` is the setting that asks for them, for errors."""
    url = os.environ.get(url_from)
    if not url:
        raise UsageError(
            f"{name}: the environment variable {url_from} is not set: put the connection string of the database "
            "there, for example postgresql+psycopg://user:password@host/database"
        )
    try:
        return sql.create_engine(url, pool_pre_ping=True, hide_parameters=True)
    except ModuleNotFoundError as error:
        raise UsageError(f"{name}: {url_from} names a driver that is not installed: pip install {error.name}") from None
    except (sql.exc.ArgumentError, ValueError):
        raise UsageError(
            f"{name}: what {url_from} holds is no connection string of SQLAlchemy's: write it as "
            "postgresql+psycopg://user:password@host/database"
        ) from None


def text_of(query: str) -> sql.TextClause:
    """A query as the owner wrote it: a colon in it begins no parameter."""
    return sql.text(query.strip().rstrip(";").replace(":", r"\:"))


def not_run(name: str, url_from: str, error: sql.exc.SQLAlchemyError) -> DataError:
    """Error of a database about a query in which no value stands."""
    said = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
    return DataError(f"{name} can't be run: {said}: correct it, or {url_from}")


def failed(name: str, error: sql.exc.SQLAlchemyError) -> DataError:
    """Error of a database about rows, without its words: they may repeat values."""
    code = getattr(getattr(error, "orig", None), "sqlstate", None)
    return DataError(
        f"{name} failed with a {type(error).__name__}{f' (SQLSTATE {code})' if code else ''}: look into the log of "
        "the database"
    )


def table_of(name: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> pl.DataFrame:
    """Rows of a database as a table."""
    values = list(zip(*rows, strict=True)) or [()] * len(names)
    return pl.DataFrame([_column(name, *one) for one in zip(names, values, strict=True)])


def _column(source: str, name: str, values: Sequence[Any]) -> pl.Series:
    """Column of a query; decimal numbers become floats, whose spelling does not hang on the rows beside them."""
    plain = [float(value) if isinstance(value, Decimal) else value for value in values]
    try:
        numbers = any(isinstance(value, float) for value in plain)
        found = pl.Series(name, plain, dtype=pl.Float64 if numbers else None)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        kinds = sorted({type(value).__name__ for value in plain if value is not None})
        raise DataError(
            f"{source}: the column {name!r} holds values of several kinds ({', '.join(kinds)}): cast it"
        ) from None
    if found.dtype == pl.Object:
        kind = next(type(value).__name__ for value in plain if value is not None)
        raise DataError(f"{source}: the column {name!r} holds {kind} values: cast it to text or a number in the query")
    return found
