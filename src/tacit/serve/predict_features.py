"""A feature party's part of a prediction: it finds the rows that are asked for, embeds them, and sends them once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit.align.arrays import let_go, new_file, pieces, places_in
from tacit.align.cache import file_facts
from tacit.align.curve import best_engine
from tacit.align.ids import Ids, read_ids
from tacit.align.sources import blocks, check_columns
from tacit.company.aligned import aligned
from tacit.company.departures import counted_book, counted_predictions, row_keys
from tacit.company.folder import Folder
from tacit.company.meeting import meet
from tacit.contracts import Link, Message
from tacit.disk import remove
from tacit.errors import DataError, LinkError, RefusedError
from tacit.one_shot.parts import part
from tacit.one_shot.records import Keys
from tacit.one_shot.shipments import Shipment, version_of
from tacit.serve.conversation import (
    Telling,
    check_keyed,
    feature_limits,
    following,
    heard,
    private_match,
    purpose,
    record,
)
from tacit.serve.exchange_half import ExchangeEmbedder
from tacit.serve.halves import Embedder
from tacit.serve.job import Job, Matched, forget_sent, last_sent, parts, stored_rows, tidy
from tacit.serve.tokens import TokenTable, token_key
from tacit.wire.codec import control
from tacit.wire.line import last_words

PATIENCE = 60.0
"""Seconds for which a label party is looked for that may have got everything and gone."""

_UNFINISHED, _DAYS = 8, 30  # predictions that a label party may leave unfinished here, and for how long

_STATE = {"job": str, "rows": int, "matched": str}


@dataclass(frozen=True)
class Delivered:
    """What a feature party has sent."""

    job: str  # the name of the prediction
    to: str  # who got it
    rows: int  # that were asked for
    known: int  # of them in this party's table
    size: int  # bytes of the embeddings
    confirmed: bool = True  # whether it has said that all of it came; if not, it was gone before it could


class _AwayError(Exception):
    """The label party can't be found, and may have all it wanted."""


@dataclass(frozen=True)
class Delivering:
    """A feature party that answers a label party's prediction."""

    folder: Folder  # of the party
    where: Path  # the run's folder
    embedder: Embedder  # its half
    source: Path  # its table
    match: str  # how ids are matched
    telling: Telling  # told how far it is
    # the name of the prediction whose embeddings have begun to leave. One command gives one: a peer that hangs up with
    # its answer would else come back for other rows
    left: list[str] = field(default_factory=list)

    def until_delivered(self) -> Delivered:
        """Talk with the label party until it has everything."""
        self._check()
        folder, limits, peer = self.folder, feature_limits(), self.folder.terms.label_party
        hello = purpose(self.match, {peer: self.embedder.version})
        while True:
            sent, alarm = last_sent(self.where, self._facts), self.telling.alarm
            waiting = self.telling.waiting if sent is None else self._for_a_while
            try:
                links = meet(folder, folder.terms, None, limits, waiting=waiting, alarm=alarm, purpose=hello)
            except _AwayError:
                assert sent is not None
                forget_sent(self.where)
                name, about = sent
                return Delivered(name, peer, about["rows"], about["known"], about["size"], confirmed=False)
            try:
                delivered = self._session(links[peer])
            except RefusedError as error:
                last_words(links[peer], error)
                raise
            except LinkError as error:
                self.telling.waiting(peer, 0.0, str(error))
            else:
                if delivered is not None:
                    return delivered
            finally:
                links[peer].close()

    def _for_a_while(self, peer: str, seconds: float, why: str) -> None:
        if seconds > PATIENCE:
            raise _AwayError
        self.telling.waiting(peer, seconds, f"all was sent; {why}")

    def _check(self) -> None:
        """What can't be embedded, and what an older copy of the folder has forgotten, is told before anybody is met."""
        with counted_predictions(self.folder):
            pass  # the records know of everything that left
        check_columns(self.source, [*self._ids_columns, *self.embedder.columns])
        first = next(blocks(self.source, list(self.embedder.columns)), None)
        if first is None:
            raise DataError(f"{self.source} has no rows: name the table with the rows that are asked for")
        self.embedder.embed(first[:64])

    @property
    def _ids_columns(self) -> tuple[str, ...]:
        return self.folder.table.ids

    @cached_property
    def _facts(self) -> dict[str, object]:
        return {"table": file_facts(self.source), "match": self.match, "half": self.embedder.digest}

    @cached_property
    def _ids(self) -> Ids | TokenTable:
        """Of the table, as they are needed for the way in which they are matched."""
        self.telling.progress("reading ids", 0, 0)
        found: Ids | TokenTable
        if self.match == "keyed":
            key, folder = token_key(aligned(self.folder)), self.where / "predictions"
            found = TokenTable.read(self.source, self._ids_columns, key, folder)
        else:
            found = read_ids(self.source, self._ids_columns)
        self.telling.report(str(found.report))
        return found

    def _session(self, link: Link) -> Delivered | None:
        """What is done over one link; None where it is to be made again for what comes next."""
        said = heard(link, "hello", 1, _STATE, self.telling, "it does not say what it asks for")
        self._refuse_others(link.peer, bool(self.left) and said["job"] not in self.left)
        job = Job(self.where, said["job"], self._facts)
        forget_sent(self.where, but=job.name)
        if gone := tidy(self.where, job.name, most=_UNFINISHED, days=_DAYS):
            self.telling.report(f"{gone} predictions that {link.peer} began and did not end were removed here")
        most = self.folder.terms.alignment.largest_set
        if not 0 <= said["rows"] <= most:
            raise RefusedError("rows", f"{link.peer} asks for {said['rows']} rows, the contract allows {most}")
        asked = job.matched
        if asked is None or asked.id != said["matched"]:
            _ = self._ids  # before it is answered: who sends what nobody takes for half a minute hangs up
        link.send(control("hello", 1, {"matched": "" if asked is None else asked.id, "half": self.embedder.digest}))
        again = heard(link, "hello", 2, {"match": bool}, self.telling, "it does not answer")["match"]
        self._refuse_others(link.peer, bool(self.left) and again)
        if again or asked is None or asked.id != said["matched"]:
            if not again:
                raise RefusedError("matched", f"{link.peer} goes on with rows that were not matched here")
            self._match(link, job, said["rows"])
            return None
        return self._deliver(link, job, asked)

    def _refuse_others(self, peer: str, others: bool) -> None:
        if others:
            raise RefusedError(
                "job",
                f"{peer} has been answered and now asks for other rows: nobody is answered twice by one command; ask "
                "there what happened, then give the same command again on all sides",
            )

    # --- which rows ---

    def _match(self, link: Link, job: Job, count: int) -> None:
        """Settle with the label party which rows are asked for."""
        job.discard()
        ids = self._ids
        if isinstance(ids, TokenTable):
            self._take_tokens(ids, link, job, count)
        else:
            with best_engine() as engine:
                found = private_match(self.folder, ids, engine, {link.peer: link}, self.telling)
            job.settle(found.id, ids.rows[found.positions])
        self.telling.trace("matched")

    def _take_tokens(self, table: TokenTable, link: Link, job: Job, count: int) -> None:
        """Look up every row that is asked for; one that is not in the table stays among them, as unknown."""
        hashed, step, done = hashlib.sha256(), 0, 0
        rows: NDArray[np.int64] = new_file(job.folder / "asked", "int64", [count])
        before: NDArray[np.uint8] = new_file(job.folder / "before", "uint8", [table.report.total])  # was it asked for?
        while done < count:
            message = following(link, self.telling.waiting, "its tokens are to come")
            tokens = message.payload.numpy()
            if (message.kind, message.step) != ("tokens", step) or not 0 < len(tokens) <= count - done:
                raise RefusedError("tokens", f"a {message.kind} {message.step} of {len(tokens)} came after {done} rows")
            found = table.directory.rows(tokens)
            there = np.sort(found[found >= 0])
            if before[there].any() or (there[1:] == there[:-1]).any():
                raise RefusedError("tokens", f"{link.peer} asks for a row more than once in one prediction")
            before[there] = 1
            rows[done : done + len(tokens)] = found
            let_go(before)
            let_go(rows)
            hashed.update(tokens.tobytes())
            done, step = done + len(tokens), step + 1
            self.telling.progress("looking rows up", done, count)
        digest = hashed.hexdigest()
        job.settle(digest, rows)
        for name in ("asked", "before"):
            remove(job.folder / name)
        link.send(control("hello", 3, {}))

    # --- what leaves ---

    def _deliver(self, link: Link, job: Job, asked: Matched) -> Delivered:
        """Send the embeddings."""
        width = 1 + self.embedder.width
        vars(self).pop("_ids", None)  # they are read again where rows are matched again
        if self.match == "keyed":
            check_keyed(self.folder, self.where, job.name, link.peer, asked)
        path = part(job.folder, "embedding", lambda fresh: self._embed(fresh, asked), self.telling.trace) / "rows.bin"
        whole = stored_rows(path, asked.count, width)
        known = sum(int(some[:, 0].sum(dtype=np.int64)) for some in pieces(whole))
        self._enter(link.peer, job, asked, whole, known)
        self.left[:] = [job.name]
        about = {"rows": asked.count, "known": known, "size": asked.count * width}
        if not asked.count:
            job.all_sent(about)
        done = 0
        for step, some in enumerate(parts(path, asked.count, width)):
            done += len(some)
            if done == asked.count:
                job.all_sent(about)
            link.send(Message(step, "embedding", torch.from_numpy(some), b""))
            self.telling.trace("embedding sent")
            self.telling.progress("sending embeddings", done, asked.count)
        self.telling.trace("all sent")
        heard(link, "done", 0, {}, self.telling, "it stores what was sent")
        job.remove()
        return Delivered(job.name, link.peer, asked.count, known, asked.count * width)

    def _blocks(self, places: NDArray[np.int64]) -> Iterator[tuple[pl.DataFrame, NDArray[np.int64], NDArray[np.int64]]]:
        """The rows of the table that are asked for, block by block, their numbers, and their places in the message."""
        columns, start = list(dict.fromkeys((*self._ids_columns, *self.embedder.columns))), 0
        for block in blocks(self.source, columns):
            at = np.array(places[start : start + len(block)]) - 1
            let_go(places)
            chosen = np.flatnonzero(at >= 0)
            yield block[chosen], chosen + start, at[chosen]
            start += len(block)

    def _embed(self, fresh: Path, asked: Matched) -> None:
        """Embed what is asked for, in the order of the table, each row to its place: memory does not grow with rows."""
        places = places_in(fresh / "places", asked.rows)
        whole: NDArray[np.uint8] = new_file(fresh / "rows.bin", "uint8", [asked.count, 1 + self.embedder.width])
        done = 0
        for table, numbers, at in self._blocks(places):
            whole[at, 0] = 1
            whole[at, 1:] = self.embedder.embed(table, numbers)
            done += len(at)
            self.telling.progress("embedding", done, asked.count)
            let_go(whole)
        if file_facts(self.source) != self._facts["table"]:  # its rows stand elsewhere than its ids did
            raise DataError(f"{self.source} was changed while it was read: start again, once it is whole")

    def _enter(self, peer: str, job: Job, asked: Matched, whole: NDArray[np.uint8], known: int) -> None:
        """Write down what is about to leave, before it does."""
        if isinstance(self.embedder, ExchangeEmbedder):
            self._ship(self.embedder, peer, job, asked, whole, known)
        size = asked.count * (1 + self.embedder.width)
        with counted_predictions(self.folder):
            record(
                self.where, job.name, "embeddings", peer, rows=asked.count, known=known, bytes=size,
                version=self.embedder.version, match=self.match, asked=asked.id,
            )  # fmt: skip

    def _ship(
        self, half: ExchangeEmbedder, peer: str, job: Job, asked: Matched, whole: NDArray[np.uint8], known: int
    ) -> None:
        """Into the book of embeddings, by which later releases are attacked together with what has left."""
        form, run = half.coding.form, self.folder.terms.run
        name = f"prediction {job.name} {asked.id} {half.version}"
        shipment = Shipment(run, peer, version_of(name, np.empty(0)), f"{form}, for a prediction", known, half.worst)

        def batches() -> Iterator[tuple[Keys, NDArray[Any]]]:
            places = np.memmap(job.folder / "embedding" / "places", np.int64, "r") if known else np.empty(0, np.int64)
            for table, _, at in self._blocks(places):
                if len(at):
                    ids = read_ids(table, self._ids_columns)
                    yield row_keys(self.folder, ids.hashes), np.asarray(whole[at, 1 : 1 + form.width])
                    let_go(whole)

        with counted_book(self.folder) as book:
            book.add(name, shipment, batches())
        self.telling.trace("entered")
