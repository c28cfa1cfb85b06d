"""A small training under an embedding protection: what decoders read of the inputs in what was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tacit.audit.input_attacks.decoder import decoder
from tacit.audit.input_attacks.linear_decoder import linear_decoder
from tacit.audit.inputs import InputFinding, attack_inputs
from tacit.audit.metrics.leak_auc import auc
from tacit.contracts import EmbeddingProtection, InputAttack, View
from tacit.cut.simulate import simulate
from tacit.errors import UsageError
from tacit.lab.data.rows import Data
from tacit.lab.stack.network import network_for
from tacit.models import adam
from tacit.protect.embedding.gaussian import gaussian
from tacit.protect.gradient.none import none
from tacit.wire.record import Recorder

__all__ = ["Read", "beside", "check_share", "decoders", "read", "up_to"]

_EPOCHS = 3
_BATCH = 512
_LAST = 12

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Read:
    """What decoders read under one protection.

    Attributes:
        protection: as it would be written in code.
        test_auc: of the trained model on rows it has not seen.
        findings: what each decoder reached.
    """

    protection: str
    test_auc: float
    findings: tuple[InputFinding, ...]

    @property
    def worst(self) -> InputFinding:
        """The decoder that may have read most."""
        return max(self.findings, key=up_to)

    @property
    def up_to(self) -> float:
        """The share of the inputs' variance that the worst decoder may have read, at the upper end."""
        return up_to(self.worst)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        attacks = [{"attack": one.attack, "up_to": up_to(one)} for one in self.findings]
        worst = attacks[self.findings.index(self.worst)]
        return {"protection": self.protection, "test_auc": self.test_auc, "attacks": attacks, "worst": worst}


def up_to(finding: InputFinding) -> float:
    """The share of the inputs' variance that a decoder may have read, at the upper end of its interval."""
    return 1.0 if finding.relative is None else max(0.0, 1 - finding.relative.low)


def check_share(limit: float | None) -> None:
    """Refuse a limit that is no share."""
    if limit is not None and not 0 < limit < 1:
        raise UsageError(
            f"limit = {limit}: for an embedding protection it is the share of the inputs' variance that a decoder may "
            "read, between 0 and 1"
        )


def decoders() -> list[InputAttack]:
    """What reads: a line, and a network that is smaller and learns for a shorter time than that of a whole audit."""
    return [linear_decoder(), decoder(hidden=(256, 256), updates=800)]


def beside() -> dict[str, Sequence[EmbeddingProtection]]:
    """What is run beside it: nothing, and noise as large as the embedding."""
    return {"none": (), "gaussian(snr=1)": (gaussian(snr=1.0),)}


def read(
    name: str,
    protect: Sequence[EmbeddingProtection],
    data: Data,
    *,
    seed: int = 0,
    progress: Progress = lambda *_: None,
) -> Read:
    """Train the papers' network under embedding protections, and let decoders that know half of the rows read.

    Args:
        name: the protections as they would be written in code.
        protect: the protections, in their order.
        data: a data set with labels 0 and 1.
        seed: of weights, batches, noise and attacks.
        progress: called with what is being done, the steps done and all steps.
    """
    train, test = data.train, data.test
    bottom, top = network_for(data.inputs).build(seed)
    recorder = Recorder(last=_LAST)
    trained = simulate(
        bottom=bottom,
        top=top,
        features=train.features,
        own=train.own,
        labels=train.labels,
        protect=none(),
        protect_embedding=protect,
        optimizer=lambda module: adam(module, lr=2e-3),
        epochs=_EPOCHS,
        batch_size=min(_BATCH, len(train)),
        seed=seed,
        record=recorder,
        progress=lambda done, steps: progress(f"training with {name}", done, steps),
    )
    progress(f"attacking {name}", 0, 1)
    seen = recorder.batches().view
    rows, places = seen.rows.unique(return_inverse=True)
    view = View.of_embeddings(seen.embedding, rows=places)
    findings = attack_inputs(view, trained.party.hidden(rows), decoders(), noise=torch.Generator().manual_seed(seed))
    logits = trained.predict(test.features, test.own, noise=torch.Generator().manual_seed(seed))
    return Read(name, float(auc(logits, test.labels)), tuple(findings))
