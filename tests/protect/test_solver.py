import itertools
import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from tacit.errors import TensorError, UsageError
from tacit.protect.gradient._solver import Solution, solve

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


# --- the optimum, over everything -------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(8))
def test_a_million_extreme_problems_are_solved_to_their_optimum(part):
    for chunk in range(8):  # 8 x 8 x 16384 = 1,048,576
        a = extreme(16384, 100 * part + chunk)
        assert_optimal(a, solve(*a.problem, power=a.power))


def test_floats_are_solved_to_their_optimum_as_tensors_are():
    a = extreme(4000, 9000)
    stacked = solve(*a.problem, power=a.power)
    single = [solve(*row[:5], power=row[5]) for row in a.rows()]
    single = Solution(*torch.tensor(single, dtype=torch.float64).unbind(-1))
    assert_optimal(a, single)
    weights = {
        "along_neg": 1 - a.p,
        "along_pos": a.p,
        "across_neg": (1 - a.p) * (a.d - 1),
        "across_pos": a.p * (a.d - 1),
    }
    for name, weight in weights.items():
        one_way, other_way = getattr(stacked, name), getattr(single, name)
        assert ((one_way - other_way).abs() * weight <= 1e-10 * a.power).all(), name
    differ = (stacked.sum_kl - single.sum_kl).abs()
    assert (differ <= 1e-9 * stacked.sum_kl + 1e-25 * a.d).all()


def exact_violations(row: tuple[float, ...], s: Solution) -> dict[str, mpmath.mpf]:
    """The conditions of an optimum as they stand in the theorem, term by term, with 50 digits."""
    u, v, d, gap, p, power = (mpmath.mpf(value) for value in row)
    noise = {"along": (s.along_neg, s.along_pos), "across": (s.across_neg, s.across_pos)}
    noise = {name: tuple(mpmath.mpf(value) for value in pair) for name, pair in noise.items()}
    share, own = (1 - p, p), (u, v)
    total = {name: tuple(base + x for base, x in zip(own, pair, strict=True)) for name, pair in noise.items()}
    A = total["along"]

    def without_price(name: str, k: int) -> mpmath.mpf:
        mine, other = total[name][k], total[name][1 - k]
        return mine / other - other / mine - (gap / mine if name == "along" else 0)

    active = [k for k in (0, 1) if noise["along"][k] > 0]
    price = max(mpmath.mpf(0), -sum(without_price("along", k) for k in active) / sum(share[k] * A[k] for k in active))
    cost = sum(share[k] * (noise["along"][k] + (d - 1) * noise["across"][k]) for k in (0, 1))
    found = {"power": abs(cost - power) / power}
    for name in ("along", "across"):
        if name == "across" and (d == 1 or u == v == 0):
            continue
        X, Y = total[name]
        parts = [abs(u - v), *noise[name]]
        for k in (0, 1):
            terms = [part * (X + Y) / (X * Y) for part in parts] + [price * share[k] * total[name][k]]
            terms += [gap / total[name][k]] if name == "along" else []
            derivative = without_price(name, k) + price * share[k] * total[name][k]
            wrong = abs(derivative) if noise[name][k] > 0 else max(-derivative, mpmath.mpf(0))
            found[f"{name} {k}"] = wrong / max(terms) if max(terms) > 0 else wrong
    return found


def test_the_optimum_holds_with_fifty_digits():
    a = extreme(400, 9100)
    stacked = solve(*a.problem, power=a.power)
    with mpmath.workdps(50):
        for i, row in enumerate(a.rows()):
            for path, s in (
                ("tensor", Solution(*(x[i].item() for x in stacked))),
                ("float", solve(*row[:5], power=row[5])),
            ):
                for name, value in exact_violations(row, s).items():
                    assert value <= TOLERANCE, f"{path} path, {name} is missed by {value} at {row}: {s}"


size = st.one_of(st.just(0.0), st.floats(-30, 6).map(lambda e: 10.0**e), st.sampled_from([1e-30, 1e-8, 1.0, 1e6]))
share = st.one_of(st.sampled_from([1e-6, 0.5, 1 - 1e-6]), st.floats(1e-6, 1 - 1e-6))
width = st.one_of(st.sampled_from([1, 2, 100_000]), st.integers(1, 100_000))
strength = st.floats(-50, 26).map(lambda e: 10.0**e)


@settings(max_examples=300, deadline=None)
@given(size, size, width, size, share, strength)
def test_any_power_at_the_boundaries(u, v, d, gap, p, power):
    a = one(u, v, d, gap, p, power)
    assert_optimal(a, as_stack(solve(u, v, d, gap, p, power=power)))


@settings(max_examples=300, deadline=None)
@given(size, st.integers(-3, 3), width, size, share, strength)
def test_variances_that_are_equal_but_for_their_last_bits(u, bits, d, gap, p, power):
    v = u * (1 + bits * EPS)
    a = one(u, v, d, gap, p, power)
    assert_optimal(a, as_stack(solve(u, v, d, gap, p, power=power)))


# --- against a general solver -----------------------------------------------------------------------------------------


def general_solver(row: tuple[float, ...], start: np.ndarray) -> tuple[float, np.ndarray]:
    """SLSQP in the logarithms of the total variances (a convex problem), with the paper's seven constraints."""
    u, v, d, gap, p, power = row
    own = np.array([u, v, u, v])  # along negative and positive, across negative and positive
    weight = np.array([1 - p, p, (1 - p) * (d - 1), p * (d - 1)])

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        a, b, z, y = w
        value = np.cosh(a - b) + (d - 1) * np.cosh(z - y) + gap * (np.exp(-a) + np.exp(-b)) / 2 - d
        along, across = np.sinh(a - b), (d - 1) * np.sinh(z - y)
        slope = [along - gap * np.exp(-a) / 2, -along - gap * np.exp(-b) / 2, across, -across]
        return value, np.array(slope)

    budget = {
        "type": "ineq",
        "fun": lambda w: 1 - (weight * (np.exp(w) - own)).sum() / power,
        "jac": lambda w: -weight * np.exp(w) / power,
    }
    order = {
        "type": "ineq",
        "fun": lambda w: w[:2] - w[2:],
        "jac": lambda w: np.array([[1.0, 0, -1, 0], [0, 1, 0, -1]]),
    }
    bounds = [(math.log(x), math.log(x + power / c) if c else math.log(x)) for x, c in zip(own, weight, strict=True)]
    given = np.log(own + start * power / np.maximum(weight, EPS) / 4 * (weight > 0))
    for _ in range(3):  # from where it stopped, in units of the value there
        unit = max(objective(given)[0], EPS)
        given = minimize(
            lambda w, unit=unit: tuple(part / unit for part in objective(w)),
            given,
            jac=True,
            bounds=bounds,
            constraints=[budget, order],
            options={"ftol": 1e-15, "maxiter": 200},
        ).x
    noise = np.exp(given) - own
    feasible = (weight * noise).sum() <= power * (1 + 1e-9) and (noise >= -1e-12).all()
    return (objective(given)[0] if feasible else math.inf), noise


def test_no_general_solver_finds_better_or_elsewhere():
    starts = [np.full(4, 0.5), *np.random.default_rng(5).dirichlet(np.ones(4), size=2)]
    for row in moderate(100, 9200).rows():
        s = solve(*row[:5], power=row[5])
        theirs, noise = min((general_solver(row, start) for start in starts), key=lambda pair: pair[0])
        assert s.sum_kl <= theirs * (1 + 1e-7), f"{row}: {s.sum_kl} against {theirs}"
        assert theirs <= s.sum_kl * (1 + 1e-7), f"{row}: the general solver only came to {theirs}, not {s.sum_kl}"
        ours = np.array([s.along_neg, s.along_pos, s.across_neg, s.across_pos])
        d, p, power = row[2], row[4], row[5]
        weight = np.array([1 - p, p, (1 - p) * (d - 1), p * (d - 1)])
        assert np.abs(weight * (ours - noise)).max() <= 1e-6 * power, f"{row}: {ours} against {noise}"


def test_no_random_allocation_of_the_same_power_leaves_less():
    g = torch.Generator().manual_seed(9300)
    a = moderate(500, 9301)
    s = solve(*a.problem, power=a.power)
    for _ in range(200):
        parts = torch.rand(4, 500, generator=g, dtype=torch.float64).log() ** 2
        along_neg, along_pos, across_neg, across_pos = parts / parts.sum(0) * a.power
        others = (a.d - 1).clamp(min=1)
        along_neg, across_neg = along_neg / (1 - a.p), across_neg / (1 - a.p) / others
        along_pos, across_pos = along_pos / a.p, across_pos / a.p / others
        other = Solution(along_neg, across_neg, along_pos, across_pos, a.power, a.power)
        assert (spent(a, other) <= a.power * (1 + 1e-12)).all()
        assert (s.sum_kl <= formula(a, other) * (1 + 1e-12)).all()


# --- the other spelling -----------------------------------------------------------------------------------------------


def reach(a: Instances, k: Tensor) -> Tensor:
    """How closely noise that is written down in float64 can bring sumKL to k, relative to k.

    One rounding of a variance in each of d directions moves sumKL by about 2 eps sqrt(d/k) of itself.
    """
    return 1e-9 + 8 * EPS * (a.d / k).sqrt()


@pytest.mark.parametrize("part", range(2))
def test_sum_kl_is_reached_or_nothing_is_spent(part):
    g = torch.Generator().manual_seed(part)
    for chunk in range(3):
        a = extreme(16384, 5000 + 100 * part + chunk)
        k = 10 ** (12 * torch.rand(16384, generator=g, dtype=torch.float64) - 8)
        s = solve(*a.problem, sum_kl=k)
        bare = solve(*a.problem, power=0.0)
        enough = bare.sum_kl <= k
        assert 500 < int(enough.sum()) < 15884
        assert all((x[enough] == 0).all() for x in (s.power, s.along_neg, s.along_pos, s.across_neg, s.across_pos))
        assert torch.equal(s.sum_kl[enough], bare.sum_kl[enough])
        a.power = s.power
        left = formula(a, s)
        assert ((left / k - 1).abs() <= reach(a, k))[~enough].all()
        assert ((s.sum_kl / k - 1).abs() <= reach(a, k))[~enough].all()
        assert (s.power > 0)[~enough].all()
        costs = (~enough).nonzero().squeeze(-1)
        assert_optimal(a[costs], Solution(*(x[costs] for x in s)))  # the least power, because the problem is convex


def test_sum_kl_of_floats_is_that_of_tensors():
    a = extreme(1500, 5900)
    k = 10 ** (12 * torch.rand(1500, generator=torch.Generator().manual_seed(59), dtype=torch.float64) - 8)
    stacked = solve(*a.problem, sum_kl=k)
    single = [solve(*row[:5], sum_kl=x) for row, x in zip(a.rows(), k.tolist(), strict=True)]
    single = Solution(*torch.tensor(single, dtype=torch.float64).unbind(-1))
    assert torch.equal(stacked.power == 0, single.power == 0)
    costs = stacked.power > 0
    for name, value in stacked._asdict().items():
        difference = (value - getattr(single, name)).abs()
        assert (difference <= 1e-9 * torch.maximum(value, stacked.power))[costs].all(), name


def test_the_two_spellings_are_inverse():
    a = moderate(2000, 6000)
    s = solve(*a.problem, power=a.power)
    back = solve(*a.problem, sum_kl=s.sum_kl)
    assert torch.allclose(back.power, a.power, rtol=1e-8, atol=0)
    for name in ("along_neg", "along_pos", "across_neg", "across_pos"):
        torch.testing.assert_close(getattr(back, name), getattr(s, name), rtol=1e-7, atol=1e-12)


@settings(max_examples=300, deadline=None)
@given(size, size, width, size, share, st.floats(-8, 4).map(lambda e: 10.0**e))
def test_any_sum_kl_at_the_boundaries(u, v, d, gap, p, k):
    s = solve(u, v, d, gap, p, sum_kl=k)
    a = one(u, v, d, gap, p, max(s.power, 1e-300))
    if s.power == 0:
        assert s.sum_kl <= k
        assert s[:4] == (0, 0, 0, 0)
    else:
        assert_optimal(a, as_stack(s))
        assert abs(formula(a, as_stack(s)).item() / k - 1) <= reach(a, torch.tensor(k)).item()
        assert solve(u, v, d, gap, p, power=0.0).sum_kl > k


# --- what must be so for any problem ----------------------------------------------------------------------------------


def test_the_reported_sum_kl_and_power_are_those_of_the_noise():
    a = extreme(16384, 6100)
    s = solve(*a.problem, power=a.power)
    torch.testing.assert_close(s.power, spent(a, s), rtol=1e-12, atol=0)
    certain = s.sum_kl > 1e-6 * a.d  # below, roundings of the noise that is written down weigh more than its error
    assert certain.sum() > 5000
    torch.testing.assert_close(s.sum_kl[certain], formula(a, s)[certain], rtol=1e-9, atol=0)


def test_more_power_leaves_less():
    a = extreme(16384, 6200)
    ladder = [solve(*a.problem, power=a.power * factor).sum_kl for factor in (0.0, 0.1, 1.0, 1.01, 2.0, 100.0)]
    for less, more in itertools.pairwise(ladder):
        assert (more <= less * (1 + 1e-9) + 1e-25 * a.d).all()
    m = moderate(4096, 6201)
    ladder = [solve(*m.problem, power=m.power * factor).sum_kl for factor in (0.0, 0.1, 1.0, 1.01, 2.0, 100.0)]
    for less, more in itertools.pairwise(ladder):
        assert (more < less).all()


def test_exchanging_the_classes_exchanges_the_noise():
    a = extreme(16384, 6300)
    p = (a.p * 2**20).round().clamp(1, 2**20 - 1) / 2**20  # so that 1 - p is exact
    s, t = solve(a.u, a.v, a.d, a.gap, p, power=a.power), solve(a.v, a.u, a.d, a.gap, 1 - p, power=a.power)
    differ = a.u != a.v
    assert (~differ).any()
    for name, other in zip(
        s._fields, ("along_pos", "across_pos", "along_neg", "across_neg", "sum_kl", "power"), strict=True
    ):
        assert torch.equal(getattr(s, name)[differ], getattr(t, other)[differ])
        torch.testing.assert_close(getattr(s, name)[~differ], getattr(t, other)[~differ], rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("factor", [2.0**40, 2.0**-40, 7.3, 1e-9])
def test_units_do_not_matter(factor):
    a = moderate(2000, 6400)
    s = solve(*a.problem, power=a.power)
    t = solve(a.u * factor, a.v * factor, a.d, a.gap * factor, a.p, power=a.power * factor)
    for name in s._fields:
        wanted = getattr(s, name) * (1 if name == "sum_kl" else factor)
        torch.testing.assert_close(getattr(t, name), wanted, rtol=1e-9, atol=1e-12 * factor)


def test_the_louder_class_never_gets_noise_across_the_line():
    a = extreme(16384, 6500)
    s = solve(*a.problem, power=a.power)
    assert (s.across_neg[a.u >= a.v] == 0).all()
    assert (s.across_pos[a.v >= a.u] == 0).all()
    assert (s.across_neg > 0).sum() > 1000
    assert (s.across_pos > 0).sum() > 1000


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_two_points_share_the_power_along_the_line():
    s = solve(0.0, 0.0, 7, 2.0, 0.5, power=3.0)  # X = Y = P: sumKL is D/P
    assert s == pytest.approx((3.0, 0.0, 3.0, 0.0, 2 / 3, 3.0), rel=1e-12)
    s = solve(0.0, 0.0, 1000, 4.0, 0.2, sum_kl=1e-6)  # much noise: X = Y = D/K
    assert s[:4] == pytest.approx((4e6, 0.0, 4e6, 0.0), rel=1e-5)


def test_equal_balanced_classes_get_equal_noise_along_the_line():
    s = solve(1.5, 1.5, 128, 4.0, 0.5, power=6.0)
    assert s == pytest.approx((6.0, 0.0, 6.0, 0.0, 4 / 7.5, 6.0), rel=1e-12)


def test_without_a_gap_noise_only_evens_out_the_variances():
    u, v, d, p = 1.0, 3.0, 10, 0.25
    half = solve(u, v, d, 0.0, p, power=0.75 * d)  # the quiet class gets 1 in every direction: Z = 2
    assert half == pytest.approx((1.0, 1.0, 0.0, 0.0, d * (2 - 3) ** 2 / (2 * 3) / 2, 7.5), rel=1e-12)
    enough = solve(u, v, d, 0.0, p, power=100.0)
    assert enough.sum_kl <= 1e-20
    assert enough.across_neg == pytest.approx(2.0, rel=1e-12)
    assert enough.power == pytest.approx(100.0, rel=1e-12)
    nothing = solve(2.0, 2.0, d, 0.0, p, sum_kl=0.1)
    assert nothing == (0, 0, 0, 0, 0, 0)


def test_one_coordinate_has_no_direction_across():
    a = moderate(1000, 6600)
    s = solve(a.u, a.v, 1, a.gap, a.p, power=a.power)
    torch.testing.assert_close((1 - a.p) * s.along_neg + a.p * s.along_pos, a.power, rtol=1e-12, atol=0)
    torch.testing.assert_close(s.power, a.power, rtol=1e-12, atol=0)


def test_no_power_is_no_noise_and_the_bare_divergence():
    s = solve(1.0, 2.0, 128, 4.0, 0.25, power=0.0)
    bare = (127 * (1 - 2) ** 2 / 2 + (1 - 2) ** 2 / 2 + 4 / 1 + 4 / 2) / 2
    assert s == pytest.approx((0, 0, 0, 0, bare, 0), rel=1e-12)
    stack = solve(torch.tensor([1.0, 0.0]), 2.0, 128, 4.0, 0.25, power=torch.tensor([0.0, 0.0]))
    assert all((x == 0).all() for x in stack[:4])
    assert torch.isfinite(stack.sum_kl).all()


def test_nothing_at_all_still_spends_what_it_is_told_to():
    s = solve(0.0, 0.0, 16, 0.0, 0.3, power=2.0)
    assert s == pytest.approx((2.0, 0.0, 2.0, 0.0, 0.0, 2.0), rel=1e-12)
    assert solve(0.0, 0.0, 16, 0.0, 0.3, sum_kl=0.1) == (0, 0, 0, 0, 0, 0)


# --- the call ---------------------------------------------------------------------------------------------------------


def test_tensors_of_any_dtype_broadcast_and_answer_in_float64():
    s = solve(torch.ones(3, 1), 2, 128, torch.tensor([1.0, 4.0]).half(), 0.25, power=16)
    assert all(x.shape == (3, 2) and x.dtype == torch.float64 for x in s)
    alone = solve(1, 2, 128, 4, 0.25, power=16)
    assert all(isinstance(x, float) for x in alone)
    assert [x[2, 1].item() for x in s] == pytest.approx(list(alone), rel=1e-9)


def test_a_tensor_as_strength_alone_makes_a_stack():
    s = solve(1.0, 2.0, 128, 4.0, 0.25, sum_kl=torch.tensor([0.1, 1.0]))
    torch.testing.assert_close(s.sum_kl, torch.tensor([0.1, 1.0]).double(), rtol=1e-9, atol=0)


GOOD = {"u": 1.0, "v": 2.0, "d": 8, "gap": 4.0, "p": 0.25}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
@pytest.mark.parametrize("name", ["u", "v", "d", "gap", "p", "power", "sum_kl"])
def test_bad_numbers_are_refused_by_name(name, bad):
    call = GOOD | ({"power": 1.0} if name != "sum_kl" else {}) | {name: bad}
    with pytest.raises(UsageError, match=rf"\b{name} = "):
        solve(**call)
    with pytest.raises(TensorError, match=rf"some {name} is"):
        solve(**(call | {name: torch.tensor([1.0 if name != "p" else 0.5, bad])}))


@pytest.mark.parametrize(("name", "bad"), [("p", 0.0), ("p", 1.0), ("d", 0), ("d", 0.5), ("sum_kl", 0.0)])
def test_the_limits_themselves_are_refused(name, bad):
    call = GOOD | ({"power": 1.0} if name != "sum_kl" else {}) | {name: bad}
    with pytest.raises(UsageError, match=rf"\b{name} = "):
        solve(**call)
    with pytest.raises(TensorError, match=rf"some {name} is"):
        solve(**(call | {name: torch.tensor([float(bad)])}))


@pytest.mark.parametrize("knobs", [{}, {"power": 1.0, "sum_kl": 1.0}])
def test_one_knob_and_not_two(knobs):
    with pytest.raises(UsageError, match="one of power= and sum_kl="):
        solve(**GOOD, **knobs)
