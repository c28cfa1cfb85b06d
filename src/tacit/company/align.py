"""`tacit align`: which rows of this party's table the others have as well, in an order that all share.

It leaves the row numbers, and a file with everything else, a digest of the rows and one of itself. A row number that
has moved would train on other people's labels without any error, so a file that is torn, edited or from another run is
never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align import psi, seed
from tacit.align.arrays import numbers
from tacit.align.cluster import cluster_engine
from tacit.align.control import expect
from tacit.align.curve import Engine, best_engine
from tacit.align.encoder import Columns
from tacit.align.history import Alignment, History
from tacit.align.ids import Ids, read_ids
from tacit.align.sources import Source, check_columns, load
from tacit.company.folder import Folder
from tacit.company.meeting import alignment_limits, meet, server
from tacit.config import Data, Terms
from tacit.contracts import Link
from tacit.disk import held, make_folder, read_json, remove, replaced, storing, sync_folder, write_json
from tacit.errors import LinkError, ProtocolError, RefusedError, StorageError, UsageError
from tacit.views.progress import Show
from tacit.wire.codec import control, read_control
from tacit.wire.line import Alarm, Waiting, last_words, refused_by

__all__ = ["FILE", "Aligned", "Found", "Source", "Work", "align", "aligned", "columns_of", "read", "store"]

FILE = "alignment.json"
_ROWS = "rows.npy"
_TABLE = "table.parquet"  # the rows of a query, of which the ids were taken
_REMEDY = "bring the file back as it was, or run `tacit align --again` on all sides"
_FIELDS = {"run": str, "count": int, "id": str, "seed": int, "digest": str}
_TYPES = _FIELDS | {"rows_sha256": str, "fields_sha256": str}


@dataclass(frozen=True)
class Aligned:
    """What an alignment leaves with one party."""

    run: str  # the contract's run
    count: int  # rows that all parties have
    id: str  # digest of all parties' commitments: the name of this alignment
    seed: int  # draws the batches; nobody chose it
    digest: str  # keyed digest of the common ids in their order, equal on all sides
    folder: Path  # where the row numbers are kept

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row numbers in this party's table, in the common order; read from disk as they are used."""
        path = self.folder / _ROWS
        try:
            rows: NDArray[np.int64] = numbers(path, "int64")
        except (OSError, ValueError, EOFError) as error:
            raise _unusable(path, f"can't be read ({error})") from None
        if rows.dtype != np.int64 or rows.shape != (self.count,):
            raise _unusable(path, f"has {rows.dtype} {rows.shape}, not {self.count} row numbers")
        return rows

    def table(self, source: Source, columns: Sequence[str]) -> pl.DataFrame:
        """These columns of the party's table, the common rows alone, in the common order."""
        return load(source, self.rows, columns)


def aligned(folder: Folder | str | Path) -> Aligned:
    """What was aligned for the contract's run; an error that says what to do where nothing was."""
    folder = Folder.at(folder)
    where = folder.run_folder(folder.terms)
    if not (where / FILE).exists():
        raise UsageError(
            f"nothing is aligned for the run {folder.terms.run!r} here: run `tacit align` on all sides, or "
            "`tacit align --again` on all sides where the others have aligned before"
        )
    return read(where, folder.terms.run)


def columns_of(folder: Folder) -> Columns:
    """The party's own columns."""
    return Columns(folder.table.categorical, folder.table.numeric, folder.table.flagged)


def align(  # the protocol from top to bottom, in the order of its messages
    folder: Folder | str | Path,
    data: Source | None = None,
    *,
    ids: str | Sequence[str] | None = None,
    again: bool = False,
    cluster: str | None = None,
    progress: Show = lambda *_: None,
    waiting: Waiting = lambda *_: None,
    alarm: Alarm = lambda *_: None,
    report: Callable[[str], None] = lambda _: None,
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
        alarm: told what was refused.
        report: told what became of the table's rows.
    """
    folder = Folder.at(folder)
    folder.check_pair(folder.terms)
    contract, where = folder.terms, folder.run_folder(folder.terms)
    if (where / FILE).exists() and not again:
        return aligned(folder)
    if (where / "begun").exists() or any((where / "checkpoints").glob("*.safetensors")):
        raise UsageError(
            f"the run {contract.run!r} has begun, and its rows stay what they are: agree on another `run` in "
            "contract.toml to align anew"
        )
    columns = folder.table.ids if ids is None else ids
    with _room_in(where) as room:
        copied = data is None and _copied(folder.table, room / _TABLE, progress)
        source = data if data is not None else room / _TABLE if copied else folder.data
        progress("reading ids", 0, 0)
        own = read_ids(source, columns)
        report(str(own.report))
        if data is None:  # a misspelt column would else be told by `tacit train`, when the alignment is spent
            check_columns(source, folder.table.columns)
        limits = alignment_limits()
        with best_engine() if cluster is None else cluster_engine(cluster) as engine:
            work = Work.of(folder, own, engine, progress)
            with server(folder, contract, limits) if folder.config.role == "label" else nullcontext() as door:
                found = work.until_done(lambda: meet(folder, contract, door, limits, waiting=waiting, alarm=alarm))
        rows, table = own.rows[found.positions], room / _TABLE if copied else None
        return store(where, run=contract.run, id=found.id, seed=found.seed, digest=found.digest, rows=rows, table=table)


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


def _copied(table: Data, path: Path, progress: Show) -> bool:
    """Whether the table is that of a query; its rows are then in this file, since they are known by their numbers."""
    if table.query is not None:
        from tacit.align.sql import copy_rows

        wanted = (*table.ids, *table.columns, *table.coin_id)
        copy_rows(table.query, table.url_from, wanted, path, lambda done: progress("reading rows", done, 0))
    return table.query is not None


@dataclass(frozen=True)
class Found:
    """What parties have in common."""

    id: str  # as in `Aligned`, like those that follow
    seed: int  # of batches
    digest: str  # of the common ids
    positions: NDArray[np.int64]  # into this party's ids


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
    progress: Show  # told how far it is
    answered: list[str] = field(default_factory=list)  # the peers that may know by now which of their ids are common
    far: dict[str, tuple[int, int]] = field(default_factory=dict)  # multiplications done and to do, by peer
    telling: Lock = field(default_factory=Lock)  # of several threads one at a time

    @classmethod
    def of(cls, folder: Folder, own: Ids, engine: Engine, progress: Show) -> Work:
        """That of a party with these ids; every alignment counts, whatever for."""
        probing, path = folder.config.align, folder.run_folder(folder.terms).parent / "alignments.jsonl"
        history = History(path, runs=probing.runs_a_month, allow_edits=probing.allow_edits)
        return cls(folder, folder.terms, own, engine, history, progress)

    def until_done(self, meet_all: Callable[[], Mapping[str, Link]]) -> Found:
        """Where a link breaks, begin again with new keys while no peer has been answered."""
        while True:
            try:
                return self.run(meet_all())
            except LinkError as error:
                self.give_up(error, "`tacit align --again`")

    def give_up(self, error: LinkError, command: str) -> None:
        """A link has broken: whoever has been answered by then is not let in again by itself."""
        if self.answered:
            names = ", ".join(dict.fromkeys(self.answered))
            raise LinkError(
                f"{error}; by then {names} had been answered and may know which of its ids are common, so "
                f"nobody is let in again by itself: ask there what happened, then run {command} on all sides; it "
                "counts among `[align] runs_a_month`"
            ) from error

    def run(self, links: Mapping[str, Link]) -> Found:
        """Intersect with every peer, keep what all have, agree on a seed, and see that all ended alike."""
        with ThreadPoolExecutor(len(links), "tacit-peer") as threads:  # whose end is waited for when links are closed
            try:
                return self._run(links, threads)
            except RefusedError as error:
                for link in links.values():
                    last_words(link, error)
                raise
            except LinkError:
                if self.folder.config.role == "features":  # nobody else receives from its one link any more
                    _hear_refusal(*links.values())
                raise
            finally:
                for link in links.values():
                    link.close()

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
        digest = seed.rows_digest(agreed.key, self.own.hashes[positions]).hex()
        for link in links.values():  # both sides show the digest of the rows that they ended with
            link.send(control("done", 0, {"rows": digest}))
            if read_control(expect(link, "done", 0, 60.0)) != {"rows": digest}:
                raise RefusedError(
                    "rows", f"{link.peer} ended with other rows than this party: run `tacit align --again` on all sides"
                )
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
                "minimum", f"{len(positions)} ids are common to all parties, the contract wants {least} at least"
            )


# --- what it leaves ---------------------------------------------------------------------------------------------------


def store(
    where: Path, *, run: str, id: str, seed: int, digest: str, rows: NDArray[np.int64], table: Path | None = None
) -> Aligned:
    """Write an alignment down: a query's table and the row numbers first, then the file that says they are there."""
    remove(where / FILE)
    if table is not None:
        with storing(where / _TABLE):
            sync_folder(where)  # an older alignment is gone for good: its row numbers are those of another table
            os.replace(table, where / _TABLE)
    hashed = hashlib.sha256()
    replaced(where / _ROWS, lambda file: np.lib.format.write_array(_Hashed(file, hashed), rows, version=(1, 0)))
    aligned = Aligned(run, len(rows), id, seed, digest, where)
    fields = {name: getattr(aligned, name) for name in _FIELDS} | {"rows_sha256": hashed.hexdigest()}
    write_json(where / FILE, {**fields, "fields_sha256": _digest(fields)})
    return aligned


def read(where: Path, run: str) -> Aligned:
    """An alignment as it was written down for this run; a `StorageError` where anything of it is not as it was."""
    path, rows = where / FILE, where / _ROWS
    fields: dict[str, Any] = read_json(path, _REMEDY)
    if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != _TYPES:
        raise _unusable(path, f"does not have the fields {', '.join(_TYPES)}, each of its kind")
    if _digest({name: value for name, value in fields.items() if name != "fields_sha256"}) != fields["fields_sha256"]:
        raise _unusable(path, "has changed since it was written")
    if fields["run"] != run:
        raise _unusable(path, f"is that of the run {fields['run']!r}, not of {run!r}")
    try:
        with rows.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unusable(rows, f"can't be read ({error.strerror})") from None
    if digest != fields["rows_sha256"]:
        raise _unusable(rows, "has changed since it was written")
    aligned = Aligned(**{name: fields[name] for name in _FIELDS}, folder=where)
    _ = aligned.rows  # as many as were counted
    return aligned


class _Hashed:
    """A file that hashes what is written to it on the way: what comes back later must be what was meant."""

    def __init__(self, file: IO[bytes], hashed: Any) -> None:
        self._file = file
        self._hashed = hashed

    def write(self, part: bytes) -> int:
        self._hashed.update(part)
        return self._file.write(part)


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _unusable(path: Path, why: str) -> StorageError:
    return StorageError(f"{path} {why}: {_REMEDY}")
