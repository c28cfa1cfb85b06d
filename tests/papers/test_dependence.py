import pytest
import torch
from scipy import stats

from papers.embedding.dependence import distance_correlation
from tacit.audit.dependence import distance_correlation as of_one_batch
from tacit.contracts import noise_source
from tacit.errors import TensorError, UsageError


def drawn(seed, rows, tie=1.0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 4, generator=g)
    return x, torch.tanh(x[:, :2]) * tie + torch.randn(rows, 2, generator=g)


@pytest.mark.parametrize("unbiased", [False, True])
def test_it_is_the_mean_over_disjoint_batches_of_all_rows_that_fill_one(seeded, unbiased):
    x, z = drawn(1, 107)
    found = distance_correlation(x, z, batch_size=20, noise=seeded(2), unbiased=unbiased)
    order = noise_source(seeded(2)).uniform((107,), dtype=torch.float64, device=x.device).argsort()[:100]
    assert len(order.unique()) == 100
    each = torch.stack([of_one_batch(x[rows], z[rows], unbiased=unbiased) for rows in order.split(20)]).double()
    if unbiased:
        each = each.sign() * each**2
    mean, half = each.mean().item(), stats.t.ppf(0.975, 4) * each.std().item() / 5**0.5
    ends = [mean, mean - half, mean + half]
    if unbiased:
        ends = [abs(end) ** 0.5 * (1 if end > 0 else -1) for end in ends]
    assert [found.value, found.low, found.high] == pytest.approx(ends, abs=1e-5)


def test_the_interval_covers_the_mean_of_such_batches_nineteen_times_in_twenty():
    """160 estimates from ten batches each: outside 0.88..1.0 by chance once in 10,000."""
    found = [
        distance_correlation(*drawn(seed, 240), batch_size=24, noise=torch.Generator().manual_seed(seed))
        for seed in range(160)
    ]
    truth = sum(estimate.value for estimate in found) / len(found)  # known to a twelfth of an interval's half
    assert 0.88 <= sum(estimate.low <= truth <= estimate.high for estimate in found) / len(found) <= 1.0


def test_two_batches_know_little_about_their_spread(seeded):
    x, z = drawn(3, 2048)
    few, many = (distance_correlation(x[:n], z[:n], batch_size=64, noise=seeded(4)) for n in (128, 2048))
    assert 0 <= few.low < few.value < few.high <= 1
    assert many.high - many.low < 0.1


def test_the_plain_one_falls_with_the_batch_size_and_the_other_does_not(seeded):
    g = seeded(5)
    x, z = torch.randn(1024, 30, generator=g), torch.randn(1024, 30, generator=g)  # independent
    plain, corrected = (
        {n: distance_correlation(x, z, batch_size=n, noise=seeded(6), unbiased=unbiased) for n in (16, 64, 256)}
        for unbiased in (False, True)
    )
    assert plain[16].value > 0.7
    assert plain[16].low > plain[64].high > plain[64].low > plain[256].high
    assert all(abs(estimate.value) < 0.3 for estimate in corrected.values())
    assert all(-1 <= estimate.low < 0 < estimate.high < 0.4 for estimate in corrected.values())


def test_a_copy_gives_1_and_any_shape_will_do(seeded):
    x, _ = drawn(7, 64)
    for unbiased in (False, True):
        found = distance_correlation(x, 3 - x.reshape(64, 2, 2), batch_size=16, noise=seeded(1), unbiased=unbiased)
        assert (found.value, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0), abs=1e-3)


def test_the_same_noise_gives_the_same_estimate_and_other_noise_another(seeded):
    x, z = drawn(8, 80)
    one, same, other = (distance_correlation(x, z, batch_size=16, noise=seeded(seed)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_refusals(seeded):
    x, z = drawn(9, 40)
    noise = seeded(0)
    with pytest.raises(TensorError, match=r"40 rows make fewer than two batches of 21: .* batch_size of 20 or less"):
        distance_correlation(x, z, batch_size=21, noise=noise)
    with pytest.raises(TensorError, match="fewer than two batches of 512"):
        distance_correlation(x, z, noise=noise)
    with pytest.raises(TensorError, match=r"x is \(40, 4\) and z is \(39, 2\)"):
        distance_correlation(x, z[1:], batch_size=4, noise=noise)
    for size in (1, 0, True, 4.0):
        with pytest.raises(UsageError, match="batch_size = "):
            distance_correlation(x, z, batch_size=size, noise=noise)
    with pytest.raises(UsageError, match="4 or more"):
        distance_correlation(x, z, batch_size=3, noise=noise, unbiased=True)
    z[17, 1] = float("nan")
    with pytest.raises(TensorError, match="row 17 of z is not finite"):
        distance_correlation(x, z, batch_size=4, noise=noise)
