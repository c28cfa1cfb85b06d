"""The ids of a table in the order of their hashes' bytes, however many there are: few in memory, many in files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.curve import byte_order
from tacit.align.ids import Ids, Reading, distinct, without_repeats
from tacit.align.parts import Parts, Records
from tacit.align.sources import Source
from tacit.disk import make_folder, opened, write_at

HELD = 1 << 20
"""Ids that are held in memory; more of them go to files."""

_HASH, _ROW = 32, 8


def sorted_ids(source: Source, columns: str | Sequence[str], folder: Path) -> Ids:
    """What `read_ids` gives, with all rows of an id left out that several rows have, in the order of the hashes' bytes.

    Where there are many, the arrays are mapped from files in the folder.
    """
    reading, hashes, rows = Reading(source, columns), bytearray(), bytearray()
    parts: Parts | None = None
    for some, at in reading.blocks():
        hashes += some
        rows += at.tobytes()
        if len(rows) >= HELD * _ROW:
            if parts is None:
                make_folder(folder)
                parts = Parts(folder, "ids", _HASH + _ROW)
            _pour(hashes, rows, parts)
    if parts is None:
        ids = without_repeats(reading, hashes, rows)
        order = byte_order(ids.hashes)
        return Ids(np.take(ids.hashes, order, axis=0), ids.rows[order], ids.report)
    _pour(hashes, rows, parts)
    return _sorted(reading, parts, folder)


def _pour(read: bytearray, at: bytearray, parts: Parts) -> None:
    """Move what was read to the parts; of an id that is there many times the first two rows are enough to know it."""
    hashes = np.frombuffer(bytes(read), np.uint8).reshape(-1, _HASH)
    rows = np.frombuffer(bytes(at), np.uint8).reshape(-1, _ROW)
    read.clear()
    at.clear()
    order = byte_order(hashes)
    ordered = np.take(hashes, order, axis=0).view(np.uint64)
    same = (ordered[1:] == ordered[:-1]).all(axis=1)
    keep = np.ones(len(hashes), np.bool_)
    keep[order[2:][same[1:] & same[:-1]]] = False
    records = np.concatenate([hashes, rows], axis=1)[keep]
    parts.add(records, np.ascontiguousarray(records[:, 0]))


def _sorted(reading: Reading, parts: Parts, folder: Path) -> Ids:
    """One part after the other, which is in the order of the first byte."""
    kept = repeated = 0
    examples: list[tuple[int, int]] = []
    paths = folder / "hashes", folder / "rows"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with opened(paths[0], flags) as hashes_fd, opened(paths[1], flags) as rows_fd:
        for part in parts:
            hashes, rows = _columns(part)
            keep, several, example = distinct(hashes)
            repeated += several
            if example is not None:
                examples.append((int(rows[example[0]]), int(rows[example[1]])))
            hashes, rows = hashes[keep], rows[keep]
            order = byte_order(hashes)
            write_at(hashes_fd, paths[0], [np.take(hashes, order, axis=0).data], kept * _HASH)
            write_at(rows_fd, paths[1], [rows[order].data], kept * _ROW)
            kept += len(rows)
    report = reading.report(repeated, reading.total - reading.missing - kept, min(examples, default=None))
    hashes = np.memmap(paths[0], np.uint8, "r", shape=(kept, _HASH))
    return Ids(hashes, np.memmap(paths[1], np.int64, "r"), report)


def _columns(part: Records) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Hashes and row numbers of records."""
    hashes, rows = (np.ascontiguousarray(each) for each in (part[:, :_HASH], part[:, _HASH:]))
    return hashes, rows.view(np.int64)[:, 0]
