"""A network with a large table of codes on two processes: cut up among them, over whole at both, over one process.

Rows are 20,000, for an epoch of 65 steps; what is timed is all of it, with setting up, judging and writing down. Every
code is as likely as any other. Set TACIT_BENCH_CODES for another number of them than a million.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks._measure import Result
from tacit.align.encoder import Inputs
from tacit.one_shot.flips import flips
from tacit.one_shot.learn.network import network
from tacit.one_shot.workers import Workers

ROWS, COLUMNS, CODES = 20_000, 26, 1_000_000
_STEPS = 65  # of an epoch
_ROOT = Path(__file__).parents[1]  # where the processes find this package


def run() -> Iterator[Result]:
    """Milliseconds a step and the most memory of a process."""
    found = {}
    for case, count, cut_from in (
        ("one process", 1, 1),
        ("two, table whole", 2, sys.maxsize),
        ("two, table cut", 2, 1),
    ):
        where = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
        command = [sys.executable, *where, "-m", "benchmarks.tables", str(cut_from)]
        said = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
        found[case] = dict(json.loads(line) for line in said.stdout.splitlines())
        yield Result("tables", f"a step, {case}", found[case]["step"], "ms")
        for rank in range(count):
            yield Result("tables", f"memory of process {rank}, {case}", found[case][f"memory {rank}"], "MB")
    whole, cut = found["two, table whole"], found["two, table cut"]
    for what, of in (("a step", "step"), ("memory of process 0", "memory 0"), ("memory of process 1", "memory 1")):
        yield Result("tables", f"{what} with the table cut, over whole", cut[of] / whole[of], "x")


def main(cut_from: int) -> None:
    """Learn for an epoch; each process says its memory, the first one what a step took."""
    torch.set_num_threads(1)
    workers = replace(Workers.started(), cut_from=cut_from)
    each = int(os.environ.get("TACIT_BENCH_CODES", CODES)) // COLUMNS
    draw = torch.Generator().manual_seed(0)
    codes = torch.randint(each, (ROWS, COLUMNS), generator=draw)
    inputs = Inputs(codes, torch.randn(ROWS, 13, generator=draw), (each,) * COLUMNS)
    sent = torch.randint(2, (ROWS,), generator=draw, dtype=torch.uint8).numpy()
    workers.join()
    with workers.together(), tempfile.TemporaryDirectory() as kept:
        workers = replace(workers, keep=Path(kept))  # as a training has it: after the epoch all is written down
        learner = replace(network(pretraining=False, epochs=1, members=1), workers=workers)
        start = time.perf_counter()
        learner.fit(inputs, sent, flips(0.6), 2)
    took, memory = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = [[f"memory {workers.rank}", memory / 1000], *([["step", 1000 * took / _STEPS]] if workers.rank == 0 else [])]
    print("".join(f"{json.dumps(one)}\n" for one in said), end="", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
