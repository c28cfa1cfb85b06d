"""What a label party could have given away: it attacks what it sent, with all that is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from tacit.audit.run import Finding, worst
from tacit.audit.standard import on_batches, on_visits
from tacit.party._files import replaced
from tacit.party.training import Trained

__all__ = ["audited"]


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
    replaced(trained.folder / "audit.json", lambda file: file.write((json.dumps(told, indent=2) + "\n").encode()))
    return findings
