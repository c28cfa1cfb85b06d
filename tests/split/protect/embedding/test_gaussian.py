"""Noise on embeddings. Statistical checks run with fixed seeds; the false-alarm rate is that of a fresh seed."""

import math

import pytest
import torch
from scipy import stats

from tacit.contracts import noise_source
from tacit.errors import TensorError
from tacit.split.protect.embedding.gaussian import gaussian
from tacit.split.protect.keyed_noise import KeyedNoise

RATE = 1e-5  # of false alarms, for each statistical test below


def added(protection, z, seed=0):
    return protection.transform(z, noise_source(torch.Generator().manual_seed(seed))) - z


@pytest.mark.parametrize("std", [0.02, 3.0])
@pytest.mark.parametrize("keyed", [False, True])
def test_the_noise_has_the_stated_deviation_mean_zero_and_is_normal(std, keyed):
    """Chi-square for the deviation, z for the mean, Kolmogorov-Smirnov for the shape, each at RATE."""
    z = torch.randn(400, 25, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    source = KeyedNoise(bytes(32), "test").at(3) if keyed else noise_source(torch.Generator().manual_seed(4))
    noise = ((gaussian(std=std).transform(z, source) - z) / std).flatten().numpy()
    low, high = stats.chi2.ppf([RATE / 2, 1 - RATE / 2], noise.size)
    assert low < (noise**2).sum() < high
    assert abs(noise.mean()) < stats.norm.isf(RATE / 2) / math.sqrt(noise.size)
    assert stats.kstest(noise, "norm").pvalue > RATE


def test_the_noise_is_independent_between_coordinates_rows_steps_and_of_the_embedding():
    """The sum of squared correlations of d columns, times n, is about chi-square with d(d-1)/2 degrees; RATE."""
    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    source = noise_source(torch.Generator().manual_seed(5))
    drawn = torch.stack([(gaussian(std=0.5).transform(z, source) - z).flatten() for _ in range(4000)])
    correlation = torch.corrcoef(drawn.T)
    between = correlation.triu(1).square().sum() * len(drawn)
    assert between < stats.chi2.isf(RATE, 18 * 17 // 2)
    in_time = (drawn[1:] * drawn[:-1]).mean(0) / 0.25 * math.sqrt(len(drawn) - 1)  # about standard normal, 18 of them
    assert in_time.square().sum() < stats.chi2.isf(RATE, 18)
    wide = torch.randn(3000, 4, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    noise = added(gaussian(std=0.5), wide, 6)
    with_z = torch.corrcoef(torch.cat([wide, noise], 1).T)[:4, 4:].square().sum() * len(wide)
    assert with_z < stats.chi2.isf(RATE, 16)


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e6, 1e30])
def test_no_row_is_longer_than_the_clip_and_short_ones_stay(size, replay):
    z = torch.randn(40, 3, 2, generator=torch.Generator().manual_seed(2)) * size
    z[0] = 0
    kept = gaussian(std=1.0, clip=0.5).transform(z, replay(torch.zeros(40, 3, 2))).flatten(1)
    before = z.flatten(1).double()
    length = before.norm(dim=1)
    assert (kept.double().norm(dim=1) <= 0.5 * (1 + 1e-6)).all()
    wanted = before * (0.5 / length.clamp(min=0.5))[:, None]
    torch.testing.assert_close(kept.double(), wanted, rtol=1e-5, atol=1e-35)
    short = length < 0.5
    assert torch.equal(kept[short], z.flatten(1)[short])


def test_the_gradient_of_a_clipped_row_is_that_of_the_clip(replay):
    z = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    z = (z * torch.tensor([0.1, 1.0, 3.0, 10.0, 1e5], dtype=torch.float64)[:, None, None]).requires_grad_()
    zeros = torch.zeros(5, 2, 3)
    assert torch.autograd.gradcheck(lambda v: gaussian(std=1.0, clip=1.0).transform(v, replay(zeros)), z)


@pytest.mark.parametrize("snr", [0.1, 10.0])
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e10])
def test_without_a_clip_the_power_is_the_batchs_mean_square(snr, size):
    """Chi-square for the noise's power, at RATE."""
    z = 3 + torch.randn(200, 4, 5, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    noise = added(gaussian(snr=snr), z * size) / size
    spent = noise.square().sum() / (z.square().mean() / snr)
    low, high = stats.chi2.ppf([RATE / 2, 1 - RATE / 2], noise.numel())
    assert low < spent < high


def test_with_a_clip_the_power_is_the_largest_there_can_be_and_no_data_enters():
    """Chi-square as above; and the same noise whatever the embedding is."""
    z = torch.randn(200, 4, 5, generator=torch.Generator().manual_seed(7), dtype=torch.float64) * 1e-3
    noise = added(gaussian(snr=4.0, clip=6.0), z)
    spent = noise.square().sum() / (6.0**2 / 20 / 4.0)
    low, high = stats.chi2.ppf([RATE / 2, 1 - RATE / 2], noise.numel())
    assert low < spent < high
    torch.testing.assert_close(added(gaussian(snr=4.0, clip=6.0), 2 * z), noise)


def test_no_gradient_passes_through_the_noises_size():
    z = torch.randn(8, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()
    gaussian(snr=2.0).transform(z, noise_source(torch.Generator().manual_seed(0))).sum().backward()
    assert torch.equal(z.grad, torch.ones(8, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_bottom_that_outgrew_its_noise_is_refused_and_a_clip_helps(dtype):
    """Never fails open: noise that rounding takes away is an error, not a bare embedding."""
    z = torch.full((3, 4), 1.5, dtype=dtype) / torch.finfo(dtype).eps
    with pytest.raises(TensorError, match=r"noise of standard deviation 1 is lost in rounding .* set clip"):
        added(gaussian(std=1.0), z)
    with pytest.raises(TensorError, match="lost in rounding"):
        added(gaussian(snr=9e11), z.bfloat16())
    sent = gaussian(std=1.0, clip=10.0).transform(z, noise_source(torch.Generator().manual_seed(0)))
    assert (sent != 5.0).any(1).all()


def test_noise_at_the_edge_of_the_resolution_still_reaches_every_row():
    z = torch.full((2000, 8), 1.99)
    std = 2.1 * torch.finfo(torch.float32).eps * 1.99
    assert (added(gaussian(std=std), z) != 0).any(1).all()
    with pytest.raises(TensorError, match="lost in rounding"):
        added(gaussian(std=std / 2), z)


def test_noise_that_no_number_can_hold_is_refused():
    with pytest.raises(TensorError, match=r"does not fit beside an embedding with entries up to 3e\+38"):
        added(gaussian(snr=0.01), torch.full((2, 2), 3e38))
