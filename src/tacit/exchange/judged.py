"""How good a private model is on rows that it was not fitted on, and what the partner's numbers are worth to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from sklearn import metrics

from tacit.align.encoder import Inputs
from tacit.errors import UsageError
from tacit.exchange.head import Head
from tacit.labels.target import Target

Figure = Callable[[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], float]
"""Takes labels, scores and weights of rows."""

_TOP = 0.1  # the share of the rows with the highest scores, of which the lift is told
FEWEST = 20
"""Test rows with a label, below which nothing is said."""


def _lift(truth: NDArray[np.float64], scores: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """How many times as often the label is 1 among the tenth of the rows with the highest scores as among all."""
    order = np.argsort(-scores, kind="stable")
    each = weights[order]
    room = max(1.0, np.floor(_TOP * weights.sum())) - (np.cumsum(each) - each)  # of a heavy row the part that fits
    top = np.average(truth[order], weights=np.clip(room, 0.0, each))
    return float(top / np.average(truth, weights=weights))


_TWO_CLASSES: Mapping[str, Figure] = {
    "AUC": lambda truth, scores, weights: metrics.roc_auc_score(truth, scores, sample_weight=weights),
    "PR-AUC": lambda truth, scores, weights: metrics.average_precision_score(truth, scores, sample_weight=weights),
    "log loss": lambda truth, scores, weights: metrics.log_loss(truth, scores, sample_weight=weights, labels=[0, 1]),
    "Brier score": lambda truth, scores, weights: metrics.brier_score_loss(truth, scores, sample_weight=weights),
    "lift, highest tenth": _lift,
}
_CLASSES: Mapping[str, Figure] = {
    "accuracy": lambda truth, scores, weights: metrics.accuracy_score(truth, scores.argmax(1), sample_weight=weights),
    "log loss": lambda truth, scores, weights: metrics.log_loss(
        truth, scores, sample_weight=weights, labels=list(range(scores.shape[1]))
    ),
}
_NUMBERS: Mapping[str, Figure] = {
    "R2": lambda truth, scores, weights: metrics.r2_score(truth, scores, sample_weight=weights),
    "RMSE": lambda truth, scores, weights: metrics.root_mean_squared_error(truth, scores, sample_weight=weights),
}


@dataclass(frozen=True)
class Tested:
    """The test rows that have a label, as the private model sees them."""

    rows: NDArray[np.intp]  # their numbers, as they were given
    truth: NDArray[np.float64]  # their labels
    scores: NDArray[np.float64]  # with the partner's numbers
    alone: NDArray[np.float64]  # without
    codes: NDArray[np.uint8]  # the partner's numbers
    own: Inputs  # own columns
    classes: int  # how many there are; 0 for numbers

    @classmethod
    def of(
        cls, target: Target, order: NDArray[np.intp], train: int, scores: NDArray[np.float64],
        alone: NDArray[np.float64], codes: NDArray[np.uint8], own: Inputs,
    ) -> Tested:  # fmt: skip
        """Those behind the training rows in the common order."""
        at = train + np.flatnonzero(target.known[train:])
        return cls(
            order[at], target.values[at].astype(np.float64), scores[at], alone[at], codes[at],
            own[torch.from_numpy(at)], target.classes,
        )  # fmt: skip

    @property
    def figures(self) -> Mapping[str, Figure]:
        """The figures that labels of this kind have."""
        return _NUMBERS if not self.classes else _TWO_CLASSES if self.classes == 2 else _CLASSES

    def worth(self, groups: NDArray[np.int64] | None = None, *, draws: int = 200, seed: int = 0) -> pl.DataFrame:
        """Each figure with the partner's numbers and without, and the difference with a 95% interval.

        The interval is a bootstrap over the test rows, the same rows for both models; rows of one group are drawn
        together.
        """
        self._check()
        groups = np.arange(len(self.truth)) if groups is None else groups
        count, draw = int(groups.max()) + 1, np.random.default_rng(seed)
        every = np.ones(len(groups))
        drawn = [draw.multinomial(count, np.full(count, 1 / count))[groups].astype(np.float64) for _ in range(draws)]
        drawn = [weights for weights in drawn if len(np.unique(self.truth[weights > 0])) > 1]
        rows = []
        for name, figure in self.figures.items():
            more = [figure(self.truth, self.scores, one) - figure(self.truth, self.alone, one) for one in drawn]
            low, high = np.quantile(more, [0.025, 0.975])
            together, alone = figure(self.truth, self.scores, every), figure(self.truth, self.alone, every)
            rows.append((name, together, alone, together - alone, float(low), float(high)))
        names = ["figure", "with the partner", "without", "difference", "low", "high"]
        return pl.DataFrame(rows, schema=names, orient="row")

    def by(self, segments: pl.Series) -> pl.DataFrame:
        """The figures of each value of a column, most frequent first; those that are undefined there are null."""
        self._check()
        values = segments.cast(pl.String).fill_null("(missing)").to_numpy()[self.rows]
        found = []
        for value, rows in zip(*np.unique(values, return_counts=True), strict=True):
            here = np.flatnonzero(values == value)
            told = len(np.unique(self.truth[here])) > 1
            named = {
                name: float(figure(self.truth[here], self.scores[here], np.ones(len(here)))) if told else None
                for name, figure in self.figures.items()
            }
            found.append({segments.name or "segment": str(value), "rows": int(rows), **named})
        return pl.DataFrame(found, infer_schema_length=None).sort("rows", descending=True)

    def calibration(self, bins: int = 10) -> pl.DataFrame:
        """Mean score and share of ones, over parts of the rows of equal size by their score."""
        self._check()
        if self.classes != 2:
            raise UsageError("calibration is told of two classes alone: use result.figures here")
        parts = np.array_split(np.argsort(self.scores, kind="stable"), min(bins, len(self.scores)))
        rows = [(float(self.scores[part].mean()), float(self.truth[part].mean()), len(part)) for part in parts]
        return pl.DataFrame(rows, schema=["score", "share of ones", "rows"], orient="row")

    def importance(self, head: Head, *, draws: int = 3, seed: int = 0) -> pl.DataFrame:
        """How much worse the first figure gets where a column is shuffled among the test rows, largest first.

        "the partner" shuffles all its numbers together.
        """
        self._check()
        draw, names = np.random.default_rng(seed), self.own.names
        name, figure = next(iter(self.figures.items()))
        every, categories = np.ones(len(self.truth)), self.own.categorical.shape[1]
        whole = figure(self.truth, head.predict(self.codes, self.own), every)

        def shuffled(column: int | None) -> float:
            """The figure with an own column shuffled; None for the partner's numbers."""
            order = draw.permutation(len(self.truth))
            if column is None:
                return figure(self.truth, head.predict(self.codes[order], self.own), every)
            codes, numbers = self.own.categorical.clone(), self.own.numeric.clone()
            part, place = (codes, column) if column < categories else (numbers, column - categories)
            part[:, place] = part[torch.from_numpy(order), place]
            rows = replace(self.own, categorical=codes, numeric=numbers)
            return figure(self.truth, head.predict(self.codes, rows), every)

        of = {"the partner": None, **{name: place for place, name in enumerate(names)}}
        lost = [(column, whole - float(np.mean([shuffled(at) for _ in range(draws)]))) for column, at in of.items()]
        return pl.DataFrame(lost, schema=["column", f"loss of {name}"], orient="row").sort(
            f"loss of {name}", descending=True
        )

    @property
    def few(self) -> bool:
        """Whether nothing can be said: few rows have a label, or all have the same."""
        return len(self.truth) < FEWEST or len(np.unique(self.truth)) < 2

    def _check(self) -> None:
        if len(self.truth) < FEWEST:
            raise UsageError(
                f"{len(self.truth)} test rows have a label, and {FEWEST} at least are needed: pass a larger test_share"
            )
