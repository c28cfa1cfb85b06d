"""Gaussian noise on embeddings that asking again does not wear off: keyed by version and by the embedding itself."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.errors import TensorError, UsageError

_WORDS = 8  # of eight bytes that one hash gives
_ROWS = 4096  # whose hashes are in memory at once


def with_noise(
    z: NDArray[np.floating], scale: float | NDArray[np.floating], *, secret: bytes, version: str
) -> NDArray[np.float32]:
    """Embeddings with Gaussian noise, to be ranked afterwards.

    Rows with equal embeddings get equal noise, so that many rows of one kind do not average it away, and a row that is
    sent again under one version gets the noise it had. Versions share none. Embeddings are compared bit by bit, so a
    bottom must give the same bits again; rows that are merely alike have noise of their own, and whoever averages
    over them sees less of it: that is what the audit's decoders do.

    Args:
        z: what the bottom made of each row.  (rows, width)
        scale: the noise's standard deviation, one for all or one for each of the numbers.  (width,)
        secret: at least 32 random bytes that never leave the feature party.
        version: of the embedding: the bottom's digest.

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
    whole = clean.view(np.dtype((np.void, 4 * clean.shape[1])))[:, 0]
    distinct, place = np.unique(whole, return_inverse=True)
    normal = row_normals(distinct.tolist(), clean.shape[1], secret, version)
    return (clean + spread * normal[place]).astype(np.float32)


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
