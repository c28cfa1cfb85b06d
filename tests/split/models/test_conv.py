"""The convolutional halves: the papers' sizes, every cut, and inputs that are refused."""

import pytest
import torch
from torch import nn

from benchmarks.step import Unsplit
from tacit.errors import TensorError, UsageError
from tacit.split.models import ConvTop, conv

SIDES = {1: 42, 2: 21, 3: 10, 4: 5, 5: 2, 6: 1}


def images(rows=2, channels=3, size=84):
    return torch.rand(rows, channels, size, size, generator=torch.Generator().manual_seed(0))


def pair(**options):
    return conv(generator=torch.Generator().manual_seed(1), **options)


def test_the_papers_cut_is_64_by_5_by_5():
    bottom, top = pair()
    z = bottom(images())
    assert z.shape == (2, 64, 5, 5)
    assert top(z).shape == (2,)


@pytest.mark.parametrize("cut", SIDES)
def test_shapes_for_every_cut_and_one_network_wherever_it_is_cut(cut):
    bottom, top = pair(cut=cut)
    z = bottom(images())
    assert z.shape == (2, 64, SIDES[cut], SIDES[cut])
    assert torch.equal(top(z), Unsplit(*pair())(images()))
    assert bottom.layer_names() + top.layer_names() == [f"layer{i}" for i in range(1, 7)]


def test_size_of_the_papers_network():
    bottom, top = pair()
    block = 64 * 64 * 9 + 64
    assert sum(p.numel() for p in bottom.parameters()) == (3 * 64 * 9 + 64) + 3 * block
    assert sum(p.numel() for p in top.parameters()) == 2 * block + (64 * 64 + 64) + (64 + 1)


def test_equals_a_network_written_down_plainly_in_outputs_and_gradients():
    bottom, top = pair(size=32, blocks=3, cut=2, width=8)
    blocks = [half.get_submodule(name) for half in (bottom, top) for name in half.layer_names()]
    x, labels = images(size=32), torch.tensor([0.0, 1.0])
    h = x
    for block in blocks:
        h = nn.functional.max_pool2d(torch.relu(nn.functional.conv2d(h, *block.conv.parameters(), padding=1)), 2)
    wanted = top.logit(torch.relu(top.hidden.linear(h.flatten(1))))[:, 0]
    assert torch.equal(Unsplit(bottom, top)(x), wanted)
    loss = nn.functional.binary_cross_entropy_with_logits
    grads = torch.autograd.grad(loss(wanted, labels), [*bottom.parameters(), *top.parameters()])
    z = bottom(x)
    received = z.detach().requires_grad_()
    loss(top(received), labels).backward()
    z.backward(received.grad)
    params = [*bottom.parameters(), *top.parameters()]
    assert all(torch.equal(g, p.grad) for g, p in zip(grads, params, strict=True))


def test_relu_and_pool_of_a_block_can_be_read_by_name():
    bottom, _ = pair()
    shapes = {}
    for name in ("layer1.relu", "layer1"):

        def watch(module, inputs, output, name=name):
            shapes[name] = tuple(output.shape)

        bottom.get_submodule(name).register_forward_hook(watch)
    bottom(images())
    assert shapes == {"layer1.relu": (2, 64, 84, 84), "layer1": (2, 64, 42, 42)}


def test_training_reduces_the_loss(assert_learns):
    net = Unsplit(*pair(size=16, blocks=4, cut=2, width=16))
    x, labels = images(8, size=16), torch.arange(8) % 2.0
    assert_learns(net, labels, x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cut": 0}, "cut must be from 1 to 6, not 0"),
        ({"cut": 7}, "cut must be from 1 to 6, not 7"),
        ({"channels": 0}, "channels must be at least 1"),
        ({"size": 63}, "size must be at least 64 for 6 blocks that halve it, not 63"),
        ({"logits": 0}, "logits must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"blocks": 0}, "blocks must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(UsageError, match=message):
        conv(**options)


def test_wrong_inputs_are_named():
    bottom, _ = pair()
    with pytest.raises(TensorError, match=r"images must be of shape \(batch, 3, 84, 84\), not \(2, 84, 84, 3\)"):
        bottom(torch.zeros(2, 84, 84, 3))
    with pytest.raises(TensorError, match=r"images must be a floating point tensor, not torch\.uint8"):
        bottom(torch.zeros(2, 3, 84, 84, dtype=torch.uint8))
    with pytest.raises(TensorError, match=r"z must be of shape \(batch, 64, 5, 5\), not \(2, 1600\)"):
        ConvTop()(torch.zeros(2, 1600))
