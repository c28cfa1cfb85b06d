"""A small training under a protection, attacked in every way, beside the same training under ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.audit.metrics.leak_auc import auc
from tacit.audit.run import Finding
from tacit.audit.standard import on_batches, on_visits
from tacit.contracts import Protection
from tacit.cut.simulate import simulate
from tacit.errors import UsageError
from tacit.lab.data.rows import Data
from tacit.lab.stack.network import network_for
from tacit.models import adam
from tacit.protect.gradient.marvell import marvell
from tacit.protect.gradient.matched import matched
from tacit.protect.gradient.none import none
from tacit.wire.record import Recorder

__all__ = ["EPOCHS", "Attacked", "attacked", "check_limit", "ours"]

EPOCHS = 4
"""How often every row is visited: accumulated attacks need several visits."""

USUAL = 0.6
"""The limit at which ours are made for comparison where none is set."""

_BATCH = 512
_LAST = 24  # batches that are attacked one by one
_FOLLOW = 4096  # rows whose visits are all attacked together

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Attacked:
    """What a training under one protection gave away.

    Attributes:
        protection: as it would be written in code.
        test_auc: of the trained model on rows it has not seen.
        noise: the mean squared norm of a row's noise over that of its gradient, in the last epoch, as reported.
        findings: what each attack reached; the last ones over all visits of a row.
        skipped: attacks that could not run on what was sent, with the reason.
    """

    protection: str
    test_auc: float
    noise: float
    findings: tuple[Finding, ...]
    skipped: Mapping[str, str]

    @property
    def worst(self) -> Finding:
        """The attack that may have found most: the one whose upper end, above what it had anyway, is highest."""
        return max(self.findings, key=lambda finding: finding.held)

    def holds(self, limit: float) -> bool:
        """Whether every attack stays at or under the limit, with the upper end of its interval."""
        return self.worst.held <= limit

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        attacks = [
            {
                "attack": one.attack,
                "value": one.leak.value,
                "low": one.leak.low,
                "high": one.leak.high,
                "baseline": None if one.baseline is None else one.baseline.value,
                "up_to": one.held,
            }
            for one in self.findings
        ]
        return {
            "protection": self.protection,
            "test_auc": self.test_auc,
            "noise": self.noise,
            "attacks": attacks,
            "worst": attacks[self.findings.index(self.worst)],
            "skipped": dict(self.skipped),
        }


def check_limit(limit: float | None) -> None:
    """Refuse a limit that no attack could reach, or none could stay under."""
    if limit is not None and not 0.5 < limit < 1:
        raise UsageError(f"limit = {limit}: a leak AUC lies between 0.5, a coin flip, and 1; take one such as 0.6")


def ours(limit: float | None) -> Mapping[str, Protection]:
    """What is run beside it: nothing, the papers' best, and the one that we would take at this limit.

    `matched` is made for half of the way to the limit: the rest is for what no model sees and for the interval.
    """
    goal = USUAL if limit is None else limit
    half = round(0.25 + goal / 2, 3)
    return {
        "none()": none(),
        f"marvell(leak_auc={goal:g})": marvell(leak_auc=goal),
        f"matched(leak_auc={half:g}, visits={EPOCHS})": matched(leak_auc=half, visits=EPOCHS),
    }


def attacked(
    name: str, protect: Protection, data: Data, *, seed: int = 0, progress: Progress = lambda *_: None
) -> Attacked:
    """Train the papers' network on a data set under a protection, and attack what was sent.

    Args:
        name: the protection as it would be written in code.
        protect: the protection.
        data: a data set with labels 0 and 1.
        seed: of weights, batches, noise and attacks.
        progress: called with what is being done, the steps done and all steps.
    """
    train, test = data.train, data.test
    bottom, top = network_for(data.inputs).build(seed)
    recorder = Recorder(last=_LAST, follow=min(_FOLLOW, len(train)))
    trained = simulate(
        bottom=bottom,
        top=top,
        features=train.features,
        own=train.own,
        labels=train.labels,
        protect=protect,
        optimizer=lambda module: adam(module, lr=2e-3),
        epochs=EPOCHS,
        batch_size=min(_BATCH, len(train)),
        seed=seed,
        record=recorder,
        progress=lambda done, steps: progress(f"training with {name}", done, steps),
    )
    batches, visits = recorder.batches(), recorder.visits()
    skipped: dict[tuple[str, str], str] = {}
    findings: list[Finding] = []
    for attacks, seen in ((on_batches, batches), (on_visits, visits)):
        findings += attacks(
            seen.view,
            seen.clean,
            train.labels,
            seed=seed,
            skipped=skipped,
            progress=lambda done, steps: progress(f"attacking {name}", done, steps),
        )
    logits = trained.predict(test.features, test.own)
    missing = {attack: reason for (attack, _), reason in skipped.items()}
    return Attacked(name, float(auc(logits, test.labels)), trained.history[-1].power, tuple(findings), missing)
