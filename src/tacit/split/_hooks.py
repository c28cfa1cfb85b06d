"""What is hung on a bottom model while it runs: it sees what is hidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tacit.errors import UsageError


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
