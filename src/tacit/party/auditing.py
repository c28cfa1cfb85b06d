"""What a party could have given away: it attacks what it sent itself, with all that is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.audit.inputs import InputFinding, attack_inputs, mean_visits
from tacit.audit.metrics.distance_correlation import distance_correlation
from tacit.audit.run import Finding, worst
from tacit.audit.standard import on_batches, on_visits
from tacit.contracts import Estimate, View
from tacit.cut.feature_party import FeatureParty
from tacit.errors import TensorError, UsageError
from tacit.party._files import replaced
from tacit.party.training import Trained
from tacit.wire.record import Recorder

__all__ = ["ReadInputs", "audited", "audited_inputs"]

_AT_ONCE = 8192  # rows that go through the bottom together
_COMPARED = 512  # rows of a batch in which distance correlation is measured, as in the report
_INPUT_ATTACKS = ("linear_decoder", "decoder")


def audited(trained: Trained, progress: Callable[[int, int], None] = lambda done, total: None) -> list[Finding]:
    """Attack the gradients that were recorded, and write what was found to `audit.json` in the run's folder.

    Only what was sent since the last start of the party is in memory. A feature party, which sends no gradients, and a
    label party of more than two classes have nothing to attack here.
    """
    transcript, labels = trained.transcript, trained.labels
    if transcript is None or labels is None or labels.max() > 1 or not transcript.recorded:
        return []
    batches = transcript.batches()
    findings = on_batches(batches.view, batches.clean, labels, progress=progress)
    if transcript.follow:
        visits = transcript.visits()
        if len(visits.view.gradient) > 1:
            findings += on_visits(visits.view, visits.clean, labels)
    most = worst(findings)
    told = {
        "worst": {"attack": most.attack, **asdict(most.leak)},
        "attacks": [
            {"attack": one.attack, **asdict(one.leak), "baseline": one.baseline and one.baseline.value}
            for one in findings
        ],
    }
    _write(trained, told)
    return findings


@dataclass(frozen=True)
class ReadInputs:
    """What a label party could read in embeddings.

    Attributes:
        findings: of each attack; those of decoders that took no part in training.
        dependence: distance correlation between what is hidden and what was sent, in batches of `batch_size`.
        batch_size: at which that was measured; figures at other sizes can't be compared.
    """

    findings: list[InputFinding]
    dependence: Estimate
    batch_size: int

    @property
    def worst(self) -> InputFinding:
        """The one that read most."""
        return min(self.findings, key=lambda one: one.relative.value if one.relative is not None else 1.0)


def audited_inputs(
    trained: Trained, progress: Callable[[int, int], None] = lambda done, total: None
) -> ReadInputs | None:
    """Attack the embeddings that were recorded, and write what was found to `audit.json` in the run's folder.

    The attackers know half of the inputs and are judged on the others; one of them averages all visits of an example
    first. A label party has nothing to attack here. Where there is nothing to judge, as where inputs are codes that the
    model does not embed in one place, `audit.json` says why.
    """
    party, transcript = trained.party, trained.transcript
    if not isinstance(party, FeatureParty) or transcript is None or not transcript.recorded:
        return None
    try:
        found = _read(party, transcript, progress)
    except (TensorError, UsageError) as reason:  # a training that is over is not lost for want of an audit
        _write(trained, {"skipped": str(reason)})
        return None
    _write(trained, _told(found))
    return found


def _read(party: FeatureParty, transcript: Recorder, progress: Callable[[int, int], None]) -> ReadInputs:
    """What decoders read in the last batches, and in the mean of all visits of the examples that were followed."""
    seen = transcript.batches().view
    x, view = _with_inputs(party, seen)
    findings = []
    for done, attack in enumerate(_INPUT_ATTACKS):
        progress(done, len(_INPUT_ATTACKS) + 1)
        findings += attack_inputs(view, x, [attack], noise=_seeded())
    visits = transcript.visits().view if transcript.follow else None
    if visits is not None and len(visits.rows) > 1:
        followed, all_visits = _with_inputs(party, visits)
        (one,) = attack_inputs(mean_visits(all_visits), followed, ["linear_decoder"], noise=_seeded())
        findings.append(replace(one, attack=f"accumulated({one.attack})"))
    rows, places = view.rows.flatten().unique(return_inverse=True)
    newest = torch.empty(len(rows), dtype=torch.int64).scatter_(0, places, torch.arange(len(places)))
    size = min(_COMPARED, len(rows) // 2)
    sent = view.embedding.flatten(0, 1)[newest]
    return ReadInputs(findings, distance_correlation(x, sent, batch_size=size, noise=_seeded()), size)


def _with_inputs(party: FeatureParty, seen: View) -> tuple[Tensor, View]:
    """What is hidden of the rows of a view, and the view with their places in it as ids."""
    rows, places = seen.rows.unique(return_inverse=True)
    x = torch.cat([party.hidden(some) for some in rows.split(_AT_ONCE)])
    return x, View.of_embeddings(seen.embedding, rows=places)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _told(found: ReadInputs) -> dict[str, Any]:
    attacks = [
        {"attack": one.attack, "relative_error": one.relative and asdict(one.relative)} for one in found.findings
    ]
    return {
        "worst": attacks[found.findings.index(found.worst)],
        "attacks": attacks,
        "distance_correlation": {"batch_size": found.batch_size, **asdict(found.dependence)},
    }


def _write(trained: Trained, told: dict[str, Any]) -> None:
    content = (json.dumps(told, indent=2) + "\n").encode()
    replaced(trained.folder / "audit.json", lambda file: file.write(content))
