"""The trainings behind the pictures of the docs, and what was measured in them. Everything follows from the sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn

from pictures_counts import best_so_far, findings, histograms, rounded
from tacit import iso, marvell, matched, max_norm, none, randomized_response, simulate
from tacit.audit.metrics.leak_auc import auc
from tacit.audit.run import Finding, worst
from tacit.contracts import Event, Noise, Protected, Protection, noise_source
from tacit.lab.data.rows import Data, Rows, Table
from tacit.split.models import adam, wide_deep
from tacit.split.record import Recorder
from tacit.split.simulate import Simulation

CUT = 128  # numbers of an embedding: the last layer of the demo's bottom
LIMIT = 0.6  # the leak AUC that protections are set to where they take one
_CLIP = 1.5e-3  # about the largest norm of a batch: lower ones make positives count less, and the model drifts
_LAST = 24  # batches that are attacked, the newest
_SPEED, _SLOW = 2e-3, 1e-4  # learning rates of Adam


@dataclass(frozen=True)
class Sizes:
    """How much is trained: the committed pictures have the default, a test takes far less."""

    rows: int = 60_000
    epochs: int = 5
    batch: int = 1024
    follow: int = 4096
    seed: int = 0


@dataclass(frozen=True)
class Setting:
    """One training.

    Attributes:
        kind: which curve of the trade-off it belongs to.
        name: as it would be written in code.
        protect: what acts on the gradients.
        rate: of flipped labels; 0 for none.
        corrected: whether the loss takes targets that undo the flips on average, instead of the flipped labels.
        certified: the leak AUC that is proved about a label, where something is.
    """

    kind: str
    name: str
    protect: Protection
    rate: float = 0.0
    corrected: bool = False
    certified: float | None = None


def settings(sizes: Sizes) -> list[Setting]:
    """All trainings, those that the histograms show first."""
    visits = sizes.epochs
    found = [
        Setting("none", "none()", none()),
        Setting("max_norm", "max_norm()", max_norm()),
        *(Setting("marvell", f"marvell(scale={s:g})", marvell(scale=s)) for s in (4.0, 0.1, 25.0)),
        Setting("one_visit", f"matched(leak_auc={LIMIT})", matched(leak_auc=LIMIT)),
        *(
            Setting("matched", f"matched(leak_auc={a}, visits={visits})", matched(leak_auc=a, visits=visits))
            for a in (LIMIT, 0.95, 0.8)
        ),
        *(Setting("iso", f"iso(t={t:g})", iso(t=t)) for t in (10.0, 100.0, 1000.0)),
    ]
    for epsilon in (4.0, 2.0, 1.0, 0.4):
        rate = 1 / (1 + math.exp(epsilon))
        found.append(Setting("response", f"flipped({rate:.3f})", none(), rate, certified=1 - rate))
    rate = found[-1].rate
    found.append(Setting("corrected", f"flipped({rate:.3f}), corrected", none(), rate, True, certified=1 - rate))
    for limit in (0.9, LIMIT):
        protect = Proved.for_limit(limit, visits)
        found.append(Setting("gaussian", f"gaussian(leak_auc={limit})", protect, certified=limit))
    return found


def shown(sizes: Sizes) -> dict[str, str]:
    """The settings whose gradients are drawn, and what the pictures call them."""
    return {
        "none()": "no protection",
        "max_norm()": "max_norm",
        "marvell(scale=4)": "Marvell",
        f"matched(leak_auc={LIMIT})": "matched, for one visit",
        f"matched(leak_auc={LIMIT}, visits={sizes.epochs})": f"matched, for {sizes.epochs} visits",
    }


@dataclass(frozen=True)
class Proved:
    """Rows clipped to a norm, and the same Gaussian noise for all of them: what a proof about any two rows takes.

    Attributes:
        clip: the largest norm of a row.
        deviation: of the noise in every coordinate.
    """

    clip: float
    deviation: float

    @classmethod
    def for_limit(cls, limit: float, visits: int) -> Proved:
        """The noise that leaves a leak AUC at or under the limit, whatever the rows are, over so many visits.

        Rows clipped to a norm c are at most 2c apart. Noise of deviation s in every coordinate makes n visits of them
        a test between two Gaussians sqrt(n) 2c/s apart, whose AUC is Phi(sqrt(2 n) c/s).
        """
        return cls(_CLIP, _CLIP * math.sqrt(2 * visits) / NormalDist().inv_cdf(limit))

    def init(self) -> None:
        """There is nothing to remember."""

    def update(
        self, grad: Tensor, labels: Tensor, state: None, noise: Noise, embedding: Tensor | None = None
    ) -> Protected:
        """One batch, clipped and drowned."""
        norm = grad.norm(dim=1, keepdim=True).clamp_min(1e-30)
        drawn = noise_source(noise).normal(grad.shape, dtype=grad.dtype, device=grad.device)
        power = torch.tensor(self.deviation**2 * grad.shape[1])
        event = Event("gaussian", {"clip": self.clip, "deviation": self.deviation})
        value = grad * (self.clip / norm).clamp_max(1.0) + self.deviation * drawn
        return Protected(value, None, event, {"power": power})

    def __call__(self, grad: Tensor, labels: Tensor, noise: Noise, embedding: Tensor | None = None) -> Protected:
        """The same without a state."""
        return self.update(grad, labels, None, noise, embedding)


def measure(setting: Setting, data: Data, sizes: Sizes) -> dict[str, Any]:
    """Train, attack what was sent, and count how it lies: everything that pictures and pages say of it.

    It is trained twice. Adam takes steps of one size whatever the gradients are, so that under much noise the feature
    party's half wanders; `slow` is what a training leaves in which it learns at a twentieth of the speed.
    """
    recorder = Recorder(last=_LAST, follow=sizes.follow)
    trained = _trained(setting, data, recorder, sizes)
    batches, visits, truth = recorder.batches(), recorder.visits(), data.train.labels
    found = findings(batches, visits, truth)
    told = {
        "name": setting.name,
        "kind": setting.kind,
        "noise": float(f"{trained.history[-1].power:.3g}"),
        "rate": rounded(setting.rate),
        "certified": None if setting.certified is None else rounded(setting.certified),
        "leaks": {one.attack: rounded(one.leak.value) for one in found},
        **_worth(trained, data, found),
    }
    if setting.name in shown(sizes):
        steps = len(visits.view.rows)
        told["visits"] = [best_so_far(visits, truth, count) for count in range(1, steps + 1)]
        told["histograms"] = histograms(batches, truth)
    recorder = Recorder(last=_LAST, follow=sizes.follow)
    trained = _trained(setting, data, recorder, sizes, speed=_SLOW)
    return {**told, "slow": _worth(trained, data, findings(recorder.batches(), recorder.visits(), truth))}


def _worth(trained: Simulation, data: Data, found: list[Finding]) -> dict[str, Any]:
    """What the model is worth, and what the worst attack reached."""
    most = worst(found)
    ends = {end: rounded(getattr(most.leak, end)) for end in ("value", "low", "high")}
    test = data.test
    return {
        "test_auc": rounded(auc(trained.predict(test.features, test.own), test.labels)),
        "worst": {"attack": most.attack, **ends},
    }


def references(data: Data, sizes: Sizes) -> dict[str, float]:
    """What models are worth that the feature party's half adds nothing to, or only what it was born with.

    "alone" has columns of zeros in the place of the feature party's, "frozen" a bottom that never learns, so that no
    gradient need be sent at all.
    """
    found = {}
    for name in ("alone", "frozen"):
        speed = 0.0 if name == "frozen" else _SPEED
        trained = _trained(Setting(name, name, none()), data, None, sizes, speed)
        features = _silent(data.test) if name == "alone" else data.test.features
        found[name] = rounded(auc(trained.predict(features, data.test.own), data.test.labels))
    return found


def _trained(
    setting: Setting, data: Data, recorder: Recorder | None, sizes: Sizes, speed: float = _SPEED
) -> Simulation:
    train, columns = data.train, data.inputs
    assert isinstance(columns, Table)
    bottom, top = wide_deep(
        columns.cardinalities,
        columns.numeric,
        own_cardinalities=columns.own_cardinalities,
        own_numeric=columns.own_numeric,
        generator=torch.Generator().manual_seed(sizes.seed),
    )
    labels, targets = train.labels, None
    if setting.rate:
        flipped = randomized_response(setting.rate)(labels, torch.Generator().manual_seed(sizes.seed))
        labels, targets = flipped.labels, flipped.targets if setting.corrected else None
    return simulate(
        bottom=bottom,
        top=top,
        features=_silent(train) if setting.kind == "alone" else train.features,
        own=train.own,
        labels=labels,
        targets=targets,
        protect=setting.protect,
        optimizer=lambda module: _optimizer(module, speed if module is bottom else _SPEED),
        epochs=sizes.epochs,
        batch_size=sizes.batch,
        seed=sizes.seed,
        record=recorder,
    )


def _optimizer(module: nn.Module, speed: float) -> torch.optim.Optimizer:
    return adam(module, lr=speed) if speed else torch.optim.SGD(module.parameters(), lr=0.0)


def _silent(rows: Rows) -> tuple[Tensor, ...]:
    return tuple(torch.zeros_like(x) for x in rows.features)
