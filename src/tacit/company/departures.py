"""A feature party's book of what ever left of its rows, by which later embeddings are attacked with all before them."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from tacit.company.folder import Folder
from tacit.one_shot.records import Keys, keyed
from tacit.one_shot.shipments import Shipments
from tacit.wire.tally import EMBEDDINGS, Tally


def book_of(folder: Folder) -> Shipments:
    """The book, to read in."""
    return Shipments(folder.path / "embeddings")


@contextmanager
def counted_book(folder: Folder, restored: Callable[[str], None] | None = None) -> Iterator[Shipments]:
    """The book, to write in: how many entries it has is counted apart from the folder, before anything leaves.

    What it has forgotten would not be attacked together with what leaves next. Where somebody answers for going on from
    an older copy of the folder, `restored` is told what is missing.
    """
    book = book_of(folder)
    with Tally(folder.embeddings_tally_path, restored, EMBEDDINGS).around(lambda: book.entries):
        yield book


def row_keys(folder: Folder, hashes: NDArray[np.uint8]) -> Keys:
    """What the book calls rows with these hashes of their ids, in every run."""
    return keyed(hmac.digest(folder.secret, b"tacit embeddings 1", "sha256"), hashes, "row")
