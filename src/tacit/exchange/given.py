"""What an embedding adds for somebody who knows all other columns of a row, without which a sum of two tells nothing.

One network learns to fill in hidden columns from all others, with the embedding and without it.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.audit.fitting import trained
from tacit.contracts import noise_source
from tacit.exchange.decoders import LEVELS, Bag, answered, first_guess, updates_for
from tacit.exchange.questions import Questions
from tacit.progress import Count

Bins = NDArray[np.uint8]
Floats = NDArray[np.float32]
Rows = NDArray[np.intp]

_BINS = 64  # of a number, as the network sees it beside the number itself
_MOST = 1024  # levels of a category, as the network sees it: codes that fewer known rows have than others share one
_CODES = 100  # of a category that lines see one by one: the first ones
_RIDGE = 1e-4  # times the number of rows
_TIMES, _ENOUGH = 4, 32_000  # how often a row is learnt from at most, each time with other columns hidden; and rows
_BATCH = 128
_HIDDEN = 0.1  # of the columns of a row it learns from, besides one


def given(
    level: Bins, questions: Questions, fit: Rows, asked: Rows, *, seed: int, told: Count
) -> dict[str, tuple[Floats, Floats]]:
    """Beliefs of each decoder about each column from all others, with and without the embedding.

    Levels are (rows, width); columns of one name are hidden together.
    """
    told(0, 4)
    view = _View(level, questions, fit)
    away = torch.from_numpy(view.owner == view.count)
    z = view(asked)
    without = torch.where(away, view.blank, z)
    model = _trained(view, questions, fit, seed)
    told(2, 4)  # the network takes about half of the time
    network = _filled_in(model, view, questions, z), _filled_in(model, view, questions, without)
    told(3, 4)
    return {"line": _lines(view, questions, fit, asked), "network": network}


def _trained(view: _View, questions: Questions, fit: Rows, seed: int) -> Bag:
    """A network that fills in what is hidden; each row is learnt from several times if they are few."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(fit, max(1, min(_TIMES, _ENOUGH // len(fit))))
    rng.shuffle(rows)
    hidden = rng.random((len(rows), view.count + 1)) < _HIDDEN
    hidden[np.arange(len(rows)), rng.integers(view.count, size=len(rows))] = True
    hidden[:, -1] = rng.random(len(rows)) < 0.5  # the embedding
    numbers, target = len(questions.numbers), questions.answers(rows)
    model = Bag(view.sizes, view.plain, len(questions), seed=seed)
    with torch.no_grad():
        model.offset.copy_(first_guess(torch.from_numpy(target), numbers))
    target[~hidden[:, questions.units]] = np.nan
    z = torch.where(torch.from_numpy(hidden[:, view.owner]), view.blank, view(rows))
    learnt, held = torch.arange(len(rows)).tensor_split([len(rows) - max(1, len(rows) // 16)])
    source = noise_source(torch.Generator().manual_seed(seed))
    count, loss, answers = updates_for(len(learnt)) // 2, answered(numbers), torch.from_numpy(target)
    trained(model, z, answers, learnt, held, source, updates=count, loss=loss, rate=4e-3, decay=0.05, batch=_BATCH)
    return model


def _lines(view: _View, questions: Questions, fit: Rows, asked: Rows) -> tuple[Floats, Floats]:
    """Ridge regression on the other columns and on their squares, with the embedding and without it."""
    x, owner = view.straight(fit)
    mean = x.mean(0)
    x -= mean  # in place: a second one of some thousand columns would be large
    y = questions.answers(fit).astype(np.float64)
    middle = y.mean(0)
    inner, cross, there = x.T @ x, x.T @ (y - middle), view.straight(asked)[0] - mean
    found = []
    for used in (np.arange(len(owner)), np.flatnonzero(owner != view.count)):
        # what each column's own numbers take out of the regression on all: one inverse does for every column
        inverse = np.linalg.inv(inner[np.ix_(used, used)] + _RIDGE * len(fit) * np.eye(len(used)))
        whole, seen = inverse @ cross[used], there[:, used]
        out = np.empty((len(asked), len(questions)), dtype=np.float32)
        for unit in range(view.count):
            places, own = np.flatnonzero(questions.units == unit), np.flatnonzero(owner[used] == unit)
            taken = np.linalg.solve(inverse[np.ix_(own, own)], whole[np.ix_(own, places)])
            out[:, places] = seen @ (whole[:, places] - inverse[:, own] @ taken) + middle[places]
        found.append(out)
    return found[0], found[1]


def _filled_in(model: Bag, view: _View, questions: Questions, z: Tensor) -> Floats:
    """Each column of some rows, filled in from all others."""
    out = np.empty((len(z), len(questions)), dtype=np.float32)
    for unit in range(view.count):
        places = np.flatnonzero(questions.units == unit)
        mine = torch.from_numpy(view.owner == unit)
        with torch.no_grad():
            out[:, places] = model(torch.where(mine, view.blank, z), torch.from_numpy(places)).numpy()
    return out


class _View:
    """Rows as the network sees them: embedding, categories and numbers as levels, then embedding and numbers plain.

    There are `count` columns by name, and the embedding is one more. `owner` says of each number which of them it is
    of, and `blank` what stands there if that is hidden.
    """

    def __init__(self, level: Bins, questions: Questions, fit: Rows) -> None:
        inputs = questions.inputs
        self.level, self.codes, self.numeric = level, inputs.categorical.numpy(), inputs.numeric.numpy()
        self.cuts = np.quantile(self.numeric[fit], np.arange(1, _BINS) / _BINS, axis=0)  # (cuts, columns)
        sizes = [min(size, _MOST) for size in inputs.cardinalities]
        self.levels = [_levels(self.codes[fit, place], size) for place, size in enumerate(inputs.cardinalities)]
        self.sizes = (*(LEVELS,) * level.shape[1], *sizes, *(_BINS,) * self.numeric.shape[1])
        self.plain = level.shape[1] + self.numeric.shape[1]
        of, self.count = questions.columns_of()
        numbers, codes = np.split(of, [self.numeric.shape[1]])
        embedding = np.full(level.shape[1], self.count)
        self.owner = np.concatenate([embedding, codes, numbers, embedding, numbers])
        self.parts = np.cumsum([len(embedding), len(codes), len(numbers), len(embedding)])
        self.sizes_of_codes = inputs.cardinalities
        self.blank = torch.tensor([-1.0] * len(self.sizes) + [0.0] * self.plain)

    def straight(self, rows: Rows) -> tuple[NDArray[np.float64], Rows]:
        """Numbers and their squares, and a column for each common code, of some rows; and which column each is of."""
        z, numbers = self.level[rows] / (LEVELS / 2) - 1.0, np.clip(self.numeric[rows], -8, 8).astype(np.float64)
        embedding, codes, units, _, _ = np.split(self.owner, self.parts)
        ones = [
            self.codes[rows, place, None] == np.arange(min(size, _CODES))
            for place, size in enumerate(self.sizes_of_codes)
        ]
        owner = [embedding, embedding, units, units]
        owner += [np.full(one.shape[1], codes[place]) for place, one in enumerate(ones)]
        return np.concatenate([z, z * z, numbers, numbers * numbers, *ones], axis=1), np.concatenate(owner)

    def __call__(self, rows: Rows) -> Tensor:
        """Some rows with nothing hidden."""
        z, numbers = self.level[rows].astype(np.float32), self.numeric[rows]
        bins = np.empty(numbers.shape, dtype=np.float32)
        for place in range(numbers.shape[1]):
            bins[:, place] = np.searchsorted(self.cuts[:, place], numbers[:, place])
        codes = self.codes[rows].astype(np.float32)
        for place, levels in enumerate(self.levels):
            if levels is not None:
                codes[:, place] = levels[self.codes[rows, place]]
        parts = [z, codes, bins, z / (LEVELS / 2) - 1, np.clip(numbers, -8, 8)]
        return torch.from_numpy(np.concatenate(parts, axis=1))


def _levels(known: NDArray[np.integer], size: int) -> NDArray[np.intp] | None:
    """The level of each code of a column with many: those that most known rows have first, the others share the last.

    None where each code is its own.
    """
    if size <= _MOST:
        return None
    common = np.argsort(-np.bincount(known, minlength=size), kind="stable")[: _MOST - 1]
    levels = np.full(size, _MOST - 1, np.intp)
    levels[common] = np.arange(len(common))
    return levels
