"""What several attacks do to a view before they look at it. Shapes: steps, batch, width."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from tacit.audit import attacks
from tacit.contracts import Attack, Known, Noise, View
from tacit.errors import TensorError, UsageError

_AT_ONCE = 1 << 24  # elements of one intermediate tensor: 128 MiB of float64


Granted = TypeVar("Granted")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Named(Generic[Granted, Answer]):
    """An attack: a function and the name that reports have for it."""

    name: str
    guess: Callable[[View, Granted, Noise], Answer]
    guesses: str = ""  # "attribute" for one on a private column, in the place of whole inputs

    def __call__(self, view: View, known: Granted, noise: Noise) -> Answer:
        """What the attacker believes."""
        return self.guess(view, known, noise)


def named(
    factory: Callable[..., Any], guess: Callable[[View, Granted, Noise], Answer], *, guesses: str = "", **options: Any
) -> Named[Granted, Answer]:
    """The attack that a factory makes, named after it, with those options that are not its usual ones.

    >>> def hint(k=5, similarity="inner"):
    ...     return named(hint, lambda view, known, noise: None, k=k, similarity=similarity)
    >>> hint().name, hint(k=3).name
    ('hint', 'hint(k=3)')
    """
    usual = inspect.signature(factory).parameters
    shown = ", ".join(f"{key}={value}" for key, value in options.items() if value != usual[key].default)
    return Named(f"{factory.__name__}({shown})" if shown else factory.__name__, guess, guesses)


def built(one: Attack | str) -> Attack:
    """An attack as it is, or that of a name with its default options; anything else is refused."""
    if isinstance(one, str):
        made: Attack = attacks.attack(one)
        return made
    if not callable(one) or not isinstance(getattr(one, "name", None), str):
        raise UsageError(f"{one!r} is no attack: pass a name such as 'norm', or what attack('norm') makes")
    return one


def check_count(attack: str, option: str, value: object, wants: str) -> None:
    """Refuse an option that is no whole number of 1 or more; `wants` says what is counted."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{attack}({option}={value!r}) needs at least one {wants}: pass a whole number, 1 or more")


def gradient(view: View) -> Tensor:
    """The gradients in float32 or better, or a clear refusal.  (steps, batch, width)"""
    try:
        received = view.gradient.detach()
    except KeyError:
        raise UsageError("the transcript holds no gradient: there is nothing to attack") from None
    return _readable(received, "gradients")


def embedding(view: View, attack: str, *, sent: bool = False) -> Tensor:
    """The party's own embeddings, or those that were sent, in float32 or better; or a clear refusal.

    (steps, batch, width)
    """
    try:
        found = (view.embedding if sent else view.own_embedding).detach()
    except KeyError:
        raise UsageError(
            f"the attack {attack!r} needs the embeddings, but the transcript holds none: record them, or leave it out"
        ) from None
    return _readable(found, "embeddings")


def _readable(x: Tensor, what: str) -> Tensor:
    """In float32 or better. Refuses what is not finite, except on CUDA, where looking would wait for the device."""
    if not x.is_cuda and x.numel() and not all(bool(edge.isfinite()) for edge in torch.aminmax(x)):
        raise TensorError(f"the transcript holds {what} that are not finite: look for overflow in training")
    return x if x.dtype == torch.float64 else x.float()


def labels(view: View, known: Known, attack: str) -> Tensor:
    """For each row its label where the attacker knows it, -1 where it does not.  (steps, batch)"""
    if known.labels is None:
        raise UsageError(f"the attack {attack!r} needs known.labels: grant it some labels, or leave it out")
    granted = known.labels.to(view.rows.device)
    if not view.rows.is_cuda:  # there, looking would wait for the device, and its own check of the places follows
        low, high = (int(edge) for edge in torch.aminmax(view.rows))
        if low < 0 or high >= granted.numel():
            raise UsageError(f"row ids run from {low} to {high}, but known.labels holds {granted.numel()} entries")
    return granted.long()[view.rows]


def baseline(score: Tensor, view: View, known: Known) -> Tensor:
    """What an attack on the party's own embeddings is held against: the finished model's prediction, else itself."""
    return score if known.prediction is None else known.prediction.to(view.rows.device)[view.rows].to(score.dtype)


def row_norm(x: Tensor) -> Tensor:
    """The length of each row, in float64 so that tiny gradients do not vanish when squared.  (steps, batch)"""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float64)
    return length


def unit(x: Tensor) -> Tensor:
    """Each row scaled to length one; zero rows stay zero.  (steps, batch, width)"""
    length = row_norm(x)[..., None].to(x.dtype)
    return x / torch.where(length > 0, length, 1.0)


def batch_rms(x: Tensor) -> Tensor:
    """Root mean square of all numbers of a batch; 1 where all are zero.  (steps, 1, 1)"""
    length = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True, dtype=torch.float64)
    return torch.where(length > 0, length / (x.shape[-2] * x.shape[-1]) ** 0.5, 1.0)


def scaled(x: Tensor) -> Tensor:
    """Each batch scaled to root mean square 1, because gradients shrink as a model learns."""
    return x / batch_rms(x).to(x.dtype).clamp_min(torch.finfo(x.dtype).tiny)


def log_positive(x: Tensor) -> Tensor:
    """Logarithm of numbers that are zero or more, with zero far below everything but finite."""
    return x.clamp_min(1e-300).log()


def standardized(x: Tensor, counted: Tensor | None = None) -> Tensor:
    """Scores with mean 0 and deviation 1 within each batch, over the rows that count; the others get 0."""
    mask = torch.ones_like(x, dtype=torch.bool) if counted is None else counted
    x = x.double().masked_fill(~mask, 0.0)
    n = mask.sum(-1, keepdim=True).clamp_min(1)
    x = (x - x.sum(-1, keepdim=True) / n).masked_fill(~mask, 0.0)
    deviation = (x.square().sum(-1, keepdim=True) / n).sqrt()
    return x / torch.where(deviation > 0, deviation, 1.0)


def leading(x: Tensor) -> Tensor:
    """The unit direction along which the rows of a batch have most energy, with any sign.  -> (steps, width)"""
    vector: Tensor
    if x.shape[2] <= x.shape[1]:
        vector = torch.linalg.eigh(x.mT @ x).eigenvectors[..., -1]
        return vector
    vector = (x.mT @ torch.linalg.eigh(x @ x.mT).eigenvectors[..., -1:]).mT
    return unit(vector).squeeze(-2)


def turns(direction: Tensor) -> Tensor:
    """A sign for each step that turns its direction the way of all steps' common one.  (steps, width) -> (steps,)"""
    steps, width = direction.shape
    if steps <= width:
        along = torch.linalg.eigh(direction @ direction.mT).eigenvectors[:, -1]
    else:
        along = direction @ torch.linalg.eigh(direction.mT @ direction).eigenvectors[:, -1]
    return torch.where(along < 0, -1.0, 1.0).to(direction)


def slices(steps: int, each: int) -> Iterator[slice]:
    """Consecutive slices of steps such that an intermediate of `each` elements a step stays small."""
    stride = max(1, _AT_ONCE // max(1, each))
    for start in range(0, steps, stride):
        yield slice(start, start + stride)
