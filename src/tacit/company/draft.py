"""What a party's own table says about its settings and about the contract, before anybody has filled anything in."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.kinds import by_kind, kinds
from tacit.align.sources import blocks, check_columns, columns_in
from tacit.align.tables import PLAIN
from tacit.config import Data
from tacit.config.templates import Mode
from tacit.errors import UsageError

_CLASSES = 20
"""Different labels that are classes rather than numbers, at most."""

_RARE = 0.25  # of the labels: a class that has less is called the rare one
_TAIL = 0.01  # of the labels that are numbers, below and above the range that is suggested


def read_data(
    table: Path, folder: Path, *, ids: Sequence[str], label: str | None, exclude: Sequence[str]
) -> tuple[Data, dict[str, str]]:
    """What `[data]` says of a table, and why columns are left out: all others are used as what they are.

    Args:
        table: a Parquet or CSV file.
        folder: of the party.
        ids: the columns that name a row.
        label: the column to be learnt; None of a feature party.
        exclude: columns that are not used.
    """
    check_columns(table, [*ids, *([] if label is None else [label]), *exclude])
    taken = {*ids, *exclude, *(() if label is None else (label,))}
    found = kinds(table, taken)
    left_out = {one.name: one.why for one in found if one.what == "left out"}
    columns: dict[str, Any] = {what: tuple(names) for what, names in by_kind(found)}
    if label is None and not any(columns.values()):
        raise UsageError(f"{table} has no column to learn from: {_listed(left_out)}")
    inside = table.resolve().is_relative_to(folder.resolve().parent)
    path = os.path.relpath(table.resolve(), folder.resolve()) if inside else str(table.resolve())
    return Data(path=path, ids=tuple(ids), label=label, **columns), left_out | dict.fromkeys(exclude, "is excluded")


def _listed(left_out: Mapping[str, str]) -> str:
    return "; ".join(f"{name!r} {why}" for name, why in left_out.items()) or "it has ids alone"


def row_count(table: Path) -> int:
    """How many rows a table has."""
    return sum(len(block) for block in blocks(table, columns_in(table)[:1]))


def missing_option(option: str, what: str, table: Path) -> UsageError:
    """An option without which a table can't be read, with the columns that there are."""
    return UsageError(f"{option} is missing: say {what}; {table} has: {', '.join(columns_in(table))}")


# --- labels ----------------------------------------------------------------------------------------------------------


def read_labels(table: Path, column: str, mode: Mode) -> dict[str, Any]:
    """What a contract says of the labels of a table: keys of it, with their values."""
    check_columns(table, [column])
    counts = _counts(block[column] for block in blocks(table, [column]))
    words = sorted(counts)
    if len(words) == 2:
        found = {} if set(words) <= {"0", "1"} else {"positive": _positive(counts)}
        share = counts[found.get("positive", "1")] / sum(counts.values())
        if mode == "one_shot" and not _RARE <= share <= 1 - _RARE:
            found["rare"] = "positive" if share < _RARE else "negative"
        return found
    numbers, odd = PLAIN.read(pl.Series(words, dtype=pl.String))
    classes: dict[str, Any] = {"loss": "softmax"} if mode == "split" else {"classes": len(words)}
    if 2 < len(words) <= _CLASSES:
        if not odd.any() and sorted(numbers.tolist()) == list(range(len(words))):
            return classes
        if odd.any():
            return {**classes, "class_names": words}
    if mode == "split" or odd.any() or len(words) < 2:  # what is wrong is told by a check of the whole table
        return {}
    low, high = _range(numbers, np.array([counts[word] for word in words]))
    return {"target": "number", "low": low, "high": high}


def _counts(columns: Iterable[pl.Series]) -> dict[str, int]:
    """How often each label is there, by its spelling."""
    empty = pl.DataFrame(schema={"word": pl.String, "count": pl.UInt32})
    each = [PLAIN.words(column).drop_nulls().alias("word").value_counts(name="count") for column in columns]
    return dict(pl.concat([empty, *each]).group_by("word").agg(pl.col("count").sum()).iter_rows())


def _positive(counts: Mapping[str, int]) -> str:
    """Which of two labels is to be found: the one that says yes, else the rarer one."""
    words = sorted(counts, key=lambda word: (counts[word], word))
    values, _ = PLAIN.read(pl.Series(words, dtype=pl.String))
    return words[int(np.flatnonzero(values == 1)[0])] if sorted(values.tolist()) == [0.0, 1.0] else words[0]


def _range(numbers: NDArray[np.float64], counts: NDArray[np.int64]) -> tuple[float, float]:
    """A range that holds nearly all labels, so coarse that it says nothing of a single one."""
    order = np.argsort(numbers)
    values, share = numbers[order], np.cumsum(counts[order]) / counts.sum()
    first, last = (float(values[np.searchsorted(share, one)]) for one in (_TAIL, 1 - _TAIL))
    step = 10.0 ** math.floor(math.log10(last - first)) if last > first else 1.0
    low, high = math.floor(first / step) * step, math.ceil(last / step) * step
    return (0.0 if first >= 0 and low <= step else low), high if high > low else low + step
