"""Problems for the solver, and by how much an answer misses the optimum."""

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from tacit.split.protect.gradient._solver import Solution

EPS = 2.0**-52
TOLERANCE = 1e-9  # of the largest term of the equation that is checked


@dataclass
class Instances:
    """A stack of problems."""

    u: Tensor
    v: Tensor
    d: Tensor
    gap: Tensor
    p: Tensor
    power: Tensor

    @property
    def problem(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.u, self.v, self.d, self.gap, self.p

    def __getitem__(self, which) -> "Instances":
        return Instances(*(value[which] for value in (*self.problem, self.power)))

    def rows(self) -> list[tuple[float, ...]]:
        return list(zip(*(value.tolist() for value in (*self.problem, self.power)), strict=True))


def extreme(n: int, seed: int) -> Instances:
    """Problems of every kind: u, v, gap from 1e-30 to 1e6 or zero, equal up to the last bit or 36 decades apart."""
    g = torch.Generator().manual_seed(seed)

    def uniform() -> Tensor:
        return torch.rand(n, generator=g, dtype=torch.float64)

    def spread() -> Tensor:
        return torch.where(uniform() < 0.05, 0.0, 10 ** (36 * uniform() - 30))

    def nearby(size: Tensor) -> Tensor:
        return (size * 10 ** (4 * uniform() - 2)).clamp(max=1e6)

    u, v, gap = spread(), spread(), spread()
    v = torch.where(uniform() < 0.15, u * (1 + (uniform() - 0.5) * 10 ** (-17 * uniform())), v)
    size = torch.maximum(torch.maximum(u, v), gap)
    size = torch.where(size > 0, size, 1.0)
    similar = uniform() < 0.3
    u, v, gap = (torch.where(similar, nearby(size), value) for value in (u, v, gap))
    d = torch.where(uniform() < 0.05, 1.0, (10 ** (5 * uniform())).floor())
    rare = 0.5 * 10 ** (-5.69 * uniform())
    p = torch.where(uniform() < 0.5, rare, 1 - rare)
    one_of = torch.stack([u, v, gap, size])[torch.randint(0, 4, (n,), generator=g), torch.arange(n)]
    one_of = torch.where(one_of > 0, one_of, size)
    far, near = 10 ** (40 * uniform() - 20), d ** uniform() * 10 ** (6 * uniform() - 3)
    return Instances(u, v, d, gap, p, one_of * torch.where(uniform() < 0.5, far, near))


def moderate(n: int, seed: int) -> Instances:
    """Problems as training meets them."""
    g = torch.Generator().manual_seed(seed)

    def between(low: float, high: float) -> Tensor:
        return 10 ** (low + (high - low) * torch.rand(n, generator=g, dtype=torch.float64))

    u, v, gap = between(-2, 1), between(-2, 1), between(-1, 1)
    p = torch.where(torch.rand(n, generator=g) < 0.5, between(-2, math.log10(0.5)), 1 - between(-2, math.log10(0.5)))
    return Instances(u, v, between(0, 2.5).floor(), gap, p, gap * between(-2, 2))


def formula(a: Instances, s: Solution) -> Tensor:
    """SumKL of two Gaussians with covariances that differ along one line and across it, from its definition."""
    X, Y, Z, W = a.u + s.along_neg, a.v + s.along_pos, a.u + s.across_neg, a.v + s.across_pos
    apart = (a.u - a.v) + (s.along_neg - s.along_pos)
    apart_across = (a.u - a.v) + (s.across_neg - s.across_pos)
    along = torch.where(apart == 0, 0.0, apart**2 / (X * Y))
    across = torch.where((apart_across == 0) | (a.d == 1), 0.0, (a.d - 1) * apart_across**2 / (Z * W))
    shift = torch.where(a.gap == 0, 0.0, a.gap / X + a.gap / Y)
    return (along + across + shift) / 2


def spent(a: Instances, s: Solution) -> Tensor:
    return (1 - a.p) * (s.along_neg + (a.d - 1) * s.across_neg) + a.p * (s.along_pos + (a.d - 1) * s.across_pos)


def violations(a: Instances, s: Solution) -> dict[str, Tensor]:
    """How far each condition of an optimum is missed, relative to the largest term in it. All are to be 0.

    With A, A' the total variances of the classes along the line, B, B' across, and mu the price of power, an optimum of
    a convex problem is where every noise that is above 0 has a derivative of 0, and every other one at least 0:

        A/A' - A'/A - D/A  + mu q A   (negatives along; positives with the classes exchanged)
        B/B' - B'/B        + mu q B   (negatives across)

    The differences of ratios are written in the increments, (A - A')(A + A')/(A A') with A - A' = (u - v) + (x - y),
    and x, y, u - v count as terms of their own, so that noise far below the variance is judged as strictly as any.
    The power is a constraint of its own, and so is across <= along, which must never be what stops a noise.
    """
    q, p = 1 - a.p, a.p
    A, B = (a.u + s.along_neg, a.v + s.along_pos), (a.u + s.across_neg, a.v + s.across_pos)
    over = (A[0] + A[1]) / (A[0] * A[1])
    ratio = ((a.u - a.v) + (s.along_neg - s.along_pos)) * over
    shift = (a.gap / A[0], a.gap / A[1])
    both = (s.along_neg > 0) & (s.along_pos > 0)
    price = torch.where(  # from the sum of both equations, or from the one class that gets noise
        both,
        (shift[0] + shift[1]) / (q * A[0] + p * A[1]),
        torch.where(s.along_neg > 0, (shift[0] - ratio) / (q * A[0]), (shift[1] + ratio) / (p * A[1])),
    ).clamp(min=0)

    def missed(derivative: Tensor, noise: Tensor, *terms: Tensor) -> Tensor:
        largest = torch.stack([term.abs() for term in terms]).amax(0)
        wrong = torch.where(noise > 0, derivative.abs(), (-derivative).clamp(min=0))
        return torch.where(largest > 0, wrong / torch.where(largest > 0, largest, 1.0), wrong)

    apart, x, y = (a.u - a.v) * over, s.along_neg * over, s.along_pos * over
    cost = (price * q * A[0], price * p * A[1])
    found = {
        "power": (spent(a, s) - a.power).abs() / a.power,
        "along_neg": missed(ratio - shift[0] + cost[0], s.along_neg, apart, x, y, shift[0], cost[0]),
        "along_pos": missed(-ratio - shift[1] + cost[1], s.along_pos, apart, x, y, shift[1], cost[1]),
        "order_neg": (s.across_neg - s.along_neg).clamp(min=0) / a.power,
        "order_pos": (s.across_pos - s.along_pos).clamp(min=0) / a.power,
    }
    over = (B[0] + B[1]) / (B[0] * B[1])
    ratio = ((a.u - a.v) + (s.across_neg - s.across_pos)) * over
    apart, x, y = (a.u - a.v) * over, s.across_neg * over, s.across_pos * over
    cost = (price * q * B[0], price * p * B[1])
    across_neg = missed(ratio + cost[0], s.across_neg, apart, x, y, cost[0])
    across_pos = missed(-ratio + cost[1], s.across_pos, apart, x, y, cost[1])
    points, line = torch.maximum(a.u, a.v) == 0, a.d == 1  # two points: noise across can only do harm, so 0 is right
    across_neg = torch.where(points, s.across_neg / a.power, across_neg)
    across_pos = torch.where(points, s.across_pos / a.power, across_pos)
    return found | {"across_neg": across_neg.masked_fill(line, 0.0), "across_pos": across_pos.masked_fill(line, 0.0)}


def assert_optimal(a: Instances, s: Solution, tolerance: float = TOLERANCE) -> None:
    for name, value in s._asdict().items():
        assert torch.isfinite(value).all(), f"{name} is not finite"
        assert (value >= 0).all(), f"{name} is negative"
    for name, value in violations(a, s).items():
        worst = int(value.nan_to_num(nan=torch.inf).argmax())
        assert value[worst] <= tolerance, f"{name} is missed by {value[worst]} at {a[worst]}: {s}"


def one(u: float, v: float, d: float, gap: float, p: float, power: float) -> Instances:
    return Instances(*(torch.tensor([value], dtype=torch.float64) for value in (u, v, d, gap, p, power)))


def as_stack(s: Solution) -> Solution:
    return Solution(*(torch.tensor([value], dtype=torch.float64) for value in s))


size = st.one_of(st.just(0.0), st.floats(-30, 6).map(lambda e: 10.0**e), st.sampled_from([1e-30, 1e-8, 1.0, 1e6]))
share = st.one_of(st.sampled_from([1e-6, 0.5, 1 - 1e-6]), st.floats(1e-6, 1 - 1e-6))
width = st.one_of(st.sampled_from([1, 2, 100_000]), st.integers(1, 100_000))
