"""The attacks that a party tries on what it sent itself, all of them, in one call."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence

import torch
from torch import Tensor

from tacit.audit.attacks import attack
from tacit.audit.run import Finding, attack_all
from tacit.contracts import Attack, View
from tacit.errors import UsageError

__all__ = ["ACCUMULATED", "ATTACKS", "JOINED", "on_batches", "on_visits"]

ATTACKS: tuple[str | tuple[str, dict[str, str]], ...] = (
    "norm",
    "cosine",
    "majority",
    "hint",
    "top_share",
    "direct_label",
    "residual",
    "likelihood",
    "learned",
    "spectral",
    ("spectral", {"of": "gradient"}),
    "clustering",
    ("clustering", {"of": "gradient"}),
    "contextual",
    ("contextual", {"fit": "network"}),
    "model_completion",
    "surrogate_top",
    "summed_gradients",
    "duplicates",
)
"""What is tried on single batches, each with its options."""

ACCUMULATED = (
    ("norm", "mean"), ("residual", "mean"), ("likelihood", "mean"), ("likelihood", "spread"), ("contextual", "mean"),
)  # fmt: skip
"""What is tried on all visits of one example together: the attack, and how visits are joined. Sweeps try these."""

JOINED: tuple[tuple[str | tuple[str, dict[str, str]], str], ...] = (
    ("cosine", "mean"),
    ("cosine", "precise"),
    ("direct_label", "mean"),
    ("direct_label", "precise"),
    (("clustering", {"of": "gradient"}), "mean"),
    ("surrogate_top", "mean"),
)
"""What is tried beside them on an example's visits: the attack with its options, and how visits are joined."""

Progress = Callable[[int, int], None]


def on_batches(
    view: View,
    clean: Tensor | None,
    labels: Tensor,
    *,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
    skipped: MutableMapping[tuple[str, str], str] | None = None,
) -> list[Finding]:
    """Every attack on single batches.

    An attack that cannot run on this transcript is left out; that none of them can is an error.

    Args:
        view: what the feature party saw.
        clean: the gradients before they were protected, in the shape of the view's, for attacks that are told some;
            None where nobody has them.
        labels: the truth, one for each row id.
        seed: of the attacks' own randomness.
        progress: called after each attack.
        skipped: where given, it is told (attack, layer) -> reason for each attack that was left out.
    """
    return _tried([_built(one) for one in ATTACKS], view, clean, labels, seed, progress, skipped)


def on_visits(
    view: View,
    clean: Tensor | None,
    labels: Tensor,
    *,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
    skipped: MutableMapping[tuple[str, str], str] | None = None,
) -> list[Finding]:
    """The attacks that add up all visits of one example; the arguments are those of `on_batches`."""
    attacks = [attack("accumulated", attack=inner, how=how) for inner, how in ACCUMULATED]
    attacks += [attack("accumulated", attack=_built(one), how=how) for one, how in JOINED]
    return _tried(attacks, view, clean, labels, seed, progress, skipped)


def _built(spelled: str | tuple[str, dict[str, str]]) -> Attack:
    name, options = (spelled, {}) if isinstance(spelled, str) else spelled
    made: Attack = attack(name, **options)
    return made


def _tried(
    attacks: Sequence[Attack],
    view: View,
    clean: Tensor | None,
    labels: Tensor,
    seed: int,
    progress: Progress,
    skipped: MutableMapping[tuple[str, str], str] | None,
) -> list[Finding]:
    """Each attack by itself with the same randomness, so that a finding does not depend on who came before."""
    findings: list[Finding] = []
    reasons: dict[tuple[str, str], str] = {}
    for done, one in enumerate(attacks, start=1):
        noise = torch.Generator().manual_seed(seed)
        findings += attack_all(view, labels, [one], noise=noise, clean=clean, skipped=reasons)
        progress(done, len(attacks))
    if not findings:
        raise UsageError(f"no attack can run on this transcript: {next(iter(reasons.values()))}")
    if skipped is not None:
        skipped.update(reasons)
    return findings
