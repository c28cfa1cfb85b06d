"""How long a label party takes over a step, in worlds that differ in the labels of rows that its partner has picked.

Processor time of one core, which is what a partner can read off the time of its next answer, the network apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch

from benchmarks._measure import Result
from benchmarks.protect import gradients, spelled
from tacit.contracts import noise_source
from tacit.split.protect.gradient import protection

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matched", {"leak_auc": 0.6}),
    ("marvell", {"sum_kl": 0.25}),
    ("iso", {"t": 1.0}),
    ("max_norm", {}),
)
BATCH, WIDTH, STEPS = 1024, 128, 400


def run() -> Iterator[Result]:
    """The median time of protecting a gradient in each world, and how far these lie apart."""
    grad, mixed = gradients(BATCH, WIDTH)
    odd = torch.zeros(BATCH)
    odd[7] = 1.0
    worlds = {"of both classes": mixed, "of one class": torch.zeros(BATCH), "of one class but for one": odd}
    for name, options in CASES:
        protect, noise = protection(name, **options), noise_source(torch.Generator().manual_seed(0))
        states, taken = dict.fromkeys(worlds, protect.init()), {world: list[float]() for world in worlds}
        for _ in range(STEPS):
            for world, labels in worlds.items():  # in turn, so that a busy machine disturbs all alike
                began = time.process_time()
                states[world] = protect.update(grad, labels, states[world], noise).state
                taken[world].append(time.process_time() - began)
        medians = {world: 1e6 * median(some) for world, some in taken.items()}
        for world, value in medians.items():
            yield Result("when", f"{spelled(name, options)}, labels {world}, batch {BATCH} x {WIDTH}", value, "us")
        apart = max(medians.values()) - min(medians.values())
        yield Result("when", f"{spelled(name, options)}, between the worlds", apart, "us")
