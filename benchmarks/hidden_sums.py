"""Hidden sums, step by step and by party, in processor time of one core: both parties' work, and bytes a row.

Set TACIT_BENCH_ROWS for another number of rows: the work grows with them, and a row gets a little cheaper.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks._measure import Result
from tacit.errors import UsageError
from tacit.hidden_sums.encryption import check_labels, decrypt_sums, encrypt, secret_key
from tacit.hidden_sums.messages import bytes_of
from tacit.hidden_sums.points import decode
from tacit.hidden_sums.shuffle import Input, check_shuffle_proof, gen_shuffle, shuffle_generators

QUICK = 10_000
PARTITIONS = 4
GROUP = 32
FLIGHTS = 244_000
GOAL = 480.0  # seconds for that many rows, both parties one after the other, on a single core
_LABEL, _FEATURE, _CONTEXT = b"l" * 32, b"f" * 32, b"benchmark"


def run() -> Iterator[Result]:
    """Microseconds a row of each step, seconds for all flights in four partitions, and bytes a row."""
    rows = int(os.environ.get("TACIT_BENCH_ROWS", QUICK))
    try:
        shuffle_generators(1)
    except UsageError:
        return  # without the extra [sums] there is nothing to measure
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, rows)
    steps: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        done = work()
        steps[name] = (time.process_time() - start) / rows
        return done

    made = timed("label party encrypts and proves", lambda: encrypt(labels, _LABEL, _CONTEXT))
    a, b = timed("feature party checks labels", lambda: check_labels(made, _FEATURE, _CONTEXT))
    h = timed("generators, each party", lambda: shuffle_generators(rows))
    once = sum(steps.values()) + steps["generators, each party"]
    of = Input(decode(made.pk), a, b, _CONTEXT, h)
    shuffle = timed("feature party shuffles and proves", lambda: gen_shuffle(of, draw.permutation(rows), _FEATURE))
    a, b = timed("label party checks a shuffle", lambda: check_shuffle_proof(of, shuffle, _LABEL))
    timed("label party opens sums", lambda: decrypt_sums(a, b, secret_key(_LABEL, _CONTEXT), GROUP))
    each = sum(list(steps.values())[3:])
    for name, seconds in steps.items():
        yield Result("hidden_sums", f"{name}, {rows:,} rows, a row", seconds * 1e6, "us")
    whole = FLIGHTS * (once + PARTITIONS * each)
    yield Result("hidden_sums", f"{FLIGHTS:,} rows, {PARTITIONS} partitions, both parties, one core", whole, "s", GOAL)
    yield Result("hidden_sums", "sent by the label party, once, a row", len(bytes_of(made)) / rows, "bytes")
    sent = len(bytes_of(shuffle)) / rows
    yield Result("hidden_sums", "sent by the feature party for each partition, a row", sent, "bytes")
