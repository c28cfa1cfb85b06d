"""What both parties do with their tensors and models apart from the step itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tacit.contracts import EmbeddingProtection, Message, Protection
from tacit.errors import UsageError


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


def weights(model: nn.Module) -> bytes:
    """A digest of a model's parameters and buffers."""
    hashed = hashlib.sha256()
    for name, value in model.state_dict().items():
        hashed.update(Message(0, name, value, b"").fingerprint)
    return hashed.digest()


def gradient_protection(protect: Protection) -> Protection:
    """The protection of gradients that a caller gave, if that is what it is."""
    if isinstance(protect, type) or not (hasattr(protect, "init") and hasattr(protect, "update")):
        raise UsageError(
            f"protect is {protect!r}, no gradient protection: pass one, as marvell(scale=4.0) or none(); what "
            "randomized_response() makes goes into labels and targets"
        )
    return protect


def protections(protect: Sequence[EmbeddingProtection], *, name: str = "protect") -> tuple[EmbeddingProtection, ...]:
    """The protections of embeddings that a caller gave, if that is what they are."""
    if isinstance(protect, EmbeddingProtection):
        raise UsageError(f"{name} is a single protection: pass a list, as {name}=[{protect!r}]")
    for one in protect:
        if isinstance(one, type) or not isinstance(one, EmbeddingProtection):
            raise UsageError(f"{name} holds {one!r}, no embedding protection: pass what gaussian(snr=4.0) makes")
    return tuple(protect)
