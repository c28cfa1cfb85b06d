"""The cut as a module for anybody's own training loop: embeddings forward, protected gradients backward."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tacit.contracts import EmbeddingProtection, Message, Noise, Protection, StepNoise, noise_source
from tacit.errors import LabelsError, TensorError, UsageError
from tacit.split.checkpoint import flatten, rebuild
from tacit.split.record import Recorder
from tacit.split.tensors import gradient_protection, protections

_OTHER = 0x9E3779B97F4A7C15  # keeps the noise of embeddings apart from that of gradients under one seed


class Cut(nn.Module):
    """The place where a network is cut in two, in any training loop: `logits = top(cut(bottom(x), labels=y))`.

    Forward it passes the embedding on, under noise if asked; backward it passes the protected gradient on, once for
    each batch. Both halves may run in one process or, with the embedding as a leaf whose `grad` is sent, in two.

    In training it needs the batch's labels. In evaluation mode, or without gradients, it passes embeddings on as in
    training and lets no gradient through: bare ones never are. Its state is what the protection remembers, the noise's
    generator and the number of steps; `state_dict` has them, and is as secret as the labels.

    There is no journal and no gate: an answer that is lost and computed again has other noise, and gives more away.

    Args:
        protect: what is done to each gradient, as `marvell(scale=4.0)`; say `none()` to let it pass bare.
        embedding: what is done to each embedding, in this order, as `[gaussian(snr=4.0)]`.
        generator: where noise is drawn: a `torch.Generator`, a source, or one that has a source for each step. A fresh
            generator with a seed that nobody knows, if not given.
        record: keeps what crosses, for attacks; nothing is kept if not given.

    >>> import tacit
    >>> bottom, top = nn.Linear(3, 4), nn.Linear(4, 1)
    >>> cut = tacit.Cut(tacit.marvell(scale=4), generator=torch.Generator().manual_seed(0))
    >>> x, y = torch.ones(8, 3), torch.tensor([0.0, 1.0] * 4)
    >>> logits = top(cut(bottom(x), labels=y))
    >>> nn.functional.binary_cross_entropy_with_logits(logits[:, 0], y).backward()
    >>> cut
    Cut(marvell, steps=1)
    """

    def __init__(
        self,
        protect: Protection,
        *,
        embedding: Sequence[EmbeddingProtection] = (),
        generator: Noise | StepNoise | None = None,
        record: Recorder | None = None,
    ) -> None:
        super().__init__()
        self.protect = gradient_protection(protect)
        self.embedding = protections(embedding, name="embedding")
        for one in self.embedding:
            if _adds_a_loss(one):
                raise UsageError(
                    f"{one!r} adds a loss of the bottom's inputs, which a cut does not see: train with tacit.simulate "
                    "or FeatureParty, or pass gaussian(snr=4.0)"
                )
        if generator is None:
            generator = torch.Generator().manual_seed(secrets.randbits(63))
        elif not isinstance(generator, StepNoise):
            noise_source(generator)
        if record is not None and not isinstance(record, Recorder):
            raise UsageError(f"record = {record!r} is no recorder: pass one, as Recorder(last=32), or leave it out")
        self.noise = generator
        self.embedding_noise = other_generator(generator) if isinstance(generator, torch.Generator) else generator
        self.record = record
        # figures of the last gradient that was passed on, as `Protected.report` has them; they stay on this side
        self.report: dict[str, Tensor] = {}
        self.steps = 0  # gradients that were passed on
        self._opened = 0  # embeddings that were passed on
        self._state: Any = self.protect.init()
        self._device: torch.device | None = None  # of the state
        self._rows = 0  # that were numbered here, where nobody says which ones they are

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # state, noise and records are no part of a graph
    def forward(self, z: Tensor, labels: Tensor | None = None, *, rows: Tensor | None = None) -> Tensor:
        """The embedding as it goes on to the top.

        Args:
            z: what the bottom made, or what came from the peer, as a leaf that requires a gradient.  (batch, *cut)
            labels: 0 or 1 for each row, any label with `none()`; needed in training.
            rows: which examples these are, numbered from 0; needed where the recorder follows examples.
        """
        if not (self.training and torch.is_grad_enabled()):
            sent = self.embed(z)
            return _passed(_Closed, sent) if sent.requires_grad else sent
        y = self._labels(_embedding(z), labels)
        if not z.requires_grad:
            raise UsageError(
                "no gradient can come back to this embedding: call z.requires_grad_() on what came from a peer, look "
                "for a frozen bottom, or say cut.eval() where nothing is trained"
            )
        if z.is_leaf and z.grad is not None:
            raise UsageError(
                "z.grad still holds the gradient of another batch, to which this one would be added: make a new leaf "
                "for each batch, as z = came.detach().requires_grad_()"
            )
        if self.record is not None:
            rows = self._numbered(rows, len(z), z.device)
        return _passed(_Open, self.embed(z), z.detach(), self, y, rows)

    def embed(self, z: Tensor) -> Tensor:
        """The embedding as it may leave, under its protections; differentiable, for the side that has the bottom."""
        _embedding(z)
        if not self.embedding:
            return z
        noise = self.embedding_noise
        if isinstance(noise, StepNoise):
            hidden = Message(self._opened, "embedding", z.detach(), b"")
            noise = noise.at(self._opened, b"embedding", hidden.fingerprint)
        self._opened += 1
        source = noise_source(noise)
        for one in self.embedding:
            changed = one.transform(z, source)
            if changed.shape != z.shape or changed.dtype != z.dtype or not _finite(changed):
                raise TensorError(
                    f"{one!r} made {tuple(changed.shape)} of {changed.dtype} from an embedding {tuple(z.shape)} of "
                    f"{z.dtype}, or numbers that are not finite: nothing is passed on"
                )
            z = changed
        return z

    def crossed(self, *, visits: bool = False) -> dict[str, Any]:
        """What crossed, for `attack_all`: `tacit.attack_all(**cut.crossed(), attacks=["norm"], noise=generator)`.

        Args:
            visits: all visits of the examples that the recorder follows, instead of the last batches.
        """
        if self.record is None:
            raise UsageError("nothing was recorded: make the cut with record=tacit.Recorder(last=32)")
        found = self.record.visits() if visits else self.record.batches()
        assert found.labels is not None  # it writes them with each step
        ids, rows = found.view.rows.unique(return_inverse=True)
        truth = torch.zeros(len(ids), dtype=found.labels.dtype, device=rows.device)
        truth[rows] = found.labels
        return {"view": replace(found.view, rows=rows), "truth": truth, "clean": found.clean}

    def get_extra_state(self) -> dict[str, Any]:
        """What is needed to go on, in plain values and tensors; see `nn.Module.state_dict`."""
        skeleton, tensors = flatten(self._state)
        return {
            "event": repr(getattr(self.protect, "event", self.protect)),
            "steps": self.steps,
            "opened": self._opened,
            "rows": self._rows,
            "state": skeleton,
            "tensors": [tensor.detach().clone() for tensor in tensors],
            "noise": [one.get_state() for one in self._generators()],
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on from what `get_extra_state` gave; see `nn.Module.load_state_dict`."""
        mine = repr(getattr(self.protect, "event", self.protect))
        if state["event"] != mine:
            raise UsageError(f"this state is of a cut with {state['event']}, this one has {mine}: make the same one")
        if len(state["noise"]) != len(self._generators()):
            raise UsageError("this state was kept with another kind of generator: make the cut with the same one")
        self._state, self._device = rebuild(state["state"], [one.clone() for one in state["tensors"]]), None
        self.steps, self._opened, self._rows = state["steps"], state["opened"], state["rows"]
        for one, was in zip(self._generators(), state["noise"], strict=True):
            one.set_state(was.cpu())

    def extra_repr(self) -> str:
        """What it does, and how often it did."""
        names = [str(getattr(one, "name", type(one).__name__)) for one in (self.protect, *self.embedding)]
        return f"{', '.join(names)}, steps={self.steps}"

    def _generators(self) -> list[torch.Generator]:
        return [one for one in (self.noise, self.embedding_noise) if isinstance(one, torch.Generator)]

    def _labels(self, z: Tensor, labels: Tensor | None) -> Tensor:
        """The labels beside the embedding, if they belong to it and the protection knows them."""
        if labels is None:
            raise UsageError(
                "in training the cut needs the batch's labels: cut(z, labels=y). Without labels, as where it is "
                "evaluated, call cut.eval() first"
            )
        if not isinstance(labels, Tensor):
            raise LabelsError(f"labels are a {type(labels).__name__}: pass a tensor with one label for each row")
        if labels.shape not in ((len(z),), (len(z), 1)):
            raise LabelsError(
                f"labels of shape {tuple(labels.shape)} came with {len(z)} embeddings: pass one label for each row of "
                "the same batch"
            )
        y = labels.detach().reshape(-1).to(z.device, copy=True)
        # on another device looking would wait for it: at the first step, after which wrong labels make gradients of NaN
        looked = y.device.type == "cpu" or not self.steps
        if looked and getattr(self.protect, "name", None) != "none" and bool(((y != 0) & (y != 1)).any()):
            wrong = y[(y != 0) & (y != 1)][0].item()
            raise LabelsError(
                f"a label is {wrong}, not 0 or 1: label protections are for two classes; for more of them only "
                "tacit.none() can stand here"
            )
        return y

    def _numbered(self, rows: Tensor | None, count: int, device: torch.device) -> Tensor:
        """Which examples these are; new ones, where nobody says it."""
        assert self.record is not None
        if rows is None:
            if self.record.follow:
                raise UsageError("the recorder follows examples: say which ones these are, cut(z, labels=y, rows=ids)")
            rows = torch.arange(self._rows, self._rows + count, device=device)
            self._rows += count
        elif not isinstance(rows, Tensor) or rows.is_floating_point() or rows.shape != (count,):
            raise UsageError(f"rows are to number {count} examples: pass a tensor of {count} whole numbers")
        return rows.detach().to(device, copy=True)

    def _answer(self, grad: Tensor, sent: Tensor, own: Tensor, labels: Tensor, rows: Tensor | None) -> Tensor:
        """The protected gradient of a batch; the protection's state moves on."""
        if self._device != grad.device:  # after a checkpoint, or on a new device
            skeleton, tensors = flatten(self._state)
            self._state, self._device = rebuild(skeleton, [one.to(grad.device) for one in tensors]), grad.device
        noise = self.noise
        if isinstance(noise, StepNoise):
            asked, hidden = Message(self.steps, "embedding", sent, b""), Message(self.steps, "gradient", grad, b"")
            noise = noise.at(self.steps, asked.fingerprint, hidden.fingerprint)
        done = self.protect.update(grad, labels, self._state, noise, sent)
        if done.value.shape != grad.shape or done.value.dtype != grad.dtype:
            raise TensorError(
                f"{self.protect!r} made {tuple(done.value.shape)} of {done.value.dtype} from a gradient "
                f"{tuple(grad.shape)} of {grad.dtype}: nothing is passed on"
            )
        if self.record is not None:
            assert rows is not None  # forward numbered them
            self.record.write(
                rows=rows, embedding=sent, own_embedding=own, gradient=done.value.clone(), clean=grad.clone(),
                labels=labels,
            )  # fmt: skip
        self._state, self.report, self.steps = done.state, dict(done.report), self.steps + 1
        return done.value


class _Open(torch.autograd.Function):
    """A batch at the cut in training: its gradient is answered once."""

    @staticmethod
    def forward(ctx: Any, sent: Tensor, own: Tensor, cut: Cut, labels: Tensor, rows: Tensor | None) -> Tensor:
        ctx.answer = functools.partial(cut._answer, sent=sent.clone(), own=own, labels=labels, rows=rows)
        return sent.clone()  # the top may work in place

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.answer is None:
            raise UsageError(
                "this batch has its gradient: a second answer under fresh noise gives more away. Add losses up before "
                "one backward(), or run the bottom again"
            )
        answer, ctx.answer = ctx.answer, None
        return answer(grad), None, None, None, None


class _Closed(torch.autograd.Function):
    """An embedding in evaluation mode: no gradient comes back, for it would be bare."""

    @staticmethod
    def forward(ctx: Any, sent: Tensor) -> Tensor:
        return sent.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise UsageError("the cut is in evaluation mode and lets no gradient through: call cut.train() to train")


def _passed(function: type[torch.autograd.Function], *given: Any) -> Tensor:
    """The output of a function of autograd, which has no types of its own."""
    passed: Tensor = function.apply(*given)
    return passed


def _embedding(z: Tensor) -> Tensor:
    """The embedding itself, if it is one that can be protected."""
    if not isinstance(z, Tensor) or z.ndim < 2 or not len(z):
        shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise TensorError(f"the cut takes embeddings (batch, *cut), not {shape}: pass what the bottom makes of a batch")
    if z.dtype not in (torch.float32, torch.float64):
        raise TensorError(
            f"an embedding of {z.dtype} can't be cut here, where noise would be lost in rounding: call .float() on it, "
            "as cut(bottom(x).float(), labels=y); under autocast both halves may stay as they are"
        )
    return z


def _adds_a_loss(protection: EmbeddingProtection) -> bool:
    """Whether it needs what the bottom hides; a few rows tell."""
    with torch.random.fork_rng(devices=[]):
        z = torch.linspace(-1, 1, 8).reshape(2, 4)
        return protection.regularizer(z, z.clone(), []) is not None


def other_generator(noise: torch.Generator) -> torch.Generator:
    """The generator of embeddings' noise that belongs to one of gradients' noise."""
    return torch.Generator(noise.device).manual_seed((noise.initial_seed() + _OTHER) % 2**64)


def _finite(x: Tensor) -> bool:
    """Whether all numbers are finite; off the CPU, where looking waits for the device, it counts as True."""
    return x.device.type != "cpu" or bool(torch.isfinite(x).all())
