"""The party that has the labels: it runs the top of the model and answers embeddings with protected gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.align.batches import digest
from tacit.contracts import Channel, Message, Noise, NoiseSource, OnDemand, Protected, Protection, StepNoise
from tacit.contracts.sent import moved
from tacit.errors import LabelsError, ProtocolError, TensorError, UsageError
from tacit.split.tensors import evaluating, gradient_protection, tensors

ALIKE = 0.9
"""The share of a batch whose embeddings may be the same: answers to one question about many rows add up."""


def _nothing(*_: object) -> None:
    """Nobody looks at what is sent."""


class LabelParty:
    """The label party: any top model, any optimizer, and a protection for what it sends.

    Args:
        top: maps the embedding, and the party's own features if it has any, to logits: `top(z, *features)`; with
            several feature parties `top(z1, z2, *features)`.
        labels: one for each row.
        optimizer: of the top's parameters.
        protect: what is done to each gradient before it is sent; say `none()` to send it bare.
        noise: where the protection draws its randomness: a generator, a source, or one that has a source for each step
            (`tacit.split.protect.keyed_noise`). Between two companies it may be left out: each run derives its own.
        features: the party's own features, one tensor or several, all with one row for each label.
        loss: "binary" (one logit) or "softmax" (one logit for each class).
        targets: what the loss is computed with instead of the labels, where that differs (randomized response).
        known: where a row has its label; others' were drawn, and no figure is of them. All, if not given.
    """

    def __init__(
        self,
        *,
        top: nn.Module,
        labels: Tensor,
        optimizer: torch.optim.Optimizer,
        protect: Protection,
        noise: Noise | StepNoise | None = None,
        features: Tensor | Sequence[Tensor] = (),
        loss: str = "binary",
        targets: Tensor | None = None,
        known: Tensor | None = None,
    ) -> None:
        self.classes = check_labels(labels, loss)
        if self.classes > 2 and getattr(protect, "name", None) != "none":
            raise LabelsError("label protections are binary, these labels have more classes: protect with none()")
        self.top = top
        self.labels = labels
        self.device = labels.device  # where this half computes
        self.targets = labels if targets is None else check_targets(targets, labels)
        self.known = torch.ones(len(labels), dtype=torch.bool) if known is None else known
        self.features = tensors("own", features, rows=len(labels))
        self.optimizer = optimizer
        self.protect = gradient_protection(protect)
        self.noise = noise
        self.loss = LOSSES[loss]
        self.state: Any = protect.init()
        self.steps = 0
        self.evaluations = 0

    def to(self, device: torch.device) -> None:
        """Move this half, its table and what its optimizer remembers to a device."""
        bare, self.device = self.targets is self.labels, device
        self.top.to(device)
        self.labels, self.known = self.labels.to(device), self.known.to(device)
        self.targets = self.labels if bare else self.targets.to(device)
        self.features = tuple(feature.to(device) for feature in self.features)
        self.optimizer.load_state_dict(self.optimizer.state_dict())  # it lies where its parameters do

    def step(
        self,
        rows: Tensor,
        channels: Channel | Sequence[Channel],
        *,
        before: Callable[[Tensor, Tensor], None] = _nothing,
        leaving: Callable[[Protected], None] = _nothing,
    ) -> dict[str, Tensor]:
        """Answer one embedding of each feature party: loss, backward, protected gradients, update of the top.

        The noise is drawn once, for the joint gradient of all cuts, so that parties gain nothing by comparing what
        they got.

        Args:
            rows: the batch, the same for all parties.
            channels: one for each feature party, in the order in which the top takes their embeddings.
            before: called with the clean gradient and the embedding before anything is done to them; where it raises,
                nothing has left and nothing has changed.
            leaving: called with what is about to be sent; where it raises, nothing is sent.

        Returns:
            Figures for this party alone; none of them may reach a peer.
        """
        each, places = _several(channels), moved(rows, self.device)
        own = self._own(places)  # while the embeddings are on their way; no label is touched before they are accepted
        self.optimizer.zero_grad()
        messages = [channel.recv("embedding", self.steps) for channel in each]
        cuts = [self._accept(message, rows, self.steps).requires_grad_() for message in messages]  # (batch, *cut) each
        logits = self._logits(cuts, own)
        loss = self.loss(logits, self.targets[places])
        loss.backward()
        gradients = [_gradient(z) for z in cuts]
        wire = messages[0].payload.device  # where noise comes from, and what is sent has to be
        clean, labels = moved(_joint(gradients), wire), moved(self.labels[places], wire)
        embedding = _joint([message.payload.detach() for message in messages])
        before(clean, embedding)
        sent = self.protect.update(clean, labels, self.state, self._noise(messages, clean), embedding)
        leaving(sent)
        for channel, message, value in zip(each, messages, _apart(sent.value, gradients), strict=True):
            channel.send(Message(self.steps, "gradient", value, message.rows))
        self.state = sent.state
        self.optimizer.step()
        self.steps += 1
        return {"loss": loss.detach(), "embedding": embedding, "clean": clean, "sent": sent.value, **sent.report}

    def evaluate(self, rows: Tensor, channels: Channel | Sequence[Channel]) -> Tensor:
        """Logits for rows that are not trained on: nothing is learned from them, and nothing is answered here."""
        own = self._own(moved(rows, self.device))
        messages = [channel.recv("evaluation", self.evaluations) for channel in _several(channels)]
        cuts = [self._accept(message, rows, self.evaluations) for message in messages]
        with evaluating(self.top):
            logits = self._logits(cuts, own)
        self.evaluations += 1
        return logits

    def _noise(self, messages: Sequence[Message], clean: Tensor) -> Noise:
        """This step's randomness.

        A keyed one is bound to what was asked and to the very gradient that it will hide: whatever else changes, the
        labels, the weights, the code, no two gradients are ever sent under the same noise.
        """
        noise, step = self.noise, self.steps
        if noise is None:
            raise UsageError("there is no source of noise: pass noise=torch.Generator(), or train between two folders")
        if not isinstance(noise, StepNoise):
            return noise
        keyed = noise

        def source() -> NoiseSource:
            hidden = Message(step, "gradient", clean, b"").fingerprint
            return keyed.at(step, *(message.fingerprint for message in messages), hidden)

        return OnDemand(source)

    def _own(self, rows: Tensor) -> list[Tensor]:
        return [feature[rows] for feature in self.features]

    def _logits(self, cuts: Sequence[Tensor], own: Sequence[Tensor]) -> Tensor:
        """The top's answer; at the first step, where it can't take what comes, with the shapes in the error."""
        try:
            logits: Tensor = self.top(*(z.clone() for z in cuts), *own)  # copies: the top may work in place
        except RuntimeError as error:
            if self.steps or type(error) is not RuntimeError:  # out of memory and the like say enough themselves
                raise
            came = ", ".join(str(tuple(one.shape)) for one in (*cuts, *own))
            weight = next(
                (f", its {name!r} is {tuple(w.shape)}" for name, w in self.top.named_parameters() if w.ndim > 1), ""
            )
            raise TensorError(
                f"step 0: the top model can't take the embedding {'and own features ' if own else ''}{came}{weight} "
                f"({error}): make the top's input as wide as what comes"
            ) from error
        if logits.ndim == 2 and 1 < logits.shape[1] < self.classes:
            raise LabelsError(f"there are {self.classes} classes, but the top model has only {logits.shape[1]} logits")
        return logits

    def _accept(self, message: Message, rows: Tensor, step: int) -> Tensor:
        """The embedding as a leaf of the label party's own graph, if it is what the contract says."""
        if message.rows != digest(rows):
            raise ProtocolError(f"step {step}: the peer's batch has other rows: compare data, seed and batch size")
        z = moved(message.payload.detach(), self.device)
        if z.ndim < 2 or len(z) != len(rows) or not z.is_floating_point():
            raise TensorError(
                f"step {step}: an embedding {tuple(z.shape)} of {z.dtype} came for {len(rows)} rows; no label "
                "was touched: the peer's bottom model must give (rows, *cut) in a floating dtype"
            )
        return z


def _several(channels: Channel | Sequence[Channel]) -> Sequence[Channel]:
    return channels if isinstance(channels, Sequence) else (channels,)


def _gradient(z: Tensor) -> Tensor:
    if z.grad is None:
        raise UsageError("the top model does not use the embedding: its loss has no gradient at the cut")
    return z.grad


def _joint(parts: Sequence[Tensor]) -> Tensor:
    """What belongs to several cuts as one tensor; a single cut keeps its shape.  (batch, all widths)"""
    if len(parts) == 1:
        return parts[0]
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def _apart(joint: Tensor, like: Sequence[Tensor]) -> Sequence[Tensor]:
    """The way back: each cut's own part in its own shape."""
    if len(like) == 1:
        return (joint,)
    widths = [part[0].numel() for part in like]
    return [part.reshape(one.shape) for part, one in zip(joint.split(widths, dim=1), like, strict=True)]


def alike(z: Tensor) -> float:
    """The share of the rows of a batch that lie within a thousandth of one of them, as far as three of them tell.

    Where nearly all are alike, any row is likely to be one of these. A few rows may be alike by chance.
    """
    rows = z.detach().flatten(start_dim=1)
    if len(rows) < 32:
        return 0.0
    near = 1e-3 * torch.linalg.vector_norm(rows, dim=1).mean()
    apart = [torch.linalg.vector_norm(rows - rows[place], dim=1) for place in (0, len(rows) // 3, 2 * len(rows) // 3)]
    return max(float((one <= near).float().mean()) for one in apart)


# --- losses and labels -----------------------------------------------------------------------------------------------


def binary(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of one logit; targets may lie outside [0, 1], as those of randomized response do."""
    if logits.ndim == 2 and logits.shape[1] == 1:
        logits = logits.squeeze(1)
    if logits.shape != targets.shape:
        raise TensorError(
            f"the loss 'binary' takes one logit for each row, the top model gives {tuple(logits.shape)} for "
            f"{len(targets)} rows: end it with one output, or use the loss 'softmax'"
        )
    return functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))


def softmax(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of one logit for each class; with two, float targets stand for the second one's share."""
    if logits.ndim != 2 or len(logits) != len(targets) or logits.shape[1] < 2:
        raise TensorError(
            f"the loss 'softmax' takes (rows, classes) logits, the top model gives {tuple(logits.shape)} for "
            f"{len(targets)} rows: end it with one output for each class"
        )
    if targets.is_floating_point():
        if logits.shape[1] != 2:
            raise LabelsError(f"labels of {logits.shape[1]} classes must be whole numbers: pass them as integers")
        targets = torch.stack([1 - targets, targets], dim=1).to(logits.dtype)
        return -(targets * functional.log_softmax(logits, dim=1)).sum(1).mean()
    return functional.cross_entropy(logits, targets.long())


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"binary": binary, "softmax": softmax}
"""`binary`: cross entropy of one logit. `softmax`: of one logit for each class, two or more."""


def check_labels(labels: Tensor, loss: str) -> int:
    """The number of classes, one more than the largest label; labels that the loss has no use for are refused."""
    if loss not in LOSSES:
        raise UsageError(f"there is no loss {loss!r}; there are: {', '.join(LOSSES)}")
    if not isinstance(labels, Tensor):
        raise LabelsError(f"labels are a {type(labels).__name__}: pass a tensor with one label for each example")
    if labels.ndim != 1 or len(labels) == 0:
        raise LabelsError(f"labels have shape {tuple(labels.shape)}: pass one label for each example, in one axis")
    if labels.dtype == torch.bool:
        return 2
    _refuse(
        labels, ~(torch.isfinite(labels) & (labels == labels.round()) & (labels >= 0)), "a class number: use 0, 1, ..."
    )
    if loss == "binary":
        _refuse(labels, labels > 1, "0 or 1: use the loss 'softmax'")
    if labels.is_floating_point():
        _refuse(labels, labels > 1, "0 or 1: pass labels of several classes as integers")
    return max(2, int(labels.max()) + 1)  # protections know two classes at least


def check_targets(targets: Tensor, labels: Tensor) -> Tensor:
    """The targets themselves, if there is a finite one for each label."""
    if targets.shape != labels.shape:
        raise LabelsError(
            f"targets have shape {tuple(targets.shape)} for labels of shape {tuple(labels.shape)}: pass one for each"
        )
    _refuse(targets, ~torch.isfinite(targets), "finite: look at how the targets were made", what="target")
    return targets


def _refuse(values: Tensor, wrong: Tensor, wanted: str, *, what: str = "label") -> None:
    """Name the first row that is wrong, if there is one."""
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise LabelsError(f"{what} {values[row].item()} of row {row} is not {wanted}")
