"""The party that has the features: it runs the bottom of the model and learns from the gradients that come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tacit.align.batches import digest
from tacit.contracts import Channel, EmbeddingProtection, Message, Noise, StepNoise
from tacit.cut._embedding import Opened, Shield
from tacit.cut._stash import stashed
from tacit.cut.tensors import evaluating, tensors
from tacit.errors import ProtocolError, TensorError, UsageError

_TAKEN = (
    "cut",
    "embedding",
    "gradient",
    "own_embedding",
    "penalty",
    "rows",
)  # names that mean something else in a transcript


def _nothing(*_: object) -> None:
    """Nobody looks at what is sent."""


@dataclass
class _Watched:
    """What the watched layers of one step show."""

    gradients: dict[str, Tensor] = field(default_factory=dict)  # that came back
    edges: list[GradientEdge] = field(default_factory=list)  # where the layers lie in the step's graph


class FeatureParty:
    """The feature party: any bottom model, any optimizer, and protections for what it sends.

    Args:
        bottom: maps the features to an embedding: `bottom(*features)`.
        features: one tensor or several, all with one row for each example.
        optimizer: of the bottom's parameters.
        protect: what is done so that embeddings give less away, in this order, as `[gaussian(snr=4.0)]`; what changes
            an embedding does so in training, in evaluation and in `embed` alike.
        noise: where protections draw their randomness: a generator, a source, or one that has a source for each step
            (`tacit.protect.keyed_noise`). Between two companies it may be left out: each run derives its own.
        hide: the name of the submodule of the bottom whose output is to be hidden, the input of the network proper;
            where it is not given that is `inputs`, as our tables' models have it, else the features themselves.
        watch: names of submodules of the bottom whose activation gradient is to be kept at each step, as in
            `bottom.named_modules()`: what reaches the cut reaches them too, and can be attacked there. Of a submodule
            that runs several times in a step the last time counts.
        depth: how many embeddings may be on their way at once. Each gradient is the one of the weights that its
            embedding was made with, and is applied to those of up to so many steps less one later.
    """

    def __init__(
        self,
        *,
        bottom: nn.Module,
        features: Tensor | Sequence[Tensor],
        optimizer: torch.optim.Optimizer,
        protect: Sequence[EmbeddingProtection] = (),
        noise: Noise | StepNoise | None = None,
        hide: str | None = None,
        watch: Sequence[str] = (),
        depth: int = 1,
    ) -> None:
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
            raise UsageError(f"depth = {depth!r} is out of range: it is a whole number, 1 or more")
        self.bottom = bottom
        self.features = tensors("features", features)
        self.optimizer = optimizer
        self.shield = Shield(protect, bottom, self.features, hide)
        self.noise = noise
        self.steps = 0
        self.evaluations = 0
        self.depth = depth
        self._watched = {name: _layer(bottom, name) for name in watch}
        self._open: deque[tuple[Opened, _Watched]] = deque()  # steps whose gradients have not come, oldest first
        self._evaluating = 0  # evaluations whose figures have not come

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
            before: called with the embedding before anything is done to it; it may set other protections, and where it
                raises, nothing has left and nothing has changed.
            leaving: called when the embedding is about to be sent; where it raises, nothing is sent.
        """
        step = self.steps + len(self._open)
        if len(self._open) >= self.depth:
            raise ProtocolError(f"step {self.steps}: the last embedding has no answer yet; call finish() first")
        with self._stashed(), self._watching() as watched, self.shield.looking() as hidden:
            z: Tensor = self.bottom(*(feature[rows] for feature in self.features))  # (batch, *cut)
        if z.ndim < 2 or len(z) != len(rows):
            raise TensorError(f"the bottom model gives {tuple(z.shape)} for {len(rows)} rows: (rows, *cut) is needed")
        if not z.requires_grad:
            raise UsageError(
                "the embedding depends on no parameter that can be trained: look for a frozen bottom model"
            )
        before(z.detach())
        with self._stashed():
            opened = self.shield.opened(z, self.noise, step, hidden)
        self._open.append((opened, watched))
        leaving()
        channel.send(Message(step, "embedding", opened.sent.detach(), digest(rows)))
        with self._stashed():
            self.shield.weigh(opened)  # while the label party is at work
        return opened.sent.detach()

    def finish(self, channel: Channel) -> dict[str, Tensor]:
        """The second half, of the oldest open step: its gradient comes back.

        Where it is refused, the step stays open and nothing has changed.

        Returns:
            Figures for this party alone: the embedding as it went out and, as "own_embedding", before its protections;
            the gradient as received and that at each watched layer; and where protections add a loss, their sum as
            "penalty".
        """
        opened, watched = self._oldest()
        gradient = self._accept(channel.recv("gradient", self.steps).payload, opened.sent)
        # What penalties bring to a layer is this party's own doing: what is watched is what the peer's gradient brings.
        layers = self.at_layers(gradient) if self.shield.penalties and self._watched else None
        self.optimizer.zero_grad()
        penalty = self.shield.backward(opened, gradient)
        if layers is None:
            layers = self._gradients_at(watched)
        self.optimizer.step()
        self.shield.step()
        watched.edges.clear()  # the graph holds our hooks, and they hold it
        self._open.popleft()
        self.steps += 1
        embedding, own = opened.sent.detach(), opened.clean
        return {"embedding": embedding, "own_embedding": own, "gradient": gradient, **layers, **penalty}

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
        return self.shield.hidden(feature[rows] for feature in self.features)

    def evaluate(self, rows: Tensor, channel: Channel, *, leaving: Callable[[], None] = _nothing) -> Tensor:
        """Send the embedding of rows that are not trained on, and take what the label party shares about them."""
        self.send_evaluation(rows, channel, leaving=leaving)
        return self.finish_evaluation(channel)

    def send_evaluation(self, rows: Tensor, channel: Channel, *, leaving: Callable[[], None] = _nothing) -> None:
        """The first half of `evaluate`; as many as `depth` says may be open."""
        step = self.evaluations + self._evaluating
        with evaluating(self.bottom):
            z: Tensor = self.bottom(*(feature[rows] for feature in self.features))
            z = self.shield.protected(z, self.noise, "evaluation", step)
        leaving()
        channel.send(Message(step, "evaluation", z, digest(rows)))
        self._evaluating += 1

    def finish_evaluation(self, channel: Channel) -> Tensor:
        """The second half, of the oldest open one."""
        figures = channel.recv("figures", self.evaluations).payload
        self._evaluating -= 1
        self.evaluations += 1
        return figures

    def at_layers(self, gradient: Tensor) -> dict[str, Tensor]:
        """What would reach each watched layer if this gradient came back to the oldest open step, which stays open.

        It is for an evaluator, who may ask it about the gradient before its protection; training has no use for it.
        """
        opened, watched = self._oldest()
        if not watched.edges:
            return self._gradients_at(watched)
        try:
            torch.autograd.grad(opened.sent, watched.edges, gradient, retain_graph=True, allow_unused=True)
            return self._gradients_at(watched)
        finally:
            watched.gradients.clear()

    def _oldest(self) -> tuple[Opened, _Watched]:
        if not self._open:
            raise ProtocolError(f"step {self.steps}: no embedding was sent yet; call send() first")
        return self._open[0]

    def _stashed(self) -> AbstractContextManager[None]:
        """Where other steps may come between a way there and its way back, keep the weights of the way there."""
        return stashed(self.shield.modules) if self.depth > 1 else nullcontext()

    def _accept(self, gradient: Tensor, z: Tensor) -> Tensor:
        """The gradient that came, if it fits what was sent."""
        if gradient.shape != z.shape or gradient.dtype != z.dtype:
            raise TensorError(
                f"step {self.steps}: a gradient {tuple(gradient.shape)} of {gradient.dtype} came for an embedding "
                f"{tuple(z.shape)} of {z.dtype}; the model was not changed: compare both parties' models"
            )
        return gradient

    @contextmanager
    def _watching(self) -> Iterator[_Watched]:
        """Catch the gradients of the watched layers on their way back; the model itself keeps no hook of ours."""
        seen = _Watched()
        hooks = [layer.register_forward_hook(_catch(name, seen)) for name, layer in self._watched.items()]
        try:
            yield seen
        finally:
            for hook in hooks:
                hook.remove()

    def _gradients_at(self, seen: _Watched) -> dict[str, Tensor]:
        for name in self._watched:
            if name not in seen.gradients:
                raise UsageError(f"no gradient reaches the layer {name!r}: watch a layer that the embedding depends on")
        return {name: seen.gradients[name] for name in self._watched}


def _catch(name: str, seen: _Watched) -> Callable[[nn.Module, object, object], None]:
    """A forward hook that has the output's gradient written down; before anything overwrites the output in place.

    The way back passes the last run of a layer first, so of several runs `note` keeps that one.
    """

    def note(gradient: Tensor) -> None:
        seen.gradients.setdefault(name, gradient)

    def catch(module: nn.Module, inputs: object, output: object) -> None:
        if not isinstance(output, Tensor):
            raise UsageError(f"the layer {name!r} gives {type(output).__name__}, no tensor: watch a part of it")
        if output.requires_grad:
            output.register_hook(note)
            seen.edges.append(get_gradient_edge(output))

    return catch


def _layer(bottom: nn.Module, name: str) -> nn.Module:
    """A submodule by its name, or a refusal that names those there are."""
    known: dict[str, nn.Module] = {key: layer for key, layer in bottom.named_modules() if key and key not in _TAKEN}
    if name not in known:
        raise UsageError(f"the bottom model has no layer {name!r} to watch; it has: {', '.join(known)}")
    return known[name]
