"""What a label party says about its labels, to whom it was agreed, once: flips, or sums over groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit.align.ids import read_ids
from tacit.config import ODDS_BUDGET, OneShotContract
from tacit.contracts import Message
from tacit.errors import DataError, ProtocolError, RefusedError
from tacit.one_shot.book import Book, Terms, open_book
from tacit.one_shot.certificate import Certificate, certify
from tacit.one_shot.exchange import packed
from tacit.one_shot.mechanisms import Mechanism, outcomes
from tacit.one_shot.numbers import NumberFlips
from tacit.one_shot.records import Rows
from tacit.one_shot.sums import Sums
from tacit.one_shot.target import Target
from tacit.party.align import Aligned
from tacit.party.folder import Folder
from tacit.party.one_shot_common import id_hashes, run_id
from tacit.wire.tally import COINS, Tally

__all__ = ["Answers"]


@dataclass
class Answers:
    """The answers of one run, from the party's book: entered, frozen and paid for before they leave.

    Attributes:
        folder: of the label party.
        contract: what was agreed on.
        rows: that are aligned.
        train: how many of them are trained on, and answered about.
        target: the labels.
        mechanism: that is used.
        restored: told what is missing where somebody answers for going on from an older copy of the folder.
        sent: what left of each row, once they are prepared; None where sums are asked for.
    """

    folder: Folder
    contract: OneShotContract
    rows: Aligned
    train: int
    target: Target
    mechanism: Mechanism
    restored: Callable[[str], None] | None = None
    sent: NDArray[Any] | None = None

    def prepare(self) -> None:
        """At home: flip every label, or see that sums over groups can be paid for. What can't be is an error now."""
        with self._book() as book:
            asked = self._rows = self._asked(book)
            if isinstance(self.mechanism, Sums):
                names = [f"{self._run_id} {name}" for name in self.contract.feature_parties]
                book.afford(names, asked, self.mechanism, self._terms(self.contract.feature_parties))
                return
            terms = self._terms(self.contract.feature_parties)
            self.sent = book.release(self._run_id, asked, self.mechanism, terms)
            self._flips = packed(self.sent, outcomes(self.mechanism))

    def tell(self, name: str, message: Message) -> Message:
        """The answer to a feature party's question; the same as often as it asks."""
        if not isinstance(self.mechanism, Sums):
            return Message(message.step, "flips", self._flips, b"")
        groups = message.payload.numpy()
        try:
            with self._book() as book:
                asked = f"{self._run_id} {name}"
                sent = book.release(asked, self._rows, self.mechanism, self._terms((name,)), groups=groups)
        except ProtocolError as error:
            raise RefusedError("groups", str(error)) from None
        return Message(message.step, "sums", torch.from_numpy(sent.copy()), b"")

    def certificate(self) -> Certificate:
        """Of what was sent, with everything that was sent before."""
        share = float(self.target.values[self.target.known].mean()) if self.target.classes == 2 else None
        with self._book() as book:
            delta = self.folder.config.delta
            return certify(self.mechanism, self.train, book.summary(delta), share, delta)

    @property
    def _run_id(self) -> str:
        return run_id(self.contract, self.rows)

    @contextmanager
    def _book(self) -> Iterator[Book]:
        """The party's book; how many releases it has is counted apart from the folder, before anything leaves."""
        with ExitStack() as stack:
            book = open_book(self.folder.path / "coins", self.folder.secret)
            stack.callback(book.close)
            tally = Tally(self.folder.coins_tally_path, self.restored, COINS)
            stack.callback(tally.close)
            tally.begin(begun=book.releases > 0)
            tally.check(book.releases, book.releases)
            yield book
            tally.reach(book.releases)

    def _terms(self, partners: tuple[str, ...]) -> Terms:
        config = self.folder.config
        label = self.folder.table.label
        assert label is not None  # a label party's settings were checked
        return Terms(
            run=self.contract.run,
            partners=partners,
            label=label,
            definition=self.target.definition,
            unit=self.contract.exchange.unit,
            coin_id=self.folder.table.coin_id or self.folder.table.ids,
            budget=config.spendable,
            odds_budget=ODDS_BUDGET if config.odds_budget is None else config.odds_budget,
            delta=config.delta,
            epoch=self.folder.table.coin_epoch,
        )

    def _asked(self, book: Book) -> Rows:
        keys, units = _keys(self.folder, self.contract, self.rows, book)
        labels = np.where(self.target.known, self._cells(), -1).astype(np.int64)
        return Rows(keys[: self.train], units[: self.train], labels[: self.train])

    def _cells(self) -> NDArray[np.int64] | NDArray[np.float64]:
        """Class numbers, or the cells of numbers."""
        values, exchange = self.target.values, self.contract.exchange
        if isinstance(self.mechanism, NumberFlips):
            return self.mechanism.cell_of(values)
        if self.target.kind == "classes":
            return values
        assert exchange.low is not None  # the contract was checked
        assert exchange.high is not None
        inside = np.clip(np.nan_to_num(values), exchange.low, exchange.high)
        step = (exchange.high - exchange.low) / (exchange.cells - 1)
        cells: NDArray[np.float64] = np.rint((inside - exchange.low) / step)
        return cells


def _keys(
    folder: Folder, contract: OneShotContract, rows: Aligned, book: Book
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """By what each aligned row is known for good, and its unit."""
    names = list(folder.table.coin_id or folder.table.ids)
    try:
        hashes = id_hashes(folder, rows, names)  # of the whole table: coins are for good
    except DataError as error:
        raise DataError(f"coin_id = {names}: {error}") from None
    keys = book.keys_of(hashes, "row")
    unit = contract.exchange.unit
    if unit == "row":
        return keys, keys
    column = rows.table(folder.data, [unit])[unit]
    if column.null_count():
        row = int(np.asarray(rows.rows)[int(column.is_null().arg_max() or 0)])
        raise DataError(f"unit = {unit!r}: row {row} of {folder.data} has none: fill it in, or leave the row out")
    values = column.cast(pl.String).unique(maintain_order=True)
    hashed = book.keys_of(read_ids(values.to_frame("unit"), "unit", duplicates="error").hashes, "unit")
    codes = (
        column.cast(pl.String)
        .to_frame("unit")
        .join(pl.DataFrame({"unit": values, "code": np.arange(len(values))}), on="unit", maintain_order="left")["code"]
    )
    return keys, hashed[codes.to_numpy()]
