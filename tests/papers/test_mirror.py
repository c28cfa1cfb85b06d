"""A bottom's mirror image, layer by layer."""

import pytest
import torch
from torch import nn

from papers.embedding.mirror import mirrored
from tacit.audit.input_attacks.decoder import decoder
from tacit.audit.inputs import attack_inputs
from tacit.contracts import View
from tacit.errors import UsageError
from tacit.split.models import ConvBottom, WideDeepBottom
from tests.plain_network import MlpBottom


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def layers(network):
    return [type(layer).__name__ for layer in network if not isinstance(layer, nn.ReLU)]


def test_the_mirror_of_linear_layers():
    image = mirrored(MlpBottom(7, (20, 9)), (7,), 9)
    sizes = [(layer.in_features, layer.out_features) for layer in image if isinstance(layer, nn.Linear)]
    assert sizes == [(9, 20), (20, 7)]
    assert [type(layer) for layer in image] == [nn.Linear, nn.ReLU, nn.Linear, nn.Flatten]


@pytest.mark.parametrize("inputs", [(3, 14, 14), (588,)])
def test_the_mirror_of_convolutions_that_round_down(inputs):
    bottom = ConvBottom(channels=3, size=14, cut=2, width=5)
    width = bottom(torch.zeros(1, 3, 14, 14)).numel()  # 14 becomes 7 becomes 3
    image = mirrored(bottom, inputs, width).to_empty(device="cpu")
    assert image(torch.zeros(2, width)).shape == (2, 588)
    kinds = ["Unflatten", "Upsample", "Conv2d", "Upsample", "Conv2d", "Flatten"]
    assert layers(image) == kinds


def test_the_mirror_of_a_table_ends_behind_its_embedding():
    bottom = WideDeepBottom([5, 9], 3, cut=2, width=12, embedding=4)
    sizes = [
        (layer.in_features, layer.out_features) for layer in mirrored(bottom, (11,), 12) if type(layer) is nn.Linear
    ]
    assert sizes == [(12, 12), (12, 11)]
    numbers = WideDeepBottom([], 3, cut=1, width=12)
    assert layers(mirrored(numbers, (3,), 12)) == ["Linear", "Flatten"]


def test_convolution_and_linear_layers_with_a_flatten_between():
    bottom = nn.Sequential(nn.Conv2d(1, 4, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 6))
    image = mirrored(bottom, (1, 8, 8), 6).to_empty(device="cpu")
    assert layers(image) == ["Linear", "Unflatten", "Upsample", "Conv2d", "Flatten"]
    assert image(torch.zeros(3, 6)).shape == (3, 64)


def test_a_mirrored_decoder_reads():
    bottom = MlpBottom(6, (32, 16), generator=generator())
    x = torch.randn(1500, 6, generator=generator(1))
    z = bottom(x).detach()
    attacks = [decoder(network=mirrored(bottom, (6,), 16), updates=1000), "linear_decoder"]
    found, line = (
        one.relative.value for one in attack_inputs(View.of_embeddings(z[None]), x, attacks, noise=generator(1))
    )
    assert found < 0.9 * line < 0.3


class _Doubled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))


@pytest.mark.parametrize(
    ("bottom", "inputs", "says"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), (4,), r"layer '1', BatchNorm1d.*can't be mirrored"),
        (nn.Sequential(nn.Conv2d(1, 2, 3, stride=2, padding=1)), (1, 4, 4), r"layer '0', Conv2d.*can't be mirrored"),
        (nn.Sequential(nn.Conv2d(1, 2, 3)), (1, 4, 4), "can't be mirrored"),
        (nn.Sequential(nn.Conv2d(1, 2, 3, padding=1)), (15,), "can't be mirrored for an input of"),
        (nn.Sequential(nn.Linear(5, 4)), (4,), r"takes \(5,\) for each row, but would get \(4,\)"),
        (nn.Sequential(nn.Linear(4, 4)), (4,), "the bottom makes 4 numbers of an input .* an embedding has 3"),
        (nn.Sequential(_Doubled()), (3,), "layer '0', _Doubled"),
    ],
)
def test_what_cannot_be_mirrored_is_named(bottom, inputs, says):
    with pytest.raises(UsageError, match=says):
        mirrored(bottom, inputs, 3)
