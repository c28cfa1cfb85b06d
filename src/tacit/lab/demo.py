"""The point of the project in one table: the same model, trained under four protections, attacked in every way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tacit.audit.metrics.leak_auc import auc
from tacit.audit.run import Finding, worst
from tacit.audit.standard import on_batches, on_visits
from tacit.contracts import Protection
from tacit.cut.simulate import simulate
from tacit.lab.data import flights
from tacit.lab.data.joined import Split
from tacit.models import adam, wide_deep
from tacit.protect.gradient.marvell import marvell
from tacit.protect.gradient.matched import matched
from tacit.protect.gradient.max_norm import max_norm
from tacit.protect.gradient.none import none
from tacit.wire.record import Recorder

__all__ = ["Row", "protections", "run"]

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        protection: as it would be written in code.
        test_auc: of the trained model on flights it has not seen.
        noise: the mean squared norm of a row's noise over that of its gradient, in the last epoch.
        findings: what each attack reached; the last ones over all visits of an example.
    """

    protection: str
    test_auc: float
    noise: float
    findings: list[Finding]

    @property
    def worst(self) -> Finding:
        """What leaked most."""
        return worst(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        leaks = {
            finding.attack: {
                "value": finding.leak.value,
                "low": finding.leak.low,
                "high": finding.leak.high,
                "baseline": None if finding.baseline is None else finding.baseline.value,
            }
            for finding in self.findings
        }
        return {
            "protection": self.protection,
            "test_auc": self.test_auc,
            "noise": self.noise,
            "leak_auc": leaks,
            "worst": {"attack": self.worst.attack, **leaks[self.worst.attack]},
        }


def protections(epochs: int) -> dict[str, Protection]:
    """The four that are compared."""
    return {
        "none()": none(),
        "max_norm()": max_norm(),
        "marvell(scale=4)": marvell(scale=4.0),
        f"matched(leak_auc=0.6, visits={epochs})": matched(leak_auc=0.6, visits=epochs),
    }


def run(*, epochs: int = 3, rows: int | None = None, seed: int = 0, progress: Progress = lambda *_: None) -> list[Row]:
    """Train and attack under each protection.

    Args:
        epochs: how often every flight is visited.
        rows: how many flights to use; all of them if not given.
        seed: of weights, batches, noise and attacks.
        progress: called with what is being done, the steps done and all steps.
    """
    data = flights.tables().aligned(limit=rows)
    return [_row(name, protect, data, epochs, seed, progress) for name, protect in protections(epochs).items()]


def _row(name: str, protect: Protection, data: Split, epochs: int, seed: int, progress: Progress) -> Row:
    train, test = data.train, data.test
    mine, own = train.feature_party, train.label_party
    bottom, top = wide_deep(
        mine.cardinalities,
        mine.numeric.shape[1],
        own_cardinalities=own.cardinalities,
        own_numeric=own.numeric.shape[1],
        generator=torch.Generator().manual_seed(seed),
    )
    recorder = Recorder(last=24, follow=4096)
    trained = simulate(
        bottom=bottom,
        top=top,
        features=mine.tensors,
        own=own.tensors,
        labels=train.labels,
        protect=protect,
        optimizer=lambda module: adam(module, lr=2e-3),
        epochs=epochs,
        batch_size=min(1024, len(train.labels)),
        seed=seed,
        record=recorder,
        progress=lambda done, steps: progress(f"training with {name}", done, steps),
    )
    logits = trained.predict(test.feature_party.tensors, test.label_party.tensors)
    batches = recorder.batches()
    findings = on_batches(
        batches.view,
        batches.clean,
        train.labels,
        seed=seed,
        progress=lambda *done: progress(f"attacking {name}", *done),
    )
    if epochs > 1:
        visits = recorder.visits()
        findings += on_visits(visits.view, visits.clean, train.labels, seed=seed)
    return Row(name, float(auc(logits, test.labels)), trained.history[-1].power, findings)
