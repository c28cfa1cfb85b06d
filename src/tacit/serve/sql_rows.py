"""Rows by an SQL query, over SQLAlchemy: it binds values and spells queries as each database wants them.

Ids are bound as parameters and never stand in a query's text, nor in an error: what a database says about values may
repeat them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import polars as pl

from tacit.errors import DataError, UsageError
from tacit.serve.rows import SAMPLE, Wanted

try:
    import sqlalchemy as sql
except ImportError:  # an extra
    raise UsageError("[serve] rows.query needs SQLAlchemy: pip install 'tacit[sql]'") from None

_NAME = "[serve] rows.query"
_PARAMETERS = 1000  # bound in one query, at most: databases have limits from 2,000 on
_BLOCK = 1 << 14  # ids that are read at once
_KINDS: dict[type[pl.DataType], type[sql.types.TypeEngine[Any]]] = {
    pl.Date: sql.Date,
    pl.Binary: sql.LargeBinary,
    pl.String: sql.Text,
}


class SqlRows:
    """The rows that a query gives, asked for anew each time.

    Args:
        query: whose columns have the wanted names. What is asked for is taken from it as from a table, so that the
            database needs an index over the ids to answer fast.
        url_from: the environment variable with the connection string.
        wanted: what it must have.
    """

    def __init__(self, query: str, url_from: str, wanted: Wanted) -> None:
        self._wanted, self._url_from = wanted, url_from
        self._engine = _engine(url_from)
        weakref.finalize(self, self._engine.dispose)
        text = query.strip().rstrip(";").replace(":", r"\:")  # else a colon would begin the name of a parameter
        self._rows = sql.text(text).columns(*map(sql.column, wanted.names)).subquery("tacit_rows")

    def check(self) -> None:
        """See that the query runs, and has the columns; else a `DataError` says what the database says."""
        everything: sql.Select[Any] = sql.select(sql.literal_column("*")).select_from(self._rows).limit(SAMPLE)
        try:
            with self._engine.connect() as connection:
                found = connection.execute(everything)
                names, rows = list(found.keys()), found.fetchall()
        except sql.exc.SQLAlchemyError as error:  # of no row in particular: it may be shown
            said = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            raise DataError(f"{_NAME} can't be run: {said}: correct it, or {self._url_from}") from None
        missing = [name for name in self._wanted.names if name not in names]
        if missing:
            raise DataError(
                f"{_NAME} has no column {', '.join(map(repr, missing))}; it has: {', '.join(names)}: correct the names"
            )
        if rows:
            self._wanted.check(_NAME, _table(names, rows))

    def ids(self) -> pl.DataFrame:
        """See `tacit.serve.rows.Rows`."""
        names = self._wanted.ids
        query = sql.select(*(self._rows.c[name] for name in names))
        parts = []
        try:
            with self._engine.connect() as connection:
                found = connection.execution_options(yield_per=_BLOCK).execute(query)
                parts = [_table(names, block) for block in found.partitions()]
        except sql.exc.SQLAlchemyError as error:
            raise _failed(error) from None
        return pl.concat(parts, how="vertical_relaxed") if parts else pl.DataFrame(schema=list(names))

    def fetch(self, ids: pl.DataFrame) -> pl.DataFrame:
        """See `tacit.serve.rows.Rows`; the order is the database's."""
        names, rows = self._wanted.names, self._rows.c
        columns = [sql.type_coerce(rows[name], _kind(dtype)) for name, dtype in ids.schema.items()]
        key = columns[0] if len(columns) == 1 else sql.tuple_(*columns)
        size, parts = _PARAMETERS // len(columns), [pl.DataFrame(schema=names)]
        try:
            with self._engine.connect() as connection:
                for some in ids.iter_slices(size):
                    values = some.to_series().to_list() if len(columns) == 1 else some.rows()
                    query = sql.select(*(rows[name] for name in names)).where(key.in_(values))
                    parts.append(_table(names, connection.execute(query)))
        except sql.exc.SQLAlchemyError as error:
            raise _failed(error) from None
        return pl.concat([part for part in parts if len(part)] or parts[:1], how="vertical_relaxed")


def _engine(url_from: str) -> sql.Engine:
    """Connections by what an environment variable says; that never stands in an error."""
    url = os.environ.get(url_from)
    if not url:
        raise UsageError(
            f"{_NAME}: the environment variable {url_from} is not set: put the connection string of the database "
            "there, for example postgresql+psycopg://user:password@host/database"
        )
    try:
        return sql.create_engine(url, pool_pre_ping=True, hide_parameters=True)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{_NAME}: {url_from} names a driver that is not installed: pip install {error.name}"
        ) from None
    except (sql.exc.ArgumentError, ValueError):
        raise UsageError(
            f"{_NAME}: what {url_from} holds is no connection string of SQLAlchemy's: write it as "
            "postgresql+psycopg://user:password@host/database"
        ) from None


def _failed(error: sql.exc.SQLAlchemyError) -> DataError:
    """What happened, without what the database says: it may repeat ids."""
    code = getattr(getattr(error, "orig", None), "sqlstate", None)
    return DataError(
        f"{_NAME} failed with a {type(error).__name__}{f' (SQLSTATE {code})' if code else ''}: look into the log of "
        "the database"
    )


def _kind(dtype: pl.DataType) -> sql.types.TypeEngine[Any]:
    return sql.BigInteger() if dtype.is_integer() else _KINDS.get(dtype.base_type(), sql.types.NullType)()


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> pl.DataFrame:
    """Rows of a database as a table."""
    values = list(zip(*rows, strict=True)) or [()] * len(names)
    return pl.DataFrame([_column(name, one) for name, one in zip(names, values, strict=True)])


def _column(name: str, values: Sequence[Any]) -> pl.Series:
    """One column; decimal numbers become floats, whose spelling does not hang on the rows beside them."""
    plain = [float(value) if isinstance(value, Decimal) else value for value in values]
    try:
        numbers = any(isinstance(value, float) for value in plain)
        found = pl.Series(name, plain, dtype=pl.Float64 if numbers else None)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        kinds = sorted({type(value).__name__ for value in plain if value is not None})
        raise DataError(
            f"{_NAME}: the column {name!r} holds values of several kinds ({', '.join(kinds)}): cast it"
        ) from None
    if found.dtype == pl.Object:
        kind = next(type(value).__name__ for value in plain if value is not None)
        raise DataError(f"{_NAME}: the column {name!r} holds {kind} values: cast it to text or a number in the query")
    return found
