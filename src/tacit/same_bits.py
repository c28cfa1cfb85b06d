"""The same bits for a row, whatever rows come with it.

Libraries sum products in another order for one row than for many, so that a row alone gets other last digits, and with
them other noise. Here rows go through in blocks of one size, filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BLOCK = 64  # rows


def in_blocks(apply: Callable[..., Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """What a function gives for rows."""
    rows, found = len(tensors[0]), torch.empty(0)
    for start in range(0, max(1, rows), _BLOCK):
        some = [tensor[start : start + _BLOCK] for tensor in tensors]
        count = len(some[0])
        if count < _BLOCK:
            some = [torch.cat([part, part.new_zeros(_BLOCK - count, *part.shape[1:])]) for part in some]
        given = apply(*some)[:count]
        if not start:
            found = given.new_empty(rows, *given.shape[1:])
        found[start : start + count] = given
    return found


def mixed(values: NDArray[np.float64], mix: NDArray[np.float64]) -> NDArray[np.float32]:
    """The product of rows (rows, numbers) and a matrix (numbers, width), each row with the bits that it has alone."""
    blocks = -(-len(values) // _BLOCK)
    full = values
    if len(values) % _BLOCK:
        full = np.zeros((blocks * _BLOCK, values.shape[1]))
        full[: len(values)] = values
    product = full.reshape(blocks, _BLOCK, values.shape[1]) @ mix
    return product.reshape(-1, mix.shape[1])[: len(values)].astype(np.float32)
