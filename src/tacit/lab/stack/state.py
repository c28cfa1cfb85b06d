"""All that a stack needs to go on where it was: weights, averages, what protections remember, noise, recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.errors import UsageError
from tacit.lab.stack.graph import tensors_in, with_tensors
from tacit.lab.stack.noise import GeneratorNoise

if TYPE_CHECKING:
    from tacit.lab.stack.training import Stack


def state_of(stack: Stack) -> dict[str, Any]:
    """A tree of plain values, tensors and frozen dataclasses, fit for a checkpoint.

    Its tensors are the stack's own and no copies, which would take its memory a second time: write them down before
    the stack trains on.
    """
    return {
        "done": stack.done,
        "alive": stack.alive,
        "weights": _weights(stack),
        "adam": stack.optimizer.state_dict()["state"],
        "protections": stack.remembered,
        "noise": [
            [generator.get_state() for generator in noise.generators] if isinstance(noise, GeneratorNoise) else []
            for noise in stack.noises
        ],
        "recording": stack.recording.state(),
    }


@torch.no_grad()
def restore(stack: Stack, tree: Mapping[str, Any]) -> None:
    """Bring a stack of the same rows, network and settings to where `state_of` found another; all is copied.

    On a CPU it then goes on bit for bit as the other one would have.
    """
    if stack.device.type == "cuda" and int(stack.done):
        raise UsageError("on CUDA a stack is restored before its first step, not after: build a new one")
    weights, mine = tree["weights"], _weights(stack)
    shapes, wanted = ({name: tuple(x.shape) for name, x in each.items()} for each in (weights, mine))
    if shapes != wanted or [len(each) for each in tree["noise"]] != [len(each) for each in state_of(stack)["noise"]]:
        raise UsageError("the state is that of another stack: restore one of the same network, settings and device")
    stack.done.copy_(tree["done"])
    stack.alive.copy_(tree["alive"])
    for name, own in mine.items():
        own.copy_(weights[name])
    stack.optimizer.state.clear()
    parameters = stack.optimizer.param_groups[0]["params"]
    for place, averages in _copied(tree["adam"], stack.device).items():
        stack.optimizer.state[parameters[place]] = averages
    stack.remembered = _copied(tree["protections"], stack.device)
    for noise, states in zip(stack.noises, tree["noise"], strict=True):
        if isinstance(noise, GeneratorNoise):
            for generator, state in zip(noise.generators, states, strict=True):
                generator.set_state(state)
    stack.recording.restore(_copied(tree["recording"], stack.device))


def _weights(stack: Stack) -> dict[str, Tensor]:
    """All dense weights, and the tables with their averages, by names of their own."""
    found: dict[str, Tensor] = {}
    for half, name in ((stack.bottom, "bottom"), (stack.top, "top")):
        found |= {f"{name}.{key}": weight.detach() for key, weight in half.weights.items()}
        if half.table is not None:
            table = half.table
            found |= {f"{name} table": table.weight, f"{name} first": table.first, f"{name} second": table.second}
    return found


def _copied(tree: Any, device: torch.device) -> Any:
    return with_tensors(tree, iter([x.detach().to(device, copy=True) for x in tensors_in(tree)]))
