"""`tacit align`: which rows of this party's table the others have as well, in an order that all share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.align import psi, seed
from tacit.align.control import expect
from tacit.align.curve import Engine, best_engine
from tacit.align.history import Alignment, History
from tacit.align.ids import Ids, read_ids
from tacit.align.sources import check_columns
from tacit.company.alignment import FILE, Aligned, Source, read, store
from tacit.company.folder import Folder
from tacit.company.meeting import alignment_limits, meet, server
from tacit.config import Terms
from tacit.contracts import Link
from tacit.errors import LinkError, RefusedError, UsageError
from tacit.wire.codec import control, read_control
from tacit.wire.line import Alarm, Waiting, last_words

__all__ = ["Aligned", "Found", "Source", "Work", "align", "aligned", "store"]

Progress = Callable[[str, int, int], None]


def aligned(folder: Folder | str | Path) -> Aligned:
    """What was aligned for the contract's run; an error that says what to do where nothing was."""
    folder = folder if isinstance(folder, Folder) else Folder(folder)
    where = folder.run_folder(folder.terms)
    if not (where / FILE).exists():
        raise UsageError(
            f"nothing is aligned for the run {folder.terms.run!r} here: run `tacit align` on all sides, or "
            "`tacit align --again` on all sides where the others have aligned before"
        )
    return read(where, folder.terms.run)


def align(  # the protocol from top to bottom, in the order of its messages
    folder: Folder | str | Path,
    data: Source | None = None,
    *,
    ids: str | Sequence[str] | None = None,
    again: bool = False,
    progress: Progress = lambda *_: None,
    waiting: Waiting = lambda *_: None,
    alarm: Alarm = lambda *_: None,
    report: Callable[[str], None] = lambda _: None,
) -> Aligned:
    """Find the rows that all parties of the contract have, without showing anybody the others.

    All parties run this at the same time; it waits for them. A connection that breaks before a peer has got any answer
    is made again; after that it is an error, and whether to align again is for people to decide, on all sides: a peer
    that hangs up once it has its answer would else come back with other ids. What is aligned already is returned as it
    is, so that a script may be started again.

    Args:
        folder: the party's folder.
        data: its table, as a path or a DataFrame; what party.toml names if not given.
        ids: the columns that name a row; those of party.toml if not given.
        again: align anew, on all sides, for new tables or where one side has lost what was aligned.
        progress: told what is being done, how much of it is done and how much there is.
        waiting: told while a peer lets us wait.
        alarm: told what was refused.
        report: told what became of the table's rows.
    """
    folder = folder if isinstance(folder, Folder) else Folder(folder)
    contract = folder.terms
    folder.check_pair(contract)
    where = folder.run_folder(contract)
    if (where / FILE).exists() and not again:
        return aligned(folder)
    if (where / "begun").exists() or any((where / "checkpoints").glob("*.safetensors")):
        raise UsageError(
            f"the run {contract.run!r} has begun, and its rows stay what they are: agree on another `run` in "
            "contract.toml to align anew"
        )
    source = folder.data if data is None else data
    progress("reading ids", 0, 0)
    own = read_ids(source, folder.table.ids if ids is None else ids)
    report(str(own.report))
    if data is None:  # a misspelt column would else be told by `tacit train`, when the alignment is spent
        check_columns(source, folder.table.columns)
    limits = alignment_limits()
    with best_engine() as engine:
        work = Work.of(folder, own, engine, progress)
        if folder.config.role == "features":
            found = work.until_done(lambda: meet(folder, contract, None, limits, waiting=waiting, alarm=alarm))
        else:
            with server(folder, contract, limits) as door:
                found = work.until_done(lambda: meet(folder, contract, door, limits, waiting=waiting, alarm=alarm))
    return store(
        where,
        run=contract.run,
        id=found.id,
        seed=found.seed,
        digest=found.digest,
        rows=own.rows[found.positions],
    )


@dataclass(frozen=True)
class Found:
    """What parties have in common.

    Attributes:
        id: as in `Aligned`, like those that follow.
        seed: of batches.
        digest: of the common ids.
        positions: into this party's ids.
    """

    id: str
    seed: int
    digest: str
    positions: NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    """One party's part in an alignment.

    Attributes:
        folder: of the party.
        contract: what was agreed on.
        own: its ids.
        engine: multiplies.
        history: of what peers have asked before.
        progress: told how far it is.
        answered: the peers that may know by now which of their ids are common.
    """

    folder: Folder
    contract: Terms
    own: Ids
    engine: Engine
    history: History
    progress: Progress
    answered: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Folder, own: Ids, engine: Engine, progress: Progress) -> Work:
        """That of a party with these ids; every alignment counts, whatever for."""
        contract, probing = folder.terms, folder.config.align
        history = History(
            folder.run_folder(contract).parent / "alignments.jsonl",
            runs=probing.runs_a_month,
            allow_edits=probing.allow_edits,
        )
        return cls(folder, contract, own, engine, history, progress)

    def until_done(self, meet_all: Callable[[], Mapping[str, Link]]) -> Found:
        """Begin again with new keys where a link breaks, as long as no peer has been answered."""
        while True:
            try:
                return self.run(meet_all())
            except LinkError as error:
                self.give_up(error, "`tacit align --again`")

    def give_up(self, error: LinkError, command: str) -> None:
        """A link has broken: whoever has been answered by then is not let in again by itself.

        Args:
            error: that says so.
            command: with which people begin again.
        """
        if self.answered:
            raise LinkError(
                f"{error}; by then {', '.join(self.answered)} had been answered and may know which of its ids are "
                f"common, so nobody is let in again by itself: ask there what happened, then run {command} on all "
                "sides; it counts among `[align] runs_a_month`"
            ) from error

    def run(self, links: Mapping[str, Link]) -> Found:
        """Intersect with every peer, keep what all have, agree on a seed, and see that all ended alike."""
        try:
            return self._run(links)
        except RefusedError as error:
            for link in links.values():
                last_words(link, error)
            raise
        finally:
            for link in links.values():
                link.close()

    def _run(self, links: Mapping[str, Link]) -> Found:
        matches = [self._intersect(name, link) for name, link in links.items()]
        name, nonce = self.folder.config.name, seed.new_nonce()
        if self.folder.config.role == "label":
            positions, masks = psi.common(matches)
            for link, mask in zip(links.values(), masks, strict=True):
                psi.send_mask(link, mask)
            self._enough(positions)
            agreed = seed.as_label(links, name, nonce)
        else:
            ((match, link),) = zip(matches, links.values(), strict=True)
            positions = match.positions[psi.recv_mask(link, len(match))]
            self._enough(positions)
            agreed = seed.as_features(link, name, nonce)
        digest = seed.rows_digest(agreed.key, self.own.hashes[positions]).hex()
        for link in links.values():
            _same_end(link, digest)
        said = sorted(agreed.commitments.items())
        identity = hashlib.sha256(json.dumps([[who, what.hex()] for who, what in said]).encode()).hexdigest()
        return Found(identity, agreed.seed, digest, positions)

    def _intersect(self, name: str, link: Link) -> psi.Matched:
        agreed = self.contract.alignment
        begun: list[Alignment] = []

        def admit(peer_count: int) -> None:
            """Written down before the peer gets any answer."""
            try:
                begun.append(self.history.begin(name, len(self.own), peer_count))
            except RefusedError as error:
                where = f"`[align] runs_a_month` and `allow_edits` in the party.toml of {self.folder.config.name}"
                raise RefusedError(error.field, f"{error} ({where} set the limits)") from error
            self.answered.append(name)

        try:
            found = psi.intersect(
                link,
                self.own.hashes,
                engine=self.engine,
                cap=agreed.largest_set,
                minimum=agreed.smallest_set,
                admit=admit,
                progress=lambda done, total: self.progress(f"aligning with {name}", done, total),
            )
        except RefusedError as error:
            for line in begun:
                self.history.end(line, result=error.field)
            raise
        self.history.end(begun[0], common=len(found))
        return found

    def _enough(self, positions: NDArray[np.int64]) -> None:
        least = self.contract.alignment.smallest_set
        if len(positions) < least:
            raise RefusedError(
                "minimum", f"{len(positions)} ids are common to all parties, the contract wants {least} at least"
            )


def _same_end(link: Link, digest: str) -> None:
    """Both sides show the digest of the rows that they ended with."""
    link.send(control("done", 0, {"rows": digest}))
    if read_control(expect(link, "done", 0, 60.0)) != {"rows": digest}:
        raise RefusedError(
            "rows", f"{link.peer} ended with other rows than this party: run `tacit align --again` on all sides"
        )
