"""The plain halves: every cut, own inputs of the label party, and inputs that are refused."""

import pytest
import torch
from torch import nn

from benchmarks.step import Unsplit
from tacit.errors import TensorError, UsageError
from tacit.models import MlpBottom, MlpTop, adam, mlp

WIDTHS = (8, 6, 4)


def pair(**options):
    return mlp(5, **{"widths": WIDTHS, "generator": torch.Generator().manual_seed(1), **options})


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_shapes_for_every_cut_and_one_network_wherever_it_is_cut(cut):
    x = torch.randn(7, 5)
    bottom, top = pair(cut=cut)
    assert bottom(x).shape == (7, WIDTHS[cut - 1])
    assert torch.equal(top(bottom(x)), Unsplit(*pair(cut=1))(x))
    assert bottom.layer_names() + top.layer_names() == ["layer1", "layer2", "layer3"]


def test_size():
    bottom, top = pair(cut=2, own_inputs=3, logits=10)
    assert sum(p.numel() for p in bottom.parameters()) == (5 * 8 + 8) + (8 * 6 + 6)
    assert sum(p.numel() for p in top.parameters()) == ((6 + 3) * 4 + 4) + (4 * 10 + 10)


@pytest.mark.parametrize("cut", [1, 3])
def test_own_inputs_join_at_the_cut(cut):
    bottom, top = pair(cut=cut, own_inputs=2)
    x, own = torch.randn(7, 5), torch.randn(7, 2)
    logits = Unsplit(bottom, top)(x, (own,))
    assert logits.shape == (7,)
    assert not torch.equal(logits, top(bottom(x), own + 1))


def test_several_inputs_as_a_tuple_or_one_tensor():
    net = Unsplit(*pair())
    x = torch.randn(7, 5)
    assert torch.equal(net(x), net((x,)))


def test_training_learns_a_rule():
    g = torch.Generator().manual_seed(2)
    x = torch.randn(256, 5, generator=g)
    labels = (x[:, 0] * x[:, 1] > 0).float()
    bottom, top = pair(cut=1)
    optimizers = [adam(bottom, lr=2e-2), adam(top, lr=2e-2)]
    losses = []
    for _ in range(100):
        z = bottom(x)
        received = z.detach().requires_grad_()
        loss = nn.functional.binary_cross_entropy_with_logits(top(received), labels)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        z.backward(received.grad)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cut": 0}, "cut must be from 1 to 3, not 0"),
        ({"cut": 4}, "cut must be from 1 to 3, not 4"),
        ({"widths": ()}, "widths must name at least one layer"),
        ({"widths": (8, 0)}, r"widths\[1\] must be at least 1"),
        ({"own_inputs": -1}, "own_inputs must be at least 0"),
        ({"logits": 0}, "logits must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(UsageError, match=message):
        pair(**options)


def test_wrong_inputs_are_named():
    with pytest.raises(UsageError, match="inputs must be at least 1"):
        MlpBottom(0, WIDTHS)
    with pytest.raises(TensorError, match=r"x must be of shape \(batch, 5\), not \(5,\)"):
        MlpBottom(5, WIDTHS)(torch.zeros(5))
    top = MlpTop(WIDTHS, cut=1, own_inputs=2)
    with pytest.raises(TensorError, match="own is missing"):
        top(torch.zeros(3, 8))
    with pytest.raises(TensorError, match="z has 3 rows, own has 2 rows"):
        top(torch.zeros(3, 8), torch.zeros(2, 2))
