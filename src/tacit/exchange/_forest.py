"""Boosted trees on folds, which never see their own rows and stop together; scores are their mean. With labels that
are mostly noise one early stop on one part of the rows is a lottery, and the loss of all rows left out is not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError, TensorError
from tacit.exchange._rows import Target, losses
from tacit.progress import Progress

_SIGNS = r"[^\w.-]+"  # what stands for something else in LightGBM's text
_ROWS = 32768  # rows that are sent through the trees at once
# numbers of a table from which on folds grow one after the other, to the last round: the trees are the same, and
# LightGBM takes several hundred bytes of memory for each row of each fold that grows
_LARGE = 1 << 26
_FEW = 20  # rows: of fewer each tree sees all, for a share of a fold may be none
_FEW_LEAVES, _ROWS_A_LEAF = 15, 4000  # a tree has so many leaves, and one more for each so many rows of a large table


@dataclass(frozen=True)
class Growth:
    """How trees grow: the options that learners and heads set apart."""

    folds: int = 4  # how many parts the rows are cut in, each with trees of its own
    rounds: int = 60  # how often each fold's trees are added to at most
    step: int = 5  # after how many rounds the loss of the rows left out is looked at
    patience: int = 2  # after how many looks without a better loss growing ends
    leaves: int = 15  # the leaves of a tree at most
    leaf_rows: int = 200  # the rows of a leaf at least, where there are many rows; fewer for small tables
    rate: float = 0.15  # what share of a tree's advice is taken
    shrink: float = 30.0  # what is added to a leaf's curvature, which pulls its value to 0
    columns: float = 0.3  # the share of columns that a tree may use; at least four of them
    rows: float = 0.7  # the share of rows that a tree sees
    bins: int = 127  # how finely a column is cut

    def options(self, target: Target, shape: tuple[int, ...], seed: int, threads: int) -> dict[str, Any]:
        """What LightGBM calls these."""
        objective = "l2" if target.classes is None else "binary" if target.outputs == 1 else "multiclass"
        many = {"num_class": target.classes} if objective == "multiclass" else {}
        return many | {
            "objective": objective,
            "metric": "None",
            "num_leaves": min(self.leaves, max(_FEW_LEAVES, shape[0] // _ROWS_A_LEAF)),
            "min_data_in_leaf": max(2, min(self.leaf_rows, shape[0] // 50)),
            "learning_rate": self.rate,
            "lambda_l2": self.shrink,
            "feature_fraction": min(1.0, max(self.columns, 4 / shape[1])),
            "bagging_fraction": self.rows if shape[0] >= _FEW else 1.0,
            "bagging_freq": 1,
            "max_bin": self.bins,
            "feature_pre_filter": False,
            "seed": seed,
            "num_threads": threads,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


@dataclass(frozen=True)
class Forest:
    """Trees of all folds."""

    models: tuple[Any, ...]  # LightGBM's own boosters, one for each fold
    outputs: int  # scores a row

    @classmethod
    def fit(
        cls,
        table: NDArray[np.float32],
        target: Target,
        growth: Growth,
        *,
        unordered: Sequence[int] = (),
        names: Sequence[str] = (),
        seed: int = 0,
        threads: int = 1,
        progress: Progress = lambda *_: None,
    ) -> Self:
        """Grow trees on every fold until the loss of the rows left out grows no better.

        Names are of the columns, for whoever reads the trees; LightGBM takes letters, digits and few signs.
        """
        import lightgbm

        growth = replace(growth, step=min(growth.step, growth.rounds))
        shared = growth.options(target, table.shape, seed, threads)
        plain = [re.sub(_SIGNS, "_", name) for name in names]
        alike = len(set(plain)) < len(plain)
        named = [f"{name}_{place}" for place, name in enumerate(plain)] if alike else plain
        data = lightgbm.Dataset(
            table, target.values, params=shared, categorical_feature=list(unordered), feature_name=named or "auto"
        ).construct()
        folds = max(1, min(growth.folds, len(table) // 2))
        fold = np.random.default_rng([seed, 1]).permutation(len(table)) % max(2, folds)
        alone = len(table) == 1  # it is learnt from, and judged on
        many = table.size > _LARGE

        models: list[Any] = [None] * folds

        def looks(place: int) -> Iterator[_Look]:
            mine = data.subset(np.flatnonzero((fold != place) | alone).tolist(), params=shared)
            model = models[place] = lightgbm.Booster(shared | {"seed": seed + place}, mine)
            for look in _looks(model, table, target, np.flatnonzero(fold == place), growth, threads):
                done = place * growth.rounds + look.rounds  # of all folds together
                progress("growing trees", done // folds if many else look.rounds, growth.rounds)
                yield look
            models[place] = lightgbm.Booster(model_str=model.model_to_string())  # without its rows

        each = [looks(place) for place in range(folds)]
        grown = [list(one) for one in each] if many else each  # one after the other, or together until they stop
        best, best_loss = 0, np.inf
        for found in zip(*grown, strict=True):
            mean, done = float(np.mean(np.concatenate([look.losses for look in found]))), found[0].rounds
            if mean < best_loss or not best:
                best, best_loss = done, min(best_loss, mean)
            if all(look.ended for look in found) or done - best >= growth.patience * growth.step:
                break
        progress("growing trees", growth.rounds, growth.rounds)
        return cls.read([model.model_to_string(num_iteration=best) for model in models], target.outputs)

    @classmethod
    def read(cls, texts: Sequence[str], outputs: int) -> Self:
        """Trees from LightGBM's own text."""
        import lightgbm

        try:
            models = tuple(lightgbm.Booster(model_str=text) for text in texts)
        except lightgbm.basic.LightGBMError as error:
            raise DataError(f"this is no text of LightGBM's trees ({error}): the file is damaged, fit again") from None
        if any(model.num_model_per_iteration() != outputs for model in models):
            raise DataError(f"these trees do not give {outputs} scores a row: the file is damaged, fit again")
        return cls(models, outputs)

    def texts(self) -> list[str]:
        """LightGBM's own text of each fold."""
        return [model.model_to_string() for model in self.models]

    def digest(self) -> str:
        """A SHA-256 of all trees."""
        return hashlib.sha256("\0".join(self.texts()).encode()).hexdigest()

    def scores(self, table: NDArray[np.float32], threads: int = 1) -> NDArray[np.float64]:
        """The mean of the folds' scores, before any link function.  (rows, outputs)"""
        self._check(table)
        total = np.zeros((len(table), self.outputs))
        for model in self.models:
            total += _raw(model, table, threads=threads)
        return total / len(self.models)

    @property
    def weights(self) -> NDArray[np.float64]:
        """What makes scores of the trees' values.  (trees, outputs)"""
        of = np.concatenate([np.arange(model.num_trees()) % self.outputs for model in self.models])
        return np.asarray((of[:, None] == np.arange(self.outputs)) / len(self.models))

    def values(self, table: NDArray[np.float32], threads: int = 1) -> Iterator[NDArray[np.float64]]:
        """What each tree says about each row, some rows at a time.  (some rows, trees)"""
        self._check(table)
        for start in range(0, len(table), _ROWS):
            rows, said = table[start : start + _ROWS], []
            for model, leaves in zip(self.models, self._leaves, strict=True):
                if len(leaves):
                    places = model.predict(rows, pred_leaf=True, num_threads=threads).reshape(len(rows), -1)
                    said.append(leaves[np.arange(len(leaves)), places.astype(np.int64)])
            yield np.concatenate([np.zeros((len(rows), 0)), *said], 1)

    @cached_property
    def _leaves(self) -> list[NDArray[np.float64]]:
        """The values of all leaves, of each fold."""
        return [_leaf_values(model) for model in self.models]

    def _check(self, table: NDArray[np.float32]) -> None:
        columns = self.models[0].num_feature()
        if table.shape[1] != columns:
            raise TensorError(f"these rows have {table.shape[1]} columns, the trees were grown on {columns}")

    def save(self, folder: Path) -> None:
        """One text file for each fold."""
        for number, text in enumerate(self.texts()):
            (folder / f"trees{number}.txt").write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, folds: int, outputs: int) -> Self:
        """What `save` wrote."""
        try:
            texts = [(folder / f"trees{number}.txt").read_text(encoding="utf-8") for number in range(folds)]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"the trees in {folder} can't be read ({error}): fit again") from None
        return cls.read(texts, outputs)


@dataclass(frozen=True)
class _Look:
    """What a fold's trees have come to after some rounds."""

    rounds: int  # after how many
    losses: NDArray[np.float64]  # of the rows left out
    ended: bool  # whether nothing was left to split since the look before


def _looks(
    model: Any, table: NDArray[np.float32], target: Target, out: NDArray[np.intp], growth: Growth, threads: int
) -> Iterator[_Look]:
    """Grow a fold's trees, and look at the rows left out again and again."""
    judged, total = Target(target.values[out], target.classes), np.zeros((len(out), target.outputs))
    for done in range(growth.step, growth.rounds + 1, growth.step):
        ended = [model.update() for _ in range(growth.step)]
        for start in range(0, len(out), _ROWS):  # a copy of them all would be as large as the table
            rows, since = table[out[start : start + _ROWS]], done - growth.step
            total[start : start + _ROWS] += _raw(model, rows, start=since, count=growth.step, threads=threads)
        yield _Look(done, losses(total, judged), all(ended))


def _raw(
    model: Any, table: NDArray[np.float32], *, start: int = 0, count: int = -1, threads: int = 1
) -> NDArray[np.float64]:
    """Scores of one fold's trees, of some rounds alone.  (rows, outputs)"""
    if not model.num_trees() or start >= model.current_iteration():
        return np.zeros((len(table), model.num_model_per_iteration()))
    raw = model.predict(table, raw_score=True, start_iteration=start, num_iteration=count, num_threads=threads)
    return np.asarray(raw, dtype=np.float64).reshape(len(table), -1)


def _leaf_values(model: Any) -> NDArray[np.float64]:
    """The value of each leaf of each tree, filled up with 0.  (trees, most leaves)"""
    trees = [info["tree_structure"] for info in model.dump_model()["tree_info"]]
    rows = [dict(_leaves(tree)) for tree in trees]
    values = np.zeros((len(rows), 1 + max((max(row) for row in rows), default=0)))
    for place, row in enumerate(rows):
        values[place, list(row)] = list(row.values())
    return values


def _leaves(node: dict[str, Any]) -> Iterator[tuple[int, float]]:
    """Number and value of each leaf below a node; a tree of one leaf has no number."""
    if "leaf_value" in node:
        yield node.get("leaf_index", 0), node["leaf_value"]
        return
    yield from _leaves(node["left_child"])
    yield from _leaves(node["right_child"])
