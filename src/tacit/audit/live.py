"""A look at one batch while training runs, with the attacks that cost next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from tacit.audit import input_attacks
from tacit.audit.attacks import attack, chosen
from tacit.audit.inputs import attack_inputs
from tacit.audit.metrics.leak_auc import auc
from tacit.audit.run import grant
from tacit.contracts import Attack, View
from tacit.errors import LabelsError, UsageError

LABELS = chosen(lambda known: known.live)
"""What is tried on a gradient."""

INPUTS = tuple(name for name in input_attacks.names() if input_attacks.facts(name).live)
"""What is tried on an embedding."""


def look_at_gradient(
    sent: Tensor, clean: Tensor, labels: Tensor, embedding: Tensor, *, seed: int, attacks: Sequence[str] = ()
) -> dict[str, float]:
    """The AUC of each attack on one batch, not folded: below 0.5 it reads as well as above. What can't run is left out.

    What was sent, what it was before it was protected, and its embedding are (batch, *cut). All that cost little are
    tried where none are named.
    """
    view = View.of(sent[None], rows=torch.arange(len(labels))[None], embedding=embedding[None])
    noise, found = torch.Generator().manual_seed(seed), dict[str, float]()
    try:
        known = grant(view, labels, clean[None], noise=noise)
    except LabelsError:
        return {}
    for name in attacks or LABELS:
        try:
            guess = _built()[name](view, known, noise)
        except UsageError:
            continue
        found[name] = float(auc(guess.score, labels[guess.rows].long(), guess.counted))
    return {name: value for name, value in found.items() if value == value}  # a batch that lacks a class tells nothing


@cache
def _built() -> dict[str, Attack]:
    """What is tried on a gradient, made once: to find an attack by its name takes longer than some of them take."""
    return {name: attack(name) for name in LABELS}


def look_at_embedding(sent: Tensor, hidden: Tensor, *, seed: int) -> dict[str, float]:
    """The share of the variance of what is hidden (batch, inputs) that each attack reads in one batch, 0 to 1."""
    view = View.of_embeddings(sent[None], rows=torch.arange(len(hidden), device=sent.device)[None])
    found = attack_inputs(view, hidden, INPUTS, noise=torch.Generator().manual_seed(seed))
    return {one.attack: max(0.0, 1 - one.relative.value) for one in found if one.relative is not None}
