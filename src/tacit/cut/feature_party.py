"""The party that has the features: it runs the bottom of the model and learns from the gradients that come back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacit.align.batches import digest
from tacit.contracts import Channel, Message
from tacit.errors import ProtocolError, TensorError, UsageError

__all__ = ["FeatureParty"]


class FeatureParty:
    """The feature party: any bottom model and any optimizer.

    Args:
        bottom: maps the features to an embedding: `bottom(*features)`.
        features: one tensor or several, all with one row for each example.
        optimizer: of the bottom's parameters.
        watch: names of submodules of the bottom whose activation gradient is to be kept at each step, as in
            `bottom.named_modules()`: what reaches the cut reaches them too, and can be attacked there.
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
        self.features = (features,) if isinstance(features, Tensor) else tuple(features)
        if len({len(feature) for feature in self.features}) != 1:
            sizes = ", ".join(str(len(feature)) for feature in self.features) or "none"
            raise UsageError(f"features must be tensors of one and the same number of rows, got: {sizes}")
        self.optimizer = optimizer
        self.steps = 0
        self._sent: Tensor | None = None
        self._watched: dict[str, Tensor] = {}
        self._watch(watch)

    def step(self, rows: Tensor, channel: Channel) -> dict[str, Tensor]:
        """Send an embedding, wait for its gradient, update the bottom."""
        self.send(rows, channel)
        return self.finish(channel)

    def send(self, rows: Tensor, channel: Channel) -> Tensor:
        """The first half of a step: the embedding goes out."""
        if self._sent is not None:
            raise ProtocolError(f"step {self.steps}: the last embedding has no answer yet; call finish() first")
        z: Tensor = self.bottom(*(feature[rows] for feature in self.features))  # (batch, *cut)
        if len(z) != len(rows):
            raise TensorError(
                f"the bottom model gives {len(z)} rows for a batch of {len(rows)}: one for each is needed"
            )
        self._sent = z
        channel.send(Message(self.steps, "embedding", z.detach(), digest(rows)))
        return z.detach()

    def finish(self, channel: Channel) -> dict[str, Tensor]:
        """The second half: the gradient comes back.

        Returns:
            Figures for this party alone: the gradient as received, and that at each watched layer.
        """
        if self._sent is None:
            raise ProtocolError(f"step {self.steps}: no embedding was sent yet; call send() first")
        z, self._sent = self._sent, None
        gradient = channel.recv("gradient", self.steps).payload
        if gradient.shape != z.shape:
            raise TensorError(f"step {self.steps}: a gradient {tuple(gradient.shape)} came for {tuple(z.shape)}")
        if gradient.device.type == "cpu" and not bool(torch.isfinite(gradient.amax() - gradient.amin())):
            raise TensorError(f"step {self.steps}: the gradient is not finite; the model was not changed")
        self.optimizer.zero_grad()
        z.backward(gradient)
        self.optimizer.step()
        self.steps += 1
        layers = {name: _gradient_of(name, output) for name, output in self._watched.items()}
        return {"gradient": gradient, **layers}

    def _watch(self, names: Sequence[str]) -> None:
        known = dict(self.bottom.named_modules())
        for name in names:
            if name not in known or not name:
                raise UsageError(f"the bottom model has no layer {name!r}; it has: {', '.join(filter(None, known))}")

            def keep(module: nn.Module, inputs: object, output: Tensor, name: str = name) -> None:
                if output.requires_grad:
                    output.retain_grad()
                    self._watched[name] = output

            known[name].register_forward_hook(keep)


def _gradient_of(name: str, output: Tensor) -> Tensor:
    if output.grad is None:
        raise UsageError(f"no gradient reaches the layer {name!r}: watch a layer that the embedding depends on")
    return output.grad
