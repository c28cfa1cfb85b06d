"""Both parties in one process: the same party code as over a network, with a queue in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.align.batches import batches
from tacit.contracts import EmbeddingProtection, Message, Noise, Protection
from tacit.errors import ProtocolError, TensorError, UsageError
from tacit.progress import Count
from tacit.split.exactly_once import expect
from tacit.split.feature_party import FeatureParty
from tacit.split.label_party import LabelParty
from tacit.split.module import other_generator
from tacit.split.record import Recorder
from tacit.split.tensors import evaluating, tensors
from tacit.wire.codec import wrong_numbers


@dataclass(frozen=True)
class MemoryChannel:
    """One end of a pair of queues in one process."""

    outgoing: deque[Message]
    incoming: deque[Message]

    def send(self, message: Message) -> None:
        """Put a message into the other side's queue."""
        self.outgoing.append(message)

    def recv(self, kind: str, step: int) -> Message:
        """Take the next message; it must be of this kind and step. There is nobody to wait for in one process."""
        if not self.incoming:
            raise ProtocolError(f"step {step}: no {kind} was sent yet; in one process the sender must act first")
        expect(self.incoming[0], kind, step)
        message = self.incoming.popleft()
        if message.payload.device.type == "cpu" and wrong_numbers(message.payload):  # elsewhere looking would wait
            raise TensorError(
                f"step {step}: the {kind} is not finite; no label was touched, and the model was not changed: look at "
                "inputs, loss and learning rates"
            )
        return message


def pair() -> tuple[MemoryChannel, MemoryChannel]:
    """The two ends of a channel.

    >>> import torch
    >>> left, right = pair()
    >>> left.send(Message(0, "embedding", torch.zeros(2, 3), b""))
    >>> right.recv("embedding", 0).payload.shape
    torch.Size([2, 3])
    """
    one: deque[Message] = deque()
    two: deque[Message] = deque()
    return MemoryChannel(one, two), MemoryChannel(two, one)


@dataclass(frozen=True)
class Epoch:
    """Figures of one epoch, for the label party alone.

    Attributes:
        epoch: counted from 0.
        steps: batches in it.
        loss: the mean training loss.
        power: the mean squared norm of the noise of a row, over the mean squared norm of its gradient.
        untouched_rows: how many gradients were sent as they are.
        stateless: the share of batches that got the fallback noise, or were sent as zeros.
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
        party: the feature party, with its protections and what they have learned.
    """

    bottom: nn.Module
    top: nn.Module
    history: list[Epoch]
    transcript: Recorder | None
    party: FeatureParty

    def embed(
        self, features: Tensor | Sequence[Tensor], *, batch_size: int = 8192, noise: Noise | None = None
    ) -> Tensor:
        """What the label party gets of new rows: the bottom in evaluation mode, protected as in training."""
        inputs = tensors("features", features)
        places = torch.arange(len(inputs[0]), device=inputs[0].device).split(batch_size)
        return torch.cat([self.party.embed([x[rows] for x in inputs], noise) for rows in places])

    def predict(
        self,
        features: Tensor | Sequence[Tensor],
        own: Tensor | Sequence[Tensor] = (),
        *,
        batch_size: int = 8192,
        noise: Noise | None = None,
    ) -> Tensor:
        """Logits for new rows, both halves in evaluation mode, from embeddings that are protected as in training."""
        z = self.embed(features, batch_size=batch_size, noise=noise)
        extra = tensors("own", own, rows=len(z))
        with evaluating(self.top):
            places = torch.arange(len(z), device=z.device).split(batch_size)
            return torch.cat([self.top(z[rows], *(x[rows] for x in extra)) for rows in places])


def simulate(  # a public entry point: each setting by name, and the loop of both parties on one screen
    *,
    bottom: nn.Module,
    top: nn.Module,
    features: Tensor | Sequence[Tensor],
    labels: Tensor,
    protect: Protection,
    protect_embedding: Sequence[EmbeddingProtection] = (),
    own: Tensor | Sequence[Tensor] = (),
    targets: Tensor | None = None,
    loss: str = "binary",
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
    bottom_optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
    epochs: int = 1,
    batch_size: int = 1024,
    seed: int = 0,
    record: Recorder | None = None,
    progress: Count | None = None,
) -> Simulation:
    """Train a split model in one process, both parties' code as it is, and keep what an attacker would see.

    Args:
        bottom: the feature party's model, `bottom(*features) -> embedding`.
        top: the label party's model, `top(embedding, *own) -> logits`.
        features: the feature party's tensors, one row for each example.
        labels: 0 or 1 for each example (class numbers with the loss "softmax").
        protect: the label party's protection, such as `matched(leak_auc=0.6)`; `none()` sends bare gradients.
        protect_embedding: the feature party's protections, such as `[gaussian(snr=4.0)]`; none sends bare embeddings.
        own: the label party's own features, if it has any.
        targets: what the loss is computed with instead of the labels; `randomized_response` makes them.
        loss: "binary" or "softmax".
        optimizer: makes an optimizer for a module; Adam with a learning rate of 1e-3 if not given.
        bottom_optimizer: makes the feature party's, where it is another: a bottom that learns slowly follows less of
            the noise. Between companies its learning rate is a quarter of the label party's.
        epochs: how often every example is visited.
        batch_size: rows in a batch.
        seed: of the batches, of the noise, and of what protections learn. Weights are the models' own.
        record: what to write down; nothing if not given.
        progress: called after each step with the number of steps done and the number of all steps.
    """
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise UsageError(f"epochs = {epochs!r} is out of range: it is a whole number, 1 or more")
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**64:
        raise UsageError(f"seed = {seed!r} is no seed: pass a whole number of at most 64 bits")
    if record is not None and not isinstance(record, Recorder):
        raise UsageError(f"record = {record!r} is no recorder: pass one, as Recorder(last=32), or leave it out")
    for what, given in (("optimizer", optimizer), ("bottom_optimizer", bottom_optimizer)):
        if given is not None and (not callable(given) or getattr(torch.optim, _name(given), 0) is given):
            raise UsageError(
                f"{what} is to make an optimizer for a model: pass a function, as "
                f"lambda module: torch.optim.SGD(module.parameters(), lr=0.1), not {_name(given)}"
            )
    device = tensors("labels", labels)[0].device
    make = optimizer or (lambda module: torch.optim.Adam(module.parameters(), lr=1e-3))
    noise = torch.Generator(device).manual_seed(seed)
    label_party = LabelParty(
        top=top, labels=labels, targets=targets, features=own, optimizer=make(top), protect=protect, loss=loss,
        noise=noise,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # for the first weights of what protections learn
        feature_party = FeatureParty(
            bottom=bottom, features=features, optimizer=(bottom_optimizer or make)(bottom), protect=protect_embedding,
            noise=other_generator(noise),
        )  # fmt: skip
    if len(feature_party.features[0]) != len(labels):
        raise UsageError(
            f"{len(feature_party.features[0])} rows of features for {len(labels)} labels: align the two tables first"
        )
    left, right = pair()
    history = []
    for epoch in range(epochs):
        plan = [rows.to(device) for rows in batches(len(labels), batch_size, epoch=epoch, seed=seed)]
        figures = []  # they stay on the device until the epoch is over
        for done, rows in enumerate(plan, start=epoch * len(plan) + 1):
            feature_party.send(rows, left)
            seen = label_party.step(rows, right)
            figures.append(_figures(seen))
            received = feature_party.finish(left)
            if record is not None:
                record.write(
                    rows=rows, embedding=received["embedding"], gradient=received["gradient"], clean=seen["clean"],
                    own_embedding=received["own_embedding"],
                )  # fmt: skip
            if progress is not None:
                progress(done, epochs * len(plan))
        history.append(_epoch(epoch, figures))
    return Simulation(bottom, top, history, record, feature_party)


def _name(value: object) -> str:
    """A class's own name, or that of a thing's class: an optimizer shows itself in many lines."""
    return value.__name__ if isinstance(value, type) else type(value).__name__


def _figures(seen: Mapping[str, Tensor]) -> Tensor:
    """What `_epoch` needs of one step, as one tensor; not every protection reports everything.  (6,)"""
    loss = seen["loss"]
    size = seen["clean"].flatten(start_dim=1).pow(2).sum(1).mean()
    defaults = {"power": 0.0, "untouched_rows": 0.0, "stateless": 0.0, "valid": 1.0}
    reported = [seen.get(name, torch.full_like(loss, default)) for name, default in defaults.items()]
    return torch.stack([figure.double() for figure in (loss, size, *reported)])


def _epoch(epoch: int, figures: Sequence[Tensor]) -> Epoch:
    """The figures of all steps of an epoch as those of the epoch."""
    loss, size, power, untouched, stateless, valid = torch.stack(list(figures)).mean(0).tolist()
    if valid < 1:
        raise TensorError(f"epoch {epoch}: a gradient was not finite, and the model is lost: look at the loss")
    relative = power / size if size > 0 else float("inf") if power > 0 else 0.0
    return Epoch(epoch, len(figures), loss, relative, round(untouched * len(figures)), stateless)
