"""Reconstruction error and its ratio to the mean's: values by hand, intervals by simulation and bootstrap."""

import math

import pytest
import torch

from tacit.audit.metrics.reconstruction import reconstruction, relative_error
from tacit.contracts import Reconstruction
from tacit.errors import TensorError


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def guess_of(value, rows=None, counted=None):
    rows = torch.arange(len(value)) if rows is None else rows
    return Reconstruction(rows, value, torch.ones(len(value), dtype=torch.bool) if counted is None else counted)


def test_the_mean_squared_distance_of_a_row_by_hand():
    truth = torch.randn(40, 2, 3, generator=generator(), dtype=torch.float64)
    value = torch.randn(40, 2, 3, generator=generator(6), dtype=torch.float64)
    each = (value - truth).square().sum((1, 2))
    found = reconstruction(guess_of(value), truth)
    assert found.value == pytest.approx(each.mean().item())
    assert (found.high - found.low) / 2 == pytest.approx(1.959963984540054 * each.std().item() / 40**0.5)


def test_rows_are_found_by_their_id_and_only_those_that_count():
    truth = torch.arange(10.0)[:, None]
    rows = torch.tensor([7, 2, 5])
    guess = guess_of(torch.tensor([[8.0], [2.0], [100.0]]), rows, torch.tensor([True, True, False]))
    assert reconstruction(guess, truth).value == pytest.approx(0.5)
    mean = torch.tensor([4.0])
    assert relative_error(guess, truth, mean).value == pytest.approx(1 / (9 + 4))


def test_reading_everything_is_0_and_the_mean_is_1():
    truth = torch.randn(50, 4, generator=generator())
    mean = truth.mean(0)
    perfect = relative_error(guess_of(truth), truth, mean)
    assert (perfect.value, perfect.low, perfect.high) == (0.0, 0.0, 0.0)
    blind = relative_error(guess_of(mean.expand(50, 4)), truth, mean)
    assert blind.value == pytest.approx(1.0)
    assert blind.high - blind.low == pytest.approx(0.0, abs=1e-9)


def simulated(g, n=300):
    """Inputs of heavy tails, of which the attacker reads two columns of three, with noise."""
    truth = torch.randn(n, 3, generator=g) * (1 + torch.rand(n, 1, generator=g) ** 2)
    return truth, torch.cat([0.7 * truth[:, :2], torch.zeros(n, 1)], dim=1) + 0.3 * torch.randn(n, 3, generator=g)


def test_intervals_cover_the_truth_as_often_as_they_say():
    """600 draws at 95%: outside of 92% to 98% by chance alone less than once in 500 times."""
    g = generator(1)
    big, value = simulated(g, 2_000_000)
    error = (value - big).square().sum(1).mean().item()
    ratio = error / big.square().sum(1).mean().item()
    held = torch.zeros(2)
    for _ in range(600):
        truth, value = simulated(g)
        one, two = reconstruction(guess_of(value), truth), relative_error(guess_of(value), truth, torch.zeros(3))
        held += torch.tensor([one.low <= error <= one.high, two.low <= ratio <= two.high])
    assert (held / 600).tolist() == pytest.approx([0.95, 0.95], abs=0.03)


def test_the_interval_is_that_of_a_bootstrap_over_examples():
    truth, value = simulated(generator(2), 400)
    rows = torch.arange(400).repeat_interleave(3)  # three visits of each example
    visits = value[rows] + 0.1 * torch.randn(1200, 3, generator=generator(3))
    found = relative_error(guess_of(visits, rows), truth, torch.zeros(3))
    above = (visits - truth[rows]).square().sum(1).reshape(400, 3).sum(1)
    below = 3 * truth.square().sum(1)
    draw = torch.randint(400, (4000, 400), generator=generator(4))
    spread = (above[draw].sum(1) / below[draw].sum(1)).std().item()
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * spread, rel=0.1)


def test_repeated_visits_are_not_more_examples():
    truth, value = simulated(generator(3), 100)
    once = reconstruction(guess_of(value), truth)
    rows = torch.arange(100).repeat(50)
    often = reconstruction(guess_of(value[rows], rows), truth)
    assert often.value == pytest.approx(once.value)
    assert often.high == pytest.approx(once.high)


def test_a_single_example_has_an_interval_without_end():
    found = reconstruction(guess_of(torch.ones(1, 2)), torch.zeros(1, 2))
    assert (found.value, found.low, found.high) == (2.0, 0.0, math.inf)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_float_is_judged_in_float64(dtype):
    truth = torch.full((20, 4), 1e4, dtype=dtype)
    assert reconstruction(guess_of(-truth), truth).value == pytest.approx(4 * (2 * truth[0, 0].double().item()) ** 2)


def test_refusals():
    truth = torch.randn(5, 2, generator=generator())
    whole = guess_of(truth)
    with pytest.raises(TensorError, match="no rows to judge"):
        reconstruction(guess_of(truth, counted=torch.zeros(5, dtype=torch.bool)), truth)
    with pytest.raises(TensorError, match="do not vary"):
        relative_error(guess_of(torch.ones(5, 2)), torch.ones(5, 2), torch.ones(2))
    with pytest.raises(TensorError, match="row ids run from 0 to 4, but the truth holds 3 rows"):
        reconstruction(whole, truth[:3])
    with pytest.raises(TensorError, match=r"\(2,\), but the truth's are \(3,\)"):
        reconstruction(whole, torch.zeros(5, 3))
    with pytest.raises(TensorError, match=r"the mean is \(3,\)"):
        relative_error(whole, truth, torch.zeros(3))
    with pytest.raises(TensorError, match="do not belong together"):
        reconstruction(guess_of(truth, torch.arange(4)), truth)
    broken = truth.clone()
    broken[2, 1] = torch.nan
    with pytest.raises(TensorError, match="not finite"):
        reconstruction(guess_of(broken), truth)
