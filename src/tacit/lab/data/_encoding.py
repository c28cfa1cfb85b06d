"""Encoded rows as files that are mapped into memory: row after row, training and test rows apart, sorted by day."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from tacit.align._mapped import mapped, writing
from tacit.lab.data._cells import DAY
from tacit.lab.data._fitting import Scale, Vocabulary
from tacit.lab.data.rows import Rows

__all__ = ["Days", "Encoder", "opened", "write_rows"]

Days = dict[int, int]
"""For each day the number of its rows; a table without days has all of them on day 0."""


@dataclass(frozen=True)
class Encoder:
    """What was learnt, by the names of the columns.

    Attributes:
        vocabularies: of the categorical columns.
        scales: of the numeric columns.
        label: the column of the label.
        parts: the columns of each file of codes and of numbers, by the file's name.
        first_day: is day 0; None where there are no days.
    """

    vocabularies: Mapping[str, Vocabulary]
    scales: Mapping[str, Scale]
    label: str
    parts: Mapping[str, tuple[str, ...]]
    first_day: int | None

    def encode(self, table: pl.DataFrame) -> dict[str, NDArray[Any]]:
        """A block of rows for each file."""
        found: dict[str, NDArray[Any]] = {"labels": table[self.label].to_numpy().astype(np.float32)}
        for name, columns in self.parts.items():
            block = np.empty((len(table), len(columns)), _dtype(name))
            for place, column in enumerate(columns):
                known = self.vocabularies[column] if name.endswith("codes") else self.scales[column]
                block[:, place] = known.encode(table[column])
            found[name] = block
        if self.first_day is not None:
            found["days"] = table[DAY].to_numpy().astype(np.int64) - self.first_day
        return found


@contextmanager
def write_rows(folder: Path, side: str, encoder: Encoder, days: Days) -> Iterator[_Writing]:
    """Files of one side ("train" or "test") for rows that come in the source's order, so many on each day."""
    names = ["labels", *encoder.parts, *(() if encoder.first_day is None else ("days",))]
    counts = [days[day] for day in sorted(days)]
    starts = dict(zip(sorted(days), accumulate(counts, initial=0), strict=False))
    with ExitStack() as files, writing(folder):
        opened = {name: files.enter_context((folder / f"{side}-{name}.bin").open("wb")) for name in names}
        yield _Writing(encoder, {name: file.fileno() for name, file in opened.items()}, starts)
        for file in opened.values():
            os.fsync(file.fileno())


@dataclass(frozen=True)
class _Writing:
    encoder: Encoder
    files: Mapping[str, int]
    next: Days  # for each day the place of its next row

    def add(self, table: pl.DataFrame) -> None:
        """Encode these rows and put them behind those of their day. Written, not mapped: that takes no memory."""
        blocks = self.encoder.encode(table)
        days = table[DAY].to_numpy() if self.encoder.first_day is not None else np.zeros(len(table), np.int32)
        order = np.argsort(days, kind="stable")
        ordered = bool((order == np.arange(len(order))).all())
        found, starts = np.unique(days[order], return_index=True)
        for day, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            for name, file in self.files.items():
                block = blocks[name][rows[0] : rows[-1] + 1] if ordered else blocks[name][rows]
                row_bytes = block.itemsize * (block.shape[1] if block.ndim == 2 else 1)
                _write_all(file, block.tobytes(), self.next[day] * row_bytes)
            self.next[day] += len(rows)


def _write_all(file: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        done = os.pwrite(file, view, at)
        view, at = view[done:], at + done


def _dtype(name: str) -> str:
    return "int64" if name == "days" else "int32" if name.endswith("codes") else "float32"


def opened(folder: Path, side: str, rows: int, widths: Mapping[str, int], with_days: bool) -> Rows:
    """The rows of one side, mapped; a file of another size is a ValueError, and one that is missing an OSError."""

    def tensor(name: str, *width: int) -> Tensor:
        return mapped(folder / f"{side}-{name}.bin", _dtype(name), [rows, *width])

    found = {name: tensor(name, width) for name, width in widths.items()}
    own = (found["own_codes"], found["own_numbers"]) if "own_codes" in found else ()
    days = tensor("days") if with_days else None
    return Rows((found["codes"], found["numbers"]), own, tensor("labels"), days)
