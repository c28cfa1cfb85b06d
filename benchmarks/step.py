"""A simulated split step over a plain unsplit step, on the papers' Wide&Deep."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks._measure import Result, interleaved
from benchmarks.protect import spelled
from tacit.split.feature_party import FeatureParty
from tacit.split.label_party import LabelParty
from tacit.split.models import adam, wide_deep
from tacit.split.protect.gradient import protection
from tacit.split.simulate import pair

BATCH, ROWS = 1024, 16 * 1024
REPEATS = 8  # steps for each time that is taken
CATEGORIES, NUMBERS, VOCABULARY = 26, 13, 1000  # Criteo's columns
CASES: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("none", {}, 1.05),
    ("marvell", {"scale": 4.0}, 1.15),
    ("matched", {"leak_auc": 0.6}, 1.35),
)


def run() -> Iterator[Result]:
    """All of them by turns with the plain step, so that a busy machine disturbs them alike."""
    steps = [plain_step(), *(split_step(name, options) for name, options, _ in CASES)]
    plain, *split = (statistics.median(times) for times in interleaved(*steps, rounds=24))
    yield Result("step", f"plain step, batch {BATCH}", plain / REPEATS * 1e3, "ms")
    for (name, options, goal), value in zip(CASES, split, strict=True):
        yield Result("step", f"split step with {spelled(name, options)} over plain step", value / plain, "x", goal)


def models() -> tuple[Any, Any]:
    """Both halves of the papers' Wide&Deep over Criteo's columns, with the same first weights each time."""
    torch.manual_seed(0)
    columns = [VOCABULARY] * CATEGORIES
    return wide_deep(columns, NUMBERS, own_cardinalities=columns, own_numeric=NUMBERS, sparse=True)


def data(rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes, numbers and labels, the same each time."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(VOCABULARY, (rows, CATEGORIES), generator=generator)
    numbers = torch.rand(rows, NUMBERS, generator=generator)
    labels = (torch.rand(rows, generator=generator) < 0.25).float()
    return codes, numbers, labels


def _round_and_round(rows: int, batch: int, device: str = "cpu") -> Iterator[torch.Tensor]:
    """The rows of one batch after the other, without end."""
    return itertools.cycle(torch.arange(rows, device=device).split(batch))


class Unsplit(nn.Module):
    """A bottom and a top as the one network that they would be without a cut: the reference for split training."""

    def __init__(self, bottom: nn.Module, top: nn.Module) -> None:
        super().__init__()
        self.bottom, self.top = bottom, top

    def forward(self, features: Tensor | Iterable[Tensor | None], own: Iterable[Tensor | None] = ()) -> Tensor:
        """The logits for the feature party's inputs (one tensor, or several) and the label party's own ones."""
        inputs = (features,) if isinstance(features, Tensor) else features
        logits: Tensor = self.top(self.bottom(*inputs), *own)
        return logits


def plain_step() -> Callable[[], None]:
    """Some plain steps of the unsplit network, on the same batches each time round."""
    model, (codes, numbers, labels), batches = Unsplit(*models()), data(), _round_and_round(ROWS, BATCH)
    optimizer = adam(model)

    def step() -> None:
        for _ in range(REPEATS):
            rows = next(batches)
            mine = codes[rows], numbers[rows]
            loss = functional.binary_cross_entropy_with_logits(model(mine, (codes[rows], numbers[rows])), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return step


def split_step(name: str, options: dict[str, Any]) -> Callable[[], None]:
    """The same by two parties in one process, under a protection."""
    (bottom, top), (codes, numbers, labels) = models(), data()
    feature_party = FeatureParty(bottom=bottom, features=(codes, numbers), optimizer=adam(bottom))
    label_party = LabelParty(
        top=top, labels=labels, features=(codes, numbers), optimizer=adam(top), protect=protection(name, **options),
        noise=torch.Generator().manual_seed(0),
    )  # fmt: skip
    return steps_of(feature_party, label_party, rows=ROWS, batch=BATCH, repeats=REPEATS)


def steps_of(
    feature_party: FeatureParty, label_party: LabelParty, *, rows: int, batch: int, repeats: int, device: str = "cpu"
) -> Callable[[], None]:
    """Some steps of two parties in one process, on the same batches each time round."""
    left, right = pair()
    batches = _round_and_round(rows, batch, device)

    def step() -> None:
        for _ in range(repeats):
            chosen = next(batches)
            feature_party.send(chosen, left)
            label_party.step(chosen, right)
            feature_party.finish(left)

    return step
