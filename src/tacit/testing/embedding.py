"""What an embedding protection owes, one check each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.contracts import EmbeddingProtection, NoiseSource, Regularizer, noise_source
from tacit.protect.embedding import names
from tacit.testing.form import check_event
from tacit.testing.subject import CheckError, bits, finite, generator, require, seed_world

_INPUTS = 5
_SHAPES = ((16, (4,)), (8, (4, 3, 3)), (1, (4,)), (1, (1,)), (2, (7,)), (3, (300,)))
_FROM_SOURCE = "draw everything from the source that is passed: noise.normal(z.shape, dtype=z.dtype, device=z.device)"


@dataclass(frozen=True)
class Shielded:
    """An embedding protection under examination."""

    protection: EmbeddingProtection  # what is examined

    def rows(
        self, size: int = 16, cut: tuple[int, ...] = (4,), *, seed: int = 0, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Inputs (rows, inputs) and an embedding (rows, *cut) that has to do with them, as a leaf of the graph."""
        source = generator(seed)
        x = torch.randn(size, _INPUTS, generator=source, dtype=torch.float64)
        weight = torch.randn(_INPUTS, torch.Size(cut).numel(), generator=source, dtype=torch.float64)
        z = torch.tanh(x @ weight).reshape(size, *cut)
        return x.to(dtype), z.to(dtype).requires_grad_()

    def noise(self, seed: int = 3) -> NoiseSource:
        """Randomness that a check can repeat."""
        return noise_source(generator(seed))

    def sent(self, z: Tensor, seed: int = 3, *, world: int = 0) -> Tensor:
        """What goes out in the place of z."""
        seed_world(world)
        return self.protection.transform(z, self.noise(seed))

    def made(self, x: Tensor, z: Tensor, *, world: int = 0) -> Regularizer | None:
        """The loss that it adds, with first weights of this seed."""
        seed_world(world)
        return self.protection.regularizer(x, z, [])


def says_who_it_is(subject: Shielded) -> str:
    """It has a name, an event in plain values, and a repr that is the same in every process."""
    one = subject.protection
    check_event(one.event)
    require(
        one.name == one.event.mechanism, "the name to be the event's mechanism",
        f"they are {one.name!r} and {one.event.mechanism!r}", "use one",
    )  # fmt: skip
    require(
        one.name not in names() or type(one).__module__.partition(".")[0] == "tacit", "a name of its own",
        f"it calls itself {one.name!r}, as one of ours does", "name it after your file",
    )  # fmt: skip
    require(
        " at 0x" not in repr(one), "a repr of the options alone, which a resumed run compares",
        f"it is {one!r}, with an address in memory", "make it a frozen dataclass of its options",
    )  # fmt: skip
    return repr(one)


def does_something(subject: Shielded) -> str:
    """It changes the embedding, adds a loss, or both."""
    x, z = subject.rows()
    changes, loss = bits(subject.sent(z)) != bits(z), subject.made(x, z) is not None
    require(
        changes or loss, "that transform changes the embedding, or regularizer gives a loss",
        "the embedding goes out as it is, and nothing is learned from a loss", "return something else than z and None",
    )  # fmt: skip
    return " and ".join([*(["changes the embedding"] if changes else []), *(["adds a loss"] if loss else [])])


def keeps_the_embeddings_form(subject: Shielded) -> str:
    """What goes out has the embedding's shape and dtype and is finite, and neither it nor the inputs are changed."""
    for size, cut in _SHAPES:
        for dtype in (torch.float32, torch.float64):
            x, z = subject.rows(size, cut, dtype=dtype)
            before = bits(x), bits(z)
            sent = subject.sent(z)
            require(
                (sent.shape, sent.dtype) == (z.shape, dtype) and finite(sent),
                f"finite numbers of shape {tuple(z.shape)} and {dtype}", f"it made {tuple(sent.shape)} of {sent.dtype}",
                "keep z's shape and dtype, for one row and for cuts of several dimensions",
            )  # fmt: skip
            made = subject.made(x, z)
            if made is not None:
                _loss(subject, made, x, z, f"{size} rows and a cut {cut}")
            require(
                (bits(x), bits(z)) == before, "that inputs and embedding stay as they are",
                "a call changed them in place", "work on a copy",
            )  # fmt: skip
    return f"{len(_SHAPES)} shapes, float32 and float64"


def _loss(subject: Shielded, made: Regularizer, x: Tensor, z: Tensor, what: str) -> Tensor:
    loss: Tensor = made(x, z, subject.noise())
    holds = not loss.ndim and finite(loss)
    require(holds, f"one finite number as the loss of {what}", f"it is {loss.tolist()}", "return a mean or a sum")
    return loss


def same_source_same_bytes(subject: Shielded) -> str:
    """The same source gives the same bytes, and torch's, numpy's and Python's own generators make no difference."""
    x, z = subject.rows()
    equal = bits(subject.sent(z)) == bits(subject.sent(z, world=1))
    require(equal, "the same bytes from the same source", "what is sent differs", _FROM_SOURCE)
    made = subject.made(x, z)
    if made is not None:
        losses = []
        for world in (0, 1):
            seed_world(world)
            losses.append(bits(made(x, z, subject.noise())))
        require(losses[0] == losses[1], "the same loss from the same source", "the losses differ", _FROM_SOURCE)
    return "with the global generators at two seeds"


def lets_gradients_through(subject: Shielded) -> str:
    """The embedding learns through it: a finite gradient reaches z, and none reaches the inputs."""
    x, z = subject.rows()
    x.requires_grad_()
    total = subject.sent(z).square().sum()
    made = subject.made(x, z)
    total = total if made is None else total + _loss(subject, made, x, z, "an ordinary batch")
    if total.requires_grad:
        total.backward()
    require(
        z.grad is not None and finite(z.grad) and bool((z.grad != 0).any()), "a finite gradient at z that is not zero",
        "there is none" if z.grad is None else "it is zero or not finite",
        "keep transform differentiable; for a step function pass the gradient straight through, as "
        "z + (stepped - z).detach()",
    )  # fmt: skip
    require(x.grad is None, "no gradient at the inputs", "there is one", "begin the loss with x = x.detach()")
    return "to z, and none to the inputs"


_ODD: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "equal rows": lambda x, z: (x[:1].repeat(len(x), 1), z[:1].repeat(len(z), 1)),
    "some rows of zeros": lambda x, z: (x, z * (torch.arange(len(z)) % 2)[:, None]),
    "zeros only": lambda x, z: (x * 0, z * 0),
    "a single row": lambda x, z: (x[:1], z[:1]),
    "a single row of zeros": lambda x, z: (x[:1], z[:1] * 0),
    "tiny numbers": lambda x, z: (x * 1e-30, z * 1e-30),
}


def odd_batches(subject: Shielded) -> str:
    """Equal rows, zeros, a single row and tiny numbers give finite embeddings, losses and gradients."""
    for name, make in _ODD.items():
        usual_x, usual_z = subject.rows(8)
        x, z = make(usual_x, usual_z.detach())
        z = z.clone().requires_grad_()
        sent = subject.sent(z)
        made = subject.made(x, z)
        total = sent.sum() if made is None else sent.sum() + _loss(subject, made, x, z, name)
        total.backward()
        require(
            finite(sent) and z.grad is not None and finite(z.grad), f"finite numbers for {name}",
            "what is sent, or its gradient, is not",
            "look for a root, a logarithm or a division at 0: its gradient is not finite either",
        )  # fmt: skip
    return ", ".join(_ODD)


def refuses_a_broken_embedding(subject: Shielded) -> str:
    """An embedding with NaN or an infinity is refused with a ValueError, by transform or by the loss."""
    for bad in (float("nan"), float("inf")):
        x, z = subject.rows()
        made = subject.made(x, z)
        wrong = z.detach().clone()
        wrong[11, 2] = bad
        try:
            subject.sent(wrong)
            if made is not None:
                made(x, wrong, subject.noise())
        except ValueError:
            continue
        raise CheckError(
            f"that an embedding that holds {bad} is refused with a ValueError",
            "it went through",
            "check first: raise tacit.errors.TensorError (a ValueError) that names the row",
        )
    return "NaN and infinity"


def what_it_learns_survives(subject: Shielded) -> str:
    """A regularizer that learns goes on to the same bytes from its stored state."""
    x, z = subject.rows()
    one, other = subject.made(x, z, world=1), subject.made(x, z, world=2)
    if one is None or other is None:
        return "it learns nothing"
    _learn(subject, one, range(3))
    other.load_state_dict({key: value.clone() for key, value in one.state_dict().items()})
    if one.optimizer is not None and other.optimizer is not None:
        other.optimizer.load_state_dict(copy.deepcopy(one.optimizer.state_dict()))
    require(
        _learn(subject, one, range(3, 6)) == _learn(subject, other, range(3, 6)),
        "the same losses from a stored state as from the one in memory", "they differ",
        "keep what it learns in parameters and buffers, and its optimizer in the attribute optimizer",
    )  # fmt: skip
    return "stored after 3 steps, 3 more the same"


def _learn(subject: Shielded, made: Regularizer, steps: range) -> list[bytes]:
    seen = []
    for step in steps:
        x, z = subject.rows(seed=step)
        made.zero_grad()
        loss = made(x, z, subject.noise(step))
        loss.backward()
        if made.optimizer is not None:
            made.optimizer.step()
        seen.append(bits(loss))
    return seen


EMBEDDING_CHECKS: tuple[Callable[[Shielded], str], ...] = (
    says_who_it_is, does_something, keeps_the_embeddings_form, same_source_same_bytes, lets_gradients_through,
    odd_batches, refuses_a_broken_embedding, what_it_learns_survives,
)  # fmt: skip
"""What an embedding protection owes."""
