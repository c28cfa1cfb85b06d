"""Statistical checks run with fixed seeds; the false-alarm rate in a comment is that of a fresh seed."""

import pytest
import torch
from scipy import stats
from torch import nn

from tacit.contracts import noise_source
from tacit.split.protect.embedding.adversarial import adversarial
from tacit.split.protect.embedding.gaussian import gaussian
from tacit.split.protect.embedding.noise_regularization import noise_regularization


def rows(seed=0, size=6, width=3, inputs=5):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(size, inputs, generator=g, dtype=torch.float64)
    return x, torch.randn(size, width, generator=g, dtype=torch.float64).requires_grad_()


def network(width=3, inputs=5):
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(width, 4), nn.Tanh(), nn.Linear(4, inputs)).double()


def source(seed=0):
    return noise_source(torch.Generator().manual_seed(seed))


def grads(module):
    return [p.grad for p in module.parameters()]


def test_the_noises_loss_reaches_z_alone_and_the_reconstructor_learns_its_own(replay):
    x, z = rows()
    noise = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    made = noise_regularization(0.3, width=2.0, reconstructor=network()).regularizer(x, z, [])
    about_noise = 0.3 * (made.own(z) - 2.0 * noise).square().sum() / 6
    about_x = (made.own(z.detach()) - x).square().sum() / 6
    (into_z,) = torch.autograd.grad(about_noise, z, retain_graph=True)
    into_weights = torch.autograd.grad(about_x, list(made.parameters()))
    loss = made(x, z, replay(noise))
    loss.backward()
    torch.testing.assert_close(loss, about_noise + about_x)
    torch.testing.assert_close(z.grad, into_z)
    for one, wanted in zip(grads(made), into_weights, strict=True):
        torch.testing.assert_close(one, wanted)


@pytest.mark.parametrize("first", ["adversarial", "noise_regularization"])
@pytest.mark.parametrize("given", [False, True])
def test_both_share_one_reconstructor_whichever_comes_first(first, given):
    x, z = rows()
    mine = network() if given else None
    torch.manual_seed(0)
    pair = [adversarial, noise_regularization] if first == "adversarial" else [noise_regularization, adversarial]
    owner = pair[0](1.0, reconstructor=mine).regularizer(x, z, [])
    borrower = pair[1](1.0).regularizer(x, z, [owner])
    assert borrower.reconstructor is owner.reconstructor
    assert owner.optimizer is not None
    assert borrower.optimizer is None
    assert not borrower.state_dict()
    assert not list(borrower.parameters())
    borrower(x, z, source()).backward()
    assert z.grad.abs().sum() > 0
    assert all(gradient is None for gradient in grads(owner))
    third = noise_regularization(1.0).regularizer(x, z, [borrower])
    assert third.reconstructor is owner.reconstructor


def test_a_borrowed_adversary_reverses_as_its_own_would():
    x, z = rows()
    owner = noise_regularization(1.0, reconstructor=network()).regularizer(x, z, [])
    for made in (adversarial(0.7).regularizer(x, z, [owner]), adversarial(0.7, network()).regularizer(x, z, [owner])):
        z.grad = None
        loss = made(x, z, source())
        loss.backward()
        if made.own is None:
            borrowed = loss.detach(), z.grad
    assert made.own is not None
    torch.testing.assert_close((loss.detach(), z.grad), borrowed)


def test_one_of_its_own_is_not_shared():
    x, z = rows()
    adversary = adversarial(1.0).regularizer(x, z, [])
    made = noise_regularization(1.0, reconstructor=network()).regularizer(x, z, [adversary])
    assert made.reconstructor is not adversary.reconstructor
    assert made.optimizer is not None


def test_other_regularizers_before_it_do_not_matter():
    x, z = rows()
    assert gaussian(std=1.0).regularizer(x, z, []) is None
    nothing = nn.Identity()
    made = noise_regularization(1.0).regularizer(x, z, [nothing])
    assert made.own is not None


def test_buffers_of_a_reconstructor_move_once_a_step_and_not_where_it_is_borrowed():
    x, z = rows()
    own = noise_regularization(1.0, reconstructor=nn.Sequential(network(), nn.BatchNorm1d(5).double())).regularizer(
        x, z, []
    )
    own(x, z, source())
    assert own.own[1].num_batches_tracked == 1
    noise_regularization(1.0).regularizer(x, z, [own])(x, z, source())
    assert own.own[1].num_batches_tracked == 1


class Silent(nn.Module):
    """Reconstructs zeros, so that the loss is the noise's own square."""

    def __init__(self, inputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, dtype=torch.float64))

    def forward(self, z):
        return self.weight.expand(len(z), -1)


@pytest.mark.parametrize("width", [0.5, 2.0])
@pytest.mark.parametrize("kind", ["gaussian", "uniform"])
def test_the_noise_has_the_moments_that_were_asked_for(kind, width):
    """Mean and mean square of 40,000 draws within 4.9 standard errors: false alarms 1e-6 each; and the range."""
    x, z = rows(size=400, inputs=100)
    x = x * 0
    made = noise_regularization(1.0, kind, width, reconstructor=Silent(100)).regularizer(x, z, [])
    drawn = made._draw(x, source(3)) / width
    second, fourth = (1.0, 3.0) if kind == "gaussian" else (1 / 3, 1 / 5)
    count = drawn.numel()
    assert abs(float(drawn.mean())) < 4.9 * (second / count) ** 0.5
    assert abs(float(drawn.square().mean()) - second) < 4.9 * ((fourth - second**2) / count) ** 0.5
    shape = stats.norm if kind == "gaussian" else stats.uniform(-1, 2)
    assert stats.kstest(drawn.flatten().numpy(), shape.cdf).pvalue > 1e-6
    assert (drawn.abs().max() <= 1) == (kind == "uniform")
    loss = made(x, z, source(3))
    torch.testing.assert_close(loss.detach(), (width * drawn).square().sum(1).mean())
