"""From what a learner's parts say about a row to `width` numbers: the score first, then where the parts differ most.

Labels chose the parts (trees, hidden units, columns), so the directions in which they vary, once the score is taken
out, are directions that labels chose. All numbers are linear in the parts: a bottom is its parts and one matrix.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def covariance(blocks: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The covariance of rows that come in blocks.  (parts, parts)"""
    count, total, squares = 0, np.zeros(0), np.zeros((0, 0))
    for block in blocks:
        if not count:
            total, squares = np.zeros(block.shape[1]), np.zeros((block.shape[1],) * 2)
        count, total = count + len(block), total + block.sum(axis=0)
        squares = squares + block.T @ block
    mean = total / max(1, count)
    return np.asarray(squares / max(1, count) - np.outer(mean, mean))


def mixing(spread: NDArray[np.float64], scores: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """What makes the embedding of the parts, a matrix (parts, width): scores, then directions of what they leave.

    From the covariance of the parts and from what makes scores of them (parts, outputs), of several their principal
    directions; what the parts can't fill is 0.
    """
    mix = np.zeros((len(spread), width))
    first = scores if scores.shape[1] == 1 else scores @ _principal(scores.T @ spread @ scores, width)
    first = first[:, :width]
    mix[:, : first.shape[1]] = first
    left = width - first.shape[1]
    if left and len(spread):
        told = np.linalg.pinv(first.T @ spread @ first, rcond=1e-10, hermitian=True) @ (first.T @ spread)
        rest = spread - (first.T @ spread).T @ told  # what is left of the covariance once the scores are known
        chosen = _principal(rest, left)
        mix[:, first.shape[1] : first.shape[1] + chosen.shape[1]] = chosen - first @ (told @ chosen)
    return mix


def _principal(spread: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """The directions of the largest variance, largest first, those without any left out; signs are fixed."""
    sizes, directions = np.linalg.eigh((spread + spread.T) / 2)
    kept = [place for place in np.argsort(-sizes, kind="stable")[:most] if sizes[place] > 1e-9 * max(sizes[-1], 1e-30)]
    chosen = directions[:, kept]
    signs = np.sign(chosen[np.abs(chosen).argmax(axis=0), np.arange(len(kept))])
    return np.asarray(chosen * np.where(signs == 0, 1, signs))
