"""Test AUC and bytes of a step with float32 and with float16 on the wire, on all flights, bare and under `matched`.

Both parties are in one process: what is sent, and what is made of it, is the same as between two.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator

import torch
from torch import nn

from benchmarks._measure import Result
from tacit.contracts import Protection
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.simulate import pair
from tacit.lab.data import load
from tacit.lab.trial import Course, problem_of, train
from tacit.protect.gradient.matched import matched
from tacit.protect.gradient.none import none
from tacit.wire.codec import encode

EPOCHS, BATCH, WIDTH = 3, 1024, 128


def run() -> Iterator[Result]:
    """The same weights, batches and noise in both; TACIT_BENCH_ROWS for fewer flights than all."""
    for float16 in (False, True):
        yield Result("float16", f"a step of {BATCH} x {WIDTH}, {_name(float16)}", _bytes(float16) / 1024, "KiB")
    problem = problem_of(load("flights", rows=int(os.environ.get("TACIT_BENCH_ROWS", 0)) or None))
    tried: list[tuple[str, Protection, int]] = [
        ("none()", none(), 3),
        ("matched(0.6)", matched(leak_auc=0.6, visits=EPOCHS), 9),  # whose seeds lie further apart
    ]
    for name, protect, seeds in tried:
        for float16 in (False, True):
            courses = [
                Course(EPOCHS, batch_size=BATCH, last=1, follow=0, seed=seed, float16=float16) for seed in range(seeds)
            ]
            found = [train(name, problem, course, protect=protect).test_auc for course in courses]
            case = f"flights, {name}, {_name(float16)}: mean of {', '.join(f'{one:.4f}' for one in found)}"
            yield Result("float16", case, statistics.mean(found), "test AUC")


def _name(float16: bool) -> str:
    return "float16" if float16 else "float32"


def _bytes(float16: bool) -> int:
    """What an embedding and its gradient are on the wire, headers included."""
    bottom, top, rows = nn.Linear(2, WIDTH), nn.Linear(WIDTH, 1), torch.arange(BATCH)
    features = FeatureParty(
        bottom=bottom, features=torch.ones(BATCH, 2), optimizer=torch.optim.SGD(bottom.parameters(), lr=0.1),
        float16=float16,
    )  # fmt: skip
    label = LabelParty(
        top=top, labels=torch.arange(BATCH) % 2, optimizer=torch.optim.SGD(top.parameters(), lr=0.1), protect=none(),
        noise=torch.Generator(),
    )  # fmt: skip
    left, right = pair()
    features.send(rows, left)
    size = sum(map(len, encode(right.incoming[0])))
    label.step(rows, right)
    return size + sum(map(len, encode(left.incoming[0])))
