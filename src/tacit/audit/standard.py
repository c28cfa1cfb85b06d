"""The attacks that a party tries on what it sent itself, all of them, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.audit.attacks import attack, chosen, facts
from tacit.audit.facts import Facts
from tacit.audit.run import Finding, attack_all
from tacit.contracts import Attack, View
from tacit.errors import UsageError
from tacit.progress import Count

Tried = str | tuple[str, Mapping[str, Any]]
"""An attack by its name, with its options where it has some."""


def _spelled(name: str, options: Mapping[str, Any]) -> Tried:
    return (name, options) if options else name


def _joined(where: Callable[[Facts], bool]) -> tuple[tuple[Tried, str], ...]:
    """Attacks on single visits, each with a way to join what all visits of an example brought."""
    found = [(name, facts(name)) for name in chosen(where)]
    return tuple((_spelled(name, known.on_gradients), how) for name, known in found for how in known.joined)


ATTACKS = tuple(
    _spelled(name, options) for name in chosen(lambda known: known.audited) for options in facts(name).variants
)
"""What is tried on single batches."""

ACCUMULATED = _joined(lambda known: known.sweep is not None and "clean" not in known.needs)
"""What is tried on all visits of one example together: the attack, and how visits are joined. Sweeps, which have no
clean gradients then, try these."""

JOINED = tuple(each for each in _joined(lambda known: True) if each not in ACCUMULATED)
"""What is tried beside them on an example's visits."""

STEERING = _joined(lambda known: known.steers)
"""Those of both whose findings decide whether a training under a limit goes on."""


def on_batches(
    view: View,
    clean: Tensor | None,
    labels: Tensor,
    *,
    seed: int = 0,
    progress: Count = lambda done, total: None,
    skipped: MutableMapping[str, str] | None = None,
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
        skipped: where given, it is told attack -> reason for each attack that was left out.
    """
    return _tried([_built(each) for each in ATTACKS], view, clean, labels, seed, progress, skipped)


def on_visits(
    view: View,
    clean: Tensor | None,
    labels: Tensor,
    *,
    seed: int = 0,
    progress: Count = lambda done, total: None,
    skipped: MutableMapping[str, str] | None = None,
) -> list[Finding]:
    """The attacks that add up all visits of one example; the arguments are those of `on_batches`."""
    return _tried(joined((*ACCUMULATED, *JOINED)), view, clean, labels, seed, progress, skipped)


def joined(each: Iterable[tuple[Tried, str]]) -> list[Attack]:
    """Attacks on all visits of an example together, made of attacks on single ones."""
    return [attack("accumulated", attack=_built(inner), how=how) for inner, how in each]


def _built(tried: Tried) -> Attack:
    name, options = (tried, {}) if isinstance(tried, str) else tried
    made: Attack = attack(name, **options)
    return made


def _tried(
    attacks: Sequence[Attack],
    view: View,
    clean: Tensor | None,
    labels: Tensor,
    seed: int,
    progress: Count,
    skipped: MutableMapping[str, str] | None,
) -> list[Finding]:
    """Each attack by itself with the same randomness, so that a finding does not depend on who came before."""
    findings: list[Finding] = []
    reasons: dict[str, str] = {}
    for done, one in enumerate(attacks, start=1):
        noise = torch.Generator().manual_seed(seed)
        findings += attack_all(view, labels, [one], noise=noise, clean=clean, skipped=reasons)
        progress(done, len(attacks))
    if not findings:
        raise UsageError(f"no attack can run on this transcript: {next(iter(reasons.values()))}")
    if skipped is not None:
        skipped.update(reasons)
    return findings
