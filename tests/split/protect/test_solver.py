import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tacit.split.protect.gradient import _solver
from tacit.split.protect.gradient._solver import Solution, solve
from tests.split.protect.instances import (
    EPS,
    TOLERANCE,
    as_stack,
    assert_optimal,
    extreme,
    formula,
    moderate,
    one,
    share,
    size,
    spent,
    width,
)

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


def test_the_way_that_cuda_takes_comes_to_the_optimum_as_well(monkeypatch):
    stages = _solver._begin_search, _solver._by_sections, _solver._finish
    monkeypatch.setattr(_solver, "_stages", lambda device: stages)
    a = extreme(8192, 9050)
    assert_optimal(a, solve(*a.problem, power=a.power))
    b = moderate(2048, 9060)
    nothing = solve(*b.problem, power=0.0).sum_kl
    left = solve(*b.problem, sum_kl=nothing / 7).sum_kl
    torch.testing.assert_close(left, nothing / 7, rtol=1e-10, atol=0.0)


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
