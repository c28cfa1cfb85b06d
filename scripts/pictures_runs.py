"""The trainings behind the pictures of the docs, and what was measured in them. Everything follows from the sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit import attack, attack_all, iso, marvell, matched, max_norm, none, randomized_response, simulate
from tacit.audit.attacks.residual import log_residual
from tacit.audit.metrics.leak_auc import auc
from tacit.audit.run import Finding, worst
from tacit.audit.standard import ACCUMULATED
from tacit.contracts import Attack, Event, Noise, Protected, Protection, View, noise_source
from tacit.cut.simulate import Simulation
from tacit.lab.tables import Part, Split
from tacit.models import adam, wide_deep
from tacit.wire.record import Recorder, Transcript

CUT = 128  # numbers of an embedding: the last layer of the demo's bottom
BINS = 48
LIMIT = 0.6  # the leak AUC that protections are set to where they take one
_CLIP = 1.5e-3  # about the largest norm of a batch: lower ones make positives count less, and the model drifts
_LAST = 24  # batches that are attacked, the newest
_MEANS = (("cosine", "mean"), ("direct_label", "mean"))  # on visits, beside what sweeps try


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


def measure(setting: Setting, data: Split, sizes: Sizes) -> dict[str, Any]:
    """Train once, attack what was sent, and count how it lies: everything that pictures and pages say of it."""
    train, test = data.train, data.test
    recorder = Recorder(last=_LAST, follow=sizes.follow)
    trained = _trained(setting, train, recorder, sizes)
    batches, visits = recorder.batches(), recorder.visits()
    findings = [_judged(one, batches.view, batches.clean, train.labels) for one in _on_batches()]
    findings += [_judged(one, visits.view, visits.clean, train.labels) for one in _on_visits()]
    found = worst(findings)
    told = {
        "name": setting.name,
        "kind": setting.kind,
        "test_auc": _round(auc(trained.predict(_inputs(test), _own(test)), test.labels)),
        "noise": float(f"{trained.history[-1].power:.3g}"),
        "rate": _round(setting.rate),
        "certified": None if setting.certified is None else _round(setting.certified),
        "largest": float(f"{float(batches.clean.norm(dim=-1).max()):.3g}"),
        "leaks": {one.attack: _round(one.leak.value) for one in findings},
        "worst": {
            "attack": found.attack, **{end: _round(getattr(found.leak, end)) for end in ("value", "low", "high")}
        },
    }  # fmt: skip
    if setting.name in shown(sizes):
        steps = len(visits.view.rows)
        told["visits"] = [_best_so_far(visits, train.labels, count) for count in range(1, steps + 1)]
        told["histograms"] = _histograms(batches, train.labels)
    return told


def _trained(setting: Setting, train: Part, recorder: Recorder, sizes: Sizes) -> Simulation:
    bottom, top = wide_deep(
        train.feature_party.cardinalities,
        train.feature_party.numeric.shape[1],
        own_cardinalities=train.label_party.cardinalities,
        own_numeric=train.label_party.numeric.shape[1],
        generator=torch.Generator().manual_seed(sizes.seed),
    )
    labels, targets = train.labels, None
    if setting.rate:
        flipped = randomized_response(setting.rate)(labels, torch.Generator().manual_seed(sizes.seed))
        labels, targets = flipped.labels, flipped.targets if setting.corrected else None
    return simulate(
        bottom=bottom,
        top=top,
        features=_inputs(train),
        own=_own(train),
        labels=labels,
        targets=targets,
        protect=setting.protect,
        optimizer=lambda module: adam(module, lr=2e-3),
        epochs=sizes.epochs,
        batch_size=sizes.batch,
        seed=sizes.seed,
        record=recorder,
    )


def _inputs(part: Part) -> tuple[Tensor, Tensor]:
    return part.feature_party.categorical, part.feature_party.numeric


def _own(part: Part) -> tuple[Tensor, Tensor]:
    return part.label_party.categorical, part.label_party.numeric


# --- attacks ---------------------------------------------------------------------------------------------------------


def _on_batches() -> list[Attack]:
    names = ("norm", "cosine", "majority", "hint", "direct_label", "residual", "likelihood", "learned")
    return [*(attack(name) for name in names), attack("spectral", of="gradient"), attack("clustering", of="gradient")]


def _on_visits() -> list[Attack]:
    return [attack("accumulated", attack=inner, how=how) for inner, how in (*ACCUMULATED, *_MEANS)]


def _judged(one: Attack, view: View, clean: Tensor, truth: Tensor) -> Finding:
    """The attack by itself, so that what it finds does not depend on who came before."""
    return attack_all(view, truth, [one], noise=torch.Generator().manual_seed(0), clean=clean)[0]


def _best_so_far(visits: Transcript, truth: Tensor, count: int) -> float:
    """What the best attack on means reaches when so many visits of each example are over."""
    view, clean = visits.view, visits.clean[:count]
    first = View.of(view.gradient[:count], rows=view.rows[:count])
    inner = ("norm", "residual", "likelihood", "cosine", "direct_label")
    found = [_judged(attack("accumulated", attack=name), first, clean, truth).leak.value for name in inner]
    return _round(max(found))


# --- how things lie --------------------------------------------------------------------------------------------------


def _histograms(batches: Transcript, truth: Tensor) -> dict[str, dict[str, list[float]]]:
    """Of three quantities, by class: what the norm, cosine and residual attacks look at."""
    sent, clean = batches.view.gradient.double(), batches.clean.double()  # (steps, batch, width)
    labels = truth[batches.view.rows] == 1  # (steps, batch)
    told = labels.double().argmax(1)  # the first positive of each batch: its clean gradient is what is known
    known = clean[torch.arange(len(clean)), told]
    norm = sent.norm(dim=-1)
    rms = norm.square().mean(1, keepdim=True).sqrt()
    cosine = functional.cosine_similarity(sent, known[:, None], dim=-1)
    others = torch.ones_like(labels).scatter_(1, told[:, None], False)
    return {
        "norm": _counted((norm / rms).clamp_min(1e-9).log10(), labels, -3.0, 1.0),
        "cosine": _counted(cosine[others], labels[others], -1.0, 1.0),
        "residual": _counted(_within(log_residual(sent) / math.log(10)), labels, -5.0, 2.0),
    }


def _within(logs: Tensor) -> Tensor:
    """Logarithms of energies, over that of the mean energy of their batch."""
    return logs - (10.0**logs).mean(1, keepdim=True).clamp_min(1e-300).log10()


def _counted(values: Tensor, positive: Tensor, low: float, high: float) -> dict[str, list[float]]:
    """The share of each class in each of the bins from low to high; what lies outside counts in the outermost."""
    inside = values.clamp(low, high)
    shares = {}
    for name, mask in (("negative", ~positive), ("positive", positive)):
        counts = torch.histc(inside[mask], BINS, low, high)
        shares[name] = [round(share, 4) for share in (counts / counts.sum()).tolist()]
    return {"range": [low, high], **shares}


def _round(value: float | Tensor) -> float:
    return round(float(value), 4)
