"""What crosses a wire, where randomness comes from, and what a protection is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

# --- what crosses a wire ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """The only thing that crosses a wire.

    Attributes:
        step: the number of the step, counted from 0.
        kind: "embedding" (feature party to label party), "gradient" (the way back), or one of the few others that
            `tacit.wire.codec` lists: handshakes and refusals travel as bytes in a uint8 tensor.
        payload: one row for each example, in the order of the batch.
        rows: a digest of the order of the rows, so that two parties notice when they talk about different examples.
    """

    step: int
    kind: str
    payload: Tensor  # (batch, *cut)
    rows: bytes

    @property
    def head(self) -> bytes:
        """All of it but the payload's numbers, in one line."""
        shape = " ".join(str(side) for side in self.payload.shape)
        return f"{len(self.kind)} {self.kind} {self.step} {self.rows.hex()} {self.payload.dtype} ({shape})\n".encode()

    @cached_property
    def fingerprint(self) -> bytes:
        """A digest of all of it, the payload's bits included: two messages share it only if they are the same."""
        hashed = hashlib.sha256(self.head)
        hashed.update(raw_bytes(self.payload))
        return hashed.digest()


def raw_bytes(tensor: Tensor) -> memoryview:
    """A tensor's bytes in the order of its elements; copied only where they do not lie so in this machine's memory."""
    dense = tensor.detach().resolve_neg().to("cpu").contiguous()
    flat = dense.as_strided((dense.numel(),), (1,))  # a contiguous tensor of one row or none may have any stride
    return flat.view(torch.uint8).numpy().data


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, copied through pinned memory, of which torch keeps some at hand.

    This machine's memory is there when this returns, a GPU's when it is computed with.
    """
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


class Channel(Protocol):
    """One end of a wire between two parties."""

    def send(self, message: Message) -> None:
        """Hand a message over. It belongs to the other side from now on."""

    def recv(self, kind: str, step: int) -> Message:
        """The next message, which must be of this kind and step and of finite numbers; anything else is an error."""


class Link(Protocol):
    """One live connection to one peer: messages go both ways, in order. Once it breaks it stays broken."""

    @property
    def peer(self) -> str:
        """The peer's name, as the pinned certificate proves it."""

    def send(self, message: Message) -> None:
        """Hand a message over; a `LinkError` where the connection is gone."""

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message, or None where none came in so many seconds.

        A `LinkError` where the connection is gone, a `ProtocolError` where bytes came that are not allowed.
        """

    def close(self) -> None:
        """End the connection, after what was sent has gone out."""


# --- randomness ------------------------------------------------------------------------------------------------------


@runtime_checkable
class NoiseSource(Protocol):
    """Where randomness comes from: always an argument, never a module global."""

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Independent standard normal numbers."""

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Independent numbers, uniform on [0, 1)."""


Noise = torch.Generator | NoiseSource
"""What a caller may pass as randomness: a torch generator (simulations) or any source (a keyed stream)."""


@runtime_checkable
class StepNoise(Protocol):
    """Randomness that belongs to a step: asked again about the same step in the same setting, it is the same."""

    def at(self, step: int, *context: bytes) -> NoiseSource:
        """The source for this step; the context is whatever the randomness must not be used twice with."""


class OnDemand:
    """A step's randomness that is keyed when the first of it is drawn: most steps of most protections draw none."""

    def __init__(self, source: Callable[[], NoiseSource]) -> None:
        self._make = source
        self._source: NoiseSource | None = None

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Independent standard normal numbers."""
        return self._keyed().normal(shape, dtype=dtype, device=device)

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Independent numbers, uniform on [0, 1)."""
        return self._keyed().uniform(shape, dtype=dtype, device=device)

    def _keyed(self) -> NoiseSource:
        if self._source is None:
            self._source = self._make()
        return self._source


@dataclass(frozen=True)
class _GeneratorSource:
    generator: torch.Generator

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        where = self.generator.device
        return torch.randn(tuple(shape), generator=self.generator, dtype=dtype, device=where).to(device)

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        where = self.generator.device
        return torch.rand(tuple(shape), generator=self.generator, dtype=dtype, device=where).to(device)


def noise_source(noise: Noise) -> NoiseSource:
    """A `NoiseSource` for whatever the caller passed as randomness.

    >>> source = noise_source(torch.Generator().manual_seed(7))
    >>> source.normal((2, 3), dtype=torch.float32, device=torch.device("cpu")).shape
    torch.Size([2, 3])
    """
    if isinstance(noise, torch.Generator):
        return _GeneratorSource(noise)
    if isinstance(noise, NoiseSource):
        return noise
    raise TypeError(f"noise must be a torch.Generator or a NoiseSource, not {type(noise).__name__}")


# --- protections -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """What was done to what is sent, in plain values: settings and contracts are compared with it, reports tell it.

    Attributes:
        mechanism: the protection's name; "none" hides nothing.
        parameters: the options it ran with.
        parts: the events of a chain, in order; empty for a single protection.
    """

    mechanism: str
    parameters: Mapping[str, float | int | str | None] = field(default_factory=dict)
    parts: tuple[Event, ...] = ()


@dataclass(frozen=True)
class Protected:
    """What a protection returns: a new tensor to send, the next state, and what was done.

    Attributes:
        value: the protected gradient, of the input's shape, dtype and device.
        state: what the next call of `update` needs.
        event: what was done.
        report: figures of this call, as tensors (one number, or one for each problem of a stack), so that reading them
            is the caller's choice and nothing waits for the device before that.
    """

    value: Tensor
    state: Any
    event: Event
    report: Mapping[str, Tensor]


class Protection(Protocol):
    """What a label party does to a gradient before it is sent: pure, with explicit state and randomness."""

    def init(self) -> Any:
        """The state before the first step."""

    def update(
        self, grad: Tensor, labels: Tensor, state: Any, noise: Noise, embedding: Tensor | None = None
    ) -> Protected:
        """Protect one batch in the course of a run."""

    def __call__(self, grad: Tensor, labels: Tensor, noise: Noise, embedding: Tensor | None = None) -> Protected:
        """Protect one batch on its own, with a fresh state."""


class Regularizer(nn.Module):
    """An extra loss of the feature party on what it hides and what it sends; a module, because it may learn as well.

    Attributes:
        optimizer: of its own parameters; None where it has none. Its owner steps it together with the bottom's.
    """

    optimizer: torch.optim.Optimizer | None = None

    def forward(self, x: Tensor, z: Tensor, noise: NoiseSource) -> Tensor:
        """The weighted loss of one batch, a scalar; its gradient goes into z and into its own parameters, never into x.

        Args:
            x: what is to be hidden: the input of the network before the cut, one flat row for each example.
                (batch, inputs), detached
            z: the embedding as it stands at this protection's place in the list.  (batch, *cut)
            noise: this step's randomness.
        """
        raise NotImplementedError


@runtime_checkable
class EmbeddingProtection(Protocol):
    """What a feature party does so that its embeddings give less away: to the embedding, to its own model, or both.

    Several stand in a list and act in its order: each changes the embedding that the one before it left, and what a
    regularizer sees is the embedding at its own place. What changes the embedding does so in training, in evaluation
    and in serving alike; regularizers act in training alone.
    """

    @property
    def name(self) -> str:
        """Its name in configs, reports and tables."""

    @property
    def event(self) -> Event:
        """What it does."""

    def transform(self, z: Tensor, noise: NoiseSource) -> Tensor:
        """What goes on in the place of z, differentiable in z; z itself where this protection only adds a loss."""

    def regularizer(self, x: Tensor, z: Tensor, others: Sequence[Regularizer]) -> Regularizer | None:
        """The loss that it adds, made once for rows like these; None where it only changes the embedding.

        Args:
            x: a few rows of what is hidden, for their shape.  (rows, inputs)
            z: the embedding of these rows.  (rows, *cut)
            others: the regularizers of the protections before it in the list, with which it may share what they learn.
        """
