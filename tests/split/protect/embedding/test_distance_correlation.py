import pytest
import torch

from tacit.audit import dependence
from tacit.contracts import noise_source
from tacit.split.protect.embedding.distance_correlation import distance_correlation


def rows(size=12, cut=(3,)):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(size, 5, generator=g, dtype=torch.float64)
    return x, torch.randn(size, *cut, generator=g, dtype=torch.float64).requires_grad_()


def source(seed=0):
    return noise_source(torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("cut", [(3,), (2, 2, 2)])
@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("unbiased", [True, False])
def test_the_loss_is_the_weighted_correlation(log, unbiased, cut):
    x, z = rows(cut=cut)
    made = distance_correlation(0.3, log, unbiased).regularizer(x, z, [])
    measure = dependence.log_distance_correlation if log else dependence.distance_correlation
    wanted = 0.3 * measure(x, z, unbiased=unbiased, noise=source())
    (gradient,) = torch.autograd.grad(wanted, z)
    loss = made(x, z, source())
    loss.backward()
    assert torch.equal(loss.detach(), wanted.detach())
    assert torch.equal(z.grad, gradient)
    assert made.optimizer is None
    assert not made.state_dict()


def test_it_lowers_the_correlation_it_measures():
    x, _ = rows(64)
    z = (x + 0.1 * x.flip(0)).requires_grad_()  # at x itself it is the largest, and flat
    made = distance_correlation(1.0).regularizer(x, z, [])
    optimizer = torch.optim.Adam([z], 0.05)
    for _ in range(100):
        optimizer.zero_grad()
        made(x, z, source()).backward()
        optimizer.step()
    assert dependence.distance_correlation(x, z) < 0.4


@pytest.mark.parametrize(("unbiased", "size"), [(False, 1), (True, 1), (True, 3)])
def test_too_few_rows_add_nothing(unbiased, size):
    x, z = rows(size)
    loss = distance_correlation(1.0, unbiased=unbiased).regularizer(x, z, [])(x, z, source())
    loss.backward()
    assert loss == 0
    assert (z.grad == 0).all()


@pytest.mark.parametrize(("unbiased", "size"), [(False, 2), (True, 4)])
def test_as_soon_as_there_are_enough_rows_they_count(unbiased, size):
    x, z = rows(size)
    assert distance_correlation(1.0, log=False, unbiased=unbiased).regularizer(x, z, [])(x, z, source()) != 0
