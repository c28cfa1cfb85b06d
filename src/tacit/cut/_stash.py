"""Weights as they were when an embedding was made, kept until its gradient comes back.

Where several steps are open, a bottom changes between the way there and the way back of a step. The way back must go
through the weights of the way there, or it would be the gradient of nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from tacit.errors import UsageError


@contextmanager
def stashed(modules: Iterable[nn.Module]) -> Iterator[None]:
    """What runs here can be gone back through however these modules have changed by then.

    Of their weights and buffers those are copied that the way back needs: a table of embeddings is not, a matrix is.
    Everything else that the way back needs must stay as it is, as ever in PyTorch, and a change is refused.
    """
    changing = {
        value.untyped_storage().data_ptr()
        for module in modules
        for value in (*module.parameters(), *module.buffers())
        if value.layout is torch.strided
    }

    def kept(value: Tensor) -> tuple[Tensor, int]:
        if value.layout is torch.strided and value.untyped_storage().data_ptr() in changing:
            value = value.detach().clone()
        return value, value._version

    def found(stash: tuple[Tensor, int]) -> Tensor:
        value, version = stash
        if value._version != version:
            raise UsageError(
                f"a tensor of shape {tuple(value.shape)} was changed in place that the bottom's gradient needs: make "
                "a new one instead"
            )
        return value

    with saved_tensors_hooks(kept, found):
        yield
