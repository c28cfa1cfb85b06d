"""Labels that are numbers, randomized once: what is sent is right on average, and bounded like flips.

A value is clipped to a public range and put into a cell of a public grid. For each cell a row of whole numbers says how
likely each output is sent, in parts of 2**64. Tables that are made have two outputs: a coin for two classes decides,
and its chances rise evenly from the lowest cell to the highest; skewed coins are for skewed priors, as for rare
classes. Of several coins the one with the least expected squared error under a public prior is taken. A table that is
read may have more outputs.

Tables are rounded to whole numbers, and the bounds are computed from these, exactly.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import LabelsError, ProtocolError, UsageError
from tacit.labels.flips import MAX_ODDS, RARE, WHOLE, Flips, check_parameters, flips, word_of
from tacit.labels.loss import Loss

MAX_CELLS = 64
_NAME, _VERSION = "number flips", 1


@dataclass(frozen=True)
class NumberFlips:
    """A randomizer of numbers; made by `number_flips`, or read from a peer by `NumberFlips.read`."""

    low: float  # the lower end of the public range; what is below counts as this
    high: float  # its upper end
    outputs: tuple[float, ...]  # the number that each output stands for, rising; they reach beyond the range
    table: tuple[tuple[int, ...], ...]  # for each cell, how likely each output is sent, in parts of 2**64
    # how likely each cell is in public, in parts of 2**64; a row without a label is sent as if its cell had been drawn
    # from it
    prior: tuple[int, ...]

    @property
    def cells(self) -> int:
        """How many the range is put into."""
        return len(self.table)

    classes = cells
    """What labels are counted up to, as of `Flips`."""

    @cached_property
    def _loss(self) -> Loss:
        rows = range(self.cells)
        pairs = (tuple(zip(self.table[i], self.table[j], strict=True)) for i in rows for j in range(i))
        return Loss.dominating(pairs, WHOLE)

    def loss(self) -> Loss:
        """Of one label sent once: it tells at least as much as there is to tell between any two cells. Exact."""
        return self._loss

    @property
    def auc(self) -> float:
        """No two cells are told apart with a better AUC; that of `loss`, which may be above that of the worst two."""
        return self._loss.auc()

    @property
    def odds(self) -> float:
        """The largest factor by which what is sent changes the odds of any two cells; not below it."""
        return self._loss.odds()

    @property
    def series(self) -> str:
        """What makes coins comparable: the table itself, so that any other one is a release of its own."""
        return f"{_NAME} {_VERSION} {hashlib.sha256(repr((self.table, self.prior)).encode()).hexdigest()}"

    @cached_property
    def grid(self) -> NDArray[np.float64]:
        """The number that each cell stands for."""
        return np.linspace(self.low, self.high, self.cells)

    @cached_property
    def thresholds(self) -> NDArray[np.uint64]:
        """(cells, outputs - 1): a word sends output k if k of the row's thresholds are not above it. All are likely."""
        return np.array([list(accumulate(row))[:-1] for row in self.table], np.uint64)

    @cached_property
    def prior_thresholds(self) -> NDArray[np.uint64]:
        """The same for a cell drawn from the prior, whose last cells may be impossible."""
        return np.array([part for part in accumulate(self.prior) if part < WHOLE], np.uint64)

    def cell_of(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The nearest cell of each value, values outside of the range clipped to it; -1 where there is none (NaN)."""
        values = np.asarray(values, np.float64)
        if values.ndim != 1:
            raise LabelsError(f"values have shape {values.shape}: pass one for each row")
        place = (np.clip(values, self.low, self.high) - self.low) / (self.high - self.low) * (self.cells - 1)
        return np.where(np.isnan(values), -1, np.rint(np.nan_to_num(place))).astype(np.int64)

    def value_of(self, sent: NDArray[Any]) -> NDArray[np.float64]:
        """The number that each sent output stands for: on average over coins that of the row's cell."""
        sent = np.asarray(sent)
        if not np.issubdtype(sent.dtype, np.integer) or ((sent < 0) | (sent >= len(self.outputs))).any():
            raise LabelsError(f"sent outputs are whole numbers from 0 to {len(self.outputs) - 1}")
        return np.asarray(np.array(self.outputs)[sent])

    def spread(self) -> float:
        """The standard deviation of what is sent around a cell's number, over the prior."""
        chances = np.array(self.table, float) / WHOLE
        squares = (np.array(self.outputs) - self.grid[:, None]) ** 2
        return math.sqrt(float(np.array(self.prior, float) / WHOLE @ (chances * squares).sum(1)))

    def parameters(self) -> dict[str, Any]:
        """The randomizer for a peer or a book, for JSON; whole numbers of 64 bits are texts, floats hexadecimal."""
        return {
            "mechanism": _NAME, "version": _VERSION, "low": self.low.hex(), "high": self.high.hex(),
            "outputs": [output.hex() for output in self.outputs],
            "table": [[str(part) for part in row] for row in self.table], "prior": [str(part) for part in self.prior],
        }  # fmt: skip

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> NumberFlips:
        """What `parameters` gave, from somebody who may send anything.

        A `ProtocolError`: no randomizer, one whose odds are over 20, or one that is not right on average.
        """
        check_parameters(parameters, _NAME, _VERSION, ("low", "high", "outputs", "table", "prior"))
        outputs = tuple(_float(text) for text in _listed(parameters["outputs"]))
        table = tuple(_row(row, len(outputs)) for row in _listed(parameters["table"]))
        prior = _row(parameters["prior"], len(table))
        found = cls(_float(parameters["low"]), _float(parameters["high"]), outputs, table, prior)
        if not found.low < found.high or any(x >= y for x, y in pairwise(outputs)):
            raise ProtocolError("a randomizer's range and its outputs rise")
        if found.loss().most is None or found.odds > MAX_ODDS:
            raise ProtocolError(f"a randomizer whose odds are {found.odds:.4g}: at most {MAX_ODDS} are possible")
        means = np.array(table, float) / WHOLE @ np.array(outputs)
        if not np.allclose(means, found.grid, rtol=0, atol=1e-6 * (outputs[-1] - outputs[0])):
            raise ProtocolError("a randomizer whose outputs are not right on average")
        return found


def number_flips(
    limit: float | None = None,
    odds: float | None = None,
    *,
    low: float,
    high: float,
    cells: int = 16,
    prior: Sequence[float] | None = None,
) -> NumberFlips:
    """The randomizer of numbers that keeps to both limits and has the least expected squared error.

    Args:
        limit: leak AUC: nobody tells a cell from another with a better one. Above 0.5 and below 1.
        odds: no two cells' odds change by more than this factor; above 1, at most 20; 20 where it is not given.
        low: the lower end of the range, public, not taken from the labels.
        high: its upper end.
        cells: that the range is put into, 2 to 64.
        prior: how likely each cell is, in public; uniform unless told. It has an effect on the error only.

    >>> randomizer = number_flips(0.6, 3, low=0, high=60, cells=5)
    >>> randomizer.auc <= 0.6, randomizer.odds <= 3, randomizer.cell_of(np.array([-9.0, 31, 99])).tolist()
    (True, True, [0, 2, 4])
    """
    if limit is None and odds is None:
        raise UsageError("number_flips: set limit (leak AUC, as 0.6), odds (as 3), or both")
    if isinstance(cells, bool) or not isinstance(cells, int) or not 2 <= cells <= MAX_CELLS:
        raise UsageError(f"number_flips: cells = {cells!r}: from 2 to {MAX_CELLS} are possible")
    if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low)):
        raise UsageError(f"number_flips: the range from {low!r} to {high!r} is none: low lies below high")
    weights = _weights(prior, cells)
    found = [_affine(float(low), float(high), weights, flips(limit, odds, rare=rare)) for rare in RARE]
    return min(found, key=NumberFlips.spread)


def _affine(low: float, high: float, weights: NDArray[np.float64], coin: Flips) -> NumberFlips:
    """Two outputs; the upper one's chance rises evenly from b to a, rounded down at the top and up at the bottom."""
    top, bottom = int(coin.a * WHOLE), math.ceil(coin.b * WHOLE)
    steps = len(weights) - 1
    chances = [bottom + (top - bottom) * place // steps for place in range(steps + 1)]
    gap, wide = Fraction(top - bottom, WHOLE), Fraction(high) - Fraction(low)
    ends = (
        Fraction(low) - wide * Fraction(bottom, top - bottom),
        Fraction(high) + wide * (1 - Fraction(top, WHOLE)) / gap,
    )
    table = tuple((WHOLE - chance, chance) for chance in chances)
    return NumberFlips(low, high, (float(ends[0]), float(ends[1])), table, _rounded(weights))


def _rounded(chances: NDArray[np.float64]) -> tuple[int, ...]:
    """In parts of 2**64 that sum to it; the largest one takes what is over."""
    parts = [int(Fraction(float(chance)) * WHOLE) for chance in chances]
    parts[int(np.argmax(chances))] += WHOLE - sum(parts)
    return tuple(parts)


def _weights(prior: Sequence[float] | None, cells: int) -> NDArray[np.float64]:
    weights = np.ones(cells) if prior is None else np.asarray(prior, np.float64)
    if weights.shape != (cells,) or not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise UsageError(f"number_flips: the prior is one weight for each of {cells} cells, none below 0")
    return np.asarray(weights / weights.sum())


def _listed(value: Any, size: int | None = None) -> list[Any]:
    fits = isinstance(value, list) and (2 <= len(value) <= MAX_CELLS if size is None else len(value) == size)
    if not fits:
        raise ProtocolError(
            f"a randomizer's outputs and table are lists of 2 to {MAX_CELLS}, all rows of the same size"
        )
    return list(value)


def _row(value: Any, cells: int) -> tuple[int, ...]:
    parts = tuple(word_of(text) for text in _listed(value, cells))
    if sum(parts) != WHOLE:
        raise ProtocolError("a row of a randomizer's table does not sum to 2**64")
    return parts


def _float(text: Any) -> float:
    try:
        value = float.fromhex(text) if isinstance(text, str) and len(text) < 40 else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or abs(value) > 1e300:
        raise ProtocolError("a randomizer's numbers are finite, written as hexadecimal floats")
    return value
