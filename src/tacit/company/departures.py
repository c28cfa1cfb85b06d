"""What ever left of a feature party's rows: the book by which later embeddings are attacked with all before them, and
what the budgets of predictions and services rest on. How much there is of each is counted apart from the folder.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.encoder import Inputs
from tacit.company.aligned import Log, aligned, counted_facts, facts_of
from tacit.company.facts import ALIGNMENT, PREDICTION, SPLIT_RUN
from tacit.company.folder import Folder
from tacit.company.shipments import Shipments
from tacit.company.status import Status
from tacit.labels.records import Keys, keyed
from tacit.labels.tally import Counted, Restored, Tally
from tacit.report.exchanged import Departure
from tacit.report.run_files import MARK, SERVED

_SOME = 1 << 16  # rows at a time
_EMBEDDINGS = Counted(
    "what this party ever sent of its columns in one exchange",
    "its book of embeddings has {} entries, and {} were made",
    "What it has forgotten would not be attacked together with what leaves next: bring back the newest copy, "
    "embeddings/book.sqlite in it",
)
_SERVED = Counted(
    "the different rows of this run that left for serving",
    "its served.bin knows of {} rows, and {} have left",
    "Rows that left would be in no budget: bring back the newest copy, served.bin in it",
)


def book_of(folder: Folder) -> Shipments:
    """The book, to read in."""
    return Shipments(folder.path / "embeddings")


@contextmanager
def counted_book(folder: Folder, restored: Restored | None = None) -> Iterator[Shipments]:
    """The book, to write in: how many entries it has is counted apart from the folder, before anything leaves.

    What it has forgotten would not be attacked together with what leaves next. Where somebody answers for going on from
    an older copy of the folder, `restored` is told what is missing.
    """
    book = book_of(folder)
    with Tally(folder.tally_path_of("embeddings"), restored, _EMBEDDINGS).around(lambda: book.entries):
        yield book


def row_keys(folder: Folder, hashes: NDArray[np.uint8]) -> Keys:
    """What the book calls rows with these hashes of their ids, in every run."""
    return keyed(hmac.digest(folder.secret, b"tacit embeddings 1", "sha256"), hashes, "row")


def column_digests(folder: Folder, inputs: Inputs) -> Keys:
    """By what the book knows rows again whose columns are as they were: a keyed digest of each encoded row."""
    key, found = hmac.digest(folder.secret, b"tacit columns 1", "sha256"), []
    for start in range(0, len(inputs), _SOME):
        rows = inputs[start : start + _SOME]
        parts = [np.ascontiguousarray(part.numpy()).view(np.uint8) for part in rows.tensors if part.shape[1]]
        found.append(keyed(key, np.concatenate(parts, axis=1), "columns"))
    return np.concatenate(found) if found else np.empty((0, 16), np.uint8)


def predictions(folder: Folder) -> Log:
    """What left for predictions and services in all runs, or was asked for: rows asked for by key count over all."""
    return Log(folder, PREDICTION)


def disclosed(folder: Folder) -> tuple[Departure, ...]:
    """What left for the contract's run beside the messages of one exchange, from the party's file of facts: whether
    ids are common, first of all; gradients or embeddings step by step; what predictions took.
    """
    facts, terms = facts_of(folder), folder.terms
    peers, label = folder.peers(terms), folder.config.role == "label"
    sent = [one for one in alignments(facts.records(ALIGNMENT)) if one.to in peers]
    for run in facts.records(SPLIT_RUN, dated=True):
        if run["contract"] == terms.digest:
            what = f"{'gradients' if label else 'embeddings'}, {run['epochs']} visits, under {run['protection']}"
            rows = aligned(folder).train
            sent += [Departure(time=run["written"], what=what, to=to, rows=rows) for to in peers]
    left = [one for one in facts.records(PREDICTION) if one["run"] == terms.run]
    closed = {one.get("job") for one in left if not one["what"].startswith("room for")}
    for one in left:
        if not (one["what"].startswith("room for") and one.get("job") in closed):
            what = f"{one['what']}, for predictions"
            sent.append(Departure(time=one["time"], what=what, to=one["to"], rows=one["rows"]))
    return tuple(sent)


def note_alignments(folder: Folder, status: Status) -> None:
    """Put on a run's log what was told before it: to which peers of the contract which of their ids are common."""
    for one in alignments(facts_of(folder).records(ALIGNMENT)):
        if one.to in folder.peers(folder.terms):
            status.log("left", **one.model_dump())


def alignments(records: Sequence[Mapping[str, Any]]) -> list[Departure]:
    """The alignments that a peer was answered in, from their records: what it learnt of its own ids."""
    found = []
    for place, one in enumerate(records):
        if one["result"] != "begun":
            continue
        later = (after for after in records[place + 1 :] if after["peer"] == one["peer"])
        end = next(later, one)
        common = end["common"] if end["result"] == "done" else -1
        what = f"which of its {one['peer_count']:,} ids are among {one['count']:,} here"
        size = 32 * one["count"] + 16 * one["peer_count"]  # points, and products of the peer's points
        what += "" if common >= 0 else " (it broke off: as far as it was answered)"
        found.append(Departure(time=one["date"], what=what, to=one["peer"], rows=max(0, common), bytes=size))
    return found


def served_tally(folder: Folder, where: Path, restored: Restored | None = None) -> Tally:
    """Counts the different rows of a run that left for serving."""
    return Tally(folder.tally_path_of(f"served-{where.name}"), restored, _SERVED)


def go_on_predicting(folder: Folder, where: Path, restored: Restored | None) -> None:
    """Count anew from what the folder has, where somebody answers for that; else nothing."""
    if restored is None:
        return
    with counted_facts(folder, PREDICTION, restored):
        pass
    marks = where / SERVED
    with served_tally(folder, where, restored).around(lambda: marks.stat().st_size // MARK if marks.exists() else 0):
        pass
