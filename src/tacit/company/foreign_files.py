"""Somebody else's messages, read from files: what was sent in a split training that Tacit had no part in.

Numbers come as `.npy`, `.npz`, `.safetensors`, `.parquet`, `.csv` or `.pt`; a file that holds several things is
followed by a colon and the name of the one that is meant (`run.npz:grads`, `run.parquet:label`). Nothing is ever
unpickled but tensors, and large files are mapped into memory, not read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.company.array_files import Named, read_named
from tacit.contracts import View
from tacit.errors import DataError

_MOST = 1 << 27  # numbers of one kind of message that are audited at once: half a GiB of float32


@dataclass(frozen=True)
class Messages:
    """What was sent, and the truth about it."""

    view: View  # what the receiver saw; each example has the same id at each of its visits
    labels: Tensor | None  # of each id, 0 or 1; None where only embeddings are audited. (number of ids,)
    clean: Tensor | None  # gradients before they were protected, where they were given. (steps, batch, *cut)
    inputs: Tensor | None  # the features of each id, where they were given. (number of ids, inputs)
    revisited: bool  # whether any example came more than once
    notes: tuple[str, ...]  # what was done to the files' content on the way, in sentences
    files: dict[str, str]  # digests of the files that were read, by name


def read_messages(
    *,
    gradients: str | Path | None = None,
    labels: str | Path | None = None,
    embeddings: str | Path | None = None,
    inputs: str | Path | None = None,
    ids: str | Path | None = None,
    clean: str | Path | None = None,
    batch_size: int = 1024,
) -> Messages:
    """Read messages and what belongs to them; every mistake is a `DataError` that names the file.

    Args:
        gradients: what the feature party received: (rows, width), (steps, batch, *cut) or a list of batches.
        labels: one for each row: two numbers or two names.
        embeddings: what the feature party sent, in the shape of the gradients.
        inputs: what the embeddings are made of, one line for each row.  (rows, inputs)
        ids: of the example in each row; without them every row counts as another example.
        clean: gradients before they were protected, in the shape of the gradients.
        batch_size: of rows that are not batched yet.
    """
    if batch_size < 2:
        raise DataError(f"batch_size = {batch_size}: a batch has at least two rows, of both classes")
    main, what = (gradients, "gradients") if gradients is not None else (embeddings, "embeddings")
    if main is None:
        raise DataError("there is nothing to audit: pass gradients with labels, or embeddings with inputs")
    first = read_named(main, what)
    cuts = _Cuts.of(first, batch_size)
    sent = {what: first}
    for name, path in (("embeddings", embeddings), ("clean", clean)):
        if path is not None and name not in sent:
            sent[name] = read_named(path, name)
    batched = {name: cuts.batched(one) for name, one in sent.items()}
    if "clean" in sent and sent["clean"].width != first.width:
        raise DataError(
            f"{sent['clean'].name} is {sent['clean'].shape} and {first.name} is {first.shape}: clean gradients have as "
            "many numbers for each row as those that were sent"
        )
    owned = {
        name: read_named(path, name)
        for name, path in (("labels", labels), ("inputs", inputs), ("ids", ids)) if path is not None
    }  # fmt: skip
    rows, seen, codes = _ids(owned.get("ids"), cuts)
    truth, notes = _labels(owned["labels"], cuts, codes, seen) if "labels" in owned else (None, ())
    hidden = None
    if "inputs" in owned:
        inputs_of_rows = cuts.batched(owned["inputs"]).flatten(0, 1).flatten(1).float()
        hidden = _of_each_id(inputs_of_rows, owned["inputs"], codes, seen)
    if "gradients" in batched:
        view = View.of(batched["gradients"], rows=rows, embedding=batched.get("embeddings"))
    else:
        view = View.of_embeddings(batched["embeddings"], rows=rows)
    digests = {}
    for named in (*sent.values(), *owned.values()):
        with named.path.open("rb") as file:
            digests[named.path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    revisited = bool(rows.numel() > rows.unique().numel())
    return Messages(view, truth, batched.get("clean"), hidden, revisited, (*cuts.notes, *notes), digests)


@dataclass(frozen=True)
class _Cuts:
    """Which rows of a file are which batch: the same for all files of one audit."""

    named: str
    lengths: tuple[int, ...]  # of the batches in the file; a single one where rows are not batched yet
    kept: tuple[tuple[int, int], ...]  # where each audited batch begins and ends, in rows; all are as long
    notes: tuple[str, ...]

    @classmethod
    def of(cls, named: Named, batch_size: int) -> _Cuts:
        """The batches of a file, all of one length, and as many of the last ones as fit into memory."""
        lengths, notes = named.lengths, []
        rows = sum(lengths)
        common = max(set(lengths), key=lengths.count)
        ends = np.cumsum(lengths).tolist()
        spans = [(end - n, end) for n, end in zip(lengths, ends, strict=True) if n == common]
        if not named.batched or common * len(spans) < rows / 2:
            size = min(batch_size, rows)
            spans = [(start, start + size) for start in range(0, rows - size + 1, size)]
            if len(lengths) > 1:
                notes.append(
                    f"{named.name} has batches of {min(lengths)} to {max(lengths)} rows: they were cut anew into "
                    f"batches of {size}"
                )
        room = max(1, _MOST // max(1, named.width * (spans[0][1] - spans[0][0])))
        if len(spans) > room:
            notes.append(f"{named.name} is large: only the last {room} of {len(spans)} batches were looked at")
        kept = tuple(spans[-room:])
        left = rows - sum(end - start for start, end in spans)
        if left:
            notes.append(f"{left} of {rows} rows of {named.name} fill no whole batch and were left out")
        if kept[0][1] - kept[0][0] < 2:
            raise DataError(f"{named.name} is {named.shape}: batches of one row can't be told apart; pass more rows")
        return cls(named.name, lengths, kept, tuple(notes))

    @property
    def rows(self) -> int:
        return sum(self.lengths)

    def places(self) -> NDArray[np.int64]:
        """The rows of all audited batches.  (steps, batch)"""
        size = self.kept[0][1] - self.kept[0][0]
        return np.array([start for start, _ in self.kept])[:, None] + np.arange(size)

    def batched(self, named: Named) -> Tensor:
        """The audited batches of a file, in float32 or better and finite.  (steps, batch, *cut)"""
        if sum(named.lengths) != self.rows:
            raise DataError(
                f"{named.name} is {named.shape}, {sum(named.lengths)} rows in all, and {self.named} has {self.rows}: "
                "pass files of the same rows in the same order"
            )
        if not named.cut:
            raise DataError(
                f"{named.name} is {named.shape}, one number for each row: pass (rows, width) or (steps, batch, *cut)"
            )
        return torch.stack([named.rows(start, end) for start, end in self.kept])

    def column(self, named: Named) -> NDArray[np.generic]:
        """One value for each row of the file, for rows of all batches."""
        if named.cut not in ((), (1,)):
            raise DataError(f"{named.name} is {named.shape}: pass one value for each row, ({self.rows},)")
        values = named.column()
        if len(values) != self.rows:
            raise DataError(
                f"{named.name} is {named.shape}, {len(values)} values in all, and {self.named} has {self.rows} rows: "
                "pass one value for each row, in the same order"
            )
        return values


def _ids(named: Named | None, cuts: _Cuts) -> tuple[Tensor, NDArray[np.int64], NDArray[np.int64]]:
    """The code of the example in each audited row, the audited rows, and their codes again, flat."""
    places = cuts.places()
    if named is None:
        codes = np.arange(places.size)
    else:
        values = cuts.column(named)
        if values.dtype.kind == "f" and not np.array_equal(values, np.round(values.astype(np.float64))):
            raise DataError(f"{named.name}: ids are whole numbers or texts, and these have fractions")
        codes = np.unique(values[places.ravel()], return_inverse=True)[1].ravel()
    return torch.from_numpy(codes.reshape(places.shape).astype(np.int64)), places.ravel(), codes


def _labels(
    named: Named, cuts: _Cuts, codes: NDArray[np.int64], seen: NDArray[np.int64]
) -> tuple[Tensor, tuple[str, ...]]:
    """The label of each id, and what was taken for a positive one where that is not plain."""
    values = cuts.column(named)[seen]
    if values.dtype.kind == "f" and not np.isfinite(values.astype(np.float64)).all():
        row = int(seen[~np.isfinite(values.astype(np.float64))][0])
        raise DataError(f"{named.name}: row {row} (counted from 0) has no label: leave such rows out of all files")
    kinds, where = np.unique(values, return_inverse=True)
    if len(kinds) != 2:
        shown = ", ".join(str(kind) for kind in kinds[:5]) + (", ..." if len(kinds) > 5 else "")
        several = "leak AUC is about two classes; pass one against all"
        remedy = "pass rows of both classes" if len(kinds) < 2 else several
        raise DataError(f"{named.name} holds {len(kinds)} kinds of labels ({shown}) where there must be two: {remedy}")
    truth = _of_each_id(torch.from_numpy(where.ravel().astype(np.int64)), named, codes, seen)
    plain = kinds.dtype.kind in "buif" and kinds.astype(np.float64).tolist() == [0.0, 1.0]
    return truth, () if plain else (f"labels {kinds[1]!s} count as positive, {kinds[0]!s} as negative",)


def _of_each_id(values: Tensor, named: Named, codes: NDArray[np.int64], seen: NDArray[np.int64]) -> Tensor:
    ids = torch.from_numpy(codes)
    found = torch.empty(int(codes.max()) + 1, *values.shape[1:], dtype=values.dtype)
    found[ids] = values
    differs = (found[ids] != values).flatten(1).any(1) if values.ndim > 1 else found[ids] != values
    if bool(differs.any()):
        row = int(seen[int(differs.nonzero()[0])])
        raise DataError(
            f"{named.name}: row {row} (counted from 0) has another value than a later row with the same id: compare "
            "ids and rows"
        )
    return found
