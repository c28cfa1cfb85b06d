"""Which rows an audit knows, looks up, checks with and judges; and which of them are unlike the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.align.encoder import Inputs
from tacit.one_shot.questions import LEAST, Questions

Rows = NDArray[np.intp]

OUTLYING = 0.05
"""The share of the judged rows that count as outlying: those least likely, were columns independent."""

_PARTS = 16  # in which rows that may be of a rare category are looked through


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
        rare, found = np.flatnonzero(members < LEAST), members.copy()
        rows, rarity = [self.spare[:0]], [members[:0]]
        for part in np.array_split(self.spare, _PARTS):
            yes = questions.answers(part)[:, rare] > 0.5
            wanted = yes & (found[rare] + yes.cumsum(0) <= LEAST)
            found[rare] += yes.sum(0)
            rows.append(part[wanted.any(1)])
            rarity.append(np.where(wanted, members[rare], LEAST)[wanted.any(1)].min(1, initial=LEAST))
        order = np.concatenate(rarity).argsort(kind="stable")
        return np.concatenate(rows)[order][: len(self.judged)]


def outlying(inputs: Inputs, known: Rows, asked: Rows) -> NDArray[np.bool_]:
    """The rows that are least likely if columns were independent, numbers normal and codes as frequent as they are."""
    unlikely = np.square(inputs.numeric.numpy()[asked].astype(np.float64)).sum(1) / 2
    codes = inputs.categorical.numpy()
    for column, size in enumerate(inputs.cardinalities):
        count = np.bincount(codes[known, column], minlength=size) + 1.0
        unlikely -= np.log(count / count.sum())[codes[asked, column]]
    return np.asarray(unlikely > np.quantile(unlikely, 1 - OUTLYING))
