"""What an attacker may want to know of a row, as one table of answers, and how well it was answered.

A question is a column's number (how much of its variance is read), or: is the number among the lowest or highest
twentieth, or in a band between them, is the code this category, is either among those that the embedding tells from the
others. One decoder answers all of them together, and one pass judges them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.align.encoder import Columns, Inputs
from tacit.audit.metrics.leak_auc import of_placements, placements
from tacit.errors import TensorError, UsageError
from tacit.exchange.told_apart import Embedded, runs, steps, told_apart

# the share of the rows that a column's lowest and its highest numbers are, ties aside; more where rows are few
TAIL = 0.05

# a category, tail or set with fewer rows among those judged has an interval too wide to be held against a limit
LEAST = 200
_MARGIN = 1.3  # on rows that a question needs, because those judged are drawn at random
_SURE = 10  # unknown rows from which on a rare category is asked for by itself
_MOST = 600  # categories that are asked for one by one; above that, rare ones are pooled earlier
_SETS = 400  # questions about bands and sets; where there are many columns, each has fewer of them
_EACH = 4  # bands of a column at most, and sets
_SMALL, _GIVEN = 0.01, 0.005  # the share of the rows that a set is at least; and one that is given away
_REPEATED = 0.95  # correlation of the answers to two questions from which on one of them is enough
_BLOCK = 16  # questions judged at once
_PART = 1 << 14  # rows that are looked through at a time, for numbers that are not finite and for rare categories
OUTLYING = 0.05  # the share of the judged rows that count as outlying: those least likely, were columns independent

Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]
Rows = NDArray[np.intp]
Codes = NDArray[np.generic]


@dataclass(frozen=True)
class Set:
    """Numbers or codes of a column that are asked for together."""

    column: int  # as a place among the names of all columns
    edges: NDArray[np.floating] | None  # of the steps of a number; None for codes
    members: NDArray[np.bool_]  # whether each step or code is one of them
    words: str  # what is asked


@dataclass(frozen=True)
class Questions:
    """The questions of a table, and the answers that its rows have."""

    inputs: Inputs  # the table
    names: tuple[str, ...]  # of the numeric columns, those of flags included, then of the categorical ones
    numbers: tuple[int, ...]  # which numeric columns are asked for; those that never vary are not
    tails: tuple[tuple[int, float, bool], ...]  # (numeric column, edge, whether above it) of each tail
    # (categorical column, code) of each category; the code -1 stands for all that are not asked for
    categories: tuple[tuple[int, int], ...]
    sets: tuple[Set, ...] = ()  # bands of numbers, and numbers and codes that an embedding tells from others

    @classmethod
    def of(
        cls, inputs: Inputs, columns: Columns, known: Rows, judged: int, unknown: int = 0, z: Codes | None = None
    ) -> Questions:
        """The questions that known rows, and the embedding z of all rows, suggest, and that unknown rows can answer.

        So many rows are judged, and where a category is rare so many unknown ones could be.
        """
        numeric = (*columns.numeric, *columns.flagged)
        if len(numeric) != inputs.numeric.shape[1] or len(columns.categorical) != inputs.categorical.shape[1]:
            raise UsageError(
                f"the names are of {len(numeric)} numbers and {len(columns.categorical)} categories, but a row has "
                f"{inputs.numeric.shape[1]} and {inputs.categorical.shape[1]}: pass the columns that made the inputs"
            )
        if not all(bool(part.isfinite().all()) for part in inputs.numeric.split(_PART)):  # of many rows it is large
            raise TensorError("some numeric inputs are not finite: look for overflow in what produced them")
        x, codes = inputs.numeric.numpy()[known], inputs.categorical.numpy()[known]
        numbers = tuple(place for place in range(x.shape[1]) if x[:, place].min() < x[:, place].max())
        share = min(0.5, max(TAIL, _MARGIN * LEAST / max(1, judged)))  # such that a tail has rows enough to be judged
        tails = tuple(tail for place in numbers for tail in _tails(place, x[:, place], share))
        counts = [np.bincount(codes[:, place], minlength=1) for place in range(codes.shape[1])]
        least = max(2, round(_SURE * len(known) / max(1, judged, unknown)))
        while sum(int((count >= least).sum()) for count in counts) > _MOST:
            least *= 2
        categories = tuple((place, code) for place, count in enumerate(counts) for code in _asked(count, least))
        asked = cls(inputs, (*numeric, *columns.categorical), numbers, tails, categories)
        enough = max(_SMALL, min(TAIL, _MARGIN * LEAST / max(1, judged)))
        embedded = None if z is None else Embedded(z[known])
        return replace(asked, sets=tuple(_sets(asked, known, embedded, share, enough)))

    def columns_of(self) -> tuple[NDArray[np.intp], int]:
        """For each column the number of its name, and how many names there are: what has one name belongs together."""
        distinct = {name: place for place, name in enumerate(dict.fromkeys(self.names))}
        return np.array([distinct[name] for name in self.names], dtype=np.intp), len(distinct)

    @property
    def units(self) -> NDArray[np.intp]:
        """For each question the number of its column's name."""
        return self.columns_of()[0][self.owners]

    @property
    def owners(self) -> NDArray[np.intp]:
        """For each question its column, as a place among the names."""
        first = len(self.names) - self.inputs.categorical.shape[1]
        coded = [first + column for column, _ in self.categories]
        sets = [each.column for each in self.sets]
        return np.array([*self.numbers, *(tail[0] for tail in self.tails), *coded, *sets], dtype=np.intp)

    def answers(self, rows: Rows) -> Floats:
        """The true answers of some rows: numbers first, then 0 or 1.  (rows, questions)"""
        x, codes = self.inputs.numeric.numpy()[rows], self.inputs.categorical.numpy()[rows]
        out = np.empty((len(rows), len(self)), dtype=np.float32)
        out[:, : len(self.numbers)] = x[:, list(self.numbers)]
        for place, (column, edge, above) in enumerate(self.tails, len(self.numbers)):
            out[:, place] = x[:, column] >= edge if above else x[:, column] <= edge
        start = len(self.numbers) + len(self.tails)
        for place, (column, code) in enumerate(self.categories, start):
            here = codes[:, column]
            out[:, place] = here == code if code >= 0 else ~np.isin(here, list(self.asked(column)))
        edges = {each.column: each.edges for each in self.sets}
        where = {
            column: codes[:, column - x.shape[1]] if of_steps is None else np.searchsorted(of_steps, x[:, column])
            for column, of_steps in edges.items()
        }
        for place, each in enumerate(self.sets, start + len(self.categories)):
            out[:, place] = each.members[where[each.column]]
        return out

    def asked(self, column: int) -> dict[int, int]:
        """The codes of a categorical column that are asked for one by one, and where the answers about each stand."""
        places = enumerate(self.categories, len(self.numbers) + len(self.tails))
        return {code: at for at, (place, code) in places if place == column and code >= 0}

    def by_code(self) -> dict[int, Rows]:
        """For each categorical column that is asked for, the question of each of its codes; -1 for none."""
        tables: dict[int, Rows] = {}
        for at, (column, code) in enumerate(self.categories, len(self.numbers) + len(self.tails)):
            table = tables.setdefault(column, np.full(self.inputs.cardinalities[column], -1))
            if code < 0:  # the last of its column
                table[table < 0] = at
            else:
                table[code] = at
        return tables

    def said(self, place: int) -> tuple[str, str]:
        """The column's name and what is asked about it."""
        if place < len(self.numbers):
            return self.names[self.numbers[place]], "variance"
        place -= len(self.numbers)
        if place < len(self.tails):
            column, _, above = self.tails[place]
            return self.names[column], "highest" if above else "lowest"
        place -= len(self.tails)
        if place < len(self.categories):
            column, code = self.categories[place]
            name = self.names[len(self.names) - self.inputs.categorical.shape[1] + column]
            return name, f"category {self.inputs.category(column, code) or code}" if code >= 0 else "rare categories"
        asked = self.sets[place - len(self.categories)]
        return self.names[asked.column], asked.words

    def __len__(self) -> int:
        return len(self.numbers) + len(self.tails) + len(self.categories) + len(self.sets)


def _tails(column: int, x: Floats, share: float) -> list[tuple[int, float, bool]]:
    """The edges of a column's tails, such that each holds some rows and not more than half of them."""
    found = []
    for above in (False, True):
        turned = x if above else -x
        edge = float(np.quantile(turned, 1 - share, method="higher"))
        if (turned >= edge).mean() > 0.5:  # most rows have this very number: only what lies beyond it is a tail
            beyond = turned[turned > edge]
            if not len(beyond):
                continue
            edge = float(beyond.min())
        found.append((column, edge if above else -edge, above))
    return found


def _asked(count: NDArray[np.intp], least: int) -> list[int]:
    """The codes with rows enough, then -1 where there are others; nothing where a column has one code only."""
    common = np.flatnonzero(count >= least).tolist()
    rest = int(count.sum() - count[common].sum())
    if rest:
        common.append(-1)
    return common if len(common) > 1 else []


def _sets(asked: Questions, known: Rows, embedded: Embedded | None, share: float, enough: float) -> Iterator[Set]:
    """Bands between the tails of each number, and what an embedding tells apart of each column, but for near repeats.

    A tail is the given share of the rows, and a set has, and leaves, `enough` of them at least.
    """
    inputs, most = asked.inputs, max(1, min(_EACH, _SETS // (2 * len(asked.names))))
    rows = round(enough * len(known)), max(2, round(_GIVEN * len(known)))
    answers, owner = asked.answers(known)[:, len(asked.numbers) :], asked.owners[len(asked.numbers) :]
    for column in (*asked.numbers, *range(inputs.numeric.shape[1], len(asked.names))):
        place = column - inputs.numeric.shape[1]
        if place < 0:
            values = inputs.numeric.numpy()[known, column]
            edges = steps(values)
            codes, size, words = np.searchsorted(edges, values), len(edges) + 1, "values told apart"
            bands = [
                Set(
                    column, edges, members, f"between {low:.0%} and {high:.0%}"
                )  # of the rows, from the lowest number on
                for members, low, high in runs(np.bincount(codes, minlength=size), share, most)
            ]
        else:
            codes, size, words = (
                inputs.categorical.numpy()[known, place],
                inputs.cardinalities[place],
                "codes told apart",
            )
            edges, bands = None, []
        apart = [] if embedded is None else told_apart(codes, embedded, size, *rows)
        before = [_unit(each) for each in answers[:, owner == column].T]
        for wanted in (bands, [Set(column, edges, members, words) for members in apart]):
            yield from islice(_unlike(wanted, codes, before), most)


def _unlike(wanted: list[Set], codes: NDArray[np.integer], before: list[Floats]) -> Iterator[Set]:
    """Those of the sets that known rows answer unlike all before, which they join."""
    for each in wanted:
        answers = _unit(each.members[codes])
        if all(abs(float(answers @ other)) < _REPEATED for other in before):
            before.append(answers)
            yield each


def _unit(answers: NDArray[np.generic]) -> Floats:
    """Answers around their mean, of length 1; the product of two such is how far both are one question."""
    out = answers.astype(np.float32) - np.float32(answers.mean())
    return out / max(float(np.linalg.norm(out)), 1e-9)


# --- of which rows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draw:
    """Which rows are what. None is two of these, but for those that are fitted: they are looked up as well."""

    fit: Rows
    looked_up: Rows
    check: Rows
    judged: Rows
    spare: Rows
    train: int

    @classmethod
    def of(cls, rows: int, train: int, known: float, seed: int, known_rows: int, judged_rows: int) -> Draw:
        """Draw them: how many rows there are, how many of them are for training, the share known, and most of each."""
        order = np.random.default_rng(seed).permutation(rows)
        mine, hidden = np.split(order, [round(known * rows)])
        check, rest = np.split(mine, [min(known_rows, len(mine)) // 5])
        judged, spare = np.split(hidden, [min(judged_rows, len(hidden))])
        return cls(rest[: known_rows - len(check)], rest, check, judged, spare, train)

    def rare(self, questions: Questions) -> Rows:
        """Of the unknown rows that are not judged, those of categories that few judged rows are of, rarest first."""
        members = questions.answers(self.judged).sum(0)
        members[: len(questions.numbers) + len(questions.tails)] = LEAST  # only categories are rare
        members[len(questions) - len(questions.sets) :] = LEAST
        wanted, tables = (LEAST - members).astype(np.intp), questions.by_code()  # so many further rows of each question
        rows, rarity = [self.spare[:0]], [members[:0]]
        for start in range(0, len(self.spare), _PART):
            if not (wanted > 0).any():
                break
            part = self.spare[start : start + _PART]
            rarest, codes = np.full(len(part), LEAST, members.dtype), questions.inputs.categorical.numpy()[part]
            for column, table in tables.items():
                here, place = _first(table[codes[:, column]], wanted)
                rarest[here] = np.minimum(rarest[here], members[place])
                wanted -= np.bincount(place, minlength=len(wanted))
            rows.append(part[rarest < LEAST])
            rarity.append(rarest[rarest < LEAST])
        order = np.concatenate(rarity).argsort(kind="stable")
        return np.concatenate(rows)[order][: len(self.judged)]


def _first(asked: Rows, wanted: Rows) -> tuple[Rows, Rows]:
    """Of rows that say yes to one question or to none (-1), the first that are wanted of each, and their questions."""
    rows = np.flatnonzero(wanted[asked] * (asked >= 0) > 0)
    rows = rows[np.argsort(asked[rows], kind="stable")]
    place = asked[rows]
    before = np.arange(len(rows)) - np.searchsorted(place, place)  # how many say yes to the same question
    chosen = before < wanted[place]
    return rows[chosen], place[chosen]


def outlying(inputs: Inputs, known: Rows, asked: Rows) -> NDArray[np.bool_]:
    """The rows that are least likely if columns were independent, numbers normal and codes as frequent as they are."""
    unlikely = np.square(inputs.numeric.numpy()[asked].astype(np.float64)).sum(1) / 2
    codes = inputs.categorical.numpy()
    for column, size in enumerate(inputs.cardinalities):
        count = np.bincount(codes[known, column], minlength=size) + 1.0
        unlikely -= np.log(count / count.sum())[codes[asked, column]]
    return np.asarray(unlikely > np.quantile(unlikely, 1 - OUTLYING))


# --- how well they were answered -------------------------------------------------------------------------------------


def areas(
    score: Floats, truth: Floats, before: Floats | None = None, *, group: Rows | None = None
) -> tuple[Numbers, Numbers]:
    """2 AUC - 1 of each question of yes or no, and its standard error by DeLong, DeLong and Clarke-Pearson (1988).

    One made-up pair of each class widens it, so that ten rows in perfect order are not taken for certainty. Where there
    are scores of the same rows `before` the embedding was seen, the figure is the difference of both, and its error
    that of correlated curves. NaN where a class is lacking. All are (rows, questions).

    Args:
        group: numbers of few groups whose rows have equal scores, which is much faster.  (rows,)
    """
    value, error = (np.full(score.shape[1], np.nan) for _ in range(2))
    if group is not None:
        area, spread = of_placements(*_placed(score, truth, group), pairs=1.0)
        return (2 * area - 1).numpy(), (2 * spread.sqrt()).numpy()
    for start in range(0, score.shape[1], _BLOCK):
        part = slice(start, start + _BLOCK)
        yes = torch.from_numpy(truth[:, part].T > 0.5)
        placed = placements(_turned(score[:, part]), yes, ~yes)
        if before is not None:
            placed = placed - placements(_turned(before[:, part]), yes, ~yes) + 0.5  # around 1/2, as one AUC would be
        area, spread = of_placements(placed, yes, ~yes, pairs=1.0)
        value[part], error[part] = (2 * area - 1).numpy(), (2 * spread.sqrt()).numpy()
    return value, error


def _placed(score: Floats, truth: Floats, group: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """The placements of each group's positives, then of its negatives; how many it has of these, and of those."""
    _, first, place, size = np.unique(group, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    yes = np.add.reduceat(truth[order] > 0.5, np.cumsum(size) - size, axis=0, dtype=np.float64)
    no, value = size[:, None] - yes, score[first]
    above = (value[:, None] > value) + 0.5 * (value[:, None] == value)  # (groups, groups, questions)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_yes = np.einsum("abq,bq->aq", above, no) / no.sum(0)
        of_no = np.einsum("abq,aq->bq", above, yes) / yes.sum(0)
    both = np.concatenate([of_yes, of_no]), np.concatenate([yes, 0 * no]), np.concatenate([0 * yes, no])
    placed, positive, negative = (torch.from_numpy(np.ascontiguousarray(each.T)) for each in both)
    return placed, positive, negative


def _turned(score: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(score.T))


def shares(belief: Floats, truth: Floats, mean: Numbers, before: Floats | None = None) -> tuple[Numbers, Numbers]:
    """The share of each column's variance that beliefs take away, and its standard error by the delta method.

    `mean`, of the known rows, is believed without any embedding. With beliefs `before` it was seen, the share is what
    the embedding adds. All others are (rows, columns).
    """
    y = truth.astype(np.float64)
    base = np.square(y - mean)
    with_it = np.square(y - belief)
    without = base if before is None else np.square(y - before)
    total = base.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = (without - with_it).sum(0) / total
        error = np.sqrt(np.square(without - with_it - value * base).sum(0)) / total
    return value, error


def codes_read(right: NDArray[np.bool_], usual: NDArray[np.bool_]) -> tuple[float, float]:
    """Of the rows that a guess at the most common code misses, the share that was read, and its standard error."""
    left = 1.0 - float(usual.mean())
    if left <= 0.0:
        return float("nan"), float("nan")
    value = float(right.mean() - usual.mean()) / left
    residual = right.astype(np.float64) - usual - value * (1.0 - usual)
    return value, float(np.sqrt(np.square(residual).sum() + 0.5)) / (len(right) * left)
