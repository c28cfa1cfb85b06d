"""CUDA kernels for the embedding tables of a stack; a row of the table holds all replicas side by side.

A program handles some of a batch's codes and, for each of them, a stretch of its row: neighbouring threads read
neighbouring numbers. Where several examples have one code, their gradients are added up atomically, and of those
examples the last one owns the row in this step and alone updates it. A kernel takes tensors and numbers one by one,
and so has many parameters.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

_TILE = 256  # numbers that a program handles


@triton.jit
def _look_up(
    weight, codes, seed_of, x, count, batch, columns, replicas, WIDTH: tl.constexpr, inputs, TALL: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    code = tl.program_id(0) * TALL + tl.arange(0, TALL)[:, None]
    lane = tl.program_id(1) * WIDE + tl.arange(0, WIDE)[None, :]
    live = (code < count) & (lane < replicas * WIDTH)
    replica, entry = lane // WIDTH, lane % WIDTH
    seed = tl.load(seed_of + replica, mask=lane < replicas * WIDTH, other=0)
    row = tl.load(codes + seed * count + code, mask=live, other=0).to(tl.int64)
    value = tl.load(weight + row * (replicas * WIDTH) + lane, mask=live)
    place = (replica.to(tl.int64) * batch + code // columns) * inputs + (code % columns) * WIDTH + entry
    tl.store(x + place, value, mask=live)


@triton.jit
def _add(
    total, owner, codes, seed_of, leads, gradient, step, count, batch, columns, replicas, seeds, WIDTH: tl.constexpr,
    inputs, TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    code = tl.program_id(0) * TALL + tl.arange(0, TALL)[:, None]
    lane = tl.program_id(1) * WIDE + tl.arange(0, WIDE)[None, :]
    live = (code < count) & (lane < replicas * WIDTH)
    replica, entry = lane // WIDTH, lane % WIDTH
    seed = tl.load(seed_of + replica, mask=lane < replicas * WIDTH, other=0)
    row = tl.load(codes + seed * count + code, mask=live, other=0).to(tl.int64)
    place = (replica.to(tl.int64) * batch + code // columns) * inputs + (code % columns) * WIDTH + entry
    tl.atomic_add(total + row * (replicas * WIDTH) + lane, tl.load(gradient + place, mask=live, other=0.0), mask=live)
    first = live & (entry == 0) & (tl.load(leads + replica, mask=lane < replicas * WIDTH, other=0) != 0)
    tl.atomic_max(owner + row * seeds + seed, tl.load(step) * count + code, mask=first)


@triton.jit
def _adam(
    weight, first, second, total, owner, codes, seed_of, step, rate, new1, new2, log1, log2, eps, count, replicas,
    seeds, WIDTH: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    code = tl.program_id(0) * TALL + tl.arange(0, TALL)[:, None]
    lane = tl.program_id(1) * WIDE + tl.arange(0, WIDE)[None, :]
    live = (code < count) & (lane < replicas * WIDTH)
    seed = tl.load(seed_of + lane // WIDTH, mask=lane < replicas * WIDTH, other=0)
    row = tl.load(codes + seed * count + code, mask=live, other=0).to(tl.int64)
    now = tl.load(step)
    mine = live & (tl.load(owner + row * seeds + seed, mask=live, other=-1) == now * count + code)
    place = row * (replicas * WIDTH) + lane
    g = tl.load(total + place, mask=mine, other=0.0)
    mean = tl.load(first + place, mask=mine, other=0.0)
    mean += new1 * (g - mean)
    square = tl.load(second + place, mask=mine, other=0.0)
    square += new2 * (g * g - square)
    correct1 = (1 - tl.exp(now.to(tl.float64) * log1)).to(tl.float32)
    correct2 = tl.sqrt(1 - tl.exp(now.to(tl.float64) * log2)).to(tl.float32)
    old = tl.load(weight + place, mask=mine, other=0.0)
    tl.store(weight + place, old - rate / correct1 * mean / (tl.sqrt(square) / correct2 + eps), mask=mine)
    tl.store(first + place, mean, mask=mine)
    tl.store(second + place, square, mask=mine)
    tl.store(total + place, tl.zeros_like(g), mask=mine)


def look_up(weight: Tensor, codes: Tensor, seed_of: Tensor, x: Tensor) -> None:
    """Write the rows of these codes into the first columns of x.

    Weights are (rows, replicas, width), codes (seeds, batch, columns), x (replicas, batch, inputs); `seed_of` says
    which of the batches a replica reads.
    """
    (_, batch, columns), (_, replicas, width) = codes.shape, weight.shape
    codes = codes.contiguous()
    grid, tall, wide = _grid(batch * columns, replicas * width)
    _look_up[grid](
        weight, codes, seed_of, x, batch * columns, batch, columns, replicas, width, x.shape[-1], TALL=tall, WIDE=wide
    )


def update(  # as the kernels: tensors and numbers one by one
    tables: tuple[Tensor, ...], codes: Tensor, seed_of: Tensor, leads: Tensor, gradient: Tensor, step: Tensor,
    rate: float, betas: tuple[float, float], eps: float,
) -> None:  # fmt: skip
    """Adam on the rows of these codes, with the gradient of what `look_up` wrote (replicas, batch, inputs).

    The tables are weights, both averages, the buffer for sums (all zero, and left so), and who owns a row; `leads` says
    which replica is the first of its seed, and steps are counted from 1.
    """
    weight, first, second, total, owner = tables
    (_, batch, columns), (_, replicas, width) = codes.shape, weight.shape
    codes, gradient = codes.contiguous(), gradient.contiguous()
    grid, tall, wide = _grid(batch * columns, replicas * width)
    _add[grid](
        total, owner, codes, seed_of, leads, gradient, step, batch * columns, batch, columns, replicas,
        owner.shape[1], width, gradient.shape[-1], TALL=tall, WIDE=wide,
    )  # fmt: skip
    _adam[grid](
        weight, first, second, total, owner, codes, seed_of, step, rate, 1 - betas[0], 1 - betas[1],
        math.log(betas[0]), math.log(betas[1]), eps, batch * columns, replicas,
        owner.shape[1], width, TALL=tall, WIDE=wide,
    )  # fmt: skip


def _grid(count: int, lanes: int) -> tuple[tuple[int, int], int, int]:
    wide = min(_TILE, triton.next_power_of_2(lanes))
    tall = max(1, _TILE // wide)
    return (triton.cdiv(count, tall), triton.cdiv(lanes, wide)), tall, wide
