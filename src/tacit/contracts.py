"""The few shapes that all parts of Tacit agree on: what is sent, protected, attacked and measured.

This module imports torch and nothing of ours, so that every other part may import it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

__all__ = [
    "Attack",
    "Channel",
    "EmbeddingProtection",
    "Estimate",
    "Event",
    "Guess",
    "InputAttack",
    "Known",
    "KnownInputs",
    "Link",
    "Message",
    "Noise",
    "NoiseSource",
    "Protected",
    "Protection",
    "Reconstruction",
    "Regularizer",
    "StepNoise",
    "View",
    "noise_source",
    "raw_bytes",
]


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

    @cached_property
    def fingerprint(self) -> bytes:
        """A digest of all of it, the payload's bits included: two messages share it only if they are the same."""
        shape = " ".join(str(side) for side in self.payload.shape)
        head = f"{len(self.kind)} {self.kind} {self.step} {self.rows.hex()} {self.payload.dtype} ({shape})\n"
        hashed = hashlib.sha256(head.encode())
        hashed.update(raw_bytes(self.payload))
        return hashed.digest()


def raw_bytes(tensor: Tensor) -> memoryview:
    """A tensor's bytes in the order of its elements; copied only where they do not lie so in this machine's memory."""
    dense = tensor.detach().resolve_neg().to("cpu").contiguous()
    flat = dense.as_strided((dense.numel(),), (1,))  # a contiguous tensor of one row or none may have any stride
    return flat.view(torch.uint8).numpy().data


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
    """What was done, for the ledger to judge later. A mechanism that the ledger does not know raises there.

    Attributes:
        mechanism: the protection's name; "none" counts as infinite leakage, never as zero.
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
        event: what the ledger needs to know.
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
        """What the ledger needs to know."""

    def transform(self, z: Tensor, noise: NoiseSource) -> Tensor:
        """What goes on in the place of z, differentiable in z; z itself where this protection only adds a loss."""

    def regularizer(self, x: Tensor, z: Tensor, others: Sequence[Regularizer]) -> Regularizer | None:
        """The loss that it adds, made once for rows like these; None where it only changes the embedding.

        Args:
            x: a few rows of what is hidden, for their shape.  (rows, inputs)
            z: the embedding of these rows.  (rows, *cut)
            others: the regularizers of the protections before it in the list, with which it may share what they learn.
        """


# --- attacks and measures --------------------------------------------------------------------------------------------


def _stacked(name: str, value: Tensor, like: tuple[int, int] | None = None) -> None:
    """Refuse what is no stack of batches, or one of other steps and rows than it should have."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"View.of: {name} is a {type(value).__name__}: pass one tensor (steps, batch, *cut), as torch.stack makes "
            "of the batches' tensors"
        )
    if value.ndim < 3:
        raise ValueError(
            f"View.of: {name} has shape {tuple(value.shape)}: pass (steps, batch, *cut); of a single batch "
            f"(batch, width) that is {name}[None]"
        )
    if like is not None and value.shape[:2] != like:
        raise ValueError(
            f"View.of: {name} is {tuple(value.shape)} for a gradient of {like[0]} steps of {like[1]} rows: record both "
            "at the same steps"
        )


@dataclass(frozen=True)
class View:
    """One party's transcript: the messages it sent and received, and what it had itself. It holds no truth.

    Attributes:
        role: whose eyes these are, "features" or "label".
        messages: what this party sent and received, in order; all batches are of one size.
        own: what it knows without any message, one tensor for each step, stacked: "rows" are the ids of the examples
            (steps, batch), "embedding" a feature party's embeddings before it protected them, and any other name is a
            layer of its own model whose gradient it wrote down (steps, batch, *layer).
    """

    role: str
    messages: Sequence[Message]
    own: Mapping[str, Tensor]

    @classmethod
    def of(
        cls,
        gradient: Tensor,
        *,
        rows: Tensor | None = None,
        embedding: Tensor | None = None,
        own_embedding: Tensor | None = None,
        layers: Mapping[str, Tensor] | None = None,
        role: str = "features",
    ) -> View:
        """A view from stacked tensors: gradients (steps, batch, *cut) and, if wanted, row ids and embeddings.

        Without row ids every row counts as another example. What is no tensor is a `TypeError`, and shapes that do not
        belong together are a `ValueError`.

        >>> view = View.of(torch.zeros(3, 4, 2))
        >>> view.gradient.shape, view.rows[2].tolist()
        (torch.Size([3, 4, 2]), [8, 9, 10, 11])
        """
        _stacked("gradient", gradient)
        steps, batch = gradient.shape[:2]
        if embedding is not None:
            _stacked("embedding", embedding, (steps, batch))
        before = {}
        if own_embedding is not None:
            _stacked("own_embedding", own_embedding, (steps, batch))
            before = {"embedding": own_embedding}
        if rows is None:
            rows = torch.arange(steps * batch, device=gradient.device).reshape(steps, batch)
        elif not isinstance(rows, Tensor) or rows.is_floating_point():
            kind = rows.dtype if isinstance(rows, Tensor) else type(rows).__name__
            raise TypeError(f"View.of: rows is {kind}: pass the examples' ids as a tensor of whole numbers")
        elif rows.shape != (steps, batch):
            raise ValueError(
                f"View.of: rows are {tuple(rows.shape)} for a gradient of {steps} steps of {batch} rows: pass one id "
                f"for each row, {(steps, batch)}"
            )
        sent = [] if embedding is None else [Message(i, "embedding", z, b"") for i, z in enumerate(embedding)]
        received = [Message(i, "gradient", g, b"") for i, g in enumerate(gradient)]
        return cls(role, [*sent, *received], {"rows": rows, **before, **(layers or {})})

    @classmethod
    def of_embeddings(cls, embedding: Tensor, *, rows: Tensor | None = None, role: str = "label") -> View:
        """A view of embeddings alone, (steps, batch, *cut): what a label party sees of a feature party.

        >>> View.of_embeddings(torch.zeros(3, 4, 2)).embedding.shape
        torch.Size([3, 4, 2])
        """
        _stacked("embedding", embedding)
        view = cls.of(embedding, rows=rows, role=role)
        return cls(role, [Message(m.step, "embedding", m.payload, m.rows) for m in view.messages], view.own)

    @property
    def rows(self) -> Tensor:
        """Ids of the examples in each batch.  (steps, batch)"""
        return self.own["rows"]

    @cached_property
    def gradient(self) -> Tensor:
        """The gradient of each step as it crossed the wire, flattened.  (steps, batch, width)"""
        return self._stack("gradient")

    @cached_property
    def embedding(self) -> Tensor:
        """The embedding of each step as it crossed the wire, flattened.  (steps, batch, width)"""
        return self._stack("embedding")

    @property
    def own_embedding(self) -> Tensor:
        """The embeddings that a feature party itself has, before it protected them; as sent where none are noted.

        (steps, batch, width)
        """
        return self.own["embedding"].flatten(start_dim=2) if "embedding" in self.own else self.embedding

    def _stack(self, kind: str) -> Tensor:
        payloads = [m.payload for m in self.messages if m.kind == kind]
        if not payloads:
            raise KeyError(f"the transcript holds no {kind}: record it, or leave out the attacks that need it")
        return torch.stack(payloads).flatten(start_dim=2)

    def at(self, layer: str) -> View:
        """The same view with the gradient of another layer in the place of the cut's; "cut" is the view itself."""
        if layer == "cut":
            return self
        layers = [name for name in self.own if name not in ("embedding", "rows")]
        if layer not in layers:
            raise KeyError(f"the transcript holds no layer {layer!r}, only: {', '.join(['cut', *layers])}")
        others = [m for m in self.messages if m.kind != "gradient"]
        here = [Message(i, "gradient", g, b"") for i, g in enumerate(self.own[layer])]
        kept = {name: value for name, value in self.own.items() if name in ("embedding", "rows")}
        return View(self.role, [*others, *here], kept)


@dataclass(frozen=True)
class Known:
    """What an attacker is granted beyond its view. Each attack says in its docstring what it uses.

    Attributes:
        labels: for each row id its label where the attacker knows it, -1 where it does not.  (number of ids,)
        positive_gradient: one clean gradient of a positive example for each step.  (steps, width)
        share: the share of positives among all examples.
        prediction: for each row id what the finished model itself predicts: the honest baseline of an attack that
            looks at embeddings.  (number of ids,)
    """

    labels: Tensor | None = None
    positive_gradient: Tensor | None = None
    share: float | None = None
    prediction: Tensor | None = None


@dataclass(frozen=True)
class Guess:
    """An attacker's answer: a score for each row, higher where it believes more in a positive label.

    Attributes:
        rows: ids of the examples that were scored.  (batches, batch)
        score: what the attacker believes.  (batches, batch)
        counted: False where a row was only used for fitting and must not be judged; None where all count.
        baseline: the score that the same attacker reaches without what was received, where that is not a coin flip.
    """

    rows: Tensor
    score: Tensor
    counted: Tensor | None = None
    baseline: Tensor | None = None


class Attack(Protocol):
    """Guesses labels from a view, from what it is granted, and from randomness: never from the truth."""

    @property
    def name(self) -> str:
        """The attack's name in configs, reports and tables."""

    def __call__(self, view: View, known: Known, noise: Noise) -> Guess:
        """Score every row of the view."""


@dataclass(frozen=True)
class KnownInputs:
    """What a label party that is after the inputs is granted beyond its view.

    Attributes:
        inputs: for each row id its input where the attacker knows it, NaN in the whole row where it does not.
            (number of ids, *input)
        samples: inputs of the same population, without saying whose they are.  (samples, *input)
        attribute: for each row id the code of its private attribute where it is known, -1 where it is not.
            (number of ids,)
    """

    inputs: Tensor | None = None
    samples: Tensor | None = None
    attribute: Tensor | None = None


@dataclass(frozen=True)
class Reconstruction:
    """An attacker's answer about inputs: what it believes each row was.

    Attributes:
        rows: ids of the examples.  (rows,)
        value: what the attacker believes: the input itself (rows, *input), or for an attribute a score for each of its
            codes (rows, codes).
        counted: False where a row was used for fitting and must not be judged.  (rows,)
    """

    rows: Tensor
    value: Tensor
    counted: Tensor


class InputAttack(Protocol):
    """Guesses inputs from a view of the embeddings, from what it is granted, and from randomness."""

    @property
    def name(self) -> str:
        """The attack's name in configs, reports and tables."""

    def __call__(self, view: View, known: KnownInputs, noise: Noise) -> Reconstruction:
        """A belief about every row of the view."""


@dataclass(frozen=True)
class Estimate:
    """A measured figure with its 95% confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"
