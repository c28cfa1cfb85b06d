"""The rows that all parties have, in an order that all share: ids that were aligned, looked up in a party's table.

A table may have been sorted, exported anew or added to since it was aligned: whose row it is never depends on where it
stands. Of an id that is gone since, or that several rows have now, nothing is known any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.cache import file_facts
from tacit.align.directory import Directory
from tacit.align.ids import Ids, read_ids
from tacit.align.sources import Source, load
from tacit.company.check import check_table, extra_columns
from tacit.company.facts import ALIGNMENT, FILE, PREDICTION, SPLIT_RUN, Alignment, Facts
from tacit.company.folder import Folder
from tacit.errors import DataError, UsageError
from tacit.labels.records import Keys
from tacit.labels.tally import Counted, Restored, Tally
from tacit.progress import Progress

_GONE = 0.01  # of the table that was aligned, beyond which it must be aligned anew


@dataclass(frozen=True)
class Found:
    """What of an alignment is in a table as it is now."""

    rows: NDArray[np.int64]  # row numbers in the common order; -1 for an id that is gone
    keys: Keys  # of the common ids, as the file of facts has them. (rows, 16)
    gone: int  # ids of the whole table that was aligned that are gone, common or not
    own: Ids  # all ids of the table that can be used
    facts: Mapping[str, Any]  # of the file


_FOUND: WeakKeyDictionary[Folder, dict[tuple[str, str], Found]] = WeakKeyDictionary()
"""What was found for an open folder, by alignment and file: a command reads and hashes a table's ids once."""


@dataclass(frozen=True)
class Aligned:
    """What an alignment leaves with one party."""

    run: str  # the contract's run
    count: int  # rows that all parties have
    id: str  # digest of all parties' commitments: the name of this alignment
    seed: int  # draws the batches; nobody chose it
    digest: str  # keyed digest of the common ids in their order, equal on all sides
    _folder: Folder = field(repr=False, compare=False)
    _alignment: Alignment = field(repr=False, compare=False)
    _looked_up: dict[str, Found] = field(default_factory=dict, repr=False, compare=False)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row numbers in this party's table as it is now, in the common order; -1 for an id that it no longer has."""
        return self.found(self._folder.data).rows

    @property
    def train(self) -> int:
        """How many of the rows are trained on: the first ones."""
        tested = self._alignment.tested
        return self._folder.terms.train_count(self.count) if tested is None else self.count - tested

    @property
    def missing(self) -> int:
        """Common rows that this party's table no longer has."""
        return int((self.rows < 0).sum())

    def found(self, source: Source) -> Found:
        """What is found in a table as it is now; a file may not change from the first look at it on.

        Where too much of what was aligned is gone, whether it is common or not, that is a `DataError`.
        """
        if isinstance(source, pl.DataFrame):
            return self._look_up(source, {})
        path, facts = str(source), file_facts(Path(source))
        if path not in self._looked_up:
            known, name = _FOUND.setdefault(self._folder, {}), (self.id, path)
            if name not in known or known[name].facts != facts:
                known[name] = self._look_up(source, facts)
            self._looked_up[path] = known[name]
        if self._looked_up[path].facts != facts:
            raise DataError(f"{source} was changed while it was read: start again, once it is whole")
        return self._looked_up[path]

    def _look_up(self, source: Source, facts: Mapping[str, Any]) -> Found:
        own, book = read_ids(source, self._alignment.columns), facts_of(self._folder)
        keys = book.keys(self._alignment)
        rows = Directory(book.keys_of(own.hashes), own.rows).rows(keys)
        gone = int((rows < 0).sum())
        if gone > _GONE * len(rows):
            name = "the table" if isinstance(source, pl.DataFrame) else str(source)
            raise DataError(
                f"{gone} of the {len(rows)} ids that were aligned are no longer in {name}, or in several rows of it: "
                "put the table back, or run `tacit align --again` on all sides"
            )
        return Found(rows[: self.count], keys[: self.count].copy(), gone, own, facts)

    def table(self, source: Source, columns: Sequence[str]) -> pl.DataFrame:
        """These columns of the party's table, the common rows alone, in the common order; one that is gone is empty."""
        table = load(source, self.found(source).rows, columns)
        self.found(source)  # it was not changed meanwhile
        return table

    @property
    def keys(self) -> Keys:
        """For each common row a key of its id, whatever else is in the table.  (count, 16)"""
        found = next(iter(self._looked_up.values()), None)
        return facts_of(self._folder).keys(self._alignment)[: self.count] if found is None else found.keys


def facts_of(folder: Folder) -> Facts:
    """The party's file of facts."""
    return Facts(folder.path / FILE, folder.secret)


_BACK = "bring back the newest copy, facts.sqlite in it"
_COUNTED = {
    SPLIT_RUN: Counted(
        "the split runs of this party",
        "its file of facts knows of {} split runs, and something left in {}",
        f"What left in the others would count nowhere: {_BACK}",
    ),
    ALIGNMENT: Counted(
        "what others have aligned with this party",
        "its file of facts has {} lines about alignments, and {} were written",
        f"Alignments that it has forgotten would be in no limit: {_BACK}",
        "tacit align",
    ),
    PREDICTION: Counted(
        "what this party ever sent for predictions",
        "its file of facts has {} lines about predictions, and {} were written",
        f"Rows that left would be in no budget: {_BACK}",
    ),
}


_TALLIES = {SPLIT_RUN: "split-runs", ALIGNMENT: "alignments", PREDICTION: "predicted"}
"""The names of these counts; "predictions" was that of an older version's, over files that are no longer read."""

_OLDER = {ALIGNMENT: "runs/alignments.jsonl", PREDICTION: "runs/*/predictions.jsonl"}


@contextmanager
def counted_facts(folder: Folder, kind: str, restored: Restored | None = None) -> Iterator[Facts]:
    """The party's file of facts, which has forgotten no record of this kind: they are counted apart from the folder."""
    for older in folder.path.glob(_OLDER[kind]) if kind in _OLDER else ():
        raise UsageError(
            f"{older} is that of an older version of Tacit, and what it counted is in no limit of this one: remove it, "
            f"and {kind}s are counted anew from here on"
        )
    facts = facts_of(folder)
    tally = Tally(folder.tally_path_of(_TALLIES[kind]), restored, _COUNTED[kind])
    with tally.around(lambda: facts.count(kind)):
        yield facts


@dataclass(frozen=True)
class Log:
    """The records of a kind in a party's file of facts."""

    folder: Folder  # of the party
    kind: str  # of the records

    def read(self) -> list[dict[str, Any]]:
        """All of them, oldest first."""
        with counted_facts(self.folder, self.kind) as facts:
            return facts.records(self.kind)

    def append(self, fields: Mapping[str, Any]) -> None:
        """Add one; it is on the disk when this returns."""
        with counted_facts(self.folder, self.kind) as facts:
            facts.record(self.kind, fields)


def aligned(folder: Folder | str | Path) -> Aligned:
    """What was aligned for the contract's run; an error that says what to do where nothing was.

    A run that has begun keeps the alignment that it was begun with; else it is the newest one of the contract's parties
    by this party's id columns, whichever run it was made for.
    """
    folder = Folder.at(folder)
    found = alignment_of(folder)
    if found is None and (folder.run_folder(folder.terms) / "alignment.json").exists():
        raise UsageError(
            f"the run {folder.terms.run!r} was aligned by an older version of Tacit, which knew rows by where they "
            "stood in the table: run `tacit align` on all sides, under another `run`"
        )
    if found is None:
        raise UsageError(
            f"nothing is aligned for the run {folder.terms.run!r} here: run `tacit align` on all sides, or "
            "`tacit align --again` on all sides where the others have aligned before"
        )
    least = folder.terms.alignment.smallest_set
    if found.count < least:
        raise UsageError(
            f"{found.count} ids are common to all parties, and the contract wants {least} at least: agree on fewer, or "
            "run `tacit align --again` on all sides with more"
        )
    return Aligned(folder.terms.run, found.count, found.id, found.seed, found.digest, folder, found)


def alignment_of(folder: Folder) -> Alignment | None:
    """What was aligned for the contract's run, if anything was."""
    facts, terms = facts_of(folder), folder.terms
    parties = (terms.label_party, *terms.feature_parties)
    columns = None if folder.config.data is None else folder.config.data.ids
    return facts.of_run(terms.run) or facts.latest(parties, columns, terms.tested)


def store(
    folder: Folder, own: Ids, positions: NDArray[np.int64], *, id: str, seed: int, digest: str, columns: Sequence[str],
    tested: int | None = None,
) -> Aligned:  # fmt: skip
    """Write down which of this party's ids all parties have, in the common order."""
    facts, terms = facts_of(folder), folder.terms
    parties = tuple(sorted((terms.label_party, *terms.feature_parties)))
    others = np.ones(len(own), np.bool_)
    others[positions] = False
    keys = facts.keys_of(own.hashes)
    made = Alignment(id, parties, tuple(columns), len(positions), len(own), seed, digest, tested, terms.tested)
    facts.add(made, np.concatenate([keys[positions], keys[others]]))
    return Aligned(terms.run, made.count, id, seed, digest, folder, made)


def has_begun(folder: Folder) -> bool:
    """Whether the contract's run has begun, and so keeps its alignment."""
    return facts_of(folder).of_run(folder.terms.run) is not None


def pin(folder: Folder, progress: Progress = lambda *_: None) -> Aligned:
    """What was aligned, which from now on stays that of the contract's run; its rows are there, and can be used.

    Nothing in here hangs on which of them are common.
    """
    rows = aligned(folder)
    if folder.config.data is not None:
        if folder.table.query is not None and not folder.data.exists():
            copy_table(folder, folder.data, progress)
        check_table(folder, folder.data, rows.found(folder.data).own)
    facts_of(folder).begin(rows.run, rows._alignment)
    return rows


def copy_table(folder: Folder, path: Path, progress: Progress) -> None:
    """Write the rows of a query to a file: what it gives later may be something else."""
    from tacit.align.sql import copy_rows

    table = folder.table
    wanted = list(dict.fromkeys((*table.ids, *table.columns, *table.coin_id, *extra_columns(folder))))
    copy_rows(str(table.query), table.url_from, wanted, path, lambda done: progress("reading rows", done, 0))
