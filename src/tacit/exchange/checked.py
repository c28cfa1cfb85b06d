"""Checking a feature party's book: cells that were sent, worked out again from the rows that they were of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.align.encoder import Encoder
from tacit.align.ids import Ids, read_ids
from tacit.align.sources import blocks
from tacit.company.departures import column_digests, row_keys
from tacit.company.folder import Folder
from tacit.company.shipments import Shipments
from tacit.errors import StorageError, TacitError
from tacit.exchange.cells import Cells
from tacit.exchange.learn import load_bottom
from tacit.exchange.releasing import shown
from tacit.labels.records import Keys, Places
from tacit.serve.halves import encoded, trained_encoder

_SOME = 1 << 16  # rows of the book at a time


@dataclass(frozen=True)
class Checked:
    """What a check of the book has come to, in rows; one that was sent in several versions counts in each."""

    same: int  # whose cells are what their columns give today
    changed: int  # whose columns are others than when they were sent
    gone: int  # that are not in the party's table
    others: int  # of runs whose model or columns are not here


def check_sent(folder: Folder, book: Shipments) -> Checked:
    """Compare each cell that was ever sent; a `StorageError` where one is not what its row's columns give."""
    if missing := book.missing():
        raise StorageError(
            f"{book.path}: of what left in trainings it has {missing:,} rows too few or too many: bring it back from a "
            "backup"
        )
    ids = read_ids(folder.data, folder.table.ids)
    places, same, changed, gone, others = Places(row_keys(folder, ids.hashes)), 0, 0, 0, 0
    for run in sorted({one.run for one in book.all()}):
        try:
            digests, codes = _again(folder, folder.path / "runs" / run, ids)
        except (TacitError, OSError, ValueError, KeyError):
            others += sum(1 for _ in book.sent(run))
            continue
        sent = book.sent(run)
        while some := list(islice(sent, _SOME)):
            for at, (_, stored, columns) in zip(places.of(key for key, _, _ in some).tolist(), some, strict=True):
                if at < 0:
                    gone += 1
                elif columns != digests[at].tobytes():
                    changed += 1
                elif stored != codes[at].tobytes():
                    raise StorageError(
                        f"{book.path}: in run {run!r} a row's columns are what they were, and its cells are not what "
                        "they give: bring the book, or the run's folder, back from a backup"
                    )
                else:
                    same += 1
    return Checked(same, changed, gone, others)


def _again(folder: Folder, where: Path, ids: Ids) -> tuple[Keys, NDArray[np.uint8]]:
    """Digests of the columns of the table's rows, and what a run would send of them."""
    encoder: Encoder = trained_encoder(folder, where, None)
    cells = Cells.read(json.loads((where / "release" / "release.json").read_bytes())["cells"])
    withheld = json.loads((where / "learned" / "withheld.json").read_bytes())
    bottom, digests, codes, start = load_bottom(where / "learned"), [], [], 0
    for block in blocks(folder.data, list(encoder.columns.names)):
        kept = ids.rows[slice(*np.searchsorted(ids.rows, [start, start + len(block)]))]
        start += len(block)
        if len(kept):
            inputs = encoded(encoder, block[kept - start + len(block)], kept)
            digests.append(column_digests(folder, inputs))
            codes.append(cells.code(bottom.embed(shown(inputs, encoder.columns, withheld))))
    return np.concatenate(digests), np.concatenate(codes)
