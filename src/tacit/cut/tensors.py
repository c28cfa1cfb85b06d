"""What both parties ask of tensors: their own ones at the start, and those that come over a wire at each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tacit.errors import UsageError

__all__ = ["evaluating", "finite", "tensors"]


def tensors(name: str, given: Tensor | Sequence[Tensor], *, rows: int | None = None) -> tuple[Tensor, ...]:
    """One tensor or several as a tuple, if all have `rows` rows.

    Where no number is given, there must be at least one tensor, and the others have as many rows as the first.
    """
    each = (given,) if isinstance(given, Tensor) else tuple(given)
    for place, one in enumerate(each):
        if not isinstance(one, Tensor) or one.ndim == 0:
            raise UsageError(f"{name}[{place}] is no tensor with rows, but {one!r}: pass one row for each example")
    if rows is None and not each:
        raise UsageError(f"{name} hold no tensor: pass one or several, with one row for each example")
    if any(len(one) != (len(each[0]) if rows is None else rows) for one in each):
        wanted = "the same number each" if rows is None else f"{rows} each"
        sizes = ", ".join(str(len(one)) for one in each)
        raise UsageError(f"the tensors of {name} have {sizes} rows, not {wanted}: align the tables first")
    return each


def finite(x: Tensor) -> bool:
    """Whether no entry is NaN or infinite, in one pass; always True off the CPU, where looking waits for the device."""
    if x.device.type != "cpu" or not x.numel():
        return True
    return all(bool(torch.isfinite(edge)) for edge in torch.aminmax(x.detach()))


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every submodule is back in the mode it was in."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    try:
        with torch.no_grad():
            for model in models:
                model.eval()
            yield
    finally:
        for module, mode in modes:
            module.training = mode
