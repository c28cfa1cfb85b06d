"""A request of the HTTP endpoint: from JSON to the ids and columns of rows, each mistake with its row and field."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tacit.align.encoder import Encoder, days_of
from tacit.align.ids import hash_of
from tacit.serve.tokens import tokens_of

_WHOLE = 1 << 63
_NAMED = 5  # fields that nobody asked for, of a row that lacks one
_ID = 256  # characters of an id that is asked for
_MARKS = 30  # combining marks in a row, which Unicode's stream-safe text has at most
_FARTHEST = 1e30  # deviations: beyond it a model computes with infinities


class WrongRequestError(Exception):
    """A request that can't be answered: what is wrong, the status of the answer (4xx), and where, row and field."""

    def __init__(self, message: str, *, status: int = 400, **where: Any) -> None:
        super().__init__(message)
        self.status = status
        self.where = where


@dataclass(frozen=True)
class Asked:
    """The rows of a request."""

    tokens: Sequence[bytes | None]  # of their ids; None where a row has no id
    values: Mapping[str, Sequence[Any]]  # of the label party's own columns, by column

    def __len__(self) -> int:
        return len(self.tokens)


class Form:
    """What requests for a model must look like: every field that it takes is there, if only with null.

    Others may be there, so that rows can come straight from the party's own table; they are not looked at.
    """

    def __init__(self, ids: Sequence[str], encoder: Encoder, key: bytes, most: int) -> None:
        self._ids, self._key, self._most = tuple(ids), key, most
        columns = encoder.columns
        known = zip(columns.categorical, encoder.vocabularies, strict=False)  # those that dates become are the last
        kinds: dict[str, Any] = {name: vocabulary.dtype for name, vocabulary in known}
        days = dict.fromkeys((*columns.dates, *columns.times), pl.String)
        self.dtypes: dict[str, Any] = {name: (kinds | days).get(name, pl.Float64) for name in columns.names}
        self._checks = {name: _date if name in days else _CHECKS[dtype] for name, dtype in self.dtypes.items()}
        self._learnt = dict(zip(encoder.columns.numeric, encoder.statistics, strict=False))
        self._fields = frozenset((*self._ids, *self._checks))

    def read(self, content: Mapping[str, Any]) -> Asked:
        """The rows of a request's JSON."""
        rows = content.get("rows")
        if not isinstance(rows, list) or not rows:
            raise WrongRequestError('"rows" must be a list of one row or more', field="rows")
        if len(rows) > self._most:
            raise WrongRequestError(
                f"{len(rows)} rows are asked for, and {self._most} may be in one request", status=413, field="rows"
            )
        for number, row in enumerate(rows):
            if not isinstance(row, dict) or not row.keys() >= self._fields:  # rows of a table may have more
                raise self._wrong_fields(number, row)
        values = {name: self._column(name, check, rows) for name, check in self._checks.items()}
        return Asked(self._tokens(rows), values)

    def _wrong_fields(self, number: int, row: Any) -> WrongRequestError:
        """Which field is missing: one that was misspelt is among those that are there and not used."""
        if not isinstance(row, dict):
            return WrongRequestError(
                f"row {number} must be an object with the fields {sorted(self._fields)}", row=number
            )
        name, unknown = min(self._fields - row.keys()), sorted(row.keys() - self._fields)
        hint = f", and {[one[:100] for one in unknown[:_NAMED]]} are not used: is it one of these?" if unknown else ""
        what = f"is missing (null says that there is no value){hint}"
        return WrongRequestError(f"row {number}: the field {name[:100]!r} {what}", row=number, field=name[:100])

    def _column(self, name: str, check: Callable[[Any], str], rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        values = [row[name] for row in rows]
        for number, value in enumerate(values):
            if value is not None and (wrong := check(value)):
                raise WrongRequestError(f"row {number}: the field {name!r} {wrong}", row=number, field=name)
        if check is not _number:
            return values
        numbers = [None if value is None else float(value) for value in values]
        shift, spread = self._learnt.get(name, (0.0, 1.0))
        for number, value in enumerate(numbers):
            if value is not None and abs((value - shift) / spread) > _FARTHEST:
                wrong = "is too far from all numbers that were trained on"
                raise WrongRequestError(f"row {number}: the field {name!r} {wrong}", row=number, field=name)
        return numbers

    def _tokens(self, rows: Sequence[Mapping[str, Any]]) -> list[bytes | None]:
        """Of each row's id; a row of which a part is null or empty has none."""
        hashes, at = bytearray(), []
        for number, row in enumerate(rows):
            parts = [row[name] for name in self._ids]
            for name, part in zip(self._ids, parts, strict=True):
                if part is not None and (wrong := _id(part)):
                    raise WrongRequestError(f"row {number}: the field {name!r} {wrong}", row=number, field=name)
            if all(part is not None and part != "" for part in parts):
                hashes += hash_of(parts)
                at.append(number)
        tokens = tokens_of(self._key, np.frombuffer(hashes, np.uint8).reshape(-1, 32)) if at else ()
        found: list[bytes | None] = [None] * len(rows)
        for number, token in zip(at, tokens, strict=True):
            found[number] = token.tobytes()
        return found


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    try:
        content = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise WrongRequestError("the JSON is nested too deeply") from None
    except ValueError as error:  # of JSON, of UTF-8, of numbers with thousands of digits
        raise WrongRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise WrongRequestError('the body must be a JSON object: {"rows": [{...}, ...]}')
    unknown = content.keys() - {"rows"}
    if unknown:
        name = min(unknown)[:100]
        raise WrongRequestError(f"the field {name!r} is unknown: rows alone is known", field=name)
    return content


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


# --- values: what is wrong with one, or nothing ----------------------------------------------------------------------


def _number(value: Any) -> str:
    if type(value) is int:
        return "" if -_WHOLE <= value < _WHOLE else "is a whole number of more than 64 bits"
    return "" if type(value) is float and math.isfinite(value) else "must be a finite number or null"


def _whole(value: Any) -> str:
    return "" if type(value) is int and -_WHOLE <= value < _WHOLE else "must be a whole number of 64 bits or null"


def _boolean(value: Any) -> str:
    return "" if type(value) is bool else "must be true, false or null"


def _text(value: Any) -> str:
    if type(value) is not str:
        return "must be text or null"
    return "" if value.isascii() or value.encode(errors="ignore").decode() == value else "has half a character"


def _date(value: Any) -> str:
    if wrong := _text(value):
        return wrong
    return (
        "" if not value.strip() or days_of(pl.Series([value]))[0] is not None else "must be a date such as 2014-01-19"
    )


def _id(value: Any) -> str:
    if type(value) is int:
        return _whole(value)
    if type(value) is not str:
        return "is an id: text, a whole number, or null"
    if len(value) > _ID:
        return f"is an id of more than {_ID} characters"
    if not value.isascii() and _many_marks(value):
        return f"is an id with more than {_MARKS} combining marks in a row"
    return _text(value)


def _many_marks(value: str) -> bool:
    """Whether more marks follow one another than any script has: to put very many in order takes very long."""
    row = 0
    for letter in value:
        row = row + 1 if unicodedata.combining(letter) else 0
        if row > _MARKS:
            return True
    return False


_CHECKS: dict[Any, Callable[[Any], str]] = {
    pl.Float64: _number, pl.Int64: _whole, pl.Boolean: _boolean, pl.String: _text,
}  # fmt: skip
