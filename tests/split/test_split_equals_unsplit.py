"""With bare gradients, split training is ordinary training: the same weights, bit for bit."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from benchmarks.step import Unsplit
from tacit.align.batches import batches
from tacit.split.models import adam, conv, wide_deep
from tacit.split.protect.gradient.iso import iso
from tacit.split.protect.gradient.none import none
from tacit.split.simulate import simulate
from tests.plain_network import mlp

ROWS, SIZE, EPOCHS, SEED = 100, 24, 3, 5  # 4 rows sit out at each epoch


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def normal(*shape):
    return torch.randn(*shape, generator=generator(2))


def codes(*limits):
    return torch.stack([torch.randint(limit, (ROWS,), generator=generator(3)) for limit in limits], dim=1)


def classes(count):
    return torch.randint(count, (ROWS,), generator=generator(4))


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, nesterov=True)


def torch_adam(module):
    return torch.optim.Adam(module.parameters(), lr=0.01)


def rowwise(module):
    return adam(module, 0.01)


OPTIMIZERS = {"adam": torch_adam, "sgd": sgd, "rowwise": rowwise}
BINARY, SOFTMAX = functional.binary_cross_entropy_with_logits, functional.cross_entropy


class TwoTables(nn.Module):
    """A bottom of the user's own, with two inputs and a cut of three axes."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(5, 12), nn.Linear(3, 12, bias=False)
        self.drop = nn.Dropout(0.3)

    def forward(self, x, y):
        return self.drop(torch.tanh(self.left(x) * self.right(y))).reshape(-1, 3, 4)


class InPlace(nn.Module):
    """A top of the user's own that overwrites what it is given, has dropout and any number of own inputs."""

    def __init__(self, own=0):
        super().__init__()
        self.act, self.drop, self.out = nn.LeakyReLU(0.1, inplace=True), nn.Dropout(0.2), nn.Linear(12 + own, 1)

    def forward(self, z, *own):
        return self.out(self.drop(torch.cat([self.act(z).flatten(1), *own], dim=1)))


def make_user(own=0):
    torch.manual_seed(8)
    return TwoTables(), InPlace(own)


TABLE = (lambda: codes(7, 11), lambda: normal(ROWS, 3))
# models, features, own features, labels, name of the loss, the same loss from torch
CASES = {
    "wide_deep": (
        lambda: wide_deep([7, 11], 3, cut=2, layers=3, width=16, generator=generator()),
        TABLE, (), lambda: classes(2).float(), "binary", BINARY,
    ),
    "wide_deep_own_sparse": (
        lambda: wide_deep([7, 11], 3, own_cardinalities=[5], own_numeric=2, cut=1, layers=2, width=16, sparse=True,
                          generator=generator()),
        TABLE, (lambda: codes(5), lambda: normal(ROWS, 2)), lambda: classes(2).float(), "binary", BINARY,
    ),
    "mlp_two_logits": (
        lambda: mlp(6, widths=(12, 8), own_inputs=2, logits=2, generator=generator()),
        (lambda: normal(ROWS, 6),), (lambda: normal(ROWS, 2),), lambda: classes(2), "softmax", SOFTMAX,
    ),
    "mlp_classes": (
        lambda: mlp(6, widths=(12, 8), cut=2, logits=5, generator=generator()),
        (lambda: normal(ROWS, 6),), (), lambda: classes(5), "softmax", SOFTMAX,
    ),
    "conv": (
        lambda: conv(1, 8, 1, blocks=2, width=4, hidden=8, generator=generator()),
        (lambda: normal(ROWS, 1, 8, 8),), (), lambda: classes(2).float(), "binary", BINARY,
    ),
    "user_modules": (
        make_user, (lambda: normal(ROWS, 5), lambda: normal(ROWS, 3)), (), lambda: classes(2).float(), "binary",
        lambda logits, targets: BINARY(logits.squeeze(1), targets),
    ),
    "user_modules_own": (
        lambda: make_user(3), (lambda: normal(ROWS, 5), lambda: normal(ROWS, 3)),
        (lambda: normal(ROWS, 1), lambda: normal(ROWS, 2)), lambda: classes(2).bool(), "binary",
        lambda logits, targets: BINARY(logits.squeeze(1), targets.float()),
    ),
}  # fmt: skip


def train_whole(bottom, top, features, own, labels, loss, make):
    """Training as anyone would write it, with one network, one optimizer and one backward pass."""
    net = Unsplit(bottom, top)
    optimizer = make(net)
    for epoch in range(EPOCHS):
        for rows in batches(ROWS, SIZE, epoch=epoch, seed=SEED):
            optimizer.zero_grad()
            loss(net([x[rows] for x in features], [x[rows] for x in own]), labels[rows]).backward()
            optimizer.step()
    return net


def both(case, optimizer, protect):
    """The weights before, after split training and after ordinary training, from one state of torch's own generator."""
    models, features, own, labels, name, loss = CASES[case]
    features, own, labels = [x() for x in features], [x() for x in own], labels()
    make = OPTIMIZERS[optimizer]
    (bottom, top), other = models(), models()
    before = copy.deepcopy(Unsplit(bottom, top).state_dict())
    torch.manual_seed(9)  # of dropout
    whole = train_whole(*other, features, own, labels, loss, make)
    torch.manual_seed(9)
    simulate(
        bottom=bottom, top=top, features=features, own=own, labels=labels, protect=protect, loss=name, optimizer=make,
        epochs=EPOCHS, batch_size=SIZE, seed=SEED,
    )  # fmt: skip
    return before, Unsplit(bottom, top).state_dict(), whole.state_dict()


@pytest.mark.parametrize(
    ("case", "optimizer"),
    [
        (case, optimizer)
        for case in CASES
        for optimizer in OPTIMIZERS
        if not (case.endswith("sparse") and optimizer == "adam")  # torch's Adam takes no sparse gradients
    ],
)
def test_weights_are_those_of_ordinary_training_bit_for_bit(case, optimizer):
    before, split, whole = both(case, optimizer, none())
    assert before.keys() == split.keys() == whole.keys()
    for name in whole:
        assert torch.equal(split[name], whole[name]), name
        assert not torch.equal(split[name], before[name]), f"{name} was not trained"


def test_the_comparison_sees_noise_in_the_gradient():
    _, split, whole = both("mlp_two_logits", "adam", iso(1e-4))
    assert not torch.equal(split["bottom.layer1.linear.weight"], whole["bottom.layer1.linear.weight"])
