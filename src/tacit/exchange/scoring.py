"""The two halves of a training in one exchange: a bottom with its cells, and two private heads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.encoder import Encoder, Inputs
from tacit.company.aligned import aligned
from tacit.company.check import columns_of
from tacit.company.folder import Folder
from tacit.company.shipments import version_of
from tacit.errors import UsageError
from tacit.exchange.cells import Cells
from tacit.exchange.common import run_id, threads_of
from tacit.exchange.head import Head, load_head
from tacit.exchange.label_party import received_of
from tacit.exchange.learn import Bottom, load_bottom
from tacit.exchange.releasing import shown
from tacit.serve.halves import digest_of, encoded, trained_encoder

_FEW = 1024  # rows


@dataclass(frozen=True)
class ExchangeEmbedder:
    """A feature party's half: see `tacit.serve.halves.Embedder`."""

    folder: Folder  # of the party
    encoder: Encoder  # of its columns
    bottom: Bottom  # that was learnt
    cells: Cells  # of its numbers
    withheld: tuple[str, ...]  # columns that it was not shown, whatever party.toml withholds now
    worst: float  # the most that decoders recovered of any column, before the training's release
    version: str  # digest of the embedding of the aligned rows, which both sides have
    digest: str  # of everything that decides an embedding

    @classmethod
    def load(cls, folder: Folder, where: Path) -> Self:
        """From a finished run."""
        contract, release = folder.one_shot, where / "release"
        about = json.loads((release / "release.json").read_bytes())
        data = json.loads((where / "guard.json").read_bytes())["data"]
        encoder = trained_encoder(folder, where, data)
        bottom, cells = load_bottom(where / "learned"), Cells.read(about["cells"])
        withheld = tuple(json.loads((where / "learned" / "withheld.json").read_bytes()))
        state = json.dumps([encoder.to_state(), cells.state()], sort_keys=True)
        return cls(
            folder, encoder, bottom, cells, withheld, float(about["audit"]["worst"]),
            version=version_of(run_id(contract, aligned(folder)), np.load(release / "codes.npy")),
            digest=digest_of(state, bottom.digest, repr(withheld)),
        )  # fmt: skip

    @property
    def width(self) -> int:
        """Bytes of a row: one for each number."""
        return self.cells.numbers

    @property
    def columns(self) -> tuple[str, ...]:
        """That a table must have."""
        return self.encoder.columns.names

    @property
    def booked(self) -> tuple[str, float] | None:
        """The cells, and what decoders recover of any column."""
        return self.folder.one_shot.exchange.form, self.worst

    def embed(self, table: pl.DataFrame, rows: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
        """The cells of rows.  (rows, width)"""
        return self.embed_inputs(encoded(self.encoder, table, rows))

    def embed_inputs(self, inputs: Inputs) -> NDArray[np.uint8]:
        """The same of rows that are encoded already."""
        if not len(inputs):
            return np.empty((0, self.width), np.uint8)
        seen = shown(inputs, columns_of(self.folder).encoded, self.withheld)
        numbers = self.bottom.embed(seen, threads=_threads(self.folder, len(inputs)))
        return self.cells.code(numbers)


def _threads(folder: Folder, rows: int) -> int:
    """For a few rows one thread: several would wait for each other longer than they work."""
    return 1 if rows < _FEW else threads_of(folder)


@dataclass(frozen=True)
class ExchangeScorer:
    """The label party's half: see `tacit.serve.halves.Scorer`."""

    folder: Folder  # of the party
    encoder: Encoder  # of its own columns
    head: Head  # that takes the embeddings of all feature parties
    alone: Head  # that takes none
    # by feature party the digest of the embedding of the aligned rows, which both sides have
    versions: Mapping[str, str]
    digest: str  # of everything that decides a score
    fallback: bool = True

    @classmethod
    def load(cls, folder: Folder, where: Path) -> Self:
        """From a finished run."""
        contract, rows = folder.one_shot, aligned(folder)
        encoder = trained_encoder(folder, where, None)
        received, run = received_of(folder, rows), run_id(contract, rows)
        files = [file for name in ("head", "fallback") for file in sorted((where / name).iterdir())]
        state = json.dumps(encoder.to_state(), sort_keys=True)
        return cls(
            folder, encoder, load_head(where / "head"), load_head(where / "fallback"),
            versions={name: version_of(run, received.codes(name)) for name in contract.feature_parties},
            digest=digest_of(state, *(part for file in files for part in (file.name, file.read_bytes()))),
        )  # fmt: skip

    @property
    def widths(self) -> Mapping[str, int]:
        """Bytes of a row of each feature party's embedding."""
        return dict.fromkeys(self.versions, self.folder.one_shot.exchange.numbers)

    @property
    def columns(self) -> tuple[str, ...]:
        """The party's own that a table must have."""
        return self.encoder.columns.names

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the scores of a row."""
        classes = self.head.shape.classes or 2
        return ("score",) if classes == 2 else tuple(f"score_{one}" for one in range(classes))

    def score(
        self,
        table: pl.DataFrame,
        embeddings: Mapping[str, NDArray[np.uint8]] | None,
        rows: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float64]:
        """Probabilities of class 1, or of each of several; or numbers.  (rows, outputs)"""
        if not len(table):
            return np.empty((0, len(self.outputs)))
        own, threads = encoded(self.encoder, table, rows), _threads(self.folder, len(table))
        if embeddings is None:
            return self.alone.predict(None, own, threads=threads).reshape(len(table), -1)
        if missing := [name for name in self.versions if name not in embeddings]:
            raise UsageError(f"no embedding of {', '.join(missing)}: pass those of all feature parties, or None")
        codes = np.concatenate([embeddings[name] for name in self.versions], axis=1)
        return self.head.predict(codes, own, threads=threads).reshape(len(table), -1)
