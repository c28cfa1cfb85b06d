import math

import pytest
import torch
from scipy.stats import chi2, norm

from tacit.errors import UsageError
from tacit.split.protect.gradient.iso import iso

ALARM = 1e-6  # chance that one statistical check fails though all is right; about 40 are made in this file


@pytest.mark.parametrize("t", [0.01, 1.0, 25.0])
def test_the_noise_is_white_and_of_the_stated_power(seeded, t):
    grad = torch.randn(50, 6, generator=seeded(1), dtype=torch.float64) * torch.logspace(-3, 3, 50)[:, None]
    labels = torch.arange(50) % 2
    repeats = 400
    protected = iso(t)(grad.expand(repeats, -1, -1), labels.expand(repeats, -1), seeded(2))
    largest = (grad**2).sum(1).max().item()
    noise = (protected.value - grad) / math.sqrt(t / 6 * largest)  # to be standard normal, all of it
    rows = noise.reshape(-1, 6)
    low, high = chi2.interval(1 - ALARM, rows.numel())
    assert low < (rows**2).sum().item() < high
    for first in range(6):
        low, high = chi2.interval(1 - ALARM, len(rows))
        assert low < (rows[:, first] ** 2).sum().item() < high
        for second in range(first):
            assert abs((rows[:, first] * rows[:, second]).sum().item()) < norm.isf(ALARM / 2) * math.sqrt(len(rows))
    assert (rows.sum(0).abs() < norm.isf(ALARM / 2) * math.sqrt(len(rows))).all()  # unbiased
    every = (noise**2).sum((0, 2))  # as much for the shortest row as for the longest
    low, high = chi2.interval(1 - ALARM, repeats * 6)
    assert (every > low).all()
    assert (every < high).all()
    assert protected.report["power"].tolist() == pytest.approx([t * largest] * repeats)
    assert (protected.report["untouched_rows"] == 0).all()


def test_the_noise_does_not_depend_on_labels(seeded):
    grad = torch.randn(20, 3, generator=seeded(3))
    first = iso(1.0)(grad, torch.zeros(20), seeded(4)).value
    assert torch.equal(first, iso(1.0)(grad, torch.arange(20) % 2, seeded(4)).value)


def test_zeros_get_noise_too(seeded):
    value = iso(1.0)(torch.zeros(8, 3), torch.zeros(8), seeded(5)).value
    assert (value != 0).all()
    assert value.abs().max() < 1e-10


def test_a_cut_of_any_shape_counts_all_its_coordinates(seeded):
    grad = torch.randn(4, 2, 3, 5, generator=seeded(6))
    flat = iso(2.0)(grad.reshape(4, 30), torch.zeros(4), seeded(7))
    shaped = iso(2.0)(grad, torch.zeros(4), seeded(7))
    assert torch.equal(shaped.value, flat.value.reshape(grad.shape))
    assert shaped.event.mechanism == "iso"
    assert shaped.event.parameters == {"t": 2.0}


@pytest.mark.parametrize("t", [0, -1.0, math.nan, math.inf, True, None, "1"])
def test_a_strength_is_a_positive_number(t):
    with pytest.raises(UsageError, match="t = "):
        iso(t)
