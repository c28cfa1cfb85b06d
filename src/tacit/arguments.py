"""Arguments of public functions, checked: whole numbers and the name of a device."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from tacit.errors import UsageError


def count(name: str, value: int, *, low: int = 1, high: int | None = None) -> int:
    """The value itself, if it is a whole number in [low, high]."""
    try:
        if isinstance(value, bool):
            raise TypeError
        value = index(value)  # numpy's whole numbers count as well
    except TypeError:
        raise UsageError(f"{name} must be a whole number, not {value!r}") from None
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        raise UsageError(f"{name} must be {limits}, not {value}")
    return value


def counts(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """The values as a tuple, if each is a whole number of at least 1; a bad one is named by its position."""
    return tuple(count(f"{name}[{i}]", value) for i, value in enumerate(values))


def device_named(name: str) -> str:
    """The device of this machine that a name stands for; "auto" is CUDA where there is one."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise UsageError(f"there is no device {name!r}; there are: auto, cpu, cuda")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError("torch sees no CUDA device here: take device auto or cpu, or install a torch build for CUDA")
    return name
