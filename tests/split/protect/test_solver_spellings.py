"""The solver's other spelling, what must be so for any problem, cases by hand, and what it refuses."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacit.errors import TensorError, UsageError
from tacit.split.protect.gradient._solver import Solution, solve
from tests.split.protect.instances import (
    EPS,
    Instances,
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
