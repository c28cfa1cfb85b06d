"""What ever left of a feature party's rows: the book by which later embeddings are attacked with all before them, and
what the budgets of predictions and services rest on. How much there is of each is counted apart from the folder.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.company.aligned import Log, counted_facts
from tacit.company.facts import PREDICTION
from tacit.company.folder import Folder
from tacit.company.shipments import Shipments
from tacit.labels.records import Keys, keyed
from tacit.labels.tally import Counted, Restored, Tally
from tacit.report.run_files import MARK, SERVED

_EMBEDDINGS = Counted(
    "what this party ever sent of its columns in one exchange",
    "its book of embeddings has {} entries, and {} were made",
    "What it has forgotten would not be attacked together with what leaves next: bring back the newest copy, "
    "embeddings/book.sqlite in it",
)
_SERVED = Counted(
    "the different rows of this run that left for serving",
    "its served.bin knows of {} rows, and {} have left",
    "Rows that left would be in no budget: bring back the newest copy, served.bin in it",
)


def book_of(folder: Folder) -> Shipments:
    """The book, to read in."""
    return Shipments(folder.path / "embeddings")


@contextmanager
def counted_book(folder: Folder, restored: Restored | None = None) -> Iterator[Shipments]:
    """The book, to write in: how many entries it has is counted apart from the folder, before anything leaves.

    What it has forgotten would not be attacked together with what leaves next. Where somebody answers for going on from
    an older copy of the folder, `restored` is told what is missing.
    """
    book = book_of(folder)
    with Tally(folder.tally_path_of("embeddings"), restored, _EMBEDDINGS).around(lambda: book.entries):
        yield book


def row_keys(folder: Folder, hashes: NDArray[np.uint8]) -> Keys:
    """What the book calls rows with these hashes of their ids, in every run."""
    return keyed(hmac.digest(folder.secret, b"tacit embeddings 1", "sha256"), hashes, "row")


def predictions(folder: Folder) -> Log:
    """What left for predictions and services in all runs, or was asked for: rows asked for by key count over all."""
    return Log(folder, PREDICTION)


def served_tally(folder: Folder, where: Path, restored: Restored | None = None) -> Tally:
    """Counts the different rows of a run that left for serving."""
    return Tally(folder.tally_path_of(f"served-{where.name}"), restored, _SERVED)


def go_on_predicting(folder: Folder, where: Path, restored: Restored | None) -> None:
    """Count anew from what the folder has, where somebody answers for that; else nothing."""
    if restored is None:
        return
    with counted_facts(folder, PREDICTION, restored):
        pass
    marks = where / SERVED
    with served_tally(folder, where, restored).around(lambda: marks.stat().st_size // MARK if marks.exists() else 0):
        pass
