"""One setting trained: the split model under its protections, and beside it the attacker that the report judges by."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from papers.embedding.dependence import distance_correlation
from papers.embedding.problems import Problem
from papers.embedding.settings import Point
from tacit.audit.metrics.leak_auc import delong
from tacit.contracts import EmbeddingProtection, Event, NoiseSource, Regularizer, noise_source
from tacit.progress import Count
from tacit.split.protect.embedding import embedding_protection
from tacit.split.protect.gradient.none import none
from tacit.split.simulate import Simulation, simulate
from tacit.split.tensors import evaluating

__all__ = ["MOMENTS", "Curve", "Trained", "hidden", "train"]

MOMENTS = 16
"""How often a training is looked at, beside its start."""

LOOKED_AT = 4096
"""So many held-out rows are looked at, at most."""

_RECONSTRUCTING = ("adversarial", "noise_regularization")


@dataclass(frozen=True)
class Trained:
    """A trained setting.

    Attributes:
        model: both halves, with the feature party's protections.
        untrained: the first bottom model, before any training.
        beside: the report's attacker, which learnt from what was sent and taught nobody.
        in_training: the reconstructor that took part in training, where a protection has one.
        curve: what was seen of held-out rows over training.
    """

    model: Simulation
    untrained: nn.Module
    beside: nn.Module
    in_training: nn.Module | None
    curve: Curve


def train(point: Point, problem: Problem, *, epochs: int, seed: int, progress: Count) -> Trained:
    """Train one setting on the problem's device, from the seed alone."""
    rows = len(problem.train.labels)
    batch_size = min(max(2, round(problem.batch_size * point.batch_factor)), rows)
    with _seeded(seed, problem.train.labels.device):
        bottom, top = problem.models(torch.Generator().manual_seed(seed))
        bottom, top = (half.to(problem.train.labels.device) for half in (bottom, top))
        first = copy.deepcopy(bottom)
        widths = _widths(bottom, problem.train.features)
        taking_part, attacker = (problem.reconstructor(*widths) for _ in range(2))
        attacker.to(problem.train.labels.device)
        protections = _protections(point, problem, taking_part)
        curve = Curve(problem, bottom, top, protections, attacker, batch_size, epochs)

        def looked(done: int, total: int) -> None:
            curve.look(done, total)
            progress(done, total)

        trained = simulate(
            bottom=bottom,
            top=top,
            features=problem.train.features,
            own=problem.train.own,
            labels=problem.train.labels,
            protect=none(),
            protect_embedding=[*protections, _Beside(attacker, problem.rate)],
            loss=problem.loss,
            optimizer=problem.optimizer,
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            progress=looked,
        )
    used = [getattr(one, "reconstructor", None) for one in trained.party.shield.regularizers[:-1]]
    in_training = next((one for one in used if isinstance(one, nn.Module)), None)
    return Trained(trained, first, attacker, in_training, curve)


def hidden(bottom: nn.Module, features: Sequence[Tensor], *, batch_size: int = 8192) -> Tensor:
    """The input of the network before the cut, one flat row for each example: what the report calls X."""
    layer = getattr(bottom, "inputs", None)
    with torch.no_grad():
        parts = []
        for rows in torch.arange(len(features[0]), device=features[0].device).split(batch_size):
            here = [x[rows] for x in features]
            flat = layer(*here) if isinstance(layer, nn.Module) else torch.cat([x.flatten(1) for x in here], dim=1)
            parts.append(flat)
    return torch.cat(parts)


class Curve:
    """What held-out rows show of a training at its start and at some moments: the curves of figures 3 to 8.

    Looking changes nothing: models are in evaluation mode, and noise is drawn from a generator of its own, the same at
    every moment.

    Args:
        problem: whose test rows are looked at.
        bottom: as it is trained.
        top: as it is trained.
        protections: of what is sent.
        attacker: the report's, which learns beside the training.
        batch_size: of the training, and of the distance correlations.
        epochs: of the training.
    """

    def __init__(
        self,
        problem: Problem,
        bottom: nn.Module,
        top: nn.Module,
        protections: Sequence[EmbeddingProtection],
        attacker: nn.Module,
        batch_size: int,
        epochs: int,
    ) -> None:
        self._problem, self._protections, self._epochs = problem, protections, epochs
        self._modules = bottom, top, attacker
        test = problem.test
        self._features, self._own = ([x[:LOOKED_AT] for x in of] for of in (test.features, test.own))
        self._labels = test.labels[:LOOKED_AT]
        self._batch = min(batch_size, len(self._labels) // 2)
        self.moments: dict[str, list[float]] = {"epoch": [], "dcor": [], "loss": [], "utility": []}
        self.look(0, 1)

    def look(self, done: int, total: int) -> None:
        """Look, if this is a moment: after so many updates of all."""
        if done * MOMENTS // total == (done - 1) * MOMENTS // total:
            return
        bottom, top, attacker = self._modules
        with evaluating(bottom, top, attacker):
            z = bottom(*self._features)
            for one in self._protections:
                z = one.transform(z, noise_source(self._generator()))
            x, flat = hidden(bottom, self._features), z.flatten(1)
            loss = float((attacker(flat).flatten(1) - x).square().sum(1).mean())
            logits = top(z, *self._own)
        right = (logits.argmax(1) == self._labels).double().mean() if self._problem.loss == "softmax" else None
        apart = distance_correlation(x, flat, batch_size=self._batch, noise=self._generator())
        found = {
            "epoch": self._epochs * done / total, "dcor": apart.value, "loss": loss,
            "utility": float(delong(logits, self._labels)[0] if right is None else right),
        }  # fmt: skip
        for name, value in found.items():
            self.moments[name].append(value)

    def _generator(self) -> torch.Generator:
        return torch.Generator(self._labels.device).manual_seed(0)


def _protections(point: Point, problem: Problem, reconstructor: nn.Module) -> list[EmbeddingProtection]:
    """The setting's protections; what reconstructs among them is shared, in the report's shape."""
    made: list[EmbeddingProtection] = []
    for name, options in point.parts:
        own: dict[str, Any] = {}
        if name in _RECONSTRUCTING:
            first = not any(other.name in _RECONSTRUCTING for other in made)
            own = {"learning_rate": problem.rate, "reconstructor": reconstructor if first else None}
        made.append(embedding_protection(name, **options, **own))
    return made


def _widths(bottom: nn.Module, features: Sequence[Tensor]) -> tuple[int, int]:
    """The widths of an embedding and of what is hidden."""
    few = [x[:2] for x in features]
    with torch.no_grad():
        return math.prod(bottom(*few).shape[1:]), hidden(bottom, few).shape[1]


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's own randomness (dropout, first weights) from the seed, and afterwards as it was."""
    devices = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True)
class _Beside:
    """An attacker in the place of a protection: it sees what is sent, in training, and changes nothing."""

    reconstructor: nn.Module
    rate: float

    @property
    def name(self) -> str:
        return "beside"

    @property
    def event(self) -> Event:
        return Event("none")

    def transform(self, z: Tensor, noise: NoiseSource) -> Tensor:
        return z

    def regularizer(self, x: Tensor, z: Tensor, others: Sequence[Regularizer]) -> Regularizer:
        return _Onlooker(self.reconstructor, self.rate)


class _Onlooker(Regularizer):
    """A loss that reaches the attacker alone."""

    def __init__(self, reconstructor: nn.Module, rate: float) -> None:
        super().__init__()
        self.reconstructor = reconstructor
        self.optimizer = torch.optim.Adam(reconstructor.parameters(), lr=rate)

    def forward(self, x: Tensor, z: Tensor, noise: NoiseSource) -> Tensor:
        """|R(z) - x|^2, summed over the columns and averaged over the rows."""
        made: Tensor = self.reconstructor(z.detach().flatten(1))
        return (made - x).square().sum(1).mean()
