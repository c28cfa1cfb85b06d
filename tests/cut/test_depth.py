"""Several steps on their way at once: the model is that of plain PyTorch with gradients that come late, bit for bit."""

import copy
from collections import deque

import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.align.batches import batches
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.cut.simulate import pair, simulate
from tacit.errors import ProtocolError, UsageError
from tacit.protect.embedding.adversarial import adversarial
from tacit.protect.embedding.distance_correlation import distance_correlation
from tacit.protect.embedding.gaussian import gaussian
from tacit.protect.gradient.none import none
from tacit.wire.record import Recorder

COUNT, INPUTS, BATCH, EPOCHS, SEED = 130, 5, 16, 3, 4


class Deep(nn.Module):
    """A table of embeddings, two layers, something that draws, and something that works in place."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 3)
        self.first = nn.Linear(INPUTS + 3, 8)
        self.drop = nn.Dropout(0.2)
        self.second = nn.Linear(8, 4)

    def forward(self, x, codes):
        hidden = functional.relu(self.first(torch.cat([x, self.table(codes)], dim=1)), inplace=True)
        return self.second(self.drop(hidden))


def halves():
    torch.manual_seed(2)
    return Deep(), nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))


def data():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(COUNT, INPUTS, generator=generator)
    codes = torch.randint(0, 7, (COUNT,), generator=generator)
    labels = (x[:, 0] + codes / 7 + torch.randn(COUNT, generator=generator) > 0.5).float()
    return x, codes, labels


OPTIMIZERS = {
    "sgd": lambda module: torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda module: torch.optim.Adam(module.parameters(), lr=0.01),
}


def late(depth, make, *, through_then=True):
    """Training with late gradients, written with whole copies of the bottom: no code of ours but the batches.

    Each batch goes through a copy of the bottom as it stands. When its gradient is due, `depth` - 1 batches later or at
    the end of the epoch, the copy's gradient is applied to the bottom as it stands by then.
    """
    bottom, top = halves()
    x, codes, labels = data()
    below, above = make(bottom), make(top)
    torch.manual_seed(9)

    def apply(rows, then, z, gradient):
        if not through_then:  # to see that the comparison would notice
            then = copy.deepcopy(bottom)
            then.eval()
            z = then(x[rows], codes[rows])
        then.zero_grad()
        z.backward(gradient)
        for now, was in zip(bottom.parameters(), then.parameters(), strict=True):
            now.grad = was.grad
        below.step()

    for epoch in range(EPOCHS):
        waiting = deque()
        for rows in batches(COUNT, BATCH, epoch=epoch, seed=SEED):
            then = copy.deepcopy(bottom)
            z = then(x[rows], codes[rows])
            cut = z.detach().requires_grad_()
            loss = functional.binary_cross_entropy_with_logits(top(cut).squeeze(1), labels[rows])
            above.zero_grad()
            loss.backward()
            above.step()
            waiting.append((rows, then, z, cut.grad))
            if len(waiting) == depth:
                apply(*waiting.popleft())
        for one in waiting:
            apply(*one)
    return bottom, top


def split(depth, make, **more):
    bottom, top = halves()
    x, codes, labels = data()
    torch.manual_seed(9)
    return simulate(
        bottom=bottom, top=top, features=(x, codes), labels=labels, protect=none(), optimizer=make, epochs=EPOCHS,
        batch_size=BATCH, depth=depth, seed=SEED, **more,
    )  # fmt: skip


def same(one, two):
    return all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("depth", [1, 2, 3, 8, 100])
def test_the_model_is_that_of_late_gradients(depth, optimizer):
    bottom, top = late(depth, OPTIMIZERS[optimizer])
    trained = split(depth, OPTIMIZERS[optimizer])
    assert same(trained.bottom, bottom)
    assert same(trained.top, top)
    assert same(split(1, OPTIMIZERS[optimizer]).bottom, bottom) == (depth == 1)


def test_the_comparison_sees_whose_weights_a_gradient_goes_back_through():
    assert not same(split(3, OPTIMIZERS["sgd"]).bottom, late(3, OPTIMIZERS["sgd"], through_then=False)[0])


def test_what_protections_learn_on_the_side_waits_as_well():
    """Twice the same, other than without depth; and no step is refused because weights have changed meanwhile."""
    protect = [distance_correlation(0.1), adversarial(0.1, reconstructor=nn.Linear(4, INPUTS)), gaussian(snr=10.0)]

    def trained(depth):
        x, _, labels = data()
        torch.manual_seed(2)
        bottom, top = nn.Sequential(nn.Linear(INPUTS, 8), nn.ReLU(), nn.Linear(8, 4)), nn.Linear(4, 1)
        return simulate(
            bottom=bottom, top=top, features=x, labels=labels, protect=none(), protect_embedding=protect, depth=depth,
            epochs=2, batch_size=BATCH,
        )  # fmt: skip

    assert same(trained(3).bottom, trained(3).bottom)
    assert not same(trained(3).bottom, trained(1).bottom)


def test_each_step_is_recorded_with_its_own_gradient():
    recorder = Recorder(last=100)
    split(4, OPTIMIZERS["sgd"], record=recorder)
    kept = recorder.batches()
    plan = [rows for epoch in range(EPOCHS) for rows in batches(COUNT, BATCH, epoch=epoch, seed=SEED)]
    assert torch.equal(kept.view.rows, torch.stack(plan))
    assert torch.equal(kept.view.gradient, kept.clean)


def parties(depth, bottom=None):
    x, codes, labels = data()
    made, top = halves()
    bottom = bottom or made
    features = FeatureParty(bottom=bottom, features=(x, codes), optimizer=OPTIMIZERS["sgd"](bottom), depth=depth)
    label = LabelParty(
        top=top, labels=labels, optimizer=OPTIMIZERS["sgd"](top), protect=none(), noise=torch.Generator()
    )
    return features, label, pair()


def test_so_many_steps_may_be_open_and_no_more():
    features, label, (left, right) = parties(2)
    rows = torch.arange(BATCH)
    with pytest.raises(ProtocolError, match="no embedding was sent yet"):
        features.finish(left)
    features.send(rows, left)
    features.send(rows, left)
    with pytest.raises(ProtocolError, match="has no answer yet"):
        features.send(rows, left)
    for step in (1, 2):
        label.step(rows, right)
        features.finish(left)
        assert features.steps == step


@pytest.mark.parametrize("depth", [0, True, 1.0])
def test_a_depth_that_is_none(depth):
    with pytest.raises(UsageError, match=r"depth = .* is out of range"):
        parties(depth)


class Scaled(nn.Module):
    """Keeps a tensor that is no buffer, and changes it in place at every call: what PyTorch refuses must be refused."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(INPUTS, 4)
        self.scale = torch.ones(4)

    def forward(self, x, codes):
        self.scale.add_(1)
        return self.layer(x) * self.scale


def test_what_else_changes_in_place_is_refused():
    features, label, (left, right) = parties(2, Scaled())
    rows = torch.arange(BATCH)
    features.send(rows, left)
    features.send(rows, left)
    label.step(rows, right)
    with pytest.raises(UsageError, match="changed in place"):
        features.finish(left)
