"""Both parties in one process: the same party code as over a network, with a queue in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.align.batches import batches
from tacit.contracts import Protection
from tacit.cut.feature_party import FeatureParty
from tacit.cut.label_party import LabelParty
from tacit.errors import TensorError, UsageError
from tacit.wire.memory import pair
from tacit.wire.record import Recorder

__all__ = ["Epoch", "Simulation", "simulate"]


@dataclass(frozen=True)
class Epoch:
    """Figures of one epoch, for the label party alone.

    Attributes:
        epoch: counted from 0.
        steps: batches in it.
        loss: the mean training loss.
        power: the mean squared norm of the noise of a row, over the mean squared norm of its gradient.
        untouched_rows: how many gradients were sent as they are.
        stateless: the share of batches that got the fallback noise.
    """

    epoch: int
    steps: int
    loss: float
    power: float
    untouched_rows: int
    stateless: float


@dataclass(frozen=True)
class Simulation:
    """What a simulated training leaves.

    Attributes:
        bottom: the feature party's model, trained in place.
        top: the label party's model, trained in place.
        history: figures of each epoch.
        transcript: the recorder that was passed, if any; see `Recorder.batches` and `Recorder.visits`.
    """

    bottom: nn.Module
    top: nn.Module
    history: list[Epoch]
    transcript: Recorder | None

    def predict(
        self, features: Tensor | Sequence[Tensor], own: Tensor | Sequence[Tensor] = (), *, batch_size: int = 8192
    ) -> Tensor:
        """Logits for new rows, both halves in evaluation mode."""
        inputs, own = _tuple(features), _tuple(own)
        modes = self.bottom.training, self.top.training
        self.bottom.eval(), self.top.eval()
        with torch.no_grad():
            parts = [
                self.top(self.bottom(*(x[rows] for x in inputs)), *(x[rows] for x in own))
                for rows in torch.arange(len(inputs[0]), device=inputs[0].device).split(batch_size)
            ]
        self.bottom.train(modes[0]), self.top.train(modes[1])
        return torch.cat(parts)


def simulate(
    *,
    bottom: nn.Module,
    top: nn.Module,
    features: Tensor | Sequence[Tensor],
    labels: Tensor,
    protect: Protection,
    own: Tensor | Sequence[Tensor] = (),
    targets: Tensor | None = None,
    loss: str = "binary",
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
    epochs: int = 1,
    batch_size: int = 1024,
    seed: int = 0,
    record: Recorder | None = None,
    watch: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Train a split model in one process, both parties' code as it is, and keep what an attacker would see.

    Args:
        bottom: the feature party's model, `bottom(*features) -> embedding`.
        top: the label party's model, `top(embedding, *own) -> logits`.
        features: the feature party's tensors, one row for each example.
        labels: 0 or 1 for each example (class numbers with the loss "softmax").
        protect: the label party's protection, such as `matched(leak_auc=0.6)`; `none()` sends bare gradients.
        own: the label party's own features, if it has any.
        targets: what the loss is computed with instead of the labels; `randomized_response` makes them.
        loss: "binary" or "softmax".
        optimizer: makes an optimizer for a module; Adam with a learning rate of 1e-3 if not given.
        epochs: how often every example is visited.
        batch_size: rows in a batch.
        seed: of the batches and of the noise. Weights are the models' own.
        record: what to write down; nothing if not given.
        watch: layers of the bottom whose gradient is written down as well.
        progress: called after each step with the number of steps done and the number of all steps.
    """
    inputs = _tuple(features)
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise UsageError(f"epochs = {epochs!r} is out of range: it is a whole number, 1 or more")
    if len(inputs[0]) != len(labels):
        raise UsageError(f"{len(inputs[0])} rows of features for {len(labels)} labels: align the two tables first")
    make = optimizer or (lambda module: torch.optim.Adam(module.parameters(), lr=1e-3))
    feature_party = FeatureParty(bottom=bottom, features=inputs, optimizer=make(bottom), watch=watch)
    label_party = LabelParty(
        top=top, labels=labels, targets=targets, features=own, optimizer=make(top), protect=protect, loss=loss,
        noise=torch.Generator(labels.device).manual_seed(seed),
    )  # fmt: skip
    history = []
    for epoch in range(epochs):
        order = batches(len(labels), batch_size, epoch=epoch, seed=seed)
        history.append(_train(epoch, order, feature_party, label_party, record, watch, progress, epochs))
    return Simulation(bottom, top, history, record)


def _train(
    epoch: int,
    order: Iterator[Tensor],
    feature_party: FeatureParty,
    label_party: LabelParty,
    record: Recorder | None,
    watch: Sequence[str],
    progress: Callable[[int, int], None] | None,
    epochs: int,
) -> Epoch:
    """One epoch; figures stay on the device until it is over."""
    left, right = pair()
    device = label_party.labels.device
    figures = []
    plan = [rows.to(device) for rows in order]
    for done, rows in enumerate(plan, start=1):
        embedding = feature_party.send(rows, left)
        seen = label_party.step(rows, right)
        received = feature_party.finish(left)
        if record is not None:
            layers = {name: received[name] for name in watch}
            record.write(
                rows=rows, embedding=embedding, gradient=received["gradient"], clean=seen["clean"], layers=layers
            )
        size = seen["clean"].flatten(start_dim=1).pow(2).sum(1).mean()
        figures.append(torch.stack([seen["loss"], _or_zero(seen, "power"), size, _or_zero(seen, "untouched_rows"),
                                    _or_zero(seen, "stateless"), _or_zero(seen, "valid", 1.0)]))  # fmt: skip
        if progress is not None:
            progress(epoch * len(plan) + done, epochs * len(plan))
    loss, power, size, untouched, stateless, valid = torch.stack(figures).double().mean(0).tolist()
    if valid < 1:
        raise TensorError(f"epoch {epoch}: a gradient was not finite, and the model is lost: look at the loss")
    relative = power / size if size > 0 else float("inf") if power > 0 else 0.0
    return Epoch(epoch, len(plan), loss, relative, round(untouched * len(plan)), stateless)


def _or_zero(figures: dict[str, Tensor], name: str, default: float = 0.0) -> Tensor:
    """A figure that not every protection reports."""
    like = figures["loss"]
    return figures[name].to(like.dtype) if name in figures else torch.full_like(like, default)


def _tuple(tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
