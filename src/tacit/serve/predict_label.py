"""The label party's part of a prediction: it says which rows it asks for, stores what comes, and scores in private."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit.align.cache import file_facts
from tacit.align.curve import best_engine
from tacit.align.ids import Ids, read_ids
from tacit.align.sources import blocks, check_columns, scan
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.company.meeting import alignment_limits, meet, server
from tacit.contracts import Link, Message
from tacit.errors import DataError, LinkError, RefusedError
from tacit.made_once import made_once
from tacit.serve.conversation import (
    ROWS,
    Telling,
    check_half,
    converse,
    following,
    heard,
    label_limits,
    private_match,
    purpose,
    raise_if_refused,
)
from tacit.serve.halves import Scorer, encoded
from tacit.serve.job import Job, Matched, store_rows, stored_rows
from tacit.serve.record import record
from tacit.serve.scores import Scoring, Written
from tacit.serve.tokens import token_key, tokens_of
from tacit.wire.codec import control


def predict_file(asking: Asking, out: Path, *, fallback: bool) -> Written:
    """Ask all feature parties for the rows of a file, and score them; with a fallback also those that not all have."""
    asking.check()
    asking.until_received()
    scoring = Scoring(
        asking.source, asking.ids_columns, asking.scorer, fallback, asking.received(), asking.job.folder,
        asking.telling.progress,
    )  # fmt: skip
    written = scoring.write(out, asking.total, asking.telling.trace)
    asking.check_unchanged()
    asking.job.remove()
    return written


class Asking:
    """A label party that asks for the rows of a file."""

    def __init__(self, folder: Folder, where: Path, scorer: Scorer, source: Path, match: str, telling: Telling) -> None:
        self.folder, self.where, self.scorer, self.source = folder, where, scorer, source
        self.match, self.telling = match, telling
        self.ids_columns = folder.table.ids
        self._ids: Ids | None = None

    @cached_property
    def _facts(self) -> dict[str, object]:
        return {
            "file": file_facts(self.source),
            "ids": list(self.ids_columns),
            "match": self.match,
            "versions": dict(self.scorer.versions),
        }

    @cached_property
    def job(self) -> Job:
        """Where it is kept; the same file asked for again is the same prediction."""
        return Job(self.where, Job.named(self.folder, self._facts), self._facts)

    @cached_property
    def total(self) -> int:
        """Rows of the file."""
        return int(scan(self.source).select(pl.len()).collect(engine="streaming").item())

    @property
    def ids(self) -> Ids:
        """Of the file; one that two rows share is an error."""
        if self._ids is None:
            self.telling.progress("reading ids", 0, 0)
            self._ids = read_ids(self.source, self.ids_columns)
            if self._ids.report.alike is not None:
                first, second = self._ids.report.alike
                raise DataError(
                    f"{self.source}: rows {first} and {second} have the same id, and {self._ids.report.repeated_ids} "
                    "ids are in several rows: a row is scored once; make ids unique"
                )
            self.telling.report(str(self._ids.report))
        return self._ids

    def check(self) -> None:
        """What can't be scored is told before anybody is asked for anything."""
        check_columns(self.source, [*self.ids_columns, *self.scorer.columns])
        if self.job.matched is not None:  # it was all looked at before
            return
        _ = self.ids
        done = 0
        for block in blocks(self.source, list(self.scorer.columns)) if self.scorer.columns else ():
            encoded(self.scorer.encoder, block, np.arange(done, done + len(block)))
            done += len(block)
            self.telling.progress("checking columns", done, self.total)

    def check_unchanged(self) -> None:
        """Refuse a file that became another one meanwhile."""
        if file_facts(self.source) != self._facts["file"]:
            raise DataError(f"{self.source} was changed while it was scored: start again, once it is whole")

    @property
    def _received(self) -> Path:
        return self.job.folder / "received"

    def received(self) -> dict[str, NDArray[np.uint8]]:
        """For each row of the file what came of it from each feature party: whether it has it, then the embedding."""
        widths = self.scorer.widths.items()
        return {name: stored_rows(self._received / name / "rows.bin", self.total, 1 + width) for name, width in widths}

    def _has(self, name: str) -> bool:
        return (self._received / name).exists()

    def _all_received(self) -> bool:
        return all(self._has(name) for name in self.scorer.widths)

    def until_received(self) -> None:
        """Talk with the feature parties until everything is here."""
        if self._all_received():
            return
        folder, limits = self.folder, {**alignment_limits(), **label_limits(self.scorer.widths)}
        hello = purpose("predict", self.scorer.versions, match=self.match)
        with server(folder, folder.terms, limits) as door:
            converse(
                lambda waiting: meet(
                    folder, folder.terms, door, limits, waiting=waiting, wait=self.telling.wait,
                    alarm=self.telling.alarm, purpose=hello,
                ),
                self._over, self.telling, over=self._all_received,
            )  # fmt: skip
        self._ids = None  # nobody needs them any more

    def _over(self, links: Mapping[str, Link]) -> bool:
        """Whether everything is here after one set of links; a peer that hangs up may have said why."""
        try:
            return self._session(links)
        except LinkError:
            for link in links.values():
                raise_if_refused(link)
            raise

    def _session(self, links: Mapping[str, Link]) -> bool:
        """What is done over one set of links; whether everything is here."""
        asked = self.job.matched
        mine = "" if asked is None else asked.id
        rows = len(self.ids) if asked is None else asked.count
        for link in links.values():
            link.send(control("hello", 1, {"job": self.job.name, "rows": rows, "matched": mine}))
        settled = [self._settled(link) for link in links.values()]
        again = asked is None or any(theirs != mine for theirs in settled)
        for link in links.values():
            link.send(control("hello", 2, {"match": again, "received": not again and self._has(link.peer)}))
        if asked is None or again:
            self._match(links)
            self.telling.trace("matched")
            return False
        for link in links.values():
            self._receive(link, asked)
        for link in links.values():
            link.send(control("done", 0, {}))
        for link in links.values():
            heard(link, "done", 0, {}, self.telling, "everything is here; it says farewell")
        return True

    def _settled(self, link: Link) -> str:
        """What a feature party has matched for this prediction; its half must be the one that was used before."""
        said = heard(link, "hello", 1, {"matched": str, "half": str}, self.telling, "it does not answer")
        check_half(self.where, link.peer, said["half"])
        return str(said["matched"])

    def _match(self, links: Mapping[str, Link]) -> None:
        """Settle with all feature parties which rows are asked for; what came before is of no use then."""
        self.job.discard()
        if self.match == "keyed":
            self._send_tokens(links)
            return
        with best_engine() as engine:
            found = private_match(self.folder, self.ids, engine, links, self.telling)
        self.job.settle(found.id, self.ids.rows[found.positions])

    def _send_tokens(self, links: Mapping[str, Link]) -> None:
        """Ask for all rows of the file by their tokens, in the order of the file."""
        key, hashed, count = token_key(aligned(self.folder)), hashlib.sha256(), len(self.ids)
        for name in links:
            version = self.scorer.versions[name]
            record(
                self.folder, run=self.where.name, job=self.job.name, what="tokens", to=name, rows=count, version=version
            )
        for step, start in enumerate(range(0, count, ROWS)):
            tokens = tokens_of(key, self.ids.hashes[start : start + ROWS])
            hashed.update(tokens.tobytes())
            for link in links.values():
                link.send(Message(step, "tokens", torch.from_numpy(np.array(tokens)), b""))
            self.telling.progress("sending tokens", start + len(tokens), count)
        for link in links.values():  # else a refusal would be left unread
            heard(link, "hello", 3, {}, self.telling, "it looks rows up")
        self.job.settle(hashed.hexdigest(), self.ids.rows)

    def _receive(self, link: Link, asked: Matched) -> None:
        """Store what a feature party sends."""

        def next_one() -> Message:
            message = following(link, self.telling.waiting, "it makes its embeddings")
            if message.kind != "embedding":
                raise RefusedError("message", f"a {message.kind} came from {link.peer} where an embedding must")
            return message

        def told(rows: int) -> None:
            self.telling.trace("embedding stored")
            self.telling.progress(f"receiving from {link.peer}", rows, asked.count)

        width = 1 + self.scorer.widths[link.peer]
        made_once(
            self._received, link.peer,
            lambda fresh: store_rows(fresh / "rows.bin", asked.rows, self.total, width, next_one, told),
        )  # fmt: skip
        self.telling.progress(f"stored, from {link.peer}", asked.count, asked.count)
