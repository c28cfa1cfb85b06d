"""The label party's part of a prediction: it says which rows it asks for, stores what comes, and scores in private."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit.align.arrays import let_go, new_file
from tacit.align.cache import file_facts
from tacit.align.curve import best_engine
from tacit.align.ids import Ids, read_ids
from tacit.align.sources import blocks, check_columns, scan
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.company.meeting import meet, server
from tacit.contracts import Link, Message
from tacit.disk import remove
from tacit.errors import DataError, LinkError, RefusedError
from tacit.serve.conversation import (
    TOKENS,
    Telling,
    following,
    heard,
    label_limits,
    private_match,
    purpose,
    raise_if_refused,
    record,
)
from tacit.serve.halves import Scorer, encoded, pin
from tacit.serve.job import Inbox, Job, Matched
from tacit.serve.scores import Scoring, Written
from tacit.serve.tokens import TokenTable, token_key
from tacit.wire.codec import control
from tacit.wire.line import last_words


def predict_file(asking: Asking, out: Path, *, fallback: bool) -> Written:
    """Ask all feature parties for the rows of a file, and score them; with a fallback also those that not all have."""
    asking.check()
    asking.until_received()
    vars(asking).pop("ids", None)  # some bytes of every row, which nobody needs any more
    asked, telling = asking.job.matched, asking.telling
    assert asked is not None
    received = {name: inbox.read() for name, inbox in asking.inboxes(asked).items()}
    scoring = Scoring(
        asking.source, asking.ids_columns, asking.scorer, fallback, asked, received, asking.job.folder, telling.progress
    )
    written = scoring.write(out, asking.total, telling.trace)
    asking.unchanged()
    asking.job.remove()
    return written


@dataclass(frozen=True)
class Asking:
    """A label party that asks for the rows of a file."""

    folder: Folder  # of the party
    where: Path  # the run's folder
    scorer: Scorer  # its half
    source: Path  # the file
    match: str  # how ids are matched
    telling: Telling  # told how far it is

    @property
    def ids_columns(self) -> tuple[str, ...]:
        """The columns that name a row."""
        return self.folder.table.ids

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

    @cached_property
    def ids(self) -> Ids | TokenTable:
        """Of the file, as they are needed for the way in which they are matched; one that two rows share is an error.

        By key, they lie in a file, and some bytes of each are in memory as well; privately, all of them are in memory.
        """
        self.telling.progress("reading ids", 0, 0)
        found: Ids | TokenTable
        if self.match == "keyed":
            key = token_key(aligned(self.folder))
            found = TokenTable.read(self.source, self.ids_columns, key, self.job.folder)
        else:
            found = read_ids(self.source, self.ids_columns)
        if found.report.example is not None:
            first, second = found.report.example
            raise DataError(
                f"{self.source}: rows {first} and {second} have the same id, and {found.report.repeated_ids} ids are "
                "in several rows: a row is scored once; make ids unique"
            )
        self.telling.report(str(found.report))
        return found

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

    def unchanged(self) -> None:
        """Refuse a file that became another one meanwhile."""
        if file_facts(self.source) != self._facts["file"]:
            raise DataError(f"{self.source} was changed while it was scored: start again, once it is whole")

    def inboxes(self, asked: Matched) -> dict[str, Inbox]:
        """Where the embeddings of each feature party come to."""
        return {
            name: Inbox(self.job.folder / f"{name}.bin", asked.count, 1 + width)
            for name, width in self.scorer.widths.items()
        }

    def until_received(self) -> None:
        """Talk with the feature parties until everything is here."""
        asked, folder = self.job.matched, self.folder
        if asked is not None and all(inbox.whole for inbox in self.inboxes(asked).values()):
            return
        limits = label_limits(self.scorer.widths)
        hello = purpose(self.match, self.scorer.versions)
        with server(folder, folder.terms, limits) as door:
            over = False
            while not over:
                waiting, alarm = self.telling.waiting, self.telling.alarm
                links = meet(folder, folder.terms, door, limits, waiting=waiting, alarm=alarm, purpose=hello)
                try:
                    over = self._over(links)
                except RefusedError as error:
                    for link in links.values():
                        last_words(link, error)
                    raise
                except LinkError as error:
                    self.telling.waiting(", ".join(links), 0.0, str(error))
                finally:
                    for link in links.values():
                        link.close()

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
            link.send(control("hello", 2, {"match": again}))
        if asked is None or again:
            self._match(links)
            return False
        for name, inbox in self.inboxes(asked).items():
            self._receive(links[name], inbox)
        for link in links.values():
            with suppress(LinkError):  # everything is here: whoever does not hear that any more ends without it
                link.send(control("done", 0, {}))
        return True

    def _settled(self, link: Link) -> str:
        """What a feature party has matched for this prediction; its half must be the one that was used before."""
        said = heard(link, "hello", 1, {"matched": str, "half": str}, self.telling, "it does not answer")
        try:
            pin(self.where, link.peer, said["half"])
        except DataError as error:
            raise RefusedError("half", str(error)) from None
        return str(said["matched"])

    def _match(self, links: Mapping[str, Link]) -> None:
        """Settle with all feature parties which rows are asked for; what came before is of no use then."""
        self.job.discard()
        ids = self.ids
        if isinstance(ids, TokenTable):
            self._send_tokens(ids, links)
            return
        with best_engine() as engine:
            found = private_match(self.folder, ids, engine, links, self.telling)
        self.job.settle(found.id, ids.rows[found.positions])
        self.telling.trace("matched")

    def _send_tokens(self, ids: TokenTable, links: Mapping[str, Link]) -> None:
        """Ask for all rows of the file by their tokens, in the order of the file."""
        hashed, count = hashlib.sha256(), len(ids)
        for name in links:
            record(self.where, self.job.name, "tokens", name, rows=count, version=self.scorer.versions[name])
        rows: NDArray[np.int64] = new_file(self.job.folder / "asked", "int64", [count])
        for step, start in enumerate(range(0, count, TOKENS)):
            tokens = ids.tokens(start, TOKENS)
            hashed.update(tokens.tobytes())
            for link in links.values():
                link.send(Message(step, "tokens", torch.from_numpy(tokens), b""))
            rows[start : start + TOKENS] = ids.rows(start, TOKENS)
            let_go(rows)
            self.telling.progress("sending tokens", start + len(tokens), count)
        for link in links.values():  # else a refusal would be left unread
            heard(link, "hello", 3, {}, self.telling, "it looks rows up")
        digest = hashed.hexdigest()
        self.job.settle(digest, rows)
        remove(self.job.folder / "asked")
        self.telling.trace("matched")

    def _receive(self, link: Link, inbox: Inbox) -> None:
        """Store what a feature party sends."""

        def next_one() -> Message:
            message = following(link, self.telling.waiting, "it makes its embeddings")
            if message.kind != "embedding":
                raise RefusedError("message", f"a {message.kind} came from {link.peer} where an embedding must")
            return message

        def told(rows: int) -> None:
            self.telling.trace("embedding stored")
            self.telling.progress(f"receiving from {link.peer}", rows, inbox.count)

        inbox.store(next_one, told)
        self.telling.progress(f"stored, from {link.peer}", inbox.count, inbox.count)
