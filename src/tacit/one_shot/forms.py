"""In which form an embedding leaves: how many of its numbers, in how many ranks, under how much noise."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.align.encoder import Columns, Inputs
from tacit.errors import TensorError, UsageError
from tacit.one_shot.ranks import Ranks

_WORDS = 8  # of eight bytes that one hash gives
_ROWS = 4096  # whose hashes are in memory at once
_PART = 1 << 18  # rows that get their noise at a time


@dataclass(frozen=True)
class Form:
    """How an embedding is sent: how many of the learnt numbers, in how many ranks, under how much noise."""

    width: int
    ranks: int = 256
    noise: float = 0.0

    def __str__(self) -> str:
        numbers = "1 number" if self.width == 1 else f"{self.width} numbers"
        return f"{numbers} in {self.ranks} ranks, noise {self.noise:g}"

    def weaker(self) -> Iterator[Form]:
        """This one, and what tells less, step by step: narrower, then coarser, then noisier."""
        form = self
        yield form
        while form.width > 1:
            form = replace(form, width=form.width // 2)
            yield form
        while form.ranks > 4:
            form = replace(form, ranks=max(4, form.ranks // 8))
            yield form
        for noise in (1.0, 2.0, 4.0):
            if noise > self.noise:
                form = replace(form, noise=noise)
                yield form


@dataclass(frozen=True)
class Coding:
    """An embedding in a form, fitted on its training rows; any other row is coded alike."""

    form: Form  # of the embedding
    width: int  # of the message, which has one shape: numbers that are not sent are all 0
    scale: tuple[float, ...]  # the noise on each number; empty without noise
    version: str  # of the embedding and its form, by which noise is keyed
    ranks: Ranks  # of the numbers that are sent

    @classmethod
    def fit(cls, z: NDArray[np.float32], form: Form, *, width: int, secret: bytes, digest: str) -> Self:
        """Ranks, and noise in units of each number's deviation, of the training rows' embedding."""
        kept, version, scale = z[:, : form.width], f"{digest} {form}", ()
        if form.noise:
            spread = kept.std(axis=0, dtype=np.float64)
            scale = tuple((form.noise * np.where(spread > 0, spread, 1.0)).tolist())
            kept = with_noise(kept, np.array(scale), secret=secret, version=version)
        return cls(form, width, scale, version, Ranks.fit(kept, levels=form.ranks))

    def codes(self, z: NDArray[np.float32], secret: bytes) -> NDArray[np.uint8]:
        """The ranks of any rows' first numbers.  (rows, width)"""
        kept = z[:, : self.form.width]
        if self.scale:
            kept = with_noise(kept, np.array(self.scale), secret=secret, version=self.version)
        codes = np.zeros((len(z), self.width), np.uint8)
        codes[:, : self.form.width] = self.ranks.code(kept)
        return codes

    @classmethod
    def read(cls, state: Mapping[str, Any], width: int) -> Self:
        """What `state` gave, a coding again; `width` is that of the message."""
        form = Form(**state["form"])
        return cls(form, width, tuple(state["scale"]), state["version"], Ranks.read(state["ranks"]))

    def state(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "form": vars(self.form), "ranks": self.ranks.state(), "scale": list(self.scale), "version": self.version,
        }  # fmt: skip


def shown(inputs: Inputs, columns: Columns, withheld: Collection[str], what: str = "[learn] withheld") -> Inputs:
    """The inputs without the columns that their owner withholds from the learner."""
    unknown = set(withheld) - set(columns.names)
    if unknown:
        raise UsageError(f"{what}: {', '.join(sorted(unknown))} is none of the columns: correct the name")
    if not withheld:
        return inputs  # as it is mapped from files: no copy
    categories = [place for place, name in enumerate(columns.categorical) if name not in withheld]
    numbers = [place for place, name in enumerate((*columns.numeric, *columns.flagged)) if name not in withheld]
    if not categories and not numbers:
        raise UsageError(f"{what}: no column is left to learn from: withhold fewer")
    cardinalities = tuple(inputs.cardinalities[place] for place in categories)
    return Inputs(inputs.categorical[:, categories], inputs.numeric[:, numbers], cardinalities)


# --- noise that asking again does not wear off: keyed by version and by the embedding itself --------------------------


def with_noise(
    z: NDArray[np.floating], scale: float | NDArray[np.floating], *, secret: bytes, version: str
) -> NDArray[np.float32]:
    """Embeddings with Gaussian noise of this deviation, one for all numbers or one for each, to be ranked afterwards.

    Rows with equal embeddings get equal noise, so that many rows of one kind do not average it away, and a row that is
    sent again under one version (the bottom's digest) gets the noise it had. Versions share none. Embeddings are
    compared bit by bit, so a bottom must give the same bits again; rows that are merely alike have noise of their own,
    and whoever averages over them sees less of it: that is what the audit's decoders do.

    >>> z = np.array([[0.5], [0.25], [0.5]], dtype=np.float32)
    >>> sent = with_noise(z, 0.1, secret=bytes(32), version="a")
    >>> bool(sent[0] == sent[2]), bool(sent[0] == with_noise(z, 0.1, secret=bytes(32), version="b")[0])
    (True, False)
    """
    if not isinstance(secret, bytes) or len(secret) < 32:
        raise UsageError("with_noise: the secret is shorter than 32 bytes: pass at least 32 random bytes")
    clean = np.ascontiguousarray(z, dtype=np.float32) + np.float32(0)  # no -0.0, which equals 0.0 and is other bits
    if clean.ndim != 2 or not np.isfinite(clean).all():
        raise TensorError(f"with_noise: embeddings are finite numbers, (rows, width), not {clean.shape}")
    spread = np.broadcast_to(np.asarray(scale, dtype=np.float64), clean.shape[1:])
    if not (np.isfinite(spread) & (spread > 0)).all():
        raise UsageError(f"with_noise: scale is {scale!r}: pass positive numbers, or leave the noise out")
    for start in range(0, len(clean), _PART):
        part = clean[start : start + _PART]
        whole = part.view(np.dtype((np.void, 4 * clean.shape[1])))[:, 0]
        distinct, place = np.unique(whole, return_inverse=True)
        part[:] = part + spread * row_normals(distinct.tolist(), clean.shape[1], secret, version)[place]
    return clean


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
