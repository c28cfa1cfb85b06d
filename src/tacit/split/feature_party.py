"""The party that has the features: it runs the bottom of the model and learns from the gradients that come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tacit.align.batches import digest
from tacit.contracts import (
    Channel,
    EmbeddingProtection,
    Message,
    Noise,
    NoiseSource,
    OnDemand,
    Regularizer,
    StepNoise,
    noise_source,
)
from tacit.contracts.sent import moved
from tacit.errors import ProtocolError, TensorError, UsageError
from tacit.split._hooks import caught, flat
from tacit.split.tensors import evaluating, protections, tensors
from tacit.wire.codec import wrong_numbers


def _nothing(*_: object) -> None:
    """Nobody looks at what is sent."""


class FeatureParty:
    """The feature party: any bottom model, any optimizer, and protections for what it sends.

    Args:
        bottom: maps the features to an embedding: `bottom(*features)`.
        features: one tensor or several, all with one row for each example.
        optimizer: of the bottom's parameters.
        protect: what is done so that embeddings give less away, in this order, as `[gaussian(snr=4.0)]`; what changes
            an embedding does so in training, in evaluation and in `embed` alike.
        noise: where protections draw their randomness: a generator, a source, or one that has a source for each step
            (`tacit.split.protect.keyed_noise`). Between two companies it may be left out: each run derives its own.
    """

    def __init__(
        self,
        *,
        bottom: nn.Module,
        features: Tensor | Sequence[Tensor],
        optimizer: torch.optim.Optimizer,
        protect: Sequence[EmbeddingProtection] = (),
        noise: Noise | StepNoise | None = None,
    ) -> None:
        self.bottom = bottom
        self.features = tensors("features", features)
        self.optimizer = optimizer
        self.shield = Shield(protect, bottom, self.features)
        self.noise = noise
        self.steps = self.evaluations = 0
        self._open: _Opened | None = None  # the step whose gradient has not come
        self._next: tuple[Tensor | None, list[Tensor]] = (None, [])  # a batch whose inputs were prepared

    @property
    def device(self) -> torch.device:
        """Where this half computes."""
        return self.features[0].device

    def to(self, device: torch.device) -> None:
        """Move this half, its table, its protections and what their optimizers remember to a device."""
        self.bottom.to(device)
        self.features = tuple(feature.to(device) for feature in self.features)
        self.optimizer.load_state_dict(self.optimizer.state_dict())  # it lies where its parameters do
        for one in self.shield.learning:
            one.to(device)
            if one.optimizer is not None:
                one.optimizer.load_state_dict(one.optimizer.state_dict())

    def step(
        self,
        rows: Tensor,
        channel: Channel,
        *,
        before: Callable[[Tensor], None] = _nothing,
        leaving: Callable[[], None] = _nothing,
    ) -> dict[str, Tensor]:
        """Send an embedding, wait for its gradient, update the bottom; see `send`."""
        self.send(rows, channel, before=before, leaving=leaving)
        return self.finish(channel)

    def send(
        self,
        rows: Tensor,
        channel: Channel,
        *,
        before: Callable[[Tensor], None] = _nothing,
        leaving: Callable[[], None] = _nothing,
    ) -> Tensor:
        """The first half of a step: the embedding goes out.

        Args:
            rows: the batch.
            channel: to the label party.
            before: called with the embedding before anything is done to it; where it raises, nothing has left and
                nothing has changed.
            leaving: called when the embedding is about to be sent; where it raises, nothing is sent.
        """
        if self._open is not None:
            raise ProtocolError(f"step {self.steps}: the last embedding has no answer yet; call finish() first")
        with self.shield.looking() as hidden:
            z: Tensor = self.bottom(*self._inputs(rows))  # (batch, *cut)
        if z.ndim < 2 or len(z) != len(rows):
            raise TensorError(f"the bottom model gives {tuple(z.shape)} for {len(rows)} rows: (rows, *cut) is needed")
        if not z.requires_grad:
            raise UsageError(
                "the embedding depends on no parameter that can be trained: look for a frozen bottom model"
            )
        before(z.detach())
        self._open = opened = self.shield.opened(z, self.noise, self.steps, hidden)
        leaving()
        channel.send(Message(self.steps, "embedding", opened.sent.detach(), digest(rows)))
        self.shield.weigh(opened)  # while the label party is at work
        return opened.sent.detach()

    def prepare(self, rows: Tensor) -> None:
        """Take the inputs of the next batch out of the table, while there is nothing else to be done."""
        self._next = (rows, self._of(rows))

    def _inputs(self, rows: Tensor) -> Sequence[Tensor]:
        """Those of a batch; what was prepared is used once, for the bottom may work in place."""
        (prepared, inputs), self._next = self._next, (None, [])
        return inputs if prepared is rows else self._of(rows)

    def _of(self, rows: Tensor) -> list[Tensor]:
        places = moved(rows, self.device)
        return [feature[places] for feature in self.features]

    def finish(self, channel: Channel) -> dict[str, Tensor]:
        """The second half: the gradient comes back; refused, the step stays open as it is.

        Returns figures for this party alone: the embedding as it went out and, as "own_embedding", before its
        protections; the gradient as received; and where protections add a loss, their sum as "penalty".
        """
        opened = self._open
        if opened is None:
            raise ProtocolError(f"step {self.steps}: no embedding was sent yet; call send() first")
        self.optimizer.zero_grad()
        z = opened.sent
        gradient = moved(channel.recv("gradient", self.steps).payload, z.device)
        if gradient.shape != z.shape or gradient.dtype != z.dtype:
            raise TensorError(
                f"step {self.steps}: a gradient {tuple(gradient.shape)} of {gradient.dtype} came for an embedding "
                f"{tuple(z.shape)} of {z.dtype}; the model was not changed: compare both parties' models"
            )
        # a copy: what came is still being written down, and hooks of the bottom may change their gradients in place
        penalty = self.shield.backward(opened, gradient.clone())
        self.optimizer.step()
        self.shield.step()
        self._open = None
        self.steps += 1
        own = opened.places[0] if opened.places else z
        return {"embedding": z.detach(), "own_embedding": own.detach(), "gradient": gradient, **penalty}

    def embed(self, features: Tensor | Sequence[Tensor], noise: Noise | None = None) -> Tensor:
        """What may be sent of rows that are not trained on, for serving: protected as in training.

        Args:
            features: like those of the party, one row for each example.
            noise: where protections draw their randomness; the party's own source if not given. One that has a source
                for each step belongs to the steps of a training and can't be used here.
        """
        inputs = tensors("features", features)
        with evaluating(self.bottom):
            return self.shield.protected(self.bottom(*inputs), self.noise if noise is None else noise)

    def hidden(self, rows: Tensor) -> Tensor:
        """What the embeddings of these rows should not give away, as an evaluator needs it.  (rows, inputs)"""
        with evaluating(self.bottom), self.shield.caught() as seen:
            self.bottom(*self._of(rows))
        return flat(seen[-1] if seen else ())

    def evaluate(self, rows: Tensor, channel: Channel, *, leaving: Callable[[], None] = _nothing) -> Tensor:
        """Send the embedding of rows that are not trained on, and take what the label party shares about them."""
        with evaluating(self.bottom):
            z: Tensor = self.bottom(*self._of(rows))
            z = self.shield.protected(z, self.noise, "evaluation", self.evaluations)
        leaving()
        channel.send(Message(self.evaluations, "evaluation", z, digest(rows)))
        figures = channel.recv("figures", self.evaluations).payload
        self.evaluations += 1
        return figures


# --- its protections at work: what is hidden, what goes out, and what the bottom learns on the side -------------------


@dataclass
class _Opened:
    """A step's embedding on its way out, and what is needed of it until its gradient is back."""

    sent: Tensor  # as it goes out, with its graph
    hidden: list[Tensor]  # what is hidden in this step, where a protection adds a loss
    places: list[Tensor]  # the embedding before each protection
    noise: NoiseSource  # of this step
    losses: list[Tensor] = field(default_factory=list)  # of the protections


class Shield:
    """All protections of one feature party, in their order. Two rows of its features are tried out.

    Those that add a loss have a regularizer, which learns with the bottom. What is to be hidden is the output of the
    bottom's submodule `inputs`, as our tables' models have it, else the features themselves.
    """

    def __init__(self, protect: Sequence[EmbeddingProtection], bottom: nn.Module, features: Sequence[Tensor]) -> None:
        self.protect = protections(protect)
        self._bottom = bottom
        inputs: object = getattr(bottom, "inputs", None)
        self._hidden = inputs if isinstance(inputs, nn.Module) else None
        self.regularizers = self._bound(features) if self.protect else ()
        self.learning = [one for one in self.regularizers if one is not None]

    def caught(self) -> AbstractContextManager[list[Sequence[Tensor]]]:
        """Catches what is hidden, each time the bottom runs."""
        return caught(self._bottom, self._hidden)

    @contextmanager
    def looking(self) -> Iterator[list[Tensor]]:
        """Take note of what is hidden while the bottom runs."""
        hidden: list[Tensor] = []
        with self.caught() if self.learning else nullcontext([]) as seen:
            yield hidden
        hidden += [flat(parts) for parts in seen[-1:]]

    def opened(self, z: Tensor, noise: Noise | StepNoise | None, step: int, hidden: list[Tensor]) -> _Opened:
        """What goes out in the place of z in a step of the training, which is open from now on."""
        source = self._source(z, noise, "embedding", step)
        *places, sent = self._passed(z, source, step)
        return _Opened(sent, hidden, places, source)

    def protected(self, z: Tensor, noise: Noise | StepNoise | None, what: str = "", step: int = 0) -> Tensor:
        """What goes out in the place of z where nothing is learned; a step that is open stays as it is."""
        return self._passed(z, self._source(z, noise, what, step), step)[-1]

    def _passed(self, z: Tensor, source: NoiseSource, step: int) -> list[Tensor]:
        """The embedding as it is, and after each protection, in their order."""
        if self.protect and not _finite(z):
            raise TensorError(f"step {step}: the embedding is not finite, nothing was sent: look at inputs and rates")
        passed = [z]
        for one in self.protect:
            changed = one.transform(passed[-1], source)
            if changed.shape != z.shape or changed.dtype != z.dtype:
                raise TensorError(
                    f"the protection {one.name} made {tuple(changed.shape)} of {changed.dtype} from an embedding "
                    f"{tuple(z.shape)} of {z.dtype}; nothing was sent: a protection keeps shape and dtype"
                )
            if not _finite(changed):
                raise TensorError(
                    f"what the protection {one.name} made is not finite, nothing was sent: lower its strength"
                )
            passed.append(changed)
        return passed

    def _source(self, z: Tensor, noise: Noise | StepNoise | None, what: str, step: int) -> NoiseSource:
        """This message's randomness.

        A keyed one is bound to the very embedding that it will hide, so that no two embeddings ever go out under the
        same noise, whatever else has changed in between.
        """
        if noise is None or not self.protect:
            return _NoNoise()
        if isinstance(noise, StepNoise):
            if not what:
                raise UsageError("this noise belongs to the steps of a training: pass noise=torch.Generator() to embed")
            return OnDemand(lambda: noise.at(step, what.encode(), Message(step, what, z, b"").fingerprint))
        return noise_source(noise)

    def weigh(self, opened: _Opened) -> None:
        """The losses of an open step, once; nothing is learned from them before `backward`."""
        if opened.losses:
            return
        places = zip(self.regularizers, opened.places, strict=True)
        losses = [one(opened.hidden[0], z, opened.noise) for one, z in places if one is not None]
        for one, loss in zip(self.learning, losses, strict=True):
            if loss.ndim or not _finite(loss):
                raise TensorError(
                    f"the loss of {type(one).__name__} is {loss.tolist()}, the model was not changed: it must be one "
                    "finite number; look at inputs, learning rates and its weight"
                )
        opened.losses = losses

    def backward(self, opened: _Opened, gradient: Tensor) -> dict[str, Tensor]:
        """Both ways of learning at once: the gradient that came back, and the losses; their sum where there are any."""
        self.weigh(opened)
        losses = opened.losses
        for one in self.learning:
            one.zero_grad()
        torch.autograd.backward([opened.sent, *losses], [gradient, *(torch.ones_like(loss) for loss in losses)])
        return {"penalty": torch.stack([loss.detach() for loss in losses]).sum()} if losses else {}

    def step(self) -> None:
        """Let the regularizers learn."""
        for one in self.learning:
            if one.optimizer is not None:
                one.optimizer.step()

    def state(self) -> list[dict[str, Any]]:
        """What the regularizers have learned, for a checkpoint."""
        return [
            {"module": one.state_dict(), "optimizer": {} if one.optimizer is None else one.optimizer.state_dict()}
            for one in self.learning
        ]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Bring back what `state` gave."""
        for one, then in zip(self.learning, state, strict=True):
            one.load_state_dict(then["module"])
            if one.optimizer is not None:
                one.optimizer.load_state_dict(then["optimizer"])

    def _bound(self, features: Sequence[Tensor]) -> tuple[Regularizer | None, ...]:
        """The regularizers, made for rows like the first two."""
        with evaluating(self._bottom), self.caught() as seen:
            z = self._bottom(*(feature[:2].clone() for feature in features))  # the bottom may work in place
        problem: UsageError | None = None
        try:
            x = flat(seen[-1] if seen else ())
        except UsageError as error:  # no matter where nothing but the embedding itself is changed
            x, problem = z.new_zeros(len(z), 1), error
        made: list[Regularizer | None] = []
        for one in self.protect:
            made.append(one.regularizer(x, z, [other for other in made if other is not None]))
        if problem is not None and any(one is not None for one in made):
            raise problem
        return tuple(made)


class _NoNoise:
    """Stands for randomness that nobody gave; protections that need none never ask."""

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        raise UsageError(
            "a protection of the embedding needs noise and there is no source: pass noise=torch.Generator(), or train "
            "between two folders"
        )

    uniform = normal


def _finite(x: Tensor) -> bool:
    """Whether no entry is NaN or infinite, in one pass; always True off the CPU, where looking waits for the device."""
    return x.device.type != "cpu" or not wrong_numbers(x)
