"""Boosted trees (LightGBM): the best learner for tables whose labels are mostly noise, and the default."""

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

from tacit.align.encoder import Inputs
from tacit.arguments import count
from tacit.config.contract import WIDEST
from tacit.exchange._forest import Forest, Growth
from tacit.exchange._rows import Target, matrix, unordered
from tacit.exchange.learn import FILE, Learner, Task
from tacit.exchange.learn._mix import covariance, mixing
from tacit.same_bits import mixed

_BLOCK = 1 << 18  # rows that are in memory at once; a multiple of what goes through the trees together
_SAMPLE = 20_000  # rows from which directions are worked out
_MANY_CODES = 64  # from here on the order of a column's codes says nothing to a tree
_MOST_TREES = 1600  # of all folds and classes together: directions of more take longer than the trees


@dataclass(frozen=True)
class TreesBottom:
    """Trees, and what makes `width` numbers of their values."""

    forest: Forest  # the trees of all folds
    mix: NDArray[np.float64]  # a matrix (trees, width)
    name = "trees"

    @property
    def width(self) -> int:
        """How many numbers a row gets."""
        return int(self.mix.shape[1])

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of trees and matrix."""
        return hashlib.sha256(f"{self.forest.digest()} {self.mix.tolist()!r}".encode()).hexdigest()

    def embed(self, inputs: Inputs, *, threads: int = 1) -> NDArray[np.float32]:
        """The numbers of any rows, the score first.  (rows, width)"""
        found = np.empty((len(inputs), self.width), dtype=np.float32)
        for start in range(0, len(inputs), _BLOCK):  # never all of a large table in memory
            table = matrix(inputs[start : start + _BLOCK])
            found[start : start + _BLOCK] = (
                self.forest.scores(table, threads)
                if self.width == self.forest.outputs == 1  # the mix is the mean of the folds
                else np.concatenate([mixed(values, self.mix) for values in self.forest.values(table, threads)])
            )
        return found

    def save(self, folder: Path) -> None:
        """Write LightGBM's own text of the trees, and the matrix as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        self.forest.save(folder)
        state = {
            "learner": self.name,
            "folds": len(self.forest.models),
            "outputs": self.forest.outputs,
            "mix": self.mix.tolist(),
            "width": self.width,
        }
        (folder / FILE).write_text(json.dumps(state), encoding="utf-8")


def load(folder: Path, state: Mapping[str, Any]) -> TreesBottom:
    """What `TreesBottom.save` wrote; `state` is its JSON."""
    mix = np.asarray(state["mix"], dtype=np.float64).reshape(-1, count("width", state["width"], high=WIDEST))
    forest = Forest.load(folder, count("folds", state["folds"]), count("outputs", state["outputs"]))
    if len(mix) != len(forest.weights) or not np.isfinite(mix).all():
        raise ValueError("the matrix does not fit the trees beside it")
    return TreesBottom(forest, mix)


@dataclass(frozen=True)
class Trees(Learner):
    """A learner of boosted trees."""

    growth: Growth  # how trees grow
    sample: int | None = None  # how many rows they learn from at most, drawn at random; None for all
    name = "trees"

    def learn(self, task: Task) -> TreesBottom:
        """By plain cross entropy, which ranks as well as a corrected one."""
        target, labels, threads, progress = task.target.scaled, len(task.target.values), task.threads, task.progress
        rows = task.inputs[:labels]
        codes = unordered(rows, _MANY_CODES)
        if self.sample is not None and self.sample < labels:
            drawn = np.sort(np.random.default_rng([task.seed, 3]).permutation(labels)[: self.sample])
            rows, target = rows[torch.from_numpy(drawn)], Target(target.values[drawn], target.classes)
        table = matrix(rows)
        del rows  # a copy, where they are a sample
        growth = _fewer(self.growth, target.outputs)
        forest = Forest.fit(table, target, growth, unordered=codes, seed=task.seed, threads=threads, progress=progress)
        some = table[np.linspace(0, len(table) - 1, min(_SAMPLE, len(table))).astype(np.intp)]
        mix = forest.weights
        if task.width > 1 or target.outputs > 1:
            progress("choosing directions", 0, 1)
            mix = mixing(covariance(forest.values(some, threads)), forest.weights, task.width)
            progress("choosing directions", 1, 1)
        return TreesBottom(forest, mix)


def trees(*, sample: int | None = None, **growth: Any) -> Trees:
    """Boosted trees from a sample of the rows, or from all; further options are those of `Growth`.

    >>> trees(rounds=20).growth.rounds
    20
    """
    return Trees(Growth(**growth), None if sample is None else count("sample", sample))


def _fewer(growth: Growth, outputs: int) -> Growth:
    """Fewer rounds and folds where each round has a tree for each of many classes."""
    if outputs == 1:
        return growth
    folds = min(growth.folds, 2)
    rounds = max(growth.step, min(growth.rounds, _MOST_TREES // (folds * outputs)))
    return Growth(**(vars(growth) | {"folds": folds, "rounds": rounds}))
