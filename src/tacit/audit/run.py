"""Every attack on one transcript, judged: the only place of the audit where truth and attacks meet.

The evaluator knows the truth. It grants each attack what that attack may know (`grant`), lets it guess, and judges the
guess afterwards; no attack ever sees the truth itself.
"""

from __future__ import annotations

import time
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.metrics.leak_auc import judged, leak_auc
from tacit.contracts import Attack, Estimate, Guess, Known, Noise, View, noise_source
from tacit.errors import LabelsError, UsageError


@dataclass(frozen=True)
class Finding:
    """What one attack reached.

    Attributes:
        attack: the attack's name.
        leak: leak AUC with its 95% interval.
        baseline: what the same attacker reaches without what was received, where that is not a coin flip.
        upper: what 95 of 100 batches stay under, chance taken out. With a baseline, it is that and the upper end of
            what messages add to it.
        seconds: how long the attack took on this machine, its judging not counted; no part of what was found, so
            findings that differ in it alone are equal.
    """

    attack: str
    leak: Estimate
    baseline: Estimate | None = None
    upper: float = 1.0
    seconds: float = field(default=0.0, compare=False)

    @property
    def excess(self) -> float:
        """How far the leak lies above what the attacker had without any message: its baseline, or a coin flip."""
        return self.leak.value - (0.5 if self.baseline is None else self.baseline.value)

    @property
    def held(self) -> float:
        """What a limit is held against: `upper`, less what the attacker had beyond a coin flip without any message."""
        return self.upper - (0.0 if self.baseline is None else self.baseline.value - 0.5)

    @property
    def surely(self) -> float:
        """The same at the lower end: where this is above a limit, the limit is broken beyond doubt."""
        return self.leak.low - (0.0 if self.baseline is None else self.baseline.value - 0.5)


def grant(view: View, truth: Tensor, clean: Tensor | None = None, *, noise: Noise) -> Known:
    """What attackers are granted: half of the labels, the share of positives, a clean positive gradient at each step.

    Args:
        view: the transcript that will be attacked.
        truth: the label of each row id.  (number of ids,)
        clean: gradients before protection, if the evaluator has them.  (steps, batch, *cut)
        noise: chooses which half of the ids is known and which positive is handed out.

    Returns:
        Labels of a random half of the ids (-1 for the others), the share of positives and, where `clean` is given, one
        clean gradient of a random positive row for each step (zeros where a batch holds no positive row, which no
        metric judges).
    """
    truth = _checked(view, truth)
    draw = noise_source(noise).uniform(truth.shape, dtype=torch.float64, device=truth.device)
    hidden = draw.argsort()[: truth.numel() // 2]
    labels = truth.index_fill(0, hidden, -1)
    positive = None if clean is None else _clean_positives(view, truth, clean, noise)
    return Known(labels=labels, positive_gradient=positive, share=float(truth.double().mean()))


def attack_all(
    view: View,
    truth: Tensor,
    attacks: Sequence[Attack | str],
    *,
    noise: Noise,
    clean: Tensor | None = None,
    prediction: Tensor | None = None,
    skipped: MutableMapping[str, str] | None = None,
) -> list[Finding]:
    """Run attacks on a transcript and judge them.

    Args:
        view: the transcript.
        truth: the label of each row id.  (number of ids,)
        attacks: attacks, or names of attacks with their default options.
        noise: where all randomness comes from; the same half of the labels is granted to all attacks.
        clean: gradients before protection.  (steps, batch, *cut)
        prediction: for each row id what the finished model itself predicts, the honest baseline of attacks that look
            at embeddings.  (number of ids,)
        skipped: where given, an attack that cannot run here (no embedding recorded, no clean gradient granted) is noted
            in it as attack -> reason and left out; without it that is an error.
    """
    built = [views.built(one) for one in attacks]
    if prediction is not None and prediction.shape != truth.shape:
        raise UsageError(
            f"predictions are {tuple(prediction.shape)} for {len(truth)} labels: pass one number for each row id"
        )
    known = replace(grant(view, truth, clean, noise=noise), prediction=prediction)
    findings = []
    for attack in built:
        try:
            started = time.perf_counter()
            guess = attack(view, known, noise)
            seconds = time.perf_counter() - started
            findings.append(_judged(attack, guess, truth, seconds))
        except (UsageError, LabelsError) as reason:
            if skipped is None:
                raise
            skipped[attack.name] = str(reason)
    return findings


def worst(findings: Sequence[Finding]) -> Finding:
    """The finding that lies farthest above what its attacker had without any message.

    The largest of many estimates is a little above the truth even where nothing leaks: read its interval with it.
    """
    if not findings:
        raise UsageError("there are no findings: every attack was skipped, or none was asked for")
    return max(findings, key=lambda finding: finding.excess)


def _checked(view: View, truth: Tensor) -> Tensor:
    """The truth on the view's device, if it holds a label, 0 or 1, for each of the view's row ids."""
    if not isinstance(truth, Tensor):
        raise LabelsError(f"truth is a {type(truth).__name__}: pass a tensor with one label for each row id")
    if truth.dim() != 1 or bool(((truth != 0) & (truth != 1)).any()):
        raise LabelsError("truth is one label, 0 or 1, for each row id: (number of ids,)")
    if not view.rows.numel():
        raise UsageError("the view holds no rows: record at least one batch")
    low, high = (int(edge) for edge in torch.aminmax(view.rows))
    if low < 0 or high >= truth.numel():
        raise LabelsError(
            f"row ids run from {low} to {high}, but truth holds {truth.numel()} labels: pass the labels of all "
            "examples, not those of a batch"
        )
    return truth.to(view.rows.device).long()


def _judged(attack: Attack, guess: Guess, truth: Tensor, seconds: float) -> Finding:
    """A guess against the truth."""
    baseline = None
    if guess.baseline is not None:
        baseline = leak_auc(replace(guess, score=guess.baseline), truth)
    leak, upper = judged(guess, truth)
    return Finding(attack.name, leak, baseline, upper, seconds)


def _clean_positives(view: View, truth: Tensor, clean: Tensor, noise: Noise) -> Tensor:
    """The clean gradient of one random positive row for each step.  (steps, width)"""
    if not isinstance(clean, Tensor):
        raise UsageError(f"clean gradients are a {type(clean).__name__}: pass one tensor (steps, batch, *cut)")
    if clean.shape[:2] != view.rows.shape:
        raise UsageError(f"clean gradients are {tuple(clean.shape)}, but the view's rows are {tuple(view.rows.shape)}")
    positive = truth[view.rows] == 1  # (steps, batch)
    draw = noise_source(noise).uniform(positive.shape, dtype=torch.float32, device=positive.device)
    chosen = torch.where(positive, draw, -1.0).argmax(-1)
    flat = clean.flatten(start_dim=2)
    picked = flat[torch.arange(flat.shape[0], device=flat.device), chosen]
    return picked * positive.any(-1, keepdim=True)
