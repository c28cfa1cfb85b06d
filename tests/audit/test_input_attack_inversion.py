"""Inversion without pairs: what it reads where a bottom is nearly linear, and where there is nothing to read."""

import copy

import pytest
import torch
from torch import nn

from tacit.audit import fitting
from tacit.audit.input_attacks.inversion import _energy_distance, inversion
from tacit.audit.inputs import attack_inputs, grant_inputs
from tacit.contracts import KnownInputs, View, noise_source
from tacit.errors import TensorError, UsageError

INPUTS, WIDTH = 4, 8


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def skewed(rows=1600, seed=0):
    """A table of skewed columns, each half as large as the one before: nothing in it is round, so a distribution tells
    directions. Bottoms mix them; tables mixed by a draw before would be easy to read at one seed and hard at the next.
    """
    return torch.randn(rows, INPUTS, generator=generator(seed)).abs() ** 1.5 * torch.tensor([4.0, 2.0, 1.0, 0.5])


def bottom(seed=1):
    return fitting.drawn(nn.Linear(INPUTS, WIDTH), noise_source(generator(seed)), torch.device("cpu"))


def relative(z, x, attack, seed=2):
    view = View.of_embeddings(z[None])
    (one,) = attack_inputs(view, x, [attack], noise=generator(seed), samples=len(x) // 2)
    return one.relative


def test_without_a_pair_it_reads_a_nearly_linear_bottom_better_than_the_mean():
    x = skewed()
    z = bottom()(x).detach()
    attack = inversion(nn.Linear(INPUTS, WIDTH), surrogates=4, updates=250)
    assert relative(z, x, attack).high < 0.85


def test_embeddings_of_nothing_are_not_read():
    """Each answer is what several wrong surrogates agree on, so it may not be much above 1 either."""
    x = skewed()
    z = torch.randn(len(x), WIDTH, generator=generator(9)).abs()
    found = relative(z, x, inversion(nn.Linear(INPUTS, WIDTH), surrogates=3, updates=60))
    assert found.high > 1
    assert found.value < 1.6


def test_no_pair_and_none_of_the_victims_weights_are_used():
    x = skewed(300)
    victim = bottom()
    view = View.of_embeddings(victim(x).detach()[None])
    known = grant_inputs(x, samples=100, noise=generator())
    other = copy.deepcopy(victim)
    with torch.no_grad():
        other.weight.fill_(7.0)
    options = {"surrogates": 1, "updates": 5}
    made = [
        inversion(module, **options)(view, given, generator())
        for module in (victim, other, lambda: nn.Linear(INPUTS, WIDTH))
        for given in (known, KnownInputs(samples=known.samples))
    ]
    assert all(torch.equal(one.value, made[0].value) for one in made)
    assert made[1].counted.all()  # nothing was granted, so everything may be judged
    assert torch.equal(made[0].counted, known.inputs.isnan().any(1))
    assert not torch.isnan(victim.weight).any()


def test_pictures_through_a_convolution():
    x = torch.rand(60, 1, 6, 6, generator=generator())
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    known = KnownInputs(samples=x[:30])
    guess = inversion(net, surrogates=1, updates=3)(View.of_embeddings(net(x).detach()[None]), known, generator())
    assert guess.value.shape == x.shape
    assert torch.isfinite(guess.value).all()


def test_the_energy_distance_is_0_for_one_distribution_and_grows_with_the_shift():
    g = generator()
    a, b = torch.randn(800, 3, generator=g), torch.randn(800, 3, generator=g)
    near, far = _energy_distance(a, b).item(), _energy_distance(a, b + 2).item()
    assert abs(near) < 0.02
    assert far > 1
    by_hand = 2 * torch.cdist(a.double(), b.double()).mean()
    by_hand -= sum(torch.pdist(one.double()).mean() for one in (a, b))
    assert near == pytest.approx(by_hand.item(), abs=1e-3)


def test_refusals():
    x = skewed(100)
    view = View.of_embeddings(bottom()(x).detach()[None])
    with pytest.raises(UsageError, match="makes 5 numbers of an input, but an embedding has 8"):
        inversion(nn.Linear(INPUTS, 5))(view, KnownInputs(samples=x), generator())
    with pytest.raises(UsageError, match="grant it two inputs or more"):
        inversion(nn.Linear(INPUTS, WIDTH))(view, KnownInputs(samples=x[:1]), generator())
    with pytest.raises(TensorError, match="not finite"):
        inversion(nn.Linear(INPUTS, WIDTH))(view, KnownInputs(samples=x / 0), generator())
