"""How much memory replicas take, how much there is, and into which waves they are parted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from tacit.errors import UsageError
from tacit.lab.data.rows import Data, Pictures
from tacit.lab.stack.network import Network
from tacit.lab.sweeping.recipe import Recipe, cut_size

SHARE = 0.6
"""Of the free memory, what a wave may take: the estimate is rough, and others live on the machine too."""

_FLOAT, _WIDE = 4, 8  # bytes
_EVALUATED = {True: 256, False: 8192}  # rows that a stack evaluates at once, of pictures and of tables
T = TypeVar("T")


def estimate(recipe: Recipe, data: Data, replicas: int) -> int:
    """About how many bytes a stack of replicas takes at its peak, beyond what the process has already.

    Counted are weights, gradients and Adam's two averages, the same of embedding tables, activations and their
    gradients, noise, what the attacks compute, recorded batches and visits, the test, and on CUDA the data itself: on a
    CPU it is not copied.
    """
    network, batch = recipe.network, recipe.batch_size
    table, dense, each = _sizes(network)
    pictures = isinstance(network.inputs, Pictures)
    columns = 0 if isinstance(network.inputs, Pictures) else len(network.inputs.cardinalities)
    cut = cut_size(network)
    weights = 4 * (table + dense) * _FLOAT
    looked_up = columns * (8 * network.embedding * _FLOAT + 2 * _WIDE)  # of a row: found, gradients, averages, places
    step = (1.6 if pictures else 3) * each * _FLOAT + looked_up  # of a row: outputs and their gradients
    measured = len(recipe.layers) * (cut * (_FLOAT + _WIDE) + len(recipe.attacks) * 6 * _WIDE)
    protected = 6 * cut * _FLOAT + min(cut, 256) ** 2 * 12 * _WIDE / batch
    evaluated = min(_EVALUATED[pictures], len(data.test)) * each * _FLOAT
    training = batch * (step + measured + protected)
    recorded = (3 * recipe.last * batch + 2 * recipe.follow * recipe.visits) * cut * _FLOAT
    recorded += recipe.last * batch * _WIDE
    each_replica = weights + max(training, evaluated) + recorded + 2 * len(data.test) * _FLOAT
    tensors = () if recipe.device == "cpu" else (*data.train.features, *data.train.own, data.train.labels)
    shared = len(data.test) * 6 * _WIDE + sum(x.numel() * x.element_size() for x in tensors)
    return round(replicas * each_replica + shared)


def budget(device: str) -> int:
    """How many bytes a wave may take here: a share of what is free on the device, or on the host for a CPU."""
    if device.startswith("cuda"):
        free, _ = torch.cuda.mem_get_info(torch.device(device))
        return int(SHARE * free)
    return int(SHARE * _free())


def per_wave(recipe: Recipe, data: Data, allowed: int) -> int:
    """How many replicas may train together within so many bytes; a `UsageError` where not even one may."""
    one = estimate(recipe, data, 1)
    if one > allowed:
        raise UsageError(
            f"one replica takes about {_spelled(one)}, and a wave may take {_spelled(allowed)}: take a smaller "
            "batch_size, fewer rows, thorough=False, or give more memory"
        )
    return 1 + (allowed - one) // max(1, estimate(recipe, data, 2) - one)


def in_waves(settings: Mapping[int, T], most: int, least: int = 1) -> list[dict[int, T]]:
    """Settings parted into waves of nearly equal size, in their order.

    Args:
        settings: by the number of the replica.
        most: how many may train together.
        least: how many waves there should be if there are as many settings, for machines that share the work.

    >>> [list(wave) for wave in in_waves(dict.fromkeys(range(7)), 3)]
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    numbers: Sequence[int] = list(settings)
    count = min(len(numbers), max(-(-len(numbers) // most), least))
    size, longer = divmod(len(numbers), count) if count else (0, 0)
    waves, start = [], 0
    for place in range(count):
        end = start + size + (place < longer)
        waves.append({number: settings[number] for number in numbers[start:end]})
        start = end
    return waves


def _sizes(network: Network) -> tuple[int, int, int]:
    """Numbers in the embedding tables, in all other weights, and in what one row leaves in every layer."""
    halves = network.build(0)
    table = dense = 0
    for half in halves:
        for name, weight in half.named_parameters():
            size = weight.numel()
            table, dense = (table + size, dense) if name.endswith("table.weight") else (table, dense + size)
    inputs = network.inputs
    if isinstance(inputs, Pictures):
        return table, dense, _outputs(halves, (torch.zeros(1, inputs.channels, inputs.size, inputs.size),), ())
    of_bottom = (torch.zeros(1, len(inputs.cardinalities), dtype=torch.int64), torch.zeros(1, inputs.numeric))
    of_top = (torch.zeros(1, len(inputs.own_cardinalities), dtype=torch.int64), torch.zeros(1, inputs.own_numeric))
    own = bool(inputs.own_cardinalities or inputs.own_numeric)
    return table, dense, _outputs(halves, of_bottom, of_top if own else ())


def _outputs(
    halves: tuple[nn.Module, nn.Module], features: tuple[torch.Tensor, ...], own: tuple[torch.Tensor, ...]
) -> int:
    count = 0

    def add(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        nonlocal count
        count += output.numel()

    leaves = [module for half in halves for module in half.modules() if not list(module.children())]
    handles = [module.register_forward_hook(add) for module in leaves]
    with torch.no_grad():
        halves[1](halves[0](*features), *own)
    for handle in handles:
        handle.remove()
    return count


def _free() -> int:
    """Bytes that this machine, or the container that we are in, can still give."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    try:
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        return free if limit == "max" else min(free, max(0, int(limit) - int(used)))
    except (OSError, ValueError):
        return free


def _spelled(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
