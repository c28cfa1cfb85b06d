"""The party that has the features: it runs the bottom of the model and learns from the gradients that come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tacit.align.batches import digest
from tacit.contracts import Channel, Message
from tacit.cut._tensors import evaluating, finite, tensors
from tacit.errors import ProtocolError, TensorError, UsageError

__all__ = ["FeatureParty"]

_TAKEN = ("cut", "gradient", "rows")  # names that mean something else in a transcript


class FeatureParty:
    """The feature party: any bottom model and any optimizer.

    Args:
        bottom: maps the features to an embedding: `bottom(*features)`.
        features: one tensor or several, all with one row for each example.
        optimizer: of the bottom's parameters.
        watch: names of submodules of the bottom whose activation gradient is to be kept at each step, as in
            `bottom.named_modules()`: what reaches the cut reaches them too, and can be attacked there. Of a submodule
            that runs several times in a step the last time counts.
    """

    def __init__(
        self,
        *,
        bottom: nn.Module,
        features: Tensor | Sequence[Tensor],
        optimizer: torch.optim.Optimizer,
        watch: Sequence[str] = (),
    ) -> None:
        self.bottom = bottom
        self.features = tensors("features", features)
        self.optimizer = optimizer
        self.steps = 0
        self.evaluations = 0
        self._watched = {name: _layer(bottom, name) for name in watch}
        self._sent: Tensor | None = None
        self._gradients: dict[str, Tensor] = {}
        self._edges: list[GradientEdge] = []  # where the watched layers lie in the open step's graph

    def step(self, rows: Tensor, channel: Channel) -> dict[str, Tensor]:
        """Send an embedding, wait for its gradient, update the bottom."""
        self.send(rows, channel)
        return self.finish(channel)

    def send(self, rows: Tensor, channel: Channel) -> Tensor:
        """The first half of a step: the embedding goes out."""
        if self._sent is not None:
            raise ProtocolError(f"step {self.steps}: the last embedding has no answer yet; call finish() first")
        with self._watching():
            z: Tensor = self.bottom(*(feature[rows] for feature in self.features))  # (batch, *cut)
        if z.ndim < 2 or len(z) != len(rows):
            raise TensorError(f"the bottom model gives {tuple(z.shape)} for {len(rows)} rows: (rows, *cut) is needed")
        if not z.requires_grad:
            raise UsageError(
                "the embedding depends on no parameter that can be trained: look for a frozen bottom model"
            )
        self._sent = z
        channel.send(Message(self.steps, "embedding", z.detach(), digest(rows)))
        return z.detach()

    def finish(self, channel: Channel) -> dict[str, Tensor]:
        """The second half: the gradient comes back. Where it is refused, the step stays open and nothing has changed.

        Returns:
            Figures for this party alone: the gradient as received, and that at each watched layer.
        """
        if self._sent is None:
            raise ProtocolError(f"step {self.steps}: no embedding was sent yet; call send() first")
        gradient = self._accept(channel.recv("gradient", self.steps).payload, self._sent)
        self.optimizer.zero_grad()
        self._sent.backward(gradient)
        layers = {name: self._gradient_at(name) for name in self._watched}
        self.optimizer.step()
        self._sent = None
        self._edges.clear()
        self.steps += 1
        return {"gradient": gradient, **layers}

    def evaluate(self, rows: Tensor, channel: Channel) -> Tensor:
        """Send the embedding of rows that are not trained on, and take what the label party shares about them."""
        with evaluating(self.bottom):
            z: Tensor = self.bottom(*(feature[rows] for feature in self.features))
        channel.send(Message(self.evaluations, "evaluation", z, digest(rows)))
        figures = channel.recv("figures", self.evaluations).payload
        self.evaluations += 1
        return figures

    def at_layers(self, gradient: Tensor) -> dict[str, Tensor]:
        """What would reach each watched layer if this gradient came back; the step stays open, nothing changes.

        It is for an evaluator, who may ask it about the gradient before its protection; training has no use for it.
        """
        if self._sent is None:
            raise ProtocolError(f"step {self.steps}: no embedding was sent yet; call send() first")
        if not self._edges:
            return {name: self._gradient_at(name) for name in self._watched}
        try:
            torch.autograd.grad(self._sent, self._edges, gradient, retain_graph=True, allow_unused=True)
            return {name: self._gradient_at(name) for name in self._watched}
        finally:
            self._gradients.clear()

    def _accept(self, gradient: Tensor, z: Tensor) -> Tensor:
        """The gradient that came, if it fits what was sent."""
        if gradient.shape != z.shape or gradient.dtype != z.dtype:
            raise TensorError(
                f"step {self.steps}: a gradient {tuple(gradient.shape)} of {gradient.dtype} came for an embedding "
                f"{tuple(z.shape)} of {z.dtype}; the model was not changed: compare both parties' models"
            )
        if not finite(gradient):
            raise TensorError(
                f"step {self.steps}: the gradient is not finite; the model was not changed: ask the label party to "
                "look at its loss"
            )
        return gradient

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Catch the gradients of the watched layers on their way back; the model itself keeps no hook of ours."""
        self._gradients.clear()
        self._edges.clear()
        hooks = [layer.register_forward_hook(self._catch(name)) for name, layer in self._watched.items()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _catch(self, name: str) -> Callable[[nn.Module, object, object], None]:
        """A forward hook that has the output's gradient written down; before anything overwrites the output in place.

        The way back passes the last run of a layer first, so of several runs `note` keeps that one.
        """

        def note(gradient: Tensor) -> None:
            self._gradients.setdefault(name, gradient)

        def catch(module: nn.Module, inputs: object, output: object) -> None:
            if not isinstance(output, Tensor):
                raise UsageError(f"the layer {name!r} gives {type(output).__name__}, no tensor: watch a part of it")
            if output.requires_grad:
                output.register_hook(note)
                self._edges.append(get_gradient_edge(output))

        return catch

    def _gradient_at(self, name: str) -> Tensor:
        if name not in self._gradients:
            raise UsageError(f"no gradient reaches the layer {name!r}: watch a layer that the embedding depends on")
        return self._gradients[name]


def _layer(bottom: nn.Module, name: str) -> nn.Module:
    """A submodule by its name, or a refusal that names those there are."""
    known: dict[str, nn.Module] = {key: layer for key, layer in bottom.named_modules() if key and key not in _TAKEN}
    if name not in known:
        raise UsageError(f"the bottom model has no layer {name!r} to watch; it has: {', '.join(known)}")
    return known[name]
