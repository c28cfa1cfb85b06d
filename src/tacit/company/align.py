"""`tacit align`: which rows of this party's table the others have as well, in an order that all share.

What it leaves are ids, as keyed hashes in the party's file of facts: wherever their rows stand later, they are found.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from tacit.align import psi, seed
from tacit.align.cluster import cluster_engine
from tacit.align.control import expect
from tacit.align.curve import Engine, best_engine
from tacit.align.history import Alignment, History
from tacit.align.ids import Ids
from tacit.align.sources import Source, columns_in
from tacit.company.aligned import Aligned, Log, aligned, alignment_of, copy_table, counted_facts, has_begun, store
from tacit.company.check import check_table, held_out, usable_ids
from tacit.company.facts import ALIGNMENT
from tacit.company.folder import Folder
from tacit.company.meeting import aligning, alignment_limits, meet, server
from tacit.company.overrides import restored
from tacit.company.ways import way_of
from tacit.config import Terms
from tacit.contracts import Link
from tacit.disk import held, make_folder, storing
from tacit.errors import LinkError, ProtocolError, RefusedError, UsageError
from tacit.progress import Progress
from tacit.wire.codec import control, read_control
from tacit.wire.line import Alarm, Waiting, leave, leaving, refused_by

__all__ = ["Found", "Source", "Work", "align"]

_TABLE = "table.parquet"  # the rows of a query


def align(  # the protocol from top to bottom, in the order of its messages
    folder: Folder | str | Path,
    data: Source | None = None,
    *,
    ids: str | Sequence[str] | None = None,
    again: bool = False,
    cluster: str | None = None,
    progress: Progress = lambda *_: None,
    waiting: Waiting = lambda *_: None,
    wait: float = math.inf,
    alarm: Alarm = lambda *_: None,
    report: Callable[[str], None] = lambda _: None,
    after_restore: tuple[str, str] | None = None,
) -> Aligned:
    """Find the rows that all parties of the contract have, without showing anybody the others.

    All parties run this at the same time; it waits for them. A connection that breaks before a peer has got any answer
    is made again; after that it is an error, and whether to align again is for people to decide, on all sides: a peer
    that hangs up once it has its answer would else come back with other ids. After a kill it begins anew, in the same
    way. What is aligned already is returned as it is, so that a script may be started again.

    Args:
        folder: the party's folder.
        data: its table, as a path or a DataFrame; what party.toml names if not given.
        ids: the columns that name a row; those of party.toml if not given.
        again: align anew, on all sides, for new tables or where one side has lost what was aligned.
        cluster: of this party's machines, which share the multiplications; see `tacit.align.cluster.joined`.
        progress: told what is being done, how much of it is done and how much there is.
        waiting: told while a peer lets us wait.
        wait: how many seconds a peer is waited for that is not there; then it is a `GaveUpError`.
        alarm: told what was refused.
        report: told what became of the table's rows.
        after_restore: who lets the party align from a folder that is an older copy, and why; it stays on record.
    """
    folder = Folder.at(folder)
    folder.check_pair(folder.terms)
    way_of(folder.terms).check(folder)
    contract, where = folder.terms, folder.run_folder(folder.terms)
    with counted_facts(folder, ALIGNMENT, restored(where, lambda *_, **__: None, after_restore)):
        pass  # an older copy is refused before anybody is met
    if alignment_of(folder) is not None and not again:
        return aligned(folder)
    if has_begun(folder):
        raise UsageError(
            f"the run {contract.run!r} has begun, and its rows stay what they are: `tacit align --run NAME` on all "
            "sides begins another one"
        )
    columns = [ids] if isinstance(ids, str) else folder.table.ids if ids is None else ids
    with _room_in(where) as room:
        copied = data is None and folder.table.query is not None
        if copied:
            copy_table(folder, room / _TABLE, progress)
        source = data if data is not None else room / _TABLE if copied else folder.data
        progress("reading ids", 0, 0)
        own = usable_ids(folder, source, columns)
        report(str(own.report))
        if data is None or (folder.config.data is not None and set(folder.table.columns) <= {*columns_in(source)}):
            check_table(folder, source, own)
        limits = alignment_limits()
        with best_engine() if cluster is None else cluster_engine(cluster) as engine:
            work = Work.of(folder, own, engine, progress, lambda rows, key: held_out(folder.terms, source, rows, key))
            with server(folder, contract, limits) if folder.config.role == "label" else nullcontext() as door:
                found = work.until_done(
                    lambda: meet(
                        folder, contract, door, limits,
                        waiting=waiting, wait=wait, alarm=alarm, purpose=aligning(len(columns)),
                    )
                )  # fmt: skip
        if copied:
            with storing(where / _TABLE):
                os.replace(room / _TABLE, where / _TABLE)
        return store(
            folder, own, found.positions, id=found.id, seed=found.seed, digest=found.digest, columns=columns,
            tested=found.tested,
        )  # fmt: skip


@contextmanager
def _room_in(where: Path) -> Iterator[Path]:
    """A folder within a run's for what a query gives, empty at first and gone at the end.

    The run's folder belongs to one process meanwhile.
    """
    room = where / "aligning"
    with held(where / "lock"):
        try:
            _removed(room)  # as a kill left it
            make_folder(room)
            yield room
        finally:
            _removed(room)


def _removed(room: Path) -> None:
    with storing(room, "removed"):
        if room.exists():
            shutil.rmtree(room)


@dataclass(frozen=True)
class Found:
    """What parties have in common."""

    id: str  # as in `Aligned`, like those that follow
    seed: int  # of batches
    digest: str  # of the common ids
    positions: NDArray[np.int64]  # into this party's ids
    tested: int | None = None


def _hear_refusal(link: Link) -> None:
    """Raise what a peer refused before it hung up, where a link broke while we were still sending to it."""
    message = None
    with suppress(LinkError, ProtocolError):
        while (message := link.recv(0)) is not None and message.kind != "refusal":
            pass
    if message is not None and message.kind == "refusal":
        raise refused_by(message, link.peer)


@dataclass(frozen=True)
class Work:
    """One party's part in an alignment."""

    folder: Folder  # of the party
    contract: Terms  # what was agreed on
    own: Ids  # its ids
    engine: Engine  # multiplies
    history: History  # of what peers have asked before
    progress: Progress  # told how far it is
    # which of some rows of the table are for testing, by a seed; None where none are, as in predictions
    tests: Callable[[NDArray[np.int64], int], NDArray[np.bool_]] | None
    answered: list[str] = field(default_factory=list)  # the peers that may know by now which of their ids are common
    far: dict[str, tuple[int, int]] = field(default_factory=dict)  # multiplications done and to do, by peer
    telling: Lock = field(default_factory=Lock)  # of several threads one at a time

    @classmethod
    def of(
        cls, folder: Folder, own: Ids, engine: Engine, progress: Progress,
        tests: Callable[[NDArray[np.int64], int], NDArray[np.bool_]] | None = None,
    ) -> Work:  # fmt: skip
        """That of a party with these ids; every alignment counts, whatever for."""
        probing = folder.config.align
        history = History(Log(folder, ALIGNMENT), runs=probing.runs_a_month, allow_edits=probing.allow_edits)
        return cls(folder, folder.terms, own, engine, history, progress, tests)

    def until_done(self, meet_all: Callable[[], Mapping[str, Link]]) -> Found:
        """Where a link breaks, begin again with new keys while no peer has been answered."""
        while True:
            try:
                return self.run(meet_all())
            except LinkError as error:
                self.give_up(error, "`tacit align --again`")
            except RefusedError as error:  # by now the peer has heard all that it is to hear
                if error.field != "minimum":
                    raise
                spelled = f"{self.folder.config.name}'s ids are {self.own.report.spelling}"
                raise RefusedError(error.field, f"{error}; {spelled}") from error

    def give_up(self, error: LinkError, command: str) -> None:
        """A link has broken: whoever has been answered by then is not let in again by itself."""
        if self.answered:
            raise LinkError(self.after_answers(error, command)) from error

    def after_answers(self, error: LinkError, command: str) -> str:
        """What there is to say where a link has broken after somebody has been answered."""
        names = ", ".join(dict.fromkeys(self.answered))
        return (
            f"{error}; by then {names} had been answered and may know which of its ids are common, so "
            f"nobody is let in again by itself: ask there what happened, then run {command} on all sides; it "
            "counts among `[align] runs_a_month`"
        )

    def run(self, links: Mapping[str, Link]) -> Found:
        """Intersect with every peer, keep what all have, agree on a seed, and see that all ended alike."""
        # threads are waited for when links are closed
        with ThreadPoolExecutor(len(links), "tacit-peer") as threads, leaving(links.values()):
            try:
                found = self._run(links, threads)
            except LinkError:
                if self.folder.config.role == "features":  # nobody else receives from its one link any more
                    _hear_refusal(*links.values())
                raise
        leave(links.values(), None)
        return found

    def _run(self, links: Mapping[str, Link], threads: ThreadPoolExecutor) -> Found:
        at_work = [threads.submit(self._intersect, name, link) for name, link in links.items()]
        wait(at_work, return_when=FIRST_EXCEPTION)
        if failed := [each for each in at_work if each.done() and each.exception() is not None]:
            min(failed, key=lambda each: isinstance(each.exception(), LinkError)).result()  # raises it
        matches = [each.result() for each in at_work]
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
        positions, tested = self._tested(links, positions, agreed.seed)
        digest = seed.rows_digest(agreed.key, self.own.hashes[positions]).hex()
        for link in links.values():  # both sides show the digest of the rows that they ended with
            link.send(control("done", 0, {"rows": digest}))
            if read_control(expect(link, "done", 0, 60.0)) != {"rows": digest}:
                raise RefusedError(
                    "rows", f"{link.peer} ended with other rows than this party: run `tacit align --again` on all sides"
                )
        said = sorted(agreed.commitments.items())
        identity = hashlib.sha256(json.dumps([[who, what.hex()] for who, what in said]).encode()).hexdigest()
        return Found(identity, agreed.seed, digest, positions, tested)

    def _tested(
        self, links: Mapping[str, Link], positions: NDArray[np.int64], agreed: int
    ) -> tuple[NDArray[np.int64], int | None]:
        """The rows with those for testing at the end, and how many these are, where a party's column says which."""
        tester, name = self.contract.tester, self.folder.config.name
        if tester is None or self.tests is None:
            return positions, None
        if tester == name:
            mask = self.tests(self.own.rows[positions], agreed)
        elif self.folder.config.role == "label":
            mask = psi.recv_mask(links[tester], len(positions))
        else:
            (link,) = links.values()
            mask = psi.recv_mask(link, len(positions))
        for to, link in links.items() if self.folder.config.role == "label" or tester == name else ():
            if to != tester:
                psi.send_mask(link, mask)
        if mask.all():  # all parties know that
            raise RefusedError("test", f"all common rows are for testing by {tester}'s column: agree on another [test]")
        return np.concatenate([positions[~mask], positions[mask]]), int(mask.sum())

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
                link, self.own.hashes, engine=self.engine, cap=agreed.largest_set, minimum=agreed.smallest_set,
                admit=admit, progress=lambda done, total: self._told(name, done, total),
            )  # fmt: skip
        except RefusedError as error:
            for line in begun[-1:]:
                self.history.end(line, result=error.field)
            raise
        self.history.end(begun[-1], common=len(found))
        return found

    def _told(self, name: str, done: int, total: int) -> None:
        """How far it is with all peers together."""
        with self.telling:
            self.far[name] = done, total
            so_far, in_all = map(sum, zip(*self.far.values(), strict=True))
            self.progress(f"aligning with {', '.join(self.far)}", so_far, in_all)

    def _enough(self, positions: NDArray[np.int64]) -> None:
        least = self.contract.alignment.smallest_set
        if len(positions) < least:
            raise RefusedError(
                "minimum",
                f"{len(positions)} ids are common to all parties, fewer than the {least} that the contract asks for "
                "([alignment] smallest_set)",
            )
