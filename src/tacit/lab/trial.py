"""One trial: a model is trained under a protection, in one process, and what it sent is attacked in every way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from tacit.audit.inputs import attack_inputs, mean_visits
from tacit.audit.metrics.leak_auc import auc
from tacit.audit.run import Finding, worst
from tacit.audit.standard import on_batches, on_visits
from tacit.contracts import EmbeddingProtection, Protection, View
from tacit.lab.data.rows import Data, Rows
from tacit.lab.stack.network import network_for
from tacit.progress import Progress
from tacit.split.models import adam
from tacit.split.protect.gradient.none import none
from tacit.split.record import Recorder
from tacit.split.simulate import Simulation, simulate


@dataclass(frozen=True)
class Problem:
    """What is trained: rows of both parties, and two halves of a model for them."""

    train: Rows  # the training rows
    test: Rows  # rows that no training sees
    models: Callable[[int], tuple[nn.Module, nn.Module]]  # makes bottom and top with the first weights of a seed


def problem_of(data: Data) -> Problem:
    """A data set with the papers' network for it."""
    return Problem(data.train, data.test, network_for(data.inputs).build)


@dataclass(frozen=True)
class Course:
    """How a trial goes."""

    epochs: int = 4  # how often every row is visited; accumulated attacks need several visits
    batch_size: int = 512  # rows in a batch; fewer where there are fewer rows
    learning_rate: float = 2e-3  # of Adam
    bottom_rate: float | None = None  # of the feature party's Adam, where that is another
    last: int = 24  # batches that are kept, to be attacked one by one
    follow: int = 4096  # rows whose visits are all attacked together
    seed: int = 0  # of weights, batches, noise and attacks


@dataclass(frozen=True)
class Trained:
    """A model that was trained, and what crossed the wire."""

    protection: str  # as it would be written in code
    problem: Problem  # what was trained
    course: Course  # how
    model: Simulation  # both halves, and figures of each epoch
    record: Recorder  # what was sent
    test_auc: float  # on the test rows


@dataclass(frozen=True)
class Trial:
    """What a training under one protection gave away."""

    protection: str  # as it would be written in code
    test_auc: float  # of the trained model on rows it has not seen
    noise: float  # the mean squared norm of a row's noise over that of its gradient, in the last epoch, as reported
    findings: Sequence[Finding]  # what each attack reached; the last ones over all visits of a row
    skipped: Mapping[str, str]  # attacks that could not run on what was sent, with the reason

    @property
    def worst(self) -> Finding:
        """The attack that reads most, above what it had without any message."""
        return worst(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        figures = {"protection": self.protection, "test_auc": self.test_auc, "noise": self.noise}
        return {**figures, "attacks": [as_dict(one) for one in self.findings], "skipped": dict(self.skipped)}


def as_dict(finding: Finding) -> dict[str, Any]:
    """The JSON form of what one attack reached."""
    baseline = None if finding.baseline is None else finding.baseline.value
    return {"attack": finding.attack, **asdict(finding.leak), "baseline": baseline, "up_to": finding.held}


def train(
    protection: str,
    problem: Problem,
    course: Course,
    *,
    protect: Protection | None = None,
    protect_embedding: Sequence[EmbeddingProtection] = (),
    progress: Progress = lambda *_: None,
) -> Trained:
    """Train under a protection of gradients, and of embeddings where there is one, and write down what is sent."""
    rows, test = problem.train, problem.test
    bottom, top = problem.models(course.seed)
    record = Recorder(last=course.last, follow=min(course.follow, len(rows)))
    model = simulate(
        bottom=bottom, top=top, features=rows.features, own=rows.own, labels=rows.labels,
        protect=none() if protect is None else protect, protect_embedding=protect_embedding,
        optimizer=partial(adam, lr=course.learning_rate),
        bottom_optimizer=partial(adam, lr=course.bottom_rate or course.learning_rate), epochs=course.epochs,
        batch_size=min(course.batch_size, len(rows)), seed=course.seed, record=record,
        progress=lambda done, steps: progress(f"training with {protection}", done, steps),
    )  # fmt: skip
    logits = model.predict(test.features, test.own, noise=torch.Generator().manual_seed(course.seed))
    return Trained(protection, problem, course, model, record, float(auc(logits, test.labels)))


def attack(trained: Trained, *, progress: Progress = lambda *_: None) -> Trial:
    """Try every attack on single batches and, where rows were visited several times, on all visits of a row."""
    labels, seed = trained.problem.train.labels, trained.course.seed
    skipped: dict[str, str] = {}
    parts = [(on_batches, trained.record.batches())]
    parts += [(on_visits, trained.record.visits())] if trained.course.epochs > 1 else []
    findings: list[Finding] = []
    for attacks, seen in parts:
        findings += attacks(
            seen.view, seen.clean, labels, seed=seed, skipped=skipped,
            progress=lambda done, steps: progress(f"attacking {trained.protection}", done, steps),
        )  # fmt: skip
    tried = {finding.attack for finding in findings}
    missing = {name: reason for name, reason in skipped.items() if name not in tried}
    return Trial(trained.protection, trained.test_auc, trained.model.history[-1].power, findings, missing)


def decode(trained: Trained, *, decoder: str = "linear_decoder") -> float:
    """The share of the variance of the bottom's inputs that a decoder reads: of single visits, or of a row's mean."""
    read = []
    for view in (trained.record.batches().view, mean_visits(trained.record.visits().view)):
        rows, places = view.rows.unique(return_inverse=True)
        inputs = trained.model.party.hidden(rows).flatten(1)
        seen = View.of_embeddings(view.embedding, rows=places)
        (found,) = attack_inputs(seen, inputs, [decoder], noise=torch.Generator().manual_seed(trained.course.seed))
        assert found.relative is not None  # it guesses inputs
        read.append(1 - found.relative.value)
    return max(read)
