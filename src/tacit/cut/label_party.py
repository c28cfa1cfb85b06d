"""The party that has the labels: it runs the top of the model and answers embeddings with protected gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacit.align.batches import digest
from tacit.contracts import Channel, Message, Noise, Protection
from tacit.cut._tensors import finite, tensors
from tacit.cut.losses import LOSSES, check_labels, check_targets
from tacit.errors import LabelsError, ProtocolError, TensorError, UsageError

__all__ = ["LabelParty"]


class LabelParty:
    """The label party: any top model, any optimizer, and a protection for what it sends.

    Args:
        top: maps the embedding, and the party's own features if it has any, to logits: `top(z, *features)`.
        labels: one for each row.
        optimizer: of the top's parameters.
        protect: what is done to each gradient before it is sent; say `none()` to send it bare.
        noise: where the protection draws its randomness.
        features: the party's own features, one tensor or several, all with one row for each label.
        loss: "binary" (one logit) or "softmax" (one logit for each class).
        targets: what the loss is computed with instead of the labels, where that differs (randomized response).
    """

    def __init__(
        self,
        *,
        top: nn.Module,
        labels: Tensor,
        optimizer: torch.optim.Optimizer,
        protect: Protection,
        noise: Noise,
        features: Tensor | Sequence[Tensor] = (),
        loss: str = "binary",
        targets: Tensor | None = None,
    ) -> None:
        if not (hasattr(protect, "init") and hasattr(protect, "update")):
            raise UsageError(
                f"protect is {protect!r}, no gradient protection: pass one, as marvell(scale=4.0) or none(); what "
                "randomized_response() makes goes into labels and targets"
            )
        self.classes = check_labels(labels, loss)
        if self.classes > 2 and getattr(protect, "name", None) != "none":
            raise LabelsError("label protections are binary, these labels have more classes: protect with none()")
        self.top = top
        self.labels = labels
        self.targets = labels if targets is None else check_targets(targets, labels)
        self.features = tensors("own", features, rows=len(labels))
        self.optimizer = optimizer
        self.protect = protect
        self.noise = noise
        self.loss = LOSSES[loss]
        self.state: Any = protect.init()
        self.steps = 0

    def step(self, rows: Tensor, channel: Channel) -> dict[str, Tensor]:
        """Answer one embedding: loss, backward, protected gradient, update of the top.

        Returns:
            Figures for this party alone; none of them may reach the peer.
        """
        message = channel.recv("embedding", self.steps)
        z = self._accept(message, rows)  # (batch, *cut)
        logits = self._logits(z, [own[rows] for own in self.features])
        if logits.ndim == 2 and 1 < logits.shape[1] < self.classes:
            raise LabelsError(f"there are {self.classes} classes, but the top model has only {logits.shape[1]} logits")
        loss = self.loss(logits, self.targets[rows])
        self.optimizer.zero_grad()
        loss.backward()
        if z.grad is None:
            raise UsageError("the top model does not use the embedding: its loss has no gradient at the cut")
        sent = self.protect.update(z.grad, self.labels[rows], self.state, self.noise, z.detach())
        channel.send(Message(self.steps, "gradient", sent.value, message.rows))
        self.state = sent.state
        self.optimizer.step()
        self.steps += 1
        return {"loss": loss.detach(), "clean": z.grad, **sent.report}

    def _logits(self, z: Tensor, own: Sequence[Tensor]) -> Tensor:
        """The top's answer; at the first step, where it can't take what comes, with the shapes in the error."""
        try:
            logits: Tensor = self.top(z.clone(), *own)  # a copy: the top may work in place
        except RuntimeError as error:
            if self.steps or type(error) is not RuntimeError:  # out of memory and the like say enough themselves
                raise
            came = ", ".join(str(tuple(one.shape)) for one in (z, *own))
            weight = next(
                (f", its {name!r} is {tuple(w.shape)}" for name, w in self.top.named_parameters() if w.ndim > 1), ""
            )
            raise TensorError(
                f"step 0: the top model can't take the embedding {'and own features ' if own else ''}{came}{weight} "
                f"({error}): make the top's input as wide as what comes"
            ) from error
        return logits

    def _accept(self, message: Message, rows: Tensor) -> Tensor:
        """The embedding as a leaf of the label party's own graph, if it is what the contract says."""
        if message.rows != digest(rows):
            raise ProtocolError(
                f"step {self.steps}: the peer's batch has other rows: compare data, seed and batch size"
            )
        z = message.payload.detach()
        if z.ndim < 2 or len(z) != len(rows) or not z.is_floating_point():
            raise TensorError(
                f"step {self.steps}: an embedding {tuple(z.shape)} of {z.dtype} came for {len(rows)} rows; no label "
                "was touched: the peer's bottom model must give (rows, *cut) in a floating dtype"
            )
        if not finite(z):
            raise TensorError(
                f"step {self.steps}: the embedding is not finite; no label was touched: ask the feature party to look "
                "at its inputs and learning rate"
            )
        return z.requires_grad_()
