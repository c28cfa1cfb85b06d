"""What is hung on a bottom model while it runs: weights kept for the way back, and what is hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from tacit.errors import UsageError


@contextmanager
def stashed(modules: Iterable[nn.Module]) -> Iterator[None]:
    """What runs here can be gone back through however these modules have changed by then.

    Where several steps are open, a bottom changes between the way there and the way back of a step. The way back must
    go through the weights of the way there, or it would be the gradient of nothing. Of their weights and buffers those
    are copied that the way back needs: a table of embeddings is not, a matrix is. Everything else that the way back
    needs must stay as it is, as ever in PyTorch, and a change is refused.
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


@contextmanager
def caught(bottom: nn.Module, hidden: nn.Module | None) -> Iterator[list[Sequence[Tensor]]]:
    """What comes out of a submodule, or into the bottom, each time the bottom runs; no hook of ours is left."""
    seen: list[Sequence[Tensor]] = []

    def catch(parts: Sequence[Tensor]) -> None:  # copies: the next layer may work in place
        seen.append([part.detach().clone() if isinstance(part, Tensor) else part for part in parts])

    if hidden is None:
        hook = bottom.register_forward_pre_hook(lambda module, inputs: catch(inputs))
    else:
        hook = hidden.register_forward_hook(lambda module, inputs, output: catch((output,)))
    try:
        yield seen
    finally:
        hook.remove()


def flat(hidden: Sequence[Tensor]) -> Tensor:
    """What is hidden as one flat row for each example, cut off from the graph.  (batch, inputs)"""
    if not hidden or any(not isinstance(part, Tensor) or not part.is_floating_point() for part in hidden):
        raise UsageError(
            "what is to be hidden is not all numbers (codes of categories have no distances): let the layer that "
            "embeds them be the attribute `inputs` of the bottom model"
        )
    return torch.cat([part.detach().flatten(1) for part in hidden], dim=1)
