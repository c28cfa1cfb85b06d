"""Where a feature party's service gets its rows from, and what a query needs beside its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from tacit.config.files import Problem, Section, Text


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):  # what stands there may be a password: it is not repeated
        raise ValueError(
            'what stands there is no name of an environment variable: write for example "TACIT_ROWS_URL", and put the '
            "connection string into that variable, never into this file"
        )
    return value


Variable = Annotated[str, AfterValidator(_variable)]
"""The environment variable that a connection string is taken from."""


class RowSource(Section):
    """Where a feature party's service gets its rows from; if nothing is said, from the table under [data].

    Attributes:
        path: a Parquet or CSV file, relative to the party's folder, which is held in memory, and read again when it has
            changed.
        query: an SQL query in its place, whose columns are those of [data], ids included.
        url_from: the environment variable that holds the connection string of the query's database, as SQLAlchemy
            spells it.
        factory: "file:function" or "module:function" in their place, which is called with the names of the id columns
            and of the others, and gives an object with the methods `ids()` and `fetch(ids)`.
    """

    path: Text | None = None
    query: Text | None = None
    url_from: Variable = "TACIT_ROWS_URL"
    factory: Annotated[str, Field(pattern=r"^[^:\s][^:]*:[A-Za-z_]\w*$")] | None = None

    def _problems(self) -> Iterator[Problem]:
        ways = [key for key in ("path", "query", "factory") if getattr(self, key) is not None]
        for key in ways[1:]:
            yield key, f"does not go with {ways[0]}: rows come from one place, keep one of them"
        if "url_from" in self.model_fields_set and self.query is None:
            yield "url_from", "is for a query alone: add query, or remove it"
