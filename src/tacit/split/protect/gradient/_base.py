"""What all gradient protections share: checks, shapes and dtypes on the way in, the report on the way out.

A protection fills in one method, `draw`, which sees every batch in one form: a stack of problems, each with its rows
flattened and scaled to a largest entry of 1, and answers with noise in the same form.
"""

from __future__ import annotations

import abc
import functools
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor

from tacit.contracts import Noise, NoiseSource, Protected, noise_source
from tacit.errors import LabelsError, TensorError, UsageError
from tacit.split.protect.facts import Mechanism

Compute = TypeVar("Compute", bound=Callable[..., Any])

Strength = float | Tensor
"""A number for all problems of a stack; or, where replicas of other strengths run together, one for each of them.

The latter is (stack,) in float64 and made by `_stack` alone: factories take numbers.
"""

NOTHING = 1e-12  # the scale of a batch whose gradients are all zero: it gets noise like any other, only very small


def fused(compute: Compute) -> Compute:
    """A function of tensors that is compiled on CUDA, on first use, into a few kernels; elsewhere it stays as it is.

    A captured graph spends about 2 us on each kernel, however small, so what counts there is their number. Norms count
    their dimension from the front: compiled by torch 2.11, `vector_norm` over a last dimension of 1 named -1 keeps it.
    """
    compiled = functools.cache(lambda: torch.compile(compute))

    @functools.wraps(compute)
    def call(*arguments: Any) -> Any:
        on_cuda = any(isinstance(argument, Tensor) and argument.is_cuda for argument in arguments)
        if not on_cuda:
            return compute(*arguments)
        with warnings.catch_warnings():  # of the compiler, that products are as exact as asked for
            warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
            return compiled()(*arguments)

    return cast("Compute", call)


@dataclass(frozen=True)
class Batch:
    """A stack of batches, in the form that every protection works on."""

    rows: Tensor  # gradients, flattened, divided by `scale`. (stack, batch, width), float32 or float64
    labels: Tensor  # 0 or 1. (stack, batch), in the dtype of `rows`
    scale: Tensor  # the largest absolute entry of each problem. (stack,), in the dtype of `rows`
    squares: Tensor  # squared norms of `rows`. (stack, batch)
    valid: Tensor  # False where a problem holds a value that is not finite, or a label that is not 0 or 1. (stack,)

    @property
    def largest(self) -> Tensor:
        """The largest squared norm of a row, at least that of one unit entry.  (stack,)"""
        return self.squares.amax(-1).clamp(min=1.0)

    @property
    def share(self) -> Tensor:
        """The share of positives.  (stack,)"""
        return self.labels.mean(-1)


@dataclass(frozen=True)
class Drawn:
    """What `draw` answers: noise in the scaled form of the batch, the next state, and figures in units of the batch.

    The noise is a fresh tensor that the caller may overwrite.
    """

    noise: Tensor  # what is to be added. (stack, batch, width)
    state: Any  # the next state
    power: Tensor  # the expected squared norm of a row's noise, in scaled units. (stack,)
    figures: Mapping[str, Tensor]  # whatever else the protection reports; one number for each problem
    # what each row is multiplied by before the noise is added; None where rows stay as they are. (stack, batch)
    keep: Tensor | None = None


class GradientProtection(Mechanism, abc.ABC):
    """A protection of the gradient at the cut; pure, for one batch or a stack of batches, on any device.

    One batch is a gradient (batch, *cut) with labels (batch,); a stack is (stack, batch, *cut) with (stack, batch).
    """

    # the fields that may differ between replicas that are protected in one call; see `Strength`
    strengths: ClassVar[tuple[str, ...]] = ()
    noisy: ClassVar[bool] = True  # whether noise is drawn, which has to fit into the gradient's dtype

    @abc.abstractmethod
    def draw(self, batch: Batch, state: Any, source: NoiseSource) -> Drawn:
        """The noise for this batch."""

    def init(self) -> Any:
        """The state before the first step of a run; None where a protection remembers nothing."""
        return None

    def fresh(self) -> Any:
        """The state for a batch on its own, where there is no run and so no warm-up."""
        return self.init()

    def form(self, state: Any) -> Hashable | None:
        """What tells the next update from others: those of one form do the same tensor work on states of one structure.

        They may be replayed from one captured graph. None where the next one can't be: it makes what is missing in the
        state, or waits for the device.
        """
        return "usual"

    def advanced(self, state: Any) -> Any:
        """The state with its public step counter moved on, after an update whose tensors a replay has written."""
        return state

    def update(
        self, grad: Tensor, labels: Tensor, state: Any, noise: Noise, embedding: Tensor | None = None
    ) -> Protected:
        """Protect one batch (or a stack of batches) in the course of a run.

        Bad input on a CPU raises. On another device nothing is read back: a problem with bad input comes out as NaN
        in all its entries, and its figure `valid` is 0.
        """
        batch = read_batch(grad, labels)
        drawn = self.draw(batch, state, noise_source(noise))
        rows = grad.detach().reshape(batch.rows.shape)
        value, power = _compose(rows, drawn.noise, batch.scale, batch.valid, drawn.keep, drawn.power)
        stacked = labels.ndim == 2
        room = torch.finfo(grad.dtype).max / 100  # noise a hundred times its usual size is still a number
        fits = power.sqrt() < room if self.noisy else batch.valid
        if grad.device.type == "cpu" and not bool(fits.all()):
            raise_invalid(grad, labels)
        figures = {
            "power": power,
            "untouched_rows": _untouched(value, rows, drawn.keep),
            "valid": batch.valid & fits,
            **drawn.figures,
        }
        report = {key: figure if stacked else figure.squeeze(0) for key, figure in figures.items()}
        return Protected(value.reshape(grad.shape), drawn.state, self.event, report)

    def __call__(self, grad: Tensor, labels: Tensor, noise: Noise, embedding: Tensor | None = None) -> Protected:
        """Protect one batch on its own, with a fresh state and no warm-up; bad input raises on every device."""
        return checked(self.update(grad, labels, self.fresh(), noise, embedding), grad, labels)


def read_batch(grad: Tensor, labels: Tensor) -> Batch:
    """Check a gradient and its labels and bring them into the form that protections work on."""
    check_shapes(grad, labels)
    dtype = torch.float64 if grad.dtype == torch.float64 else torch.float32
    rows = grad.detach().to(dtype).reshape(1, *grad.shape) if labels.ndim == 1 else grad.detach().to(dtype)
    rows = rows.flatten(start_dim=2)
    y = labels.to(dtype).reshape(rows.shape[:2])
    batch = Batch(*_scaled(rows, y))
    if grad.device.type == "cpu" and not bool(batch.valid.all()):
        raise_invalid(grad, labels)
    return batch


@fused
def _scaled(rows: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """The fields of a `Batch`."""
    peak = torch.maximum(rows.amax((1, 2)), -rows.amin((1, 2)))  # NaN and infinities come through
    valid = torch.isfinite(peak) & ((labels == 0) | (labels == 1)).all(-1)
    scale = torch.where(peak > 0, peak, NOTHING)
    rows = rows / scale[:, None, None]
    return rows, labels, scale, torch.linalg.vector_norm(rows, dim=2).square(), valid  # dim=-1: see `fused`


@fused
def _compose(
    rows: Tensor, noise: Tensor, scale: Tensor, valid: Tensor, keep: Tensor | None, power: Tensor
) -> tuple[Tensor, Tensor]:
    """What is sent, and the noise's power in the gradient's units.

    Where the input was not valid and nobody could raise, what is sent is NaN throughout.
    """
    kept = rows.to(noise.dtype) if keep is None else rows.to(noise.dtype) * keep[..., None]
    unit = torch.where(valid, scale, torch.nan) if rows.is_cuda else scale
    sent = noise.mul_(unit[:, None, None]).add_(kept).to(rows.dtype)
    return sent, power.double() * scale.double() ** 2  # the square of a small float32 may vanish


def _untouched(sent: Tensor, rows: Tensor, keep: Tensor | None) -> Tensor:
    """How many rows are sent as they were; one of which nothing is kept is not, though it was zero.  (stack,)

    They are counted in what is sent, not by formula: noise below the resolution of the dtype is no noise. On a CPU one
    column tells cheaply that there is none.
    """
    if sent.device.type == "cpu" and not bool((sent[..., 0] == rows[..., 0]).any()):
        return torch.zeros(sent.shape[0], dtype=torch.float32)
    return _same(sent, rows, keep)


@fused
def _same(sent: Tensor, rows: Tensor, keep: Tensor | None) -> Tensor:
    same = (sent == rows).all(-1)
    return (same if keep is None else same & (keep > 0)).sum(-1).to(torch.float32)


def check_shapes(grad: Tensor, labels: Tensor) -> None:
    """Refuse a gradient and labels that do not belong together."""
    for name, given in (("gradient", grad), ("labels", labels)):
        if not isinstance(given, Tensor) or given.layout != torch.strided:
            raise TensorError(f"{name}: a dense torch tensor is needed, not {type(given).__name__}: convert it first")
    if not grad.dtype.is_floating_point:
        raise TensorError(f"the gradient must be of a floating dtype, not {grad.dtype}: pass the gradient itself")
    if labels.ndim not in (1, 2) or grad.ndim < labels.ndim + 1 or grad.shape[: labels.ndim] != labels.shape:
        raise TensorError(
            f"a gradient of shape {tuple(grad.shape)} does not fit labels of shape {tuple(labels.shape)}: "
            "pass (batch, *cut) with (batch,), or a stack (stack, batch, *cut) with (stack, batch)"
        )
    if grad.numel() == 0:
        raise TensorError(f"the gradient of shape {tuple(grad.shape)} is empty: send batches with at least one row")
    if grad.device != labels.device:
        raise TensorError(f"the gradient is on {grad.device} and the labels on {labels.device}: move one of them")


def checked(protected: Protected, grad: Tensor, labels: Tensor) -> Protected:
    """What was protected, if its input was valid; it is read back from the device, unless a graph is being captured."""
    capturing = grad.is_cuda and torch.cuda.is_current_stream_capturing()
    if not capturing and not bool(protected.report["valid"].all()):
        raise_invalid(grad, labels)
    return protected


def raise_invalid(grad: Tensor, labels: Tensor) -> None:
    """Say which row is wrong, and how."""
    wrong = ~((labels == 0) | (labels == 1))
    if wrong.any():
        where = tuple(wrong.nonzero()[0].tolist())
        value = labels[where].item()
        raise LabelsError(f"label {value} at row {where[-1]} is not 0 or 1: label protections are binary")
    rows = ~torch.isfinite(grad.flatten(start_dim=labels.ndim)).all(-1)
    if rows.any():
        where = tuple(rows.nonzero()[0].tolist())
        raise TensorError(f"the gradient of row {where[-1]} is not finite: look at the loss and its inputs")
    raise TensorError(f"noise for gradients this large does not fit into {grad.dtype}: scale the loss down")


def largest(what: str, rows: Tensor) -> Tensor:
    """The largest absolute entry, after checks of shape and dtype.

    What is not finite raises on a CPU. On another device nothing is read back: the answer is then not finite, and so
    is whatever is made with it.
    """
    if not isinstance(rows, Tensor) or rows.layout != torch.strided:
        raise TensorError(f"{what}: a dense torch tensor is needed, not {type(rows).__name__}: convert it first")
    if not rows.dtype.is_floating_point:
        raise TensorError(f"{what}: a floating dtype is needed, not {rows.dtype}: convert it first")
    if rows.ndim < 2 or rows.numel() == 0:
        raise TensorError(f"{what} has shape {tuple(rows.shape)}: pass (batch, *cut) with at least one row")
    low, high = torch.aminmax(rows.detach())
    peak = torch.maximum(-low, high)
    if rows.device.type == "cpu" and not bool(torch.isfinite(peak)):
        bad = ~torch.isfinite(rows.detach().flatten(start_dim=1)).all(-1)
        raise TensorError(
            f"{what}: row {int(bad.nonzero()[0])} is not finite: look at the features and at the learning rate"
        )
    return peak


def per_problem(strength: Strength, like: Tensor) -> Strength:
    """A strength to compute with beside a tensor (stack, ...): in its dtype and with its dimensions.

    A number stays as it is: torch takes it in the dtype of whatever stands beside it.
    """
    if not isinstance(strength, Tensor):
        return strength
    return strength.to(like.dtype).reshape(-1, *[1] * (like.ndim - 1))


def whole_number(name: str, value: int, *, least: int) -> int:
    """The value, if it is a whole number and not too small; else a `UsageError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name} = {value!r} is out of range: it is a whole number, {least} or more")
    return value


def positive_number(name: str, value: float, *, below: float = 1e12, above: float = 1e-12) -> float:
    """The value as a float, if it is a number above one bound and below the other; else a `UsageError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < below:
        raise UsageError(f"{name} = {value!r} is out of range: it is a number above {above:g} and below {below:g}")
    return float(value)


def one_knob(mechanism: str, **knobs: float | None) -> tuple[str, float]:
    """The one strength that was given, and its value; none or two are an error that names them."""
    given = {name: value for name, value in knobs.items() if value is not None}
    if len(given) != 1:
        wrong = "got none" if not given else f"got {' and '.join(given)}"
        raise UsageError(f"{mechanism}() takes exactly one strength of {', '.join(knobs)}; {wrong}")
    return next(iter(given.items()))


def theorem_1(sum_kl: Tensor) -> Tensor:
    """Theorem 1's bound on the AUC of any attacker, for a given sumKL; 1 where the theorem says nothing.

    >>> theorem_1(torch.tensor([0.0, 0.16, 5.0]))
    tensor([0.5000, 0.6800, 1.0000])
    """
    return torch.where(sum_kl < 4, 0.5 + sum_kl.sqrt() / 2 - sum_kl / 8, 1.0)


def gaussian_auc(sum_kl: Tensor) -> Tensor:
    """The best attacker's AUC where the classes differ by a shift of their means alone.

    >>> gaussian_auc(torch.tensor([0.0, 0.1284]))
    tensor([0.5000, 0.6000])
    """
    auc: Tensor = torch.special.ndtr((sum_kl / 2).sqrt())
    return auc


def detection_error_bound(sum_kl: Tensor) -> Tensor:
    """What no labelling function's detection error gets below, for a given sumKL: (1 - TV) / 2 by Pinsker's bound.

    >>> detection_error_bound(torch.tensor([0.0, 0.16, 5.0]))
    tensor([0.5000, 0.4000, 0.0000])
    """
    return (0.5 - sum_kl.sqrt() / 4).clamp(min=0.0)


def model_figures(sum_kl: Tensor, usable: Tensor) -> dict[str, Tensor]:
    """What a report says about a sumKL; `model_` marks a statement under the Gaussian model, not a certificate.

    `stateless` is 1 where there was nothing to plan with: `stateless_variance` was used, or zeros were sent.
    """
    bound, best, error, stateless = _bounds(sum_kl, usable)
    return {
        "sum_kl": sum_kl, "model_auc_theorem_1": bound, "model_auc_gaussian": best, "model_detection_error": error,
        "stateless": stateless,
    }  # fmt: skip


@fused
def _bounds(sum_kl: Tensor, usable: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return theorem_1(sum_kl), gaussian_auc(sum_kl), detection_error_bound(sum_kl), 1 - usable.to(sum_kl.dtype)
