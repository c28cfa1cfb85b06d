"""A linear score of columns: the smallest learner, which needs nothing beyond NumPy.

A category counts as one column for each of its codes, a number as three; its parts are the columns' shares of the
score. Where codes are many, those that few rows have share a weight.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.encoder import Inputs
from tacit.arguments import count
from tacit.errors import TensorError
from tacit.exchange._rows import Target
from tacit.exchange.learn import FILE, Learner, Task
from tacit.exchange.learn._mix import covariance, mixing
from tacit.same_bits import in_blocks

_SHRINKS = (1.0, 10.0, 100.0, 1000.0, 10000.0)
_FOLDS = 4
_BASES = 3  # of a number
_MOST = 2000  # codes with a weight of their own, of all columns together: the work grows with their square


@dataclass(frozen=True)
class LinearBottom:
    """Weights of columns, and what makes `width` numbers of their shares of the scores."""

    cardinalities: tuple[int, ...]  # the number of codes of each categorical column
    weights: NDArray[np.float64]  # of each code and each basis of each number; one column for each score
    mix: NDArray[np.float64]  # a matrix (columns x scores, width)
    name = "linear"

    @property
    def width(self) -> int:
        """How many numbers a row gets."""
        return int(self.mix.shape[1])

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of weights and matrix."""
        return hashlib.sha256(json.dumps(self._state(), sort_keys=True).encode()).hexdigest()

    def embed(self, inputs: Inputs, *, threads: int = 1) -> NDArray[np.float32]:
        """The numbers of any rows, the score first.  (rows, width)"""

        def embedded(categorical: Tensor, numeric: Tensor) -> Tensor:
            return torch.from_numpy(self.shares(Inputs(categorical, numeric, inputs.cardinalities)) @ self.mix)

        return in_blocks(embedded, inputs.tensors).float().numpy()

    def shares(self, inputs: Inputs) -> NDArray[np.float64]:
        """What each column adds to each score.  (rows, columns x scores)"""
        if inputs.cardinalities != self.cardinalities or _places(inputs)[-1] != len(self.weights):
            raise TensorError("these rows have other columns than those that were learnt from")
        starts = _places(inputs)
        shares = [
            self.weights[start + inputs.categorical[:, place].numpy()]
            for place, start in enumerate(starts[: len(self.cardinalities)])
        ]
        for place, start in enumerate(starts[len(self.cardinalities) : -1]):
            shares.append(_bases(inputs.numeric[:, place].numpy()) @ self.weights[start : start + _BASES])
        return np.concatenate(shares, axis=1) if shares else np.zeros((len(inputs), 0))

    def save(self, folder: Path) -> None:
        """Write everything as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json.dumps(self._state()), encoding="utf-8")

    def _state(self) -> dict[str, Any]:
        return {
            "learner": self.name,
            "cardinalities": list(self.cardinalities),
            "weights": self.weights.tolist(),
            "mix": self.mix.tolist(),
        }


def load(folder: Path, state: Mapping[str, Any]) -> LinearBottom:
    """What `LinearBottom.save` wrote; `state` is its JSON."""
    sizes = tuple(count("cardinality", size) for size in state["cardinalities"])
    weights, mix = (np.asarray(state[key], dtype=np.float64) for key in ("weights", "mix"))
    if weights.ndim != 2 or mix.ndim != 2 or not (np.isfinite(weights).all() and np.isfinite(mix).all()):
        raise ValueError("weights and mix must be tables of finite numbers")
    return LinearBottom(sizes, weights, mix)


class Linear(Learner):
    """A learner of linear scores: least squares, shrunk as much as is best for rows left out."""

    name = "linear"

    def learn(self, task: Task) -> LinearBottom:
        """How much to shrink is chosen on folds of the rows with labels."""
        rows = task.inputs[slice(len(task.target.values))]
        wanted, places = _indicators(task.target), _weighed(rows)
        fold = np.random.default_rng([task.seed, 2]).permutation(len(rows)) % _FOLDS
        sums = []
        for k in range(_FOLDS):
            sums.append(_sums(rows, wanted, np.flatnonzero(fold == k), places))
            task.progress("adding up columns", k + 1, _FOLDS)
        weights = _best(sums)[places]
        bare = LinearBottom(rows.cardinalities, weights, np.zeros((0, task.width)))
        shares = bare.shares(rows)
        scores = np.tile(np.eye(weights.shape[1]), (shares.shape[1] // weights.shape[1], 1))
        return LinearBottom(rows.cardinalities, weights, mixing(covariance([shares]), scores, task.width))


linear = Linear  # as the other learners are made; it has no options
Sums = tuple[NDArray[np.float64], NDArray[np.float64], float]


def _indicators(target: Target) -> NDArray[np.float64]:
    """Classes as 0 and 1 for each score, numbers with variance 1; with mean 0.  (rows, scores)"""
    if target.outputs > 1:
        wanted = (target.values[:, None] == np.arange(target.outputs)).astype(np.float64)
    else:
        wanted = target.values[:, None] / (float(np.std(target.values)) or 1.0)
    return np.asarray(wanted - wanted.mean(axis=0))


def _weighed(inputs: Inputs) -> NDArray[np.intp]:
    """For each code of each column, and each basis of each number, the place of its weight."""
    codes = inputs.categorical.numpy()
    often = [np.bincount(codes[:, place], minlength=size) for place, size in enumerate(inputs.cardinalities)]
    least = 0
    while sum(int((times >= least).sum()) for times in often) > _MOST:
        least = max(1, 2 * least)
    places, start = [], 0
    for times in often:
        common = times >= least
        places.append(start + np.where(common, common.cumsum() - 1, common.sum()))
        start = int(places[-1].max(initial=start - 1)) + 1
    return np.concatenate([*places, start + np.arange(_BASES * inputs.numeric.shape[1])]).astype(np.intp)


def _sums(inputs: Inputs, wanted: NDArray[np.float64], chosen: NDArray[np.intp], places: NDArray[np.intp]) -> Sums:
    """X'X, X'y and y'y of some rows, a block at a time."""
    starts, size = _places(inputs), int(places.max(initial=-1)) + 1
    inner, outer = np.zeros((size, size)), np.zeros((size, wanted.shape[1]))
    for block in np.array_split(chosen, max(1, len(chosen) // 8192)):
        design, every = np.zeros((len(block), size)), np.arange(len(block))
        codes, numbers = inputs.categorical.numpy()[block], inputs.numeric.numpy()[block]
        for place, start in enumerate(starts[: codes.shape[1]]):
            design[every, places[start + codes[:, place]]] = 1
        for place, start in enumerate(starts[codes.shape[1] : -1]):
            design[:, places[start : start + _BASES]] = _bases(numbers[:, place])
        inner += design.T @ design
        outer += design.T @ wanted[block]
    return inner, outer, float((wanted[chosen] ** 2).sum())


def _best(sums: list[Sums]) -> NDArray[np.float64]:
    """The weights under the shrinking that is best for folds that had no say in them."""
    inner, outer, _ = (sum(part) for part in zip(*sums, strict=True))
    eye = np.eye(len(np.asarray(inner)))

    def left_out(shrink: float) -> float:
        total = 0.0
        for within, across, square in sums:
            weights = np.linalg.solve(inner - within + shrink * eye, outer - across)
            total += float((weights * (within @ weights)).sum() - 2 * (weights * across).sum() + square)
        return total

    shrink = min(_SHRINKS, key=left_out)
    return np.asarray(np.linalg.solve(inner + shrink * eye, outer))


def _bases(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """A number, its square and its distance from the mean, far values drawn in.  (rows, 3)"""
    drawn = np.clip(values.astype(np.float64), -4, 4)
    return np.stack([drawn, drawn**2 - 1, np.abs(drawn)], axis=1)


def _places(inputs: Inputs) -> list[int]:
    """Where each column's weights start, and where the last one's end."""
    sizes = [*inputs.cardinalities, *[_BASES] * inputs.numeric.shape[1]]
    return [0, *np.cumsum(sizes).tolist()]
