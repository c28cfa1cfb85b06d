"""Marvell's solver: one problem alone, stacks of problems, and a root finder of SciPy on the same equation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks._measure import Result, interleaved, ratio
from tacit.errors import UsageError
from tacit.split.protect.gradient import _formula
from tacit.split.protect.gradient.marvell import solve

PAPER = 1.68e-2  # seconds; "Label leakage and protection", table 1, Criteo: a whole call of the authors' Marvell


def run() -> Iterator[Result]:
    """Time per problem; over the published solver's time; over one solution by SciPy's brentq."""
    cases = [(1.0 + i / 100, 2.0, 128.0, 4.0, 0.25) for i in range(100)]
    times = interleaved(lambda: _ours(cases), rounds=15)[0]
    each = statistics.median(times) / len(cases)
    yield Result("solver", "one problem, Python floats", each * 1e6, "us")
    yield Result("solver", "one problem over the authors' published time (their machine)", each / PAPER, "x", 1 / 45)
    for size in (1_000, 100_000):
        generator = torch.Generator().manual_seed(0)
        u, v, gap = (torch.rand(3, size, dtype=torch.float64, generator=generator) * 4 + 0.1).unbind()
        each = statistics.median(interleaved(partial(_stack, u, v, gap), rounds=5)[0]) / size
        yield Result("solver", f"stack of {size:,}, per problem", each * 1e6, "us")
    yield Result("solver", "one problem over brentq on the same equation", _over_brentq(cases), "x")


def _ours(cases: list[tuple[float, float, float, float, float]]) -> None:
    for case in cases:
        solve(*case, power=4 * case[3])


def _stack(u: Tensor, v: Tensor, gap: Tensor) -> None:
    solve(u, v, 128, gap, torch.full_like(u, 0.25), power=4 * gap)


def _over_brentq(cases: list[tuple[float, float, float, float, float]]) -> float:
    """Our solution over SciPy's root of "spent(t) = power" between the same bounds, to the same accuracy."""
    try:
        from scipy.optimize import brentq
    except ImportError:
        raise UsageError("the benchmark 'solver' compares with SciPy: pip install scipy") from None

    def theirs() -> None:
        for u, v, d, gap, p in cases:
            problem = _formula.problem(u, v, p, gap, d, _formula.Floats)
            power = 4 * gap

            def excess(log_t: float, problem: _formula.Problem = problem, power: float = power) -> float:
                return math.log(_formula.spent(math.exp(log_t), problem) / power)

            brentq(excess, math.log(power / d) - 1e-9, math.log(power) + 1e-9, xtol=1e-14, rtol=1e-14)

    return ratio(lambda: _ours(cases), theirs, rounds=15)
