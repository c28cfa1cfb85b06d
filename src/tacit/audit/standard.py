"""The attacks that a party tries on what it sent itself, all of them, in one call."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tacit.audit.attacks import attack
from tacit.audit.run import Finding, attack_all
from tacit.contracts import View

__all__ = ["ACCUMULATED", "ATTACKS", "on_batches", "on_visits"]

ATTACKS: tuple[str | tuple[str, dict[str, str]], ...] = (
    "norm",
    "cosine",
    "majority",
    "hint",
    "top_share",
    "residual",
    "likelihood",
    "learned",
    "spectral",
    ("spectral", {"of": "gradient"}),
    "contextual",
    "model_completion",
)
"""What is tried on single batches, each with its options."""

ACCUMULATED = (("norm", "mean"), ("residual", "mean"), ("likelihood", "mean"), ("likelihood", "spread"))
"""What is tried on all visits of one example together: the attack, and how visits are joined."""


def on_batches(
    view: View,
    clean: Tensor,
    labels: Tensor,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Finding]:
    """Every attack on single batches.

    Args:
        view: what the feature party saw.
        clean: the gradients before they were protected, in the shape of the view's, for attacks that are told some.
        labels: the truth, one for each row id.
        seed: of the attacks' own randomness.
        progress: called after each attack.
    """
    findings = []
    for done, spelled in enumerate(ATTACKS, start=1):
        name, options = (spelled, {}) if isinstance(spelled, str) else spelled
        noise = torch.Generator().manual_seed(seed)
        findings += attack_all(view, labels, [attack(name, **options)], noise=noise, clean=clean)
        progress(done, len(ATTACKS))
    return findings


def on_visits(view: View, clean: Tensor, labels: Tensor, *, seed: int = 0) -> list[Finding]:
    """The attacks that add up all visits of one example; the arguments are those of `on_batches`."""
    attacks = [attack("accumulated", attack=inner, how=how) for inner, how in ACCUMULATED]
    return attack_all(view, labels, attacks, noise=torch.Generator().manual_seed(seed), clean=clean)
