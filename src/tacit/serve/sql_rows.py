"""Rows by an SQL query, over SQLAlchemy: it binds values and spells queries as each database wants them.

Ids are bound as parameters and never stand in a query's text, nor in an error: what a database says about values may
repeat them.
"""

from __future__ import annotations

import weakref
from typing import Any

import polars as pl

from tacit.align.sql import check_query, engine_of, failed, table_of, text_of
from tacit.serve.rows import Wanted

import sqlalchemy as sql  # isort: skip  # tacit.align.sql says what to do where it is missing

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

    The query's columns have the wanted names. What is asked for is taken from it as from a table, so that the database
    needs an index over the ids to answer fast. The connection string is in the environment variable `url_from`.
    """

    def __init__(self, query: str, url_from: str, wanted: Wanted) -> None:
        check_query(query, url_from, wanted.names, _NAME)
        self._wanted = wanted
        self._engine = engine_of(_NAME, url_from)
        weakref.finalize(self, self._engine.dispose)
        self._rows = text_of(query).columns(*map(sql.column, wanted.names)).subquery("tacit_rows")

    def ids(self) -> pl.DataFrame:
        """See `tacit.serve.rows.Rows`."""
        names = self._wanted.ids
        query = sql.select(*(self._rows.c[name] for name in names))
        parts = []
        try:
            with self._engine.connect() as connection:
                found = connection.execution_options(yield_per=_BLOCK).execute(query)
                parts = [table_of(_NAME, names, block) for block in found.partitions(_BLOCK)]
        except sql.exc.SQLAlchemyError as error:
            raise failed(_NAME, error) from None
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
                    parts.append(table_of(_NAME, names, connection.execute(query)))
        except sql.exc.SQLAlchemyError as error:
            raise failed(_NAME, error) from None
        return pl.concat([part for part in parts if len(part)] or parts[:1], how="vertical_relaxed")


def _kind(dtype: pl.DataType) -> sql.types.TypeEngine[Any]:
    return sql.BigInteger() if dtype.is_integer() else _KINDS.get(dtype.base_type(), sql.types.NullType)()
