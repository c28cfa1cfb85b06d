"""Labels that are numbers, randomized once: what is sent is right on average, and certified like flips.

A value is clipped to a public range and put into a cell of a public grid. For each cell a row of whole numbers says how
likely each output is sent, in parts of 2**64. Of several tables the one with the least expected squared error under a
public prior is taken:

- those of two outputs, where a coin for two classes decides and its chances rise evenly from the lowest cell to the
  highest; skewed coins are for skewed priors, as they are for rare classes;
- those of a linear program: among tables whose odds are at most some factor and whose outputs are right on average, the
  best one (Badanidiyuru et al., 2023), the factor lowered until the leak AUC holds, too.

Tables are rounded to whole numbers, and what is certified is computed from these, exactly.
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
from scipy.optimize import linprog
from scipy.sparse import coo_array

from tacit.errors import LabelsError, ProtocolError, UsageError
from tacit.one_shot.flips import MAX_ODDS, RARE, WHOLE, Flips, check_parameters, flips, limit_of, odds_of, word_of
from tacit.one_shot.loss import Loss

MAX_CELLS = 64
_NAME, _VERSION = "number flips", 1
_REACHES = (1.5, 2.5)  # how far a program's outputs go, in units of what they have to at least
_PROGRAMS = 32  # cells up to which programs are tried; they take seconds then
_ROUNDS = 9  # of bisection
_TINY = 1e-5  # an output that is less likely than this for all cells is left out


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
        """The randomizer for a peer or a ledger, for JSON; whole numbers of 64 bits are texts, floats hexadecimal."""
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
    """The randomizer of numbers that keeps to both limits and has the least expected squared error found.

    Args:
        limit: leak AUC: nobody tells a cell from another with a better one. Above 0.5 and below 1.
        odds: no two cells' odds change by more than this factor; above 1, at most 20; 20 where it is not given.
        low: the lower end of the range, public, not taken from the labels.
        high: its upper end.
        cells: that the range is put into, 2 to 64.
        prior: how likely each cell is, in public; uniform unless told. It has an effect on the error only.

    The linear program's last digits may differ between processors: keep `parameters()` of what was released, and read
    it back, rather than make it again.

    >>> randomizer = number_flips(0.6, 3, low=0, high=60, cells=5)
    >>> randomizer.auc <= 0.6, randomizer.odds <= 3, randomizer.cell_of(np.array([-9.0, 31, 99])).tolist()
    (True, True, [0, 2, 4])
    """
    if limit is None and odds is None:
        raise UsageError("number_flips: set limit (leak AUC, as 0.6), odds (as 3), or both")
    allowed = Fraction(1) if limit is None else limit_of(limit)
    most = odds_of(MAX_ODDS if odds is None else odds)
    if isinstance(cells, bool) or not isinstance(cells, int) or not 2 <= cells <= MAX_CELLS:
        raise UsageError(f"number_flips: cells = {cells!r}: from 2 to {MAX_CELLS} are possible")
    if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low)):
        raise UsageError(f"number_flips: the range from {low!r} to {high!r} is none: low lies below high")
    weights = _weights(prior, cells)
    found = [_affine(float(low), float(high), weights, flips(limit, odds, rare=rare)) for rare in RARE]
    for reach in _REACHES if cells <= _PROGRAMS else ():
        found += _widest(float(low), float(high), weights, reach, allowed, most)
    return min((made for made in found if made.auc <= allowed and made.odds <= most), key=NumberFlips.spread)


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


def _widest(
    low: float, high: float, weights: NDArray[np.float64], reach: float, limit: Fraction, odds: Fraction
) -> list[NumberFlips]:
    """The table of the largest factor that keeps to both limits, if any is found, by bisection of its logarithm."""
    best: list[NumberFlips] = []
    least, most = 0.0, math.log(odds)
    trial = most * (1 - 1e-4)  # the program's own errors come on top
    for _ in range(_ROUNDS):
        made = _solved(low, high, weights, reach, math.exp(trial))
        if made is not None and made.auc <= limit and made.odds <= odds:
            best, least = [made], trial
            if trial > most * (1 - 2e-4):
                break
        else:
            most = trial
        trial = (least + most) / 2
    return best


def _solved(low: float, high: float, weights: NDArray[np.float64], reach: float, odds: float) -> NumberFlips | None:
    """The best table at this factor, rounded; None where the program finds none."""
    cells = len(weights)
    wide = reach * (1 + 1e-4) * (odds + 1) / (odds - 1)  # in units of half the range
    outputs, grid = np.linspace(-wide, wide, cells), np.linspace(-1, 1, cells)
    chances = _program(outputs, grid, weights, odds)
    if chances is None:
        return None
    used = chances.max(0) >= _TINY
    chances, outputs = chances[:, used], outputs[used]
    chances = np.maximum(chances, chances.max(0) / odds)  # the program is right to 1e-7 only
    chances /= chances.sum(1, keepdims=True)
    first, last = np.flatnonzero(chances.min(0) >= chances.min(0).max() / 100)[[0, -1]]
    shift = (grid - chances @ outputs) / (outputs[last] - outputs[first])  # what is left of a bias
    chances[:, first] -= shift
    chances[:, last] += shift
    if not chances.min() > 0:
        return None
    table = tuple(_rounded(row) for row in chances)
    middle, half = (low + high) / 2, (high - low) / 2
    numbers = tuple(float(middle + half * output) for output in outputs)
    return NumberFlips(low, high, numbers, table, _rounded(weights))


def _program(
    outputs: NDArray[np.float64], grid: NDArray[np.float64], weights: NDArray[np.float64], odds: float
) -> NDArray[np.float64] | None:
    """Chances [i, k] between least[k] and odds * least[k], in rows that sum to 1 and have mean grid[i]."""
    cells = len(grid)
    size = cells * cells
    entry = np.arange(size)
    cost = (weights[:, None] * (outputs - grid[:, None]) ** 2).ravel()
    column, ones = size + entry % cells, np.ones(size)
    between = coo_array(
        (
            np.concatenate([-ones, ones, ones, -odds * ones]),
            (np.tile(entry, 4) + np.repeat([0, 0, size, size], size), np.concatenate([entry, column, entry, column])),
        ),
        shape=(2 * size, size + cells),
    )
    row = entry // cells
    exact = coo_array(
        (np.concatenate([ones, outputs[entry % cells]]), (np.concatenate([row, row + cells]), np.tile(entry, 2))),
        shape=(2 * cells, size + cells),
    )
    solved = linprog(
        np.concatenate([cost, np.zeros(cells)]), A_ub=between.tocsr(), b_ub=np.zeros(2 * size), A_eq=exact.tocsr(),
        b_eq=np.concatenate([np.ones(cells), grid]), method="highs-ds",
    )  # fmt: skip
    return None if solved.x is None else np.clip(solved.x[:size].reshape(cells, cells), 0, None)


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
