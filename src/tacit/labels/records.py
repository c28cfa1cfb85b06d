"""What the label party's book is asked with and what it answers."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import StorageError, UsageError

Keys = NDArray[np.uint8]  # by which rows or units are known for good (rows, 16)


def keyed(secret: bytes, hashes: NDArray[np.uint8], what: str) -> Keys:
    """Keys of rows or units from the hashes of their ids: without the secret no id can be tried."""
    state = hashlib.blake2b(key=secret, digest_size=16, person=f"tacit {what}".encode()[:16])
    found, raw, size = bytearray(), np.ascontiguousarray(hashes).reshape(-1).data, hashes.shape[1]
    for place in range(0, len(raw), size):
        hashed = state.copy()
        hashed.update(raw[place : place + size])
        found += hashed.digest()
    return np.frombuffer(found, np.uint8).reshape(-1, 16)


def in_order(keys: Keys) -> NDArray[np.intp]:
    """The places of keys in their order, in which SQLite finds and enters many of them fast; no two may be equal."""
    first, second = np.ascontiguousarray(keys).view(">u8").T
    order = np.argsort(first.astype(np.uint64))
    halves = first[order]
    if not (halves[1:] == halves[:-1]).any():  # the rule: 8 bytes tell any two apart
        return order
    order = np.lexsort((second, first))
    halves, others = first[order], second[order]
    same = int(((halves[1:] == halves[:-1]) & (others[1:] == others[:-1])).sum())
    if same:
        raise UsageError(
            f"{same} rows have the key of another row, and so would have its coins: "
            "coin_id must name every row once (with the row's place in its unit)"
        )
    return order


class Places:
    """Where keys stand among others, of which many are looked for at a time."""

    def __init__(self, keys: Keys) -> None:
        self._whole = np.ascontiguousarray(keys).view("V16")[:, 0]
        self._order = np.argsort(self._whole, kind="stable")

    def of(self, keys: Iterable[bytes]) -> NDArray[np.intp]:
        """The place of each of these, -1 for those that are not there."""
        asked = np.frombuffer(b"".join(keys), "V16")
        if not len(self._whole):
            return np.full(len(asked), -1)
        at = np.searchsorted(self._whole, asked, sorter=self._order)
        place = self._order[np.minimum(at, len(self._order) - 1)]
        return np.where(self._whole[place] == asked, place, -1)


def sealed(secret: bytes, run_id: str, parameters: str, keys: Keys, sent: NDArray[Any]) -> str:
    """What only the secret's owner can make of a release: a row of it that was changed by hand is noticed."""
    whole = hashlib.sha256()
    arrays = (np.ascontiguousarray(each).data for each in (keys, sent))  # views: a copy of many rows is large
    for part in (memoryview(run_id.encode()), memoryview(parameters.encode()), *arrays):
        whole.update(part.nbytes.to_bytes(8, "big"))
        whole.update(part)
    return hmac.digest(secret, b"release" + whole.digest(), "sha256").hex()


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Whatever SQLite refuses in here is a `StorageError` about this book."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(
            f"{path}: {error}: look at the disk and at who else uses it, then give the same command again"
        ) from error


def sums_refused(path: Path) -> StorageError:
    """What is said of a book of a kind of release that is gone."""
    return StorageError(
        f"{path}: this book holds open or hidden sums, which commit cfcd690b of Tacit is the last one to read: go on "
        "with that one"
    )


@dataclass(frozen=True)
class Rows:
    """The rows of a release, in the order in which their bits leave."""

    keys: Keys  # by which the label party knows each row for good. (rows, 16)
    units: Keys  # by which rows that count together are known; the keys themselves where every row counts alone
    labels: NDArray[np.int64]  # as they are now; -1 where a row has none. (rows,)


@dataclass(frozen=True)
class Terms:
    """What labels are, who gets what is released of them, and what all releases together may come to."""

    run: str  # the contract's run, for people
    partners: tuple[str, ...]  # who gets it
    label: str  # the column
    definition: str  # what its values mean; other values of the same column are other labels
    unit: str = "row"  # what is counted: "row", or a column's name. A book has one for good
    # the columns that name a row. A book has them for good, too: by others a row would have new coins
    coin_id: tuple[str, ...] = ()
    budget: float | None = None  # the leak AUC that all releases together may reach for any unit; None for no budget
    odds_budget: float | None = None  # likewise, the factor of the odds
    epoch: int = 0  # of the coins; another one draws them all anew, and costs as much again

    @property
    def coin(self) -> tuple[str, str, int]:
        """What the coins hang on beside the secret and the row."""
        return self.label, self.definition, self.epoch


@dataclass(frozen=True)
class Price:
    """What a release would cost."""

    rows: int  # that are asked for
    new: int  # of them that were never asked for under these coins
    raised: int  # that were, under a lower limit
    unpaid: int  # that no budget has room for
    auc: float  # that all releases together would come to, of the unit that is told most about
    odds: float  # likewise


@dataclass(frozen=True)
class Charge:
    """What all releases together tell about a unit."""

    units: int  # how many units have this much
    auc: float  # with which whoever knows everything else tells two labels of it apart, at most
    odds: float  # the factor by which the odds of its label change, at most
    releases: str  # the mechanisms that its rows went through, in words


@dataclass(frozen=True)
class Release:
    """One release, as the book has it."""

    run: str  # the contract's run
    time: str  # when it was entered
    partners: tuple[str, ...]  # who gets it
    label: str  # the column
    parameters: Mapping[str, Any]  # of the mechanism
    rows: int  # how many
    auc: float  # of a row in this release alone
    odds: float  # likewise


@dataclass(frozen=True)
class Summary:
    """The whole book."""

    unit: str  # what is counted: "row", or a column's name
    releases: tuple[Release, ...]  # all of them, oldest first
    charges: tuple[Charge, ...]  # what the units have come to, the most first
    labels: int  # frozen ones

    @property
    def auc(self) -> float:
        """Of the unit that was told most about."""
        return max((one.auc for one in self.charges), default=0.5)

    @property
    def odds(self) -> float:
        """Likewise."""
        return max((one.odds for one in self.charges), default=1.0)


@dataclass(frozen=True)
class Checked:
    """What a check of the whole book saw: so many bits of so many releases are what the secret and the labels give."""

    releases: int
    bits: int
