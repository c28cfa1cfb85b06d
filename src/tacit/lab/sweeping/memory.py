"""How much memory replicas take, how much there is, and into which waves they are parted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

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
    """Settings by the number of their replica, parted in their order into waves of nearly equal size.

    At most so many train together; there are at least so many waves, for machines that share the work, if there are as
    many settings.

    >>> [list(wave) for wave in in_waves(dict.fromkeys(range(7)), 3)]
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    count = min(len(settings), max(-(-len(settings) // most), least))
    parts = np.array_split(np.array(list(settings)), count) if count else []
    return [{number: settings[number] for number in part.tolist()} for part in parts]


def _sizes(network: Network) -> tuple[int, int, int]:
    """Numbers in the embedding tables, in all other weights, and in what one row leaves in every layer."""
    halves, inputs, outputs = network.build(0), network.inputs, list[int]()
    sizes = [(name, weight.numel()) for half in halves for name, weight in half.named_parameters()]
    table = sum(size for name, size in sizes if name.endswith("table.weight"))
    own: tuple[torch.Tensor, ...] = ()
    if isinstance(inputs, Pictures):
        features: tuple[torch.Tensor, ...] = (torch.zeros(1, inputs.channels, inputs.size, inputs.size),)
    else:
        features = (torch.zeros(1, len(inputs.cardinalities), dtype=torch.int64), torch.zeros(1, inputs.numeric))
        if inputs.own_cardinalities or inputs.own_numeric:
            codes = torch.zeros(1, len(inputs.own_cardinalities), dtype=torch.int64)
            own = (codes, torch.zeros(1, inputs.own_numeric))
    for module in (module for half in halves for module in half.modules() if not list(module.children())):
        module.register_forward_hook(lambda module, given, output: outputs.append(output.numel()))
    with torch.no_grad():
        halves[1](halves[0](*features), *own)
    return table, sum(size for _, size in sizes) - table, sum(outputs)


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
