"""The two halves of a split training: a bottom with its protections, and a top."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from scipy.special import ndtri
from torch import Tensor, nn

from tacit.align.arrays import mapped
from tacit.align.cache import MANIFEST
from tacit.align.encoder import Encoder, Inputs
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.errors import DataError, ProtocolError, StorageError, UsageError
from tacit.same_bits import in_blocks
from tacit.serve.halves import digest_of, encoded, trained_encoder
from tacit.split.checkpoint import Checkpoints
from tacit.split.feature_party import FeatureParty
from tacit.split.halves import build, cuts_of, optimizer
from tacit.split.protect.embedding import embedding_protection
from tacit.split.protect.facts import spelled
from tacit.split.tensors import evaluating

_FLOAT = 4  # bytes
_WORDS = 8  # of eight bytes that one hash gives
_ROWS = 4096  # whose hashes are in memory at once


@dataclass(frozen=True)
class SplitEmbedder:
    """A feature party's half: see `tacit.serve.halves.Embedder`."""

    folder: Folder  # of the party
    encoder: Encoder  # of its columns
    party: FeatureParty  # with the trained bottom, and its protections as in the training
    secret: bytes  # keys the noise
    version: str  # digest of the run, which both sides have
    digest: str  # of everything that decides an embedding

    @classmethod
    def load(cls, folder: Folder, where: Path) -> Self:
        """From a finished run."""
        encoder, version, config = _encoder(folder, where), _version(folder), folder.config
        inputs = _two_rows(encoder)
        bottom = _with_weights(build(folder, config, folder.contract, inputs, seed=0), where)
        protect = [embedding_protection(one.name, **one.options()) for one in config.protect.embedding or ()]
        party = FeatureParty(
            bottom=bottom, features=inputs.tensors, optimizer=optimizer(bottom, config), protect=protect
        )
        secret = hmac.digest(folder.secret, b"tacit serving " + version.encode(), "sha256")
        parts = (_state(encoder, where), repr(party.shield.protect), hmac.digest(secret, b"half", "sha256"))
        made_half = cls(folder, encoder, party, secret, version, digest_of(*parts))
        made_half.check_rows()
        return made_half

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return _width(self.folder, self.folder.config.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """That a table must have."""
        return self.encoder.columns.names

    @property
    def booked(self) -> tuple[str, float] | None:
        """No book is kept of embeddings that are protected anew."""
        return None

    def embed(self, table: pl.DataFrame, rows: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
        """Numbers as they lie in memory, protected as in training, under noise of their own.  (rows, width)"""
        return self.embed_inputs(encoded(self.encoder, table, rows))

    def embed_inputs(self, inputs: Inputs) -> NDArray[np.uint8]:
        """The same of rows that are encoded already."""
        with evaluating(self.party.bottom):
            clean = in_blocks(self.party.bottom, inputs.tensors)
            sent = self.party.shield.protected(clean, _RowNoise(clean, self.secret)) if len(clean) else clean
        return sent.flatten(1).contiguous().numpy().view(np.uint8).reshape(len(inputs), self.width)

    def check_rows(self) -> None:
        """Refuse protections that look at a whole batch: a row would get other bytes in other company."""
        size = math.prod(cuts_of(self.folder.contract, [self.folder.config.name])[0])
        z = torch.linspace(-1.0, 2.0, 3 * size).reshape(3, size)
        for one in self.party.shield.protect:
            together, alone = one.transform(z, _Ones()), one.transform(z[1:2], _Ones())
            if not torch.equal(together[1:2], alone):
                raise UsageError(
                    f"{spelled(one.event)} takes its strength from a whole batch, so that a row would be told "
                    "anew with every batch it comes in: train with gaussian(std=..., clip=...) or "
                    "gaussian(snr=..., clip=...) to predict"
                )


@dataclass(frozen=True)
class SplitScorer:
    """The label party's half: see `tacit.serve.halves.Scorer`."""

    folder: Folder  # of the party
    encoder: Encoder  # of its own columns
    top: nn.Module  # the trained half
    classes: int  # of the labels
    version: str  # digest of the run, which both sides have
    digest: str  # of everything that decides a score
    fallback: bool = False

    @classmethod
    def load(cls, folder: Folder, where: Path) -> Self:
        """From a finished run."""
        encoder, contract = _encoder(folder, where), folder.contract
        classes = 2 if contract.loss == "binary" else _classes(where)
        top = build(folder, folder.config, contract, _two_rows(encoder), seed=0, classes=classes)
        digest = digest_of(_state(encoder, where))
        return cls(folder, encoder, _with_weights(top, where), classes, _version(folder), digest)

    @property
    def versions(self) -> Mapping[str, str]:
        """The same for every feature party."""
        return dict.fromkeys(self.folder.contract.feature_parties, self.version)

    @property
    def widths(self) -> Mapping[str, int]:
        """Bytes of a row of each feature party's embedding."""
        return {name: _width(self.folder, name) for name in self.folder.contract.feature_parties}

    @property
    def columns(self) -> tuple[str, ...]:
        """The party's own that a table must have."""
        return self.encoder.columns.names

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the scores of a row."""
        return ("score",) if self.classes == 2 else tuple(f"score_{one}" for one in range(self.classes))

    def score(
        self,
        table: pl.DataFrame,
        embeddings: Mapping[str, NDArray[np.uint8]] | None,
        rows: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float64]:
        """Probabilities of class 1, or of each of several.  (rows, outputs)"""
        if embeddings is None:
            raise UsageError("a split training has no model that does without embeddings: there is no fallback")
        cuts = cuts_of(self.folder.contract, self.folder.contract.feature_parties)
        received = [
            _numbers(embeddings[name], cut, name)
            for name, cut in zip(self.folder.contract.feature_parties, cuts, strict=True)
        ]
        own = encoded(self.encoder, table, rows)
        with evaluating(self.top):
            logits = in_blocks(self.top, [*received, *own.tensors]).reshape(len(table), -1).double()
        if logits.shape[1] == 1:
            return in_blocks(torch.sigmoid, [logits]).numpy()  # of one number it has other last bits than of many
        shares = torch.softmax(logits, dim=1).numpy()
        return shares[:, 1:] if self.classes == 2 else shares


class _RowNoise:
    """Noise that is fixed by what it hides: of each row by the row's own embedding, before anything is done to it."""

    def __init__(self, clean: Tensor, secret: bytes) -> None:
        self._rows = [row.tobytes() for row in (clean.flatten(1) + 0.0).numpy()]  # no -0.0
        self._secret = secret
        self._draws = 0

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Standard normal numbers, for each row its own."""
        if shape[0] != len(self._rows):
            raise UsageError(f"noise of shape {tuple(shape)} for {len(self._rows)} rows: draw it row by row")
        self._draws += 1
        drawn = row_normals(self._rows, math.prod(shape[1:]), self._secret, f"draw {self._draws}")
        return torch.from_numpy(drawn).reshape(tuple(shape)).to(device=device, dtype=dtype)

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Uniform numbers, likewise."""
        numbers: Tensor = torch.special.ndtr(self.normal(shape, dtype=torch.float64, device=device))
        return numbers.to(dtype)


class _Ones:
    """In the place of noise, where only the strength matters."""

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.ones(tuple(shape), dtype=dtype, device=device)

    uniform = normal


def _version(folder: Folder) -> str:
    """Of the run, which has one model: what was agreed on, over which rows."""
    rows = aligned(folder)
    return digest_of("split", folder.contract.digest, rows.id, rows.digest)


def _encoder(folder: Folder, where: Path) -> Encoder:
    newest = Checkpoints(where / "checkpoints").newest()
    return trained_encoder(folder, where, None if newest is None else newest.meta["guard"].get("data"))


def _state(encoder: Encoder, where: Path) -> str:
    """A digest of how columns are encoded, and of the weights."""
    return digest_of(json.dumps(encoder.to_state(), sort_keys=True), (where / "model.safetensors").read_bytes())


def _two_rows(encoder: Encoder) -> Inputs:
    """Rows to try a model on."""
    parts = encoder.columns.parts
    numbers = len(parts.numeric) + len(parts.flagged)
    codes = torch.zeros(2, len(encoder.cardinalities), dtype=torch.int64)
    return Inputs(codes, torch.zeros(2, numbers), encoder.cardinalities)


def _with_weights(model: nn.Module, where: Path) -> nn.Module:
    try:
        model.load_state_dict(weights_of(where))
    except RuntimeError as error:
        raise DataError(
            f"{where / 'model.safetensors'} does not fit the model of party.toml ({error}): put [model] back as it was "
            "in training"
        ) from None
    return model


def _classes(where: Path) -> int:
    """How many classes the labels had that were trained on."""
    inputs = where / "inputs"
    try:
        about = json.loads((inputs / MANIFEST).read_bytes())["files"]["labels"]
        return max(2, int(mapped(inputs / "labels.bin", **about).max()) + 1)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{inputs} does not tell how many classes there were ({error!r}): bring it back") from None


def _width(folder: Folder, party: str) -> int:
    return _FLOAT * math.prod(cuts_of(folder.contract, [party])[0])


def _numbers(raw: NDArray[np.uint8], cut: tuple[int, ...], peer: str) -> Tensor:
    """A peer's bytes as its embedding; what is not finite is refused."""
    numbers = np.ascontiguousarray(raw).view(np.float32)
    if not np.isfinite(numbers).all():
        raise ProtocolError(f"{peer} sent numbers that are not finite: nothing is scored with them")
    return torch.from_numpy(numbers.reshape(len(raw), *cut))


def row_normals(rows: list[bytes], width: int, secret: bytes, version: str) -> NDArray[np.float64]:
    """Standard normal numbers for each of some different rows, by the inverse of their distribution.  (rows, width)"""
    named = b"tacit embedding noise 1" + len(version.encode()).to_bytes(8, "big") + version.encode()
    key = hashlib.blake2b(named + secret, digest_size=64).digest()
    begun = [hashlib.blake2b(block.to_bytes(4, "big"), key=key) for block in range(-(-width // _WORDS))]
    found = np.empty((len(rows), width))
    for start in range(0, len(rows), _ROWS):
        drawn = b"".join(_digest(state, row) for row in rows[start : start + _ROWS] for state in begun)
        words = np.frombuffer(drawn, dtype=">u8").reshape(-1, _WORDS * len(begun))[:, :width]
        found[start : start + _ROWS] = ndtri(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
    return found


def _digest(state: Any, row: bytes) -> bytes:
    hashed = state.copy()
    hashed.update(row)
    return bytes(hashed.digest())


def weights_of(where: Path) -> dict[str, Tensor]:
    """A party's half of a split training; an error where that is not over."""
    path = where / "model.safetensors"
    if not path.exists():
        raise UsageError(f"{path} is missing: the training is not over; `tacit train` resumes")
    return load_file(path)
