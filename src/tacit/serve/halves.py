"""A party's half of a finished run, behind one small interface: what `tacit predict` and `tacit serve` compute with.

A feature party has an `Embedder`, the label party a `Scorer`, whichever way they trained. Neither needs the table that
was trained on: columns are encoded by what the training has learnt of them. A row gets the same bytes and the same
score whenever it is asked for and whatever rows come with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from tacit.align.cache import MANIFEST
from tacit.align.encoder import Encoder, Inputs
from tacit.company.audit import find_run
from tacit.company.check import columns_of
from tacit.company.export import clear
from tacit.company.folder import Folder
from tacit.company.ways import way_of
from tacit.disk import write_json
from tacit.errors import DataError, StorageError, UsageError

PINS = "halves.json"
"""The file in a run's folder that knows the digests of both halves from the first time they were used."""


class Embedder(Protocol):
    """A feature party's half."""

    @property
    def version(self) -> str:
        """What both sides must agree on before anything is sent."""

    @property
    def digest(self) -> str:
        """Of everything that decides an embedding."""

    @property
    def width(self) -> int:
        """Bytes of a row's embedding."""

    @property
    def columns(self) -> tuple[str, ...]:
        """That a table of rows must have."""

    @property
    def encoder(self) -> Encoder:
        """Of the party's columns."""

    @property
    def booked(self) -> tuple[str, float] | None:
        """The form in which rows enter the book of what was sent, and the most that was read of it, if any."""

    def embed(self, table: pl.DataFrame, rows: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
        """The embedding of any rows, as it may leave: protected, and the same bytes for a row always.  (rows, width)

        `rows` are their numbers in the party's file, so that an error can name them; None counts from 0.
        """

    def embed_inputs(self, inputs: Inputs) -> NDArray[np.uint8]:
        """The same of rows that are encoded already."""


class Scorer(Protocol):
    """The label party's half."""

    @property
    def versions(self) -> Mapping[str, str]:
        """For each feature party what both sides must agree on before anything is sent."""

    @property
    def digest(self) -> str:
        """Of everything that decides a score."""

    @property
    def widths(self) -> Mapping[str, int]:
        """For each feature party the bytes of a row's embedding."""

    @property
    def encoder(self) -> Encoder:
        """Of the party's own columns."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names, which a table of rows must have."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of a row's scores: "score", or one for each of several classes."""

    @property
    def fallback(self) -> bool:
        """Whether rows without embeddings can be scored."""

    def score(
        self,
        table: pl.DataFrame,
        embeddings: Mapping[str, NDArray[np.uint8]] | None,
        rows: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float64]:
        """Probabilities or numbers of rows, with all embeddings, or without any by the fallback.  (rows, outputs)

        The table has the party's own columns, and at least one column of whatever else; embeddings are as each feature
        party's embedder gave them, or None for the fallback; `rows` are as for `Embedder.embed`.
        """


def load_embedder(
    path: Folder | str | Path, what: str, *, override: str | None = None, reason: str | None = None
) -> Embedder:
    """A feature party's half, if it may be let out, with what is to be done with it for the record; see `clear`."""
    folder, where = _cleared(path, "features", what, override, reason)
    return cast(Embedder, way_of(folder.terms).embedder(folder, where))


def load_scorer(
    path: Folder | str | Path, what: str, *, override: str | None = None, reason: str | None = None
) -> Scorer:
    """The label party's half, if it may be let out; the arguments are those of `load_embedder`."""
    folder, where = _cleared(path, "label", what, override, reason)
    return cast(Scorer, way_of(folder.terms).scorer(folder, where))


def _cleared(
    path: Folder | str | Path, role: str, what: str, override: str | None, reason: str | None
) -> tuple[Folder, Path]:
    """The folders of a party and of its finished run, over the same gate as `export`."""
    folder, where = find_run(path)
    if folder.config.role != role:
        raise UsageError(f"{folder.path} is that of a party with the role {folder.config.role!r}, not {role!r}")
    way_of(folder.terms).check_over(folder, where)
    clear(path, what, override=override, reason=reason)
    return folder, where


# --- columns ---------------------------------------------------------------------------------------------------------


def trained_encoder(folder: Folder, where: Path, data: str | None) -> Encoder:
    """What a run has learnt of the party's columns; a `StorageError` where that is no longer there as it was.

    By the digest of what was trained on, inputs that were made again of another table are known.
    """
    columns, inputs = columns_of(folder), where / "inputs"
    if not columns.names and not inputs.exists():  # of a label party without columns of its own
        return Encoder(columns, (), (), ())
    try:
        about, state = json.loads((inputs / MANIFEST).read_bytes()), (inputs / "encoder.json").read_bytes()
        whole = about["encoder"] == hashlib.sha256(state).hexdigest() and data in (None, about["digest"])
        encoder = Encoder.from_state(json.loads(state))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{inputs} does not say how columns were encoded in training ({error!r}): bring it back from a backup"
        ) from None
    if not whole:
        raise StorageError(
            f"{inputs} was made again since the training, of another table: bring it back from a backup, or put the "
            "table back that was trained on and run `tacit train`, which makes it again"
        )
    if encoder.columns != columns:
        raise UsageError(
            f"{folder.path / 'party.toml'} names other columns than this run was trained with: put categorical, "
            "numeric, flagged, dates and times back as they were"
        )
    return encoder


def encoded(encoder: Encoder, table: pl.DataFrame, rows: NDArray[np.int64] | None) -> Inputs:
    """Any rows as inputs of a model; where there are no columns, as many rows of nothing."""
    if encoder.columns.names:
        return encoder.encode(table, rows)
    empty = torch.empty(len(table), 0)
    return Inputs(empty.long(), empty, ())


# --- what must stay the same -----------------------------------------------------------------------------------------


def digest_of(*parts: str | bytes) -> str:
    """A SHA-256 of all parts, each with its length."""
    found = hashlib.sha256(b"tacit half 1")
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        found.update(len(raw).to_bytes(8, "big") + raw)
    return found.hexdigest()


def pin(where: Path, party: str, digest: str) -> None:
    """Remember the digest of a party's half when it is first used, and refuse another one from then on.

    A run has one model: whatever makes a half give other numbers later (settings, keys, a file that was changed) would
    else go unnoticed, in this party's own folder or at a peer.
    """
    path = where / PINS
    known: dict[str, str] = json.loads(path.read_bytes()) if path.exists() else {}
    if known.get(party, digest) != digest:
        raise DataError(
            f"the half of {party} is another one than when it was first used ({known[party][:12]} then, {digest[:12]} "
            "now): its run's files, its keys or its settings have changed; put them back as they were"
        )
    if party not in known:
        write_json(path, {**known, party: digest})
