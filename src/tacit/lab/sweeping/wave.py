"""One wave of a sweep: the settings that train together on one device, from first weights to rows of results."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.contracts import Estimate
from tacit.errors import TensorError, UsageError
from tacit.lab.data.rows import Data
from tacit.lab.sweeping.judging import Leak, Part, leaks, parts, recorded_leaks, utility
from tacit.lab.sweeping.recipe import Recipe
from tacit.lab.sweeping.results import leak_column
from tacit.lab.sweeping.settings import Setting
from tacit.progress import Count, Progress

if TYPE_CHECKING:
    from tacit.lab.stack.training import Stack, Steps

Row = dict[str, Any]
"""One row of a results file by the names of its columns; what is missing is null there."""

_TRAINING, _JUDGING = 75, 25  # parts of a wave's time, for a bar alone
_FIGURES = ("loss", "power", "untouched_rows", "stateless", "valid")  # of `Steps`, all but the AUCs


class Wave:
    """Trains settings together and writes down what each part of their training brought.

    A replica that runs away has nothing but nulls from that stretch on, and a note; the others do not notice. On CUDA
    the networks' products are in TensorFloat32: figures differ from those in float32 by no more than those of two runs
    with one seed do.
    """

    def __init__(self, recipe: Recipe, data: Data, settings: Mapping[int, Setting]) -> None:
        from tacit.lab.stack.training import Stack

        if not settings:
            raise UsageError("a wave needs a setting: give one or more")
        self.recipe, self.data, self.numbers = recipe, data, tuple(settings)
        self.settings = tuple(settings.values())
        self.stack: Stack = Stack(
            data.train, recipe.network, self.settings, batch_size=recipe.batch_size,
            learning_rate=recipe.learning_rate, bottom_rate=recipe.bottom_rate, device=recipe.device, tf32=True,
            attacks=recipe.attacks, errors=recipe.errors, layers=recipe.layers, last=recipe.last,
            follow=recipe.follow, visits=recipe.visits,
        )  # fmt: skip
        self.done = 0
        self._plan: tuple[int, Tensor] | None = None
        self._fewest = min(data.share, 1 - data.share) * recipe.batch_size

    def run(self, progress: Progress = lambda *_: None) -> list[Row]:
        """Train to the end and judge; the rows of every stretch and of the whole, replica by replica."""
        each = len(self.data.train) // self.recipe.batch_size
        steps, all_parts = each * self.recipe.epochs, _TRAINING + (_JUDGING if self.recipe.thorough else 0)
        rows: list[Row] = []
        history: list[Steps] = []
        seconds, tested = 0.0, None
        for end in stretches(self.recipe.epochs, each, self.recipe.points):
            start = time.perf_counter()
            trained = self._advance(
                end, each, lambda done: progress("training", round(_TRAINING * done / steps), all_parts)
            )
            took = time.perf_counter() - start
            tested = self._tested() if end % each == 0 else None
            rows += self._part("stretch", end / each, trained, took, tested)
            history.append(trained)
            seconds += took
        if self.recipe.batches:
            rows += _batch_rows(dict(zip(self.numbers, self.settings, strict=True)), _joined(history), each)
        rows += self._whole(_joined(history), seconds, tested or self._tested(), lambda done, total: progress(
            "attacking what was recorded", _TRAINING + round(_JUDGING * done / total), all_parts
        ))  # fmt: skip
        return sorted(rows, key=lambda row: (row["replica"], row["part"], row["step"]))

    def _advance(self, end: int, each: int, progress: Callable[[int], None]) -> Steps:
        """Train up to this update, over the ends of epochs where there are any on the way."""
        found = []
        while self.done < end:
            epoch, first = divmod(self.done, each)
            last = min(each, first + end - self.done)
            if self._plan is None or self._plan[0] != epoch:  # its batches are drawn once
                self._plan = epoch, self.stack.plan(epoch)
            found.append(self.stack.advance(self._plan[1][:, first:last]))
            self.done += last - first
            progress(self.done)
        return _joined(found)

    def _tested(self) -> list[Row]:
        return utility(self.stack.logits(self.data.test), self.data.test.labels)

    def _part(self, part: str, epoch: float, steps: Steps, seconds: float, tested: Sequence[Row] | None) -> list[Row]:
        """A row for each replica about the updates that were just done."""
        common = {"part": part, "step": self.done, "epoch": epoch, "seconds": seconds}
        return part_rows(dict(zip(self.numbers, self.settings, strict=True)), steps, common, tested, self._fewest)

    def _whole(self, steps: Steps, seconds: float, tested: Sequence[Row], progress: Count) -> list[Row]:
        """The rows of the whole training, with the attacks that only run on what was recorded."""
        rows = self._part("whole", self.recipe.epochs, steps, seconds, tested)
        by_part = {leak_column(*key): parts(each, self._fewest) for key, each in steps.auc.items()}
        for place, row in enumerate(rows):
            notes: list[str] = []
            try:
                if (away := _ran_away(steps, place)) is not None:
                    raise TensorError(f"ran away at update {away}: take a lower learning rate")
                if row["test_loss"] is None or row["train_loss"] is None:
                    raise TensorError("losses are not finite: the training ran away, take a lower learning rate")
                if self.recipe.thorough:
                    more, notes = recorded_leaks(
                        self.stack.transcript(place), self.data.train.labels, visits=self.recipe.visits > 0,
                        seed=self.settings[place].seed,
                    )  # fmt: skip
                    row |= _columns(more)
                    progress(place + 1, len(rows))
                row |= _worst(row, {name: each[place] for name, each in by_part.items()})
            except TensorError as error:  # one replica that ran away is no reason to lose the others
                notes = [str(error)]
            row["notes"] = "; ".join(notes) or None
        return rows


def part_rows(
    settings: Mapping[int, Setting], steps: Steps, common: Row, tested: Sequence[Row] | None, fewest: float
) -> list[Row]:
    """A row for each replica about a part of its training; nothing but nulls where it has run away."""
    by_column = {leak_column(*key): leaks(each, fewest) for key, each in steps.auc.items()}
    rows = []
    for place, (number, setting) in enumerate(settings.items()):
        row = {**_identity(number, setting), **common}
        rows.append(row)
        if _ran_away(steps, place) is not None:
            continue
        row |= {} if tested is None else tested[place]
        for name, values in (
            ("train_loss", steps.loss), ("power", steps.power), ("untouched_rows", steps.untouched_rows),
            ("stateless", steps.stateless),
        ):  # fmt: skip
            mean = float(values[:, place].double().mean())
            row[name] = mean if math.isfinite(mean) else None
        row |= _columns({name: each[place] for name, each in by_column.items()})
        for key, each in steps.error.items():  # of the batches that hold both classes
            mean = float(each[:, place].double().nanmean())
            row[leak_column(*key, "error")] = mean if math.isfinite(mean) else None
    return rows


def _identity(number: int, setting: Setting) -> Row:
    """Which replica a row is of."""
    return {
        "replica": number, "protection": setting.protection, "knob": setting.knob, "strength": setting.strength,
        "options": setting.options_json, "seed": setting.seed,
    }  # fmt: skip


def _batch_rows(settings: Mapping[int, Setting], steps: Steps, each: int) -> list[Row]:
    """A row for each replica and batch: its loss, and the AUC of each attack as it is, below 0.5 too."""
    rows = []
    figures = {"train_loss": steps.loss} | {leak_column(*key): values for key, values in steps.auc.items()}
    for place, (number, setting) in enumerate(settings.items()):
        columns = {name: values[:, place].double().tolist() for name, values in figures.items()}
        for step in range(len(steps.loss)):
            row = {**_identity(number, setting), "part": "batch", "step": step + 1, "epoch": (step + 1) / each}
            row |= {name: column[step] for name, column in columns.items() if math.isfinite(column[step])}
            rows.append(row)
    return rows


def stretches(epochs: int, each: int, points: int) -> Iterator[int]:
    """The updates at which a stretch ends, about `points` of them, the end of an epoch always among the ends it has.

    >>> list(stretches(2, 10, 4)), list(stretches(1, 3, 50)), list(stretches(6, 10, 3))
    ([5, 10, 15, 20], [1, 2, 3], [20, 40, 60])
    """
    if epochs > points:
        yield from (each * round(epochs * (place + 1) / points) for place in range(points))
        return
    parts = min(each, max(1, round(points / epochs)))
    for epoch in range(epochs):
        yield from (epoch * each + round(each * (place + 1) / parts) for place in range(parts))


def _joined(found: Sequence[Steps]) -> Steps:
    """The figures of consecutive updates as those of one stretch."""
    if len(found) == 1:
        return found[0]
    first = found[0]
    figures = {name: torch.cat([getattr(one, name) for one in found]) for name in _FIGURES}
    return type(first)(
        **figures, auc={key: torch.cat([one.auc[key] for one in found]) for key in first.auc},
        error={key: torch.cat([one.error[key] for one in found]) for key in first.error},
    )  # fmt: skip


def _ran_away(steps: Steps, place: int) -> int | None:
    """The update, counted from 1, at which a replica ran away; None if it did not."""
    invalid = (steps.valid[:, place] == 0).nonzero()
    return int(invalid[0]) + 1 if len(invalid) else None


def _columns(found: Mapping[str, Leak | None]) -> Row:
    row: Row = {}
    for name, one in found.items():
        if one is not None:
            row |= {name: one.leak.value, f"{name} low": one.leak.low, f"{name} high": one.leak.high}
            row |= {} if one.q95 is None else {f"{name} q95": one.q95, f"{name} mean": one.mean}
    return row


def _worst(row: Row, by_part: Mapping[str, Sequence[Part]]) -> Row:
    """The attack whose leak may be the largest, in the whole or in a part: by the upper end, then by the value.

    Where two reach equally far, the whole comes first.
    """
    whole = [
        (Estimate(row[name], row[f"{name} low"], row[f"{name} high"]), name, "whole")
        for name in row
        if f"{name} high" in row
    ]
    found = [*whole, *((one.leak, name, one.spelled) for name, each in by_part.items() for one in each)]
    if not found:
        return {}
    leak, name, part = max(found, key=lambda one: (one[0].high, one[0].value))
    return {
        "worst": leak.value, "worst low": leak.low, "worst high": leak.high, "worst attack": name, "worst part": part,
    }  # fmt: skip
