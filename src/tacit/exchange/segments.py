"""Segments that cells reveal: conjunctions of columns, found by a small tree from columns to cells.

A limit on single columns does not see a segment of four attributes. The tree is grown on known rows; how well each of
its segments is read is judged on rows that it knew nothing of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.tree import DecisionTreeRegressor

from tacit.align.encoder import Inputs
from tacit.exchange.told_apart import ordered_by

_ROWS = 16_000  # known rows that the tree is grown on, at most
_NUMBERS = 4  # of an embedding, the first ones, that it tells apart
_LEAVES, _DEPTH = 24, 6
_LEVELS = 8  # of a number of an embedding, as the tree sees it

Rows = NDArray[np.intp]
AND = " & "  # between the columns of a conjunction


@dataclass(frozen=True)
class Segment:
    """A conjunction of two columns or more."""

    node: int  # of the tree
    columns: tuple[str, ...]  # in the order in which the tree asks
    words: str  # what is asked of them

    @property
    def name(self) -> str:
        """Its columns, as a finding names them."""
        return AND.join(self.columns)


class Segments:
    """Those of a table that an embedding may reveal."""

    def __init__(
        self, inputs: Inputs, names: tuple[str, ...], z: NDArray[np.generic], known: Rows, least: float, seed: int
    ) -> None:
        """From known rows; each segment has the share `least` of them, and leaves as many."""
        self._inputs = inputs
        some = np.sort(np.random.default_rng([seed, 11]).permutation(known)[:_ROWS])
        codes, cells = inputs.categorical.numpy()[some], _cells(z[some])
        self._orders = [
            [ordered_by(codes[:, place], size, number) for number in cells.T]
            for place, size in enumerate(inputs.cardinalities)
        ]
        numeric = names[: inputs.numeric.shape[1]]
        self._owners = [*numeric, *(name for name, orders in self._named(names) for _ in orders)]
        wanted = np.concatenate([cells[:, [place]] == np.unique(cells[:, place]) for place in range(cells.shape[1])], 1)
        leaf = max(2, round(least * len(some)))
        self.all: tuple[Segment, ...] = ()
        if len(self._owners) < 2 or len(some) < 4 * leaf:
            return
        self._tree = DecisionTreeRegressor(
            max_depth=_DEPTH, max_leaf_nodes=_LEAVES, min_samples_leaf=leaf, random_state=seed
        ).fit(self._seen(some), wanted.astype(np.float32))
        self.all = tuple(self._found())

    def _named(self, names: tuple[str, ...]) -> list[tuple[str, list[NDArray[np.float32]]]]:
        return list(zip(names[self._inputs.numeric.shape[1] :], self._orders, strict=True))

    def answers(self, rows: Rows) -> NDArray[np.float32]:
        """Whether each row is in each segment.  (rows, segments)"""
        if not self.all:
            return np.zeros((len(rows), 0), np.float32)
        nodes = [segment.node for segment in self.all]
        return np.asarray(self._tree.decision_path(self._seen(rows))[:, nodes].toarray(), np.float32)

    def _seen(self, rows: Rows) -> NDArray[np.float32]:
        """Numbers, and codes in the orders in which the embedding tells them apart."""
        codes = self._inputs.categorical.numpy()[rows]
        orders = [order[codes[:, place]] for place, every in enumerate(self._orders) for order in every]
        return np.column_stack([self._inputs.numeric.numpy()[rows], *orders]).astype(np.float32)

    def _found(self) -> list[Segment]:
        tree, found = self._tree.tree_, []
        waiting: list[tuple[int, tuple[tuple[str, int, bool], ...]]] = [(0, ())]
        while waiting:
            node, path = waiting.pop()
            columns = tuple(dict.fromkeys(name for name, _, _ in path))
            if len(columns) > 1:
                words = ", ".join(f"{name} {'above' if above else 'up to'} cut {cut}" for name, cut, above in path)
                found.append(Segment(node, columns, f"conjunction ({words})"))
            if tree.children_left[node] >= 0:
                name = self._owners[tree.feature[node]]
                for child, above in ((tree.children_left[node], False), (tree.children_right[node], True)):
                    waiting.append((int(child), (*path, (name, node, above))))
        return found


def _cells(z: NDArray[np.generic]) -> NDArray[np.intp]:
    """The first numbers in a few levels each.  (rows, numbers)"""
    levels = []
    for number in z[:, :_NUMBERS].T:
        values, place = np.unique(number, return_inverse=True)
        if len(values) > 4 * _LEVELS:
            place = ((rankdata(number) - 0.5) * (_LEVELS / len(number))).astype(np.intp)
        levels.append(place)
    return np.stack(levels, axis=1)
