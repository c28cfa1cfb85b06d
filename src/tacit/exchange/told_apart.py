"""Values of a column that an attacker may ask for together: runs of neighbouring numbers, and sets that stand out.

Whoever plants a mark on some values of a column, a band in the middle of a number or some of many codes, makes the
embedding tell these from the others: they are found by what it says of known rows, and then asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

_STEPS = 256  # of a number at most
_ROWS = 25  # known rows of a step at least, where a number has more distinct values than that allows
_RUN = 0.1  # the share of the rows that a run of numbers is, or more
_RANGES = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98])  # shares: a cut from each
_CUTS = 4  # sets that are kept of each way to order a column's values
_GIVEN_AWAY = 0.9  # 2 AUC - 1 of known rows from which on a set of few rows is asked for
_NUMBERS = 2  # of an embedding, that order them by their mean
_CELLS = 32  # that a number of an embedding is cut into, to see whether it tells values apart in any other way
_BENT = 8  # numbers of an embedding, the first ones, that are looked at so

Codes = NDArray[np.integer]
Floats = NDArray[np.float64]
Members = NDArray[np.bool_]


def steps(x: NDArray[np.floating]) -> NDArray[np.floating]:
    """Upper edges of the steps of a number, but for the last one: `np.searchsorted(edges, x)` is the step of x."""
    values = np.unique(x)
    most = min(_STEPS, max(2, len(x) // _ROWS))
    if len(values) > most:
        values = np.unique(np.quantile(x, np.arange(1, most + 1) / most, method="lower"))
    return values[:-1]


def runs(count: NDArray[np.integer], share: float, most: int) -> Iterator[tuple[Members, float, float]]:
    """Neighbouring steps between the lowest and the highest ones, each with the shares of the rows below and up to it.

    From the known rows of each step; the lowest and the highest steps, this share of the rows each, are asked for
    anyway.
    """
    rows, until = max(1, int(count.sum())), np.cumsum(count)
    parts = min(most, int((1 - 2 * share) / max(_RUN, share) + 1e-9))
    middle = (until - count / 2) / rows
    part = np.floor((middle - share) / (1 - 2 * share) * parts) if parts else np.full(len(count), -1.0)
    for place in range(parts):
        members = part == place
        inside = int(count[members].sum())
        if inside:
            last = int(until[np.flatnonzero(members)[-1]])
            yield members, (last - inside) / rows, last / rows


class Embedded:
    """An embedding of known rows, as far as values of a column are ordered by it."""

    def __init__(self, z: NDArray[np.generic]) -> None:
        self.ranks: Floats = rankdata(z, axis=0)
        self.cells = ((self.ranks[:, :_BENT] - 0.5) * (_CELLS / max(1, len(z)))).astype(np.intp)


def told_apart(codes: Codes, embedded: Embedded, size: int, enough: int, least: int) -> list[Members]:
    """Sets of codes (rows,), of `size` possible ones, that an embedding may tell from the others, best first.

    The codes are ordered by what the embedding says of their rows: by the mean of one of its numbers, and by the mean
    of that function of one number which depends most on the code. Each order is cut where rows above and below are told
    apart best, with few or many rows above: `enough` on each side, or `least` for a set that is given away, nearly all
    of it told from the others. No single code needs rows enough to be judged.
    """
    there, place, count = np.unique(codes, return_inverse=True, return_counts=True)
    if len(there) < 3:
        return []  # there is no set but single codes
    straight = [_Order(ranks, place, count) for ranks in embedded.ranks.T]
    bent = [_Order(_bent(cells, place, count), place, count) for cells in embedded.cells.T]
    best = [*sorted(straight, key=lambda order: -order.told)[:_NUMBERS], max(bent, key=lambda order: order.told)]
    cuts = sorted((cut for order in best for cut in order.cuts(enough, least)), key=lambda cut: -cut[0])
    found = []
    for _, above in cuts:
        members = np.zeros(size, dtype=bool)
        members[there[above]] = True
        found.append(members)
    return found


def ordered_by(codes: Codes, size: int, cells: NDArray[np.intp]) -> NDArray[np.float32]:
    """For each of `size` possible codes its place in the order in which cells tell codes apart best.

    By the mean of that function of the cell which depends most on the code; of rows (codes and cells of each).
    """
    there, place, count = np.unique(codes, return_inverse=True, return_counts=True)
    bent = _bent(cells, place, count)
    mean = np.bincount(place, weights=bent, minlength=len(there)) / count
    order = np.full(size, float(len(there)) / 2, np.float32)  # a code that nobody has seen is in the middle
    order[there] = rankdata(mean)
    return order


class _Order:
    """The codes of a column in the order of a score's mean over their rows; `told` of its variance is between codes."""

    def __init__(self, ranks: Floats, place: NDArray[np.intp], count: NDArray[np.integer]) -> None:
        """By the ranks of all rows' scores, and the code of each row."""
        self.count, self.sums = count, np.bincount(place, weights=ranks, minlength=len(count)).astype(np.float64)
        mean = self.sums / count
        self.told = float(np.square(mean - ranks.mean()) @ count / max(ranks.var() * len(ranks), 1e-12))
        self.order = np.argsort(mean, kind="stable")

    def cuts(self, enough: int, least: int) -> list[tuple[float, NDArray[np.intp]]]:
        """How well a cut surely parts known rows, and the codes above it, for the best cuts of different sizes."""
        rows = int(self.count.sum())
        above = rows - np.cumsum(self.count[self.order])[:-1]  # rows above each possible cut
        ranks = rows * (rows + 1) / 2 - np.cumsum(self.sums[self.order])[:-1]
        area = (ranks - above * (above + 1) / 2) / (above * (rows - above))
        few = np.minimum(above, rows - above)
        sure = 2 * area - 1 - 4 * np.sqrt((1 / above + 1 / (rows - above)) / 12)
        sure[(few < enough) & ((few < least) | (2 * area - 1 < _GIVEN_AWAY))] = -np.inf
        size = np.searchsorted(_RANGES, above / rows)
        best = [max(np.flatnonzero(size == each), key=lambda cut: sure[cut]) for each in np.unique(size)]
        kept = sorted((cut for cut in best if np.isfinite(sure[cut])), key=lambda cut: -sure[cut])[:_CUTS]
        return [(float(sure[cut]), self.order[cut + 1 :]) for cut in kept]


def _bent(cells: NDArray[np.intp], place: NDArray[np.intp], count: NDArray[np.integer]) -> Floats:
    """Ranks of that function of cells which depends most on the code: the first axis of correspondence analysis."""
    most = max(_CELLS, int(cells.max(initial=0)) + 1)
    table = np.bincount(place * most + cells, minlength=len(count) * most).reshape(-1, most).astype(np.float64)
    of_cells = table.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.outer(count, of_cells) / len(cells)
        apart = np.where(expected > 0, (table - expected) / np.sqrt(expected), 0.0)
        axis = np.where(of_cells > 0, np.linalg.eigh(apart.T @ apart)[1][:, -1] / np.sqrt(of_cells), 0.0)
    return np.asarray(rankdata(axis[cells]))
