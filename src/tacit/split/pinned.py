"""What crosses the edge of a device: copied through pinned memory, of which torch keeps some at hand."""

from __future__ import annotations

import torch
from torch import Tensor


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device. Memory of this machine is there when this returns, a GPU's when it is computed with."""
    if tensor.device == device:
        return tensor
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    if device.type != "cpu" or tensor.device.type != "cuda":
        return tensor.to(device)
    room = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    room.copy_(tensor.detach(), non_blocking=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    return room
