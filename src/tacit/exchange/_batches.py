"""Batches for a network that learns: of rows on its device where all fit there, else from memory, a block ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

MOST_STEPS = 4096
"""Steps an epoch at most: beyond so many usual batches the batches grow, for smaller ones keep no device busy.

With 512 rows a batch nothing changes up to two million rows; 45 million have batches of 10,987.
"""

_COPIED = 1 << 18  # rows that are copied to a device at once, to stay there
_AHEAD = 1 << 16  # rows that are copied while those before them are learnt from


def rows_a_step(rows: int, usual: int) -> int:
    """The size of a batch: the usual one, or more where an epoch would have more than `MOST_STEPS` of them."""
    return max(usual, -(-rows // MOST_STEPS))


def placed(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Rows on a device, codes as int32, where they take at most half of what is free there; else as they are."""
    if device.type == "cpu" or all(tensor.device == device for tensor in tensors):
        return list(tensors)
    torch.cuda.empty_cache()  # what torch keeps for itself is free as well
    left = [tensor for tensor in tensors if tensor.device != device]
    needed = sum(tensor.numel() * torch.empty(0, dtype=_kept(tensor)).element_size() for tensor in left)
    if needed > torch.cuda.mem_get_info(device)[0] // 2:
        return list(tensors)
    return [tensor if tensor.device == device else _copied(tensor, device) for tensor in tensors]


def drawn(tensors: Sequence[Tensor], plan: Sequence[Tensor], device: torch.device) -> Iterator[list[Tensor]]:
    """The rows of each batch of a plan on the device, wherever the tensors are; codes as int64."""
    if device.type == "cpu" or all(tensor.device == device for tensor in tensors):
        for rows in plan:
            yield [_widened(tensor[rows]) for tensor in tensors]
    else:
        yield from ahead(tensors, plan, device)


def ahead(tensors: Sequence[Tensor], plan: Sequence[Tensor], device: torch.device) -> Iterator[list[Tensor]]:
    """The same from rows that are gathered in memory, several batches at once, while those before are learnt from."""
    each = max(1, _AHEAD // max(1, len(plan[0])))  # batches
    blocks = [plan[start : start + each] for start in range(0, len(plan), each)]

    def gathered(block: Sequence[Tensor]) -> list[Tensor]:
        rows = torch.cat(list(block))
        found = [tensor[rows.to(tensor.device)] for tensor in tensors]
        return [part.pin_memory() if device.type == "cuda" and part.device.type == "cpu" else part for part in found]

    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(gathered, blocks[0])
        for place, block in enumerate(blocks):
            here = [_widened(part.to(device, non_blocking=True)) for part in coming.result()]
            if place + 1 < len(blocks):
                coming = beside.submit(gathered, blocks[place + 1])
            sizes = [len(rows) for rows in block]
            for batch in zip(*(part.split(sizes) for part in here), strict=True):
                yield list(batch)


def _copied(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy made block by block, for the rows may be a file that is larger than memory."""
    there = torch.empty(tensor.shape, dtype=_kept(tensor), device=device)
    for start in range(0, len(tensor), _COPIED):
        there[start : start + _COPIED].copy_(tensor[start : start + _COPIED])
    return there


def _kept(tensor: Tensor) -> torch.dtype:
    """Half of the memory is enough for codes."""
    return torch.int32 if tensor.dtype == torch.int64 else tensor.dtype


def _widened(batch: Tensor) -> Tensor:
    return batch.long() if batch.dtype == torch.int32 else batch
