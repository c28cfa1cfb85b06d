"""Randomness of a stack: every replica has its own stream, so that who else trains beside it changes nothing.

On a CPU a replica draws from a torch generator of its seed, as `tacit.simulate` does: the numbers are the same. On
CUDA one kernel draws for all replicas from a counter: Philox 4x32 with ten rounds (Salmon and others, "Parallel random
numbers: as easy as 1, 2, 3", 2011), keyed by seed, step and call. A captured graph replays it with a step that moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.contracts import NoiseSource
from tacit.errors import UsageError
from tacit.split.protect.gradient import fused

_MASK = 0xFFFFFFFF
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


class GeneratorNoise:
    """One torch generator for each replica; what it draws has the replicas in front.

    >>> noise = GeneratorNoise([torch.Generator().manual_seed(7), torch.Generator().manual_seed(8)])
    >>> both = noise.normal((2, 3), dtype=torch.float32, device=torch.device("cpu"))
    >>> torch.equal(both[1], torch.randn(3, generator=torch.Generator().manual_seed(8)))
    True
    """

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self.generators = tuple(generators)

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Standard normal numbers, (replicas, ...)."""
        each = _each(shape, self.generators)
        return torch.stack([torch.randn(each, generator=one, dtype=dtype) for one in self.generators])

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Numbers in [0, 1), (replicas, ...)."""
        each = _each(shape, self.generators)
        return torch.stack([torch.rand(each, generator=one, dtype=dtype) for one in self.generators])


class CounterNoise:
    """Numbers that are a function of a replica's seed, the step and the number of the call within the step."""

    def __init__(self, seeds: Sequence[int], step: Tensor) -> None:
        signed = [(seed + 2**63) % 2**64 - 2**63 for seed in seeds]  # of 64 bits, as the int64 with the same bits
        self.seeds = torch.tensor(signed, dtype=torch.int64, device=step.device)
        self.step = step
        self._call = 0

    def rewind(self) -> None:
        """A new step begins: its first call is number 0 again."""
        self._call = 0

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Standard normal numbers, (replicas, ...)."""
        return _normal(*self._counted(shape)).flatten(1)[:, : math.prod(shape[1:])].reshape(tuple(shape)).to(dtype)

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Numbers in [0, 1), (replicas, ...)."""
        return _uniform(*self._counted(shape)).flatten(1)[:, : math.prod(shape[1:])].reshape(tuple(shape)).to(dtype)

    def _counted(self, shape: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Counters for a quarter of the numbers, the replicas' seeds, and the step with the call in its low bits."""
        _each(shape, self.seeds)
        quarter = torch.arange(-(-math.prod(shape[1:]) // 4), device=self.seeds.device)
        moment = self.step * 16 + self._call
        self._call += 1
        return quarter, self.seeds, moment


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Philox 4x32-10: four words for each counter and key, all 32-bit numbers held in int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]  # wrapped to 64 bits, of which all are right
        c0, c1, c2, c3 = ((p1 >> 32) & _MASK) ^ c1 ^ k0, p1 & _MASK, ((p0 >> 32) & _MASK) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def _words(quarter: Tensor, seeds: Tensor, moment: Tensor) -> tuple[Tensor, ...]:
    """Four words for each replica and each counter.  (replicas, quarter) each"""
    place = quarter[None, :]
    key = (seeds & _MASK)[:, None], ((seeds >> 32) & _MASK)[:, None]
    counter = (place & _MASK) + 0 * key[0], 0 * key[0] + 0 * place, (moment & _MASK) + 0 * key[0] + 0 * place
    return philox((*counter, ((moment >> 32) & _MASK) + 0 * key[0] + 0 * place), key)


@fused
def _uniform(quarter: Tensor, seeds: Tensor, moment: Tensor) -> Tensor:
    """(replicas, quarter, 4), with 24 bits: none of them rounds up to 1."""
    words = torch.stack(_words(quarter, seeds, moment), dim=-1)
    return (words >> 8).to(torch.float32) * 2.0**-24


@fused
def _normal(quarter: Tensor, seeds: Tensor, moment: Tensor) -> Tensor:
    """(replicas, quarter, 4), by Box and Muller's way from two uniform numbers to two normal ones."""
    a, b, c, d = ((word.to(torch.float32) + 0.5) * 2.0**-32 for word in _words(quarter, seeds, moment))
    far, wide = (-2 * a.log()).clamp(min=0.0).sqrt(), (-2 * c.log()).clamp(min=0.0).sqrt()
    turn, turned = 2 * math.pi * b, 2 * math.pi * d
    return torch.stack([far * turn.cos(), far * turn.sin(), wide * turned.cos(), wide * turned.sin()], dim=-1)


def stacked_noise(seeds: Sequence[int], step: Tensor) -> NoiseSource:
    """The source for replicas of these seeds, on the device of the step."""
    if step.device.type == "cpu":
        return GeneratorNoise([torch.Generator().manual_seed(seed) for seed in seeds])
    return CounterNoise(seeds, step)


def _each(shape: Sequence[int], replicas: Sequence[torch.Generator] | Tensor) -> tuple[int, ...]:
    if shape[0] != len(replicas):
        raise UsageError(f"numbers of shape {tuple(shape)} are asked of {len(replicas)} replicas: put them in front")
    return tuple(shape[1:])
