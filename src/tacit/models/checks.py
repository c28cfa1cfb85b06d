"""Checks of arguments and of input tensors, with messages that name the field."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from torch import Tensor

from tacit.errors import TensorError, UsageError


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


def shaped(name: str, value: Tensor, shape: Sequence[int]) -> Tensor:
    """The value itself, if it holds floating point numbers of this shape behind the batch dimension."""
    if tuple(value.shape[1:]) != tuple(shape) or value.ndim != len(shape) + 1:
        wanted = ", ".join(["batch", *map(str, shape)])
        raise TensorError(f"{name} must be of shape ({wanted}), not {tuple(value.shape)}")
    if not value.is_floating_point():
        raise TensorError(f"{name} must be a floating point tensor, not {value.dtype}: convert it with .float()")
    return value


def columns(name: str, value: Tensor | None, width: int) -> Tensor | None:
    """The value itself, if it has one row for each example and `width` columns; None where no column is expected."""
    if value is None:
        if width:
            raise TensorError(f"{name} is missing: the model was built for a tensor of shape (batch, {width})")
        return None
    if value.ndim != 2 or value.shape[1] != width:
        raise TensorError(f"{name} must be of shape (batch, {width}), not {tuple(value.shape)}")
    return value if width else None


def same_rows(**values: Tensor) -> None:
    """Refuse tensors with different numbers of rows, which broadcasting would hide."""
    if len({len(value) for value in values.values()}) > 1:
        rows = ", ".join(f"{name} has {len(value)} rows" for name, value in values.items())
        raise TensorError(f"{rows}: they must hold the same examples in the same order")
