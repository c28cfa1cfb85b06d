"""A bottom's mirror image: what an attacker builds who knows its layers and none of its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from tacit.errors import UsageError

_PASSED = (nn.Embedding, nn.Identity, nn.Dropout, nn.Dropout2d)  # nothing of them is left to be mirrored
_BENT = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus)

Shape = tuple[int, ...]


def mirrored(bottom: nn.Module, inputs: Sequence[int], width: int) -> nn.Sequential:
    """The reverse of a bottom's layers, from a flat embedding to a flat input, with weights that are not drawn yet.

    A linear layer becomes one from its outputs to its inputs, a convolution one from its output channels to its input
    channels, a pool an upsampling to the size before it; a ReLU follows each of them but the last. Layers are read in
    the order in which they were registered; where a convolution comes first, a flat input is taken for a square
    picture.
    """
    shape: Shape = tuple(inputs)
    steps: list[tuple[str, nn.Module, Shape, Shape]] = []
    for name, layer in bottom.named_modules():
        own = not type(layer).__module__.startswith("torch.") and next(layer.parameters(), None) is None
        if next(layer.children(), None) is not None or own or isinstance(layer, (*_PASSED, *_BENT)):
            continue  # no leaf; somebody's own that has nothing to learn; or bent, and not turned
        if isinstance(layer, nn.Conv2d) and not steps and len(shape) == 1:
            side = math.isqrt(shape[0] // layer.in_channels)
            shape = (layer.in_channels, side, side) if layer.in_channels * side**2 == shape[0] else shape
        after = _after(name, layer, shape)
        steps.append((name, layer, shape, after))
        shape = after
    if math.prod(shape) != width:
        raise UsageError(
            f"the bottom makes {math.prod(shape)} numbers of an input {tuple(inputs)}, but an embedding has {width}: "
            "mirror the bottom that made them"
        )
    layers: list[nn.Module] = [nn.Unflatten(1, shape)] if len(shape) > 1 else []
    last = next((step for step in steps if isinstance(step[1], nn.Linear | nn.Conv2d)), None)
    for step in reversed(steps):
        layers += _reversed(step[1], step[2], step[3])
        if isinstance(step[1], nn.Linear | nn.Conv2d) and step is not last:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.Flatten())


def _after(name: str, layer: nn.Module, shape: Shape) -> Shape:
    """The shape behind a layer; a refusal that names a layer which can't be mirrored, or does not fit."""
    if isinstance(layer, nn.Flatten):
        return (math.prod(shape),)
    if isinstance(layer, nn.Unflatten) and len(shape) == 1:
        return tuple(layer.unflattened_size)
    if isinstance(layer, nn.Linear):
        return _fitting(name, layer, (layer.in_features,), shape, (layer.out_features,))
    if isinstance(layer, nn.Conv2d) and _keeps_size(layer) and len(shape) == 3:
        return _fitting(name, layer, (layer.in_channels, *shape[1:]), shape, (layer.out_channels, *shape[1:]))
    if isinstance(layer, nn.MaxPool2d) and not layer.padding and layer.dilation == 1 and len(shape) == 3:
        kernel, stride = _pair(layer.kernel_size), _pair(layer.stride)
        sides = ((side - k) // s + 1 for side, k, s in zip(shape[1:], kernel, stride, strict=True))
        return (shape[0], *sides)
    raise UsageError(
        f"the bottom's layer {name!r}, {layer}, can't be mirrored for an input of {shape}: linear layers, convolutions "
        "that keep the size, max pools without padding, activations and flattening can; pass the inputs in the shape "
        "that the bottom takes, or leave out mirror"
    )


def _fitting(name: str, layer: nn.Module, wants: Shape, gets: Shape, gives: Shape) -> Shape:
    if wants != gets:
        raise UsageError(
            f"the bottom's layer {name!r}, {layer}, takes {wants} for each row, but would get {gets}: pass the inputs "
            "in the shape that the bottom takes, with its layers registered in their order"
        )
    return gives


def _reversed(layer: nn.Module, before: Shape, after: Shape) -> list[nn.Module]:
    """The modules that lead from behind a layer to before it."""
    if isinstance(layer, nn.Linear):
        return [nn.Linear(layer.out_features, layer.in_features, device="meta")]
    if isinstance(layer, nn.Conv2d):
        kernel = (layer.kernel_size[0], layer.kernel_size[1])
        return [nn.Conv2d(layer.out_channels, layer.in_channels, kernel, padding="same", device="meta")]
    if isinstance(layer, nn.MaxPool2d):
        return [nn.Upsample(size=before[1:])]
    return [nn.Unflatten(1, before)] if len(before) > 1 else [nn.Flatten()]


def _keeps_size(layer: nn.Conv2d) -> bool:
    """Whether a convolution has stride 1, one group, and as much padding as its kernel takes away."""
    half = tuple((side - 1) // 2 for side in layer.kernel_size)
    whole = layer.padding == "same" or (layer.padding == half and all(side % 2 for side in layer.kernel_size))
    return whole and set(layer.stride) == {1} and set(layer.dilation) == {1} and layer.groups == 1


def _pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value, value)
