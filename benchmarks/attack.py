"""Every attack's time for each batch of a transcript, and what the measure itself costs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch

from benchmarks._measure import Result, interleaved
from benchmarks.protect import gradients
from tacit.audit import attacks
from tacit.audit.metrics.leak_auc import auc
from tacit.audit.run import grant
from tacit.contracts import View

STEPS, BATCH, WIDTH = 16, 1024, 128


def run() -> Iterator[Result]:
    """Milliseconds for each batch, and the leak AUC itself over a sort of the scores."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    grad, labels = gradients(STEPS * BATCH, WIDTH, device)
    noise = torch.Generator(device).manual_seed(0)
    stacked = grad.reshape(STEPS, BATCH, WIDTH)
    view = View.of(stacked, embedding=stacked.roll(1, 0) * 0.1)
    known = grant(view, labels, stacked, noise=noise)
    where = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    for name in attacks.names():
        attack = attacks.attack(name)
        times = interleaved(lambda a=attack: a(view, known, noise), rounds=3, warmup=1)[0]  # type: ignore[misc]
        case = f"{attack.name}, per batch of {BATCH} x {WIDTH}, on {where}"
        yield Result("attack", case, statistics.median(times) / STEPS * 1e3, "ms")
    score, truth = stacked.norm(dim=-1), labels.reshape(STEPS, BATCH)
    ours, sort = interleaved(lambda: auc(score, truth), lambda: score.sort(-1), rounds=20)
    value = statistics.median(ours) / statistics.median(sort)
    yield Result("attack", f"leak AUC of {STEPS} batches over sorting their scores", value, "x")
