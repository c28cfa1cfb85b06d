"""A feature party's part of a prediction: it finds the rows that are asked for, embeds them, and sends them once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.align.arrays import let_go, new_file, pieces
from tacit.align.cache import file_facts
from tacit.align.curve import best_engine
from tacit.align.directory import Directory
from tacit.align.ids import Ids, distinct, read_ids
from tacit.align.sources import blocks, check_columns
from tacit.company.aligned import aligned
from tacit.company.departures import column_digests, counted_book, predictions, row_keys
from tacit.company.folder import Folder
from tacit.company.meeting import alignment_limits, meet
from tacit.company.shipments import Batch, Shipment, version_of
from tacit.contracts import Link, Message
from tacit.disk import storing
from tacit.errors import DataError, RefusedError
from tacit.labels.records import Keys
from tacit.made_once import made_once
from tacit.serve.conversation import (
    Telling,
    converse,
    feature_limits,
    following,
    heard,
    private_match,
    purpose,
)
from tacit.serve.halves import Embedder, encoded
from tacit.serve.job import Job, Matched, sent_rows, stored_rows
from tacit.serve.record import charge_keyed, record
from tacit.serve.tokens import SIZE, token_key, tokens_of
from tacit.wire.codec import control

_STATE = {"job": str, "rows": int, "matched": str}
_SOME = 1 << 16  # rows that are entered in the book at a time


@dataclass(frozen=True)
class Delivered:
    """What a feature party has sent."""

    job: str  # the name of the prediction
    to: str  # who got it
    rows: int  # that were asked for
    known: int  # of them in this party's table
    size: int  # bytes of the embeddings
    confirmed: bool = True  # whether it has said that all of it came; if not, it was gone before it could


class Delivering:
    """A feature party that answers a label party's prediction over rows of a table."""

    def __init__(
        self, folder: Folder, where: Path, embedder: Embedder, source: Path, match: str, telling: Telling
    ) -> None:
        self.folder, self.where, self.embedder, self.source = folder, where, embedder, source
        self.match, self.telling = match, telling
        self._ids: Ids | None = None
        # the prediction that was matched in private, or whose embeddings have begun to leave. One command gives one: a
        # peer that hangs up with its answer would else come back for other rows
        self._answered: str | None = None
        self._sent: Delivered | None = None

    def until_delivered(self) -> Delivered:
        """Talk with the label party until it has everything."""
        self._check()
        folder, limits = self.folder, {**alignment_limits(), **feature_limits()}
        hello = purpose("predict", {folder.terms.label_party: self.embedder.version}, match=self.match)
        confirmed = converse(
            lambda waiting: meet(
                folder, folder.terms, None, limits, waiting=waiting, wait=self.telling.wait,
                alarm=self.telling.alarm, purpose=hello,
            ),
            self._session, self.telling, over=lambda: self._sent is not None,
        )  # fmt: skip
        assert self._sent is not None
        return replace(self._sent, confirmed=confirmed)

    def _check(self) -> None:
        """What can't be embedded, and what an older copy of the folder has forgotten, is told before anybody is met."""
        predictions(self.folder).read()  # they know of everything that left
        check_columns(self.source, [*self.folder.table.ids, *self.embedder.columns])
        first = next(blocks(self.source, list(self.embedder.columns)), None)
        if first is None:
            raise DataError(f"{self.source} has no rows: name the table with the rows that are asked for")
        self.embedder.embed(first[:64])

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return {"table": file_facts(self.source), "match": self.match, "half": self.embedder.digest}

    @property
    def ids(self) -> Ids:
        """Of the table."""
        if self._ids is None:
            self.telling.progress("reading ids", 0, 0)
            self._ids = read_ids(self.source, self.folder.table.ids)
            self.telling.report(str(self._ids.report))
        return self._ids

    def _session(self, links: Mapping[str, Link]) -> bool:
        """What is done over one link; whether it was the last."""
        (link,) = links.values()
        said = heard(link, "hello", 1, _STATE, self.telling, "it does not say what it asks for")
        self._refuse_others(link.peer, self._answered not in (None, said["job"]))
        job = Job(self.where, said["job"], self._facts)
        if gone := job.remove_others():
            self.telling.report(f"{gone} predictions that {link.peer} began and did not end were removed here")
        most = self.folder.terms.alignment.largest_set
        if not 0 <= said["rows"] <= most:
            raise RefusedError("rows", f"{link.peer} asks for {said['rows']} rows, the contract allows {most}")
        asked = job.matched
        if asked is None or asked.id != said["matched"]:
            _ = self.ids  # before it is answered: who sends what nobody takes for half a minute hangs up
        link.send(control("hello", 1, {"matched": "" if asked is None else asked.id, "half": self.embedder.digest}))
        answer = heard(link, "hello", 2, {"match": bool, "received": bool}, self.telling, "it does not answer")
        again = answer["match"]
        self._refuse_others(link.peer, self._answered is not None and again)
        if again or asked is None or asked.id != said["matched"]:
            if not again:
                raise RefusedError("matched", f"{link.peer} goes on with rows that were not matched here")
            job.discard()
            self._match(link, job, said["rows"])
            self.telling.trace("matched")
            return False
        self._deliver(link, job, asked, received=answer["received"])
        return True

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
        if self.match == "keyed":
            self._look_up(link, job, count)
            return
        with best_engine() as engine:
            found = private_match(self.folder, self.ids, engine, {link.peer: link}, self.telling)
        self._answered = job.name  # from now on it knows which of its rows are here
        job.settle(found.id, self.ids.rows[found.positions])

    def _look_up(self, link: Link, job: Job, count: int) -> None:
        """Settle which rows are asked for by key, once all that is asked is on record.

        One that is not in the table stays among them as unknown: that is said with the embeddings, and never earlier.
        """
        directory = Directory(tokens_of(token_key(aligned(self.folder)), self.ids.hashes), self.ids.rows)
        tokens = self._tokens(link, count)
        asked, facts = hashlib.sha256(tokens.data).hexdigest(), json.dumps(self._facts["table"], sort_keys=True)
        charge_keyed(
            self.folder, run=self.where.name, job=job.name, to=link.peer, rows=count, asked=asked,
            table=hashlib.sha256(facts.encode()).hexdigest(),
        )  # fmt: skip
        rows = np.empty(count, np.int64)
        for start in range(0, count, _SOME):
            rows[start : start + _SOME] = directory.rows(tokens[start : start + _SOME])
            self.telling.progress("looking rows up", start, count)
        job.settle(asked, rows)
        link.send(control("hello", 3, {}))

    def _tokens(self, link: Link, count: int) -> Keys:
        """What is asked for by key; each token once, known or not."""
        tokens, done, step = np.empty((count, SIZE), np.uint8), 0, 0
        while done < count:
            message = following(link, self.telling.waiting, "its tokens are to come")
            some = message.payload.numpy()
            if (message.kind, message.step) != ("tokens", step) or not 0 < len(some) <= count - done:
                raise RefusedError("tokens", f"a {message.kind} {message.step} of {len(some)} came after {done} rows")
            tokens[done : done + len(some)] = some
            done, step = done + len(some), step + 1
            self.telling.progress("receiving tokens", done, count)
        if count and distinct(tokens)[1]:
            raise RefusedError("tokens", f"{link.peer} asks for a row more than once")
        return tokens

    # --- what leaves ---

    def _deliver(self, link: Link, job: Job, asked: Matched, *, received: bool) -> None:
        """Send the embeddings, where they have not all come before."""
        width = 1 + self.embedder.width
        made = made_once(job.folder, "embedding", lambda fresh: self._embed(fresh, asked), self.telling.trace)
        path = made / "rows.bin"
        whole = stored_rows(path, asked.count, width)
        known = sum(int(some[:, 0].sum(dtype=np.int64)) for some in pieces(whole))
        sent = Delivered(job.name, link.peer, asked.count, known, asked.count * width)
        self._enter(sent, asked, whole, path)
        self._answered, done = job.name, 0
        for step, some in enumerate(() if received else sent_rows(path, asked.count, width)):
            link.send(Message(step, "embedding", torch.from_numpy(some), b""))
            done += len(some)
            self.telling.trace("embedding sent")
            self.telling.progress("sending embeddings", done, asked.count)
        self._sent = sent
        self.telling.trace("all sent")
        heard(link, "done", 0, {}, self.telling, "it stores what was sent")
        job.remove()
        link.send(control("done", 0, {}))

    def _embed(self, fresh: Path, asked: Matched) -> None:
        """Embed what is asked for, in the order of the table, each row to its place: embeddings are in no memory."""
        order = np.argsort(asked.rows)
        wanted, start, width = asked.rows[order], 0, 1 + self.embedder.width
        whole: NDArray[np.uint8] = new_file(fresh / "rows.bin", "uint8", [asked.count, width])
        columns: NDArray[np.uint8] = new_file(fresh / "columns.bin", "uint8", [asked.count, SIZE])
        for block in blocks(self.source, list(self.embedder.columns)):
            here = slice(*np.searchsorted(wanted, [start, start + len(block)]))
            rows, at = wanted[here], order[here]
            if len(rows):
                whole[at, 0] = 1
                inputs = encoded(self.embedder.encoder, block[rows - start], rows)
                whole[at, 1:] = self.embedder.embed_inputs(inputs)
                let_go(whole)
                if self.embedder.booked is not None:
                    columns[at] = column_digests(self.folder, inputs)
                    let_go(columns)
                self.telling.progress("embedding", here.stop, asked.count)
            start += len(block)
        if file_facts(self.source) != self._facts["table"]:  # its rows stand elsewhere than its ids did
            raise DataError(f"{self.source} was changed while it was read: start again, once it is whole")

    def _enter(self, sent: Delivered, asked: Matched, whole: NDArray[np.uint8], path: Path) -> None:
        """Write down what is about to leave, before it does; other bytes of the same rows are something else."""
        with storing(path, "read"), path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        run, version = self.folder.terms.run, self.embedder.version
        if self.embedder.booked is not None:
            form, worst = self.embedder.booked
            name = f"prediction {sent.job} {asked.id} {digest} {version}"
            shipment = Shipment(
                run, sent.to, version_of(name, np.empty(0)), f"{form}, for a prediction", sent.known, worst
            )
            with counted_book(self.folder) as book:
                columns = stored_rows(path.with_name("columns.bin"), asked.count, SIZE)
                book.add(name, shipment, self._batches(asked, whole, columns))
            self.telling.trace("entered")
        record(
            self.folder, run=self.where.name, job=sent.job, what="embeddings", to=sent.to, rows=sent.rows,
            known=sent.known, bytes=sent.size, version=version, match=self.match, asked=asked.id, sha256=digest,
        )  # fmt: skip

    def _batches(self, asked: Matched, whole: NDArray[np.uint8], columns: NDArray[np.uint8]) -> Iterator[Batch]:
        """What the book calls the rows that are known, their embeddings, and digests of their columns."""
        for start in range(0, asked.count, _SOME):
            rows, some = asked.rows[start : start + _SOME], whole[start : start + _SOME]
            known = np.flatnonzero(rows >= 0)
            if len(known):
                at = np.searchsorted(self.ids.rows, rows[known])
                digests = np.asarray(columns[start : start + _SOME][known])
                yield row_keys(self.folder, self.ids.hashes[at]), np.asarray(some[known, 1:]), digests
                let_go(whole)
