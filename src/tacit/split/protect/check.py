"""Whether a protection that somebody writes keeps what every protection owes: `check_protection`.

Each rule is a small function with a docstring that says what it asks for; `RULES` and `EMBEDDING_RULES` list them.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from tacit.contracts import (
    EmbeddingProtection,
    Event,
    Noise,
    NoiseSource,
    Protected,
    Protection,
    Regularizer,
    noise_source,
)
from tacit.errors import StorageError, UsageError
from tacit.split import checkpoint
from tacit.split.protect import embedding, gradient
from tacit.split.protect.facts import Facts
from tacit.split.protect.keyed_noise import KeyedNoise

DRAWS = 400
"""How often a statistical rule draws."""

FALSE_ALARM = 1e-6
"""The chance that a statistical rule fails a protection that is right."""

_FROM_SOURCE = (
    "draw everything from what is passed: source = tacit.contracts.noise_source(noise), then source.normal(...)"
)

Asked = TypeVar("Asked", "Subject", "Shielded")


class BrokenRuleError(AssertionError):
    """A protection breaks a rule: which one, what it asks for, what was seen instead, and what to do about it."""

    def __init__(self, rule: Callable[..., None], said: str) -> None:
        asks = " ".join((inspect.getdoc(rule) or "").split("\n\n")[0].split())
        super().__init__(f"{rule.__name__}: {asks} Here: {said}")
        self.rule = rule.__name__


def check_protection(make: Callable[[], Protection | EmbeddingProtection], *, device: str = "cpu") -> None:
    """Check that a protection of your own keeps what every protection owes: nothing happens, or a `BrokenRuleError`.

    The error is an AssertionError that names the first rule that is broken, what was seen and what to do about it. What
    is made is a protection of gradients (`init`, `update`, call) or of embeddings (`name`, `event`, `transform`,
    `regularizer`). Where its file has `FACTS`, what these do not promise is not asked: that every row is hidden of
    `noise=False`, that noise has mean zero of `alone=False`. It takes seconds, trains nothing and attacks nothing.

    Args:
        make: makes the protection anew for each rule, such as `lambda: steady(times=2)`.
        device: where a protection of gradients is tried.

    >>> from tacit.split.protect.gradient.iso import iso
    >>> check_protection(lambda: iso(t=1.0))
    """
    if isinstance(_made(make), EmbeddingProtection):
        for shield in EMBEDDING_RULES:
            ask(shield, Shielded(_made(make)))
        return
    drawn: dict[int, tuple[Tensor, Tensor | None]] = {}
    for rule in RULES:
        ask(rule, Subject(_made(make), device, drawn))


def _made(make: Callable[[], Any]) -> Any:
    gradients, embeddings = ("init", "update", "__call__"), ("name", "event", "transform", "regularizer")
    if not callable(make) or not (isinstance(make, type) or not all(hasattr(make, name) for name in gradients)):
        raise UsageError(f"{make!r} is no function that makes a protection: pass one, as lambda: steady(times=2)")
    made = make()
    if isinstance(made, type) or not any(all(hasattr(made, n) for n in names) for names in (gradients, embeddings)):
        raise UsageError(
            f"what was made, {made!r}, is no protection: one of gradients has init, update and __call__, one of "
            "embeddings has name, event, transform and regularizer"
        )
    return made


def ask(rule: Callable[[Asked], None], subject: Asked) -> None:
    """Ask one rule of a protection, or raise a `BrokenRuleError`."""
    with global_randomness(0):
        try:
            rule(subject)
        except _FaultError as fault:
            raise BrokenRuleError(rule, str(fault)) from None
        except (Exception, SystemExit) as error:  # somebody else's code may raise anything at all
            raise BrokenRuleError(rule, f"it raised {type(error).__name__}: {error}") from error


# --- what every rule works with --------------------------------------------------------------------------------------


class _FaultError(Exception):
    """What a rule saw."""


def _require(holds: bool, expected: str, happened: str, remedy: str) -> None:
    if not holds:
        raise _FaultError(f"expected {expected}; {happened}: {remedy}")


@dataclass(frozen=True)
class Batch:
    """What a label party has at one step: gradients, labels, and the embedding that came."""

    grad: Tensor  # (batch, *cut)
    labels: Tensor  # (batch,)
    embedding: Tensor  # in the shape of `grad`, and such that the gradient would pull it towards 0

    @classmethod
    def of(cls, grad: Tensor, labels: Tensor) -> Batch:
        """A batch with the embedding that goes with these gradients."""
        return cls(grad, labels, grad * 3)

    def copy(self) -> Batch:
        """The same in memory of its own."""
        return Batch(self.grad.clone(), self.labels.clone(), self.embedding.clone())


@dataclass(frozen=True)
class Subject:
    """A protection of gradients that is asked."""

    protection: Protection
    device: str = "cpu"  # where its tensors are
    # what was drawn, by the steps before it: two rules look at the same draws
    drawn: dict[int, tuple[Tensor, Tensor | None]] = field(default_factory=dict, compare=False, repr=False)

    @functools.cached_property
    def facts(self) -> Facts:
        """What its file promises; all that there is to promise where the file has no such record."""
        found = getattr(sys.modules.get(type(self.protection).__module__), "FACTS", None)
        return found if isinstance(found, Facts) else Facts(noise=True)

    def batch(
        self, seed: int = 0, size: int = 24, cut: tuple[int, ...] = (6,), *, dtype: torch.dtype = torch.float64
    ) -> Batch:
        """Gradients (p - y) times a direction with some spread; every third row is positive."""
        source = _generator(seed)
        labels = (torch.arange(size) % 3 == 0).long()
        p = torch.rand(size, generator=source, dtype=torch.float64)
        direction = torch.randn(*cut, generator=source, dtype=torch.float64)
        spread = torch.randn(size, *cut, generator=source, dtype=torch.float64)
        each = (p - labels).reshape(size, *[1] * len(cut))
        return Batch.of((each * (direction + 0.4 * spread)).to(self.device, dtype), labels.to(self.device))

    def noise(self, seed: int = 7) -> torch.Generator:
        """Randomness on this device that can be repeated."""
        return _generator(seed, self.device)

    def update(self, batch: Batch, state: Any, noise: Noise | int = 7, *, world: int = 0) -> Protected:
        """One step of a run, on copies: what a protection does to its arguments is no business of other rules.

        The `world` seeds every generator that belongs to nobody, which should make no difference.
        """
        return self._called(self.protection.update, batch, world, noise, state)

    def once(self, batch: Batch, noise: Noise | int = 7, *, world: int = 0) -> Protected:
        """One batch on its own; the arguments are those of `update`."""
        return self._called(self.protection, batch, world, noise)

    def fresh(self) -> Any:
        """The state that a batch on its own is protected with."""
        make: Callable[[], Any] = getattr(self.protection, "fresh", self.protection.init)
        return make()

    def after(self, steps: int, **kind: Any) -> Any:
        """The state after some ordinary steps of a run."""
        state = self.protection.init()
        for step in range(steps):
            state = self.update(self.batch(100 + step, **kind), state, 200 + step).state
        return state

    def _called(
        self, call: Callable[..., object], batch: Batch, world: int, noise: Noise | int, *state: Any
    ) -> Protected:
        own, source = batch.copy(), self.noise(noise) if isinstance(noise, int) else noise
        _seed_world(world)
        done = call(own.grad, own.labels, *state, source, own.embedding)
        if not isinstance(done, Protected) or not isinstance(done.value, Tensor):
            what = "a Protected whose value is no tensor" if isinstance(done, Protected) else f"a {type(done).__name__}"
            raise _FaultError(
                f"expected a tacit.contracts.Protected whose value is a tensor; it returned {what}: return "
                "Protected(value, state, event, report)"
            )
        return replace(done, value=done.value.clone())  # it may be the copy that it was given


def _generator(seed: int = 7, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


@contextmanager
def global_randomness(seed: int) -> Iterator[None]:
    """Every generator that belongs to nobody at this seed, and afterwards as it was before."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (a protection may use it)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        _seed_world(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _seed_world(seed: int) -> None:
    """Set every generator that belongs to nobody; only where `global_randomness` puts them back."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # before that torch.manual_seed would note the whole stack, each time
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def _finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())


def bits(tensor: Tensor) -> bytes:
    """The bytes of a tensor: -0.0 and 0.0 differ, and a NaN is equal to itself."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same to the last bit; on a GPU, whose kernels may add in another order, nearly so."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.device.type == "cpu" or not one.dtype.is_floating_point:
        return bits(one) == bits(other)
    return torch.allclose(one, other, rtol=1e-3, atol=1e-3 * float(one.abs().max()), equal_nan=True)


def same_tree(one: Any, other: Any) -> bool:
    """Whether two states are the same, tensor by tensor; what is no tensor and no container is compared as it is."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and _same(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same_tree(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(same_tree(a, b) for a, b in zip(one, other, strict=True))
    if hasattr(one, "__dataclass_fields__"):
        return all(same_tree(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    return bool(one == other)


# --- form: what goes in and what comes out ---------------------------------------------------------------------------

_SHAPES = ((16, (8,)), (16, (2, 3, 3)), (16, (1,)), (1, (8,)), (1, (1,)), (2, (5,)), (24, (300,)))
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LABELS = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.int8, torch.bool)


def keeps_shape(subject: Subject) -> None:
    """What is sent has the gradient's shape, for one row and many, flat cuts and several-dimensional ones."""
    for size, cut in _SHAPES:
        _alike(subject, subject.batch(size=size, cut=cut), f"an ordinary batch of {size} rows and a cut {cut}")


def keeps_dtype(subject: Subject) -> None:
    """What is sent has the gradient's dtype: float32, float64, bfloat16 and float16."""
    for dtype in _DTYPES:
        _alike(subject, subject.batch(dtype=dtype), f"an ordinary batch of {dtype}")


def _alike(subject: Subject, batch: Batch, what: str) -> None:
    """At the first step, at the next one and on its own a batch comes out in its shape and dtype, and finite."""
    first = subject.update(batch, subject.protection.init())
    for value in (first.value, subject.update(batch, first.state).value, subject.once(batch).value):
        _require(
            value.shape == batch.grad.shape, f"a value of shape {tuple(batch.grad.shape)}",
            f"it sent {tuple(value.shape)}",
            "flatten inside with grad.flatten(1) and give the answer back with .reshape(grad.shape)",
        )  # fmt: skip
        _require(
            value.dtype == batch.grad.dtype, f"numbers of {batch.grad.dtype}", f"it sent {value.dtype}",
            "compute in float32 or float64 and send value.to(grad.dtype)",
        )  # fmt: skip
        _require(
            _finite(value), f"finite numbers for {what}", f"{int((~value.isfinite()).sum())} entries are not finite",
            "look for a division by a spread or a norm that is 0 where there are few rows or columns, or for numbers "
            "that the dtype cannot hold",
        )  # fmt: skip


def keeps_device(subject: Subject) -> None:
    """What is sent, and every figure of the report, lies on the gradient's device."""
    batch = subject.batch()
    done = subject.update(batch, subject.protection.init())
    figures = {f"report[{name!r}]": figure for name, figure in done.report.items() if isinstance(figure, Tensor)}
    for name, tensor in {"value": done.value, **figures}.items():
        _require(
            tensor.device == batch.grad.device, f"{name} on {batch.grad.device}", f"it is on {tensor.device}",
            "make every tensor with device=grad.device, and draw noise with device=grad.device",
        )  # fmt: skip


def inputs_untouched(subject: Subject) -> None:
    """Gradient, labels, embedding and state are, bit for bit, what they were before the call."""
    for steps in (0, 1, 5):
        batch, state = subject.batch(1), subject.after(steps)
        kept, again = batch.copy(), subject.after(steps)
        subject.protection.update(batch.grad, batch.labels, state, subject.noise(3), batch.embedding)
        subject.protection(batch.grad, batch.labels, subject.noise(3), batch.embedding)
        for name in ("grad", "labels", "embedding"):
            _require(
                bits(getattr(batch, name)) == bits(getattr(kept, name)),
                f"that {name} stays as it is", f"the call changed it, at step {steps}",
                "work on a copy: no method that ends with _ and no out= on what is passed",
            )  # fmt: skip
        _require(
            same_tree(state, again),
            "that the state that goes in stays as it is, and a new one comes out",
            f"update changed it in place, at step {steps}, so a step that is tried again would differ",
            "return a new state: a frozen dataclass, tuple or dict, whose tensors are new",
        )


def new_tensor(subject: Subject) -> None:
    """What is sent shares no memory with the gradient and carries no history, so nothing can change it later."""
    batch = subject.batch()
    batch.grad.requires_grad_()
    value = subject.protection(batch.grad, batch.labels, subject.noise(), batch.embedding).value
    _require(
        not value.requires_grad, "a value without history",
        "it requires a gradient, and the whole graph of the top model hangs on it", "begin with grad = grad.detach()",
    )  # fmt: skip
    _require(
        value.untyped_storage().data_ptr() != batch.grad.untyped_storage().data_ptr(),
        "a new tensor", "the value lies in the memory of the gradient itself",
        "send grad.detach() + noise, or a clone()",
    )  # fmt: skip


def labels_of_any_dtype(subject: Subject) -> None:
    """Labels as float, int or bool give the same bytes."""
    batch = subject.batch()
    want = bits(subject.once(batch).value)
    for dtype in _LABELS:
        value = subject.once(Batch(batch.grad, batch.labels.to(dtype), batch.embedding)).value
        _require(
            bits(value) == want, f"the same bytes for labels of {dtype} as for int64", "they differ",
            "compare once, as positive = labels > 0.5, and compute with that",
        )  # fmt: skip


def strides(subject: Subject) -> None:
    """Gradients that do not lie in order in memory are protected like those that do."""
    batch = subject.batch(cut=(2, 4))
    want = subject.once(batch).value
    turned = batch.grad.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    spaced = torch.stack([batch.grad, batch.grad], dim=-1)[..., 0]
    for grad in (turned, spaced):
        _seed_world(0)
        got = subject.protection(grad, batch.labels, subject.noise(), batch.embedding).value
        _require(
            torch.allclose(got, want, rtol=0, atol=1e-9 * float(want.abs().max())),
            "the same answer, to 1e-9 of its largest entry, for a gradient with other strides",
            f"an entry differs by {float((got - want).abs().max()):.3g}",
            "use .reshape instead of .view, and never as_strided",
        )
    one = batch.grad[:1].expand_as(batch.grad)  # no memory of its own for each row
    _require(
        _finite(subject.protection(one, batch.labels, subject.noise(), batch.embedding).value),
        "finite numbers for one row that stands for all", "some are not finite",
        "never write into grad, and divide by no spread that may be 0",
    )  # fmt: skip


def call_equals_update(subject: Subject) -> None:
    """Called on a batch on its own it does what update does with a fresh state."""
    batch = subject.batch(2)
    alone, first = subject.once(batch, 5), subject.update(batch, subject.fresh(), 5)
    _require(
        bits(alone.value) == bits(first.value),
        "that protection(grad, labels, noise) is update(grad, labels, init(), noise)", "their bytes differ",
        "let __call__ be `return self.update(grad, labels, self.init(), noise, embedding)`; where a batch on its "
        "own starts from another state (no warm-up), give that one by a method fresh()",
    )  # fmt: skip


# --- randomness: where it comes from, and what it adds ---------------------------------------------------------------


def same_noise_same_bytes(subject: Subject) -> None:
    """The same call with the same noise gives the same bytes, state, event and report: a step can be repeated."""
    for steps in (0, 1, 5):
        state, batch = subject.after(steps), subject.batch(1)
        first = subject.update(batch, state, 3)
        subject.update(subject.batch(2), first.state, 4)
        again = subject.update(batch, state, 3)
        for name in ("value", "state", "event", "report"):
            _require(
                same_tree(_plain(getattr(first, name)), _plain(getattr(again, name))),
                f"the same {name} when step {steps} is computed again with the same noise",
                f"the second {name} differs from the first",
                "keep nothing in the object between calls; what must be remembered belongs into the state",
            )


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else value


def other_noise_other_bytes(subject: Subject) -> None:
    """Other noise gives another value: what is sent can't be computed without it."""
    batch = subject.batch()
    one, two = (subject.once(batch, seed, world=seed).value for seed in (1, 2))
    _require(
        not subject.facts.noise or bits(one) != bits(two), "another value under other noise",
        "two sources of noise gave the same bytes, so nothing random hides the gradient",
        "add noise from the source; what has none can only be a first link of a chain, before one that has",
    )  # fmt: skip


def no_randomness_of_its_own(subject: Subject) -> None:
    """All randomness comes from the source that is passed: torch's, numpy's and Python's own generators don't matter.

    Between two companies the source is a keyed stream, so that a step that is repeated after a crash has the same noise
    and nobody else can know it. A protection with another source has noise that can be averaged away, or guessed.
    """
    batch, state = subject.batch(), subject.after(2)
    for call in (subject.once, lambda *a, **k: subject.update(a[0], state, a[1], **k)):
        _require(
            bits(call(batch, 7, world=1).value) == bits(call(batch, 7, world=2).value),
            "the same bytes whatever the global generators hold",
            "a torch.manual_seed between the calls changed what was sent", _FROM_SOURCE,
        )  # fmt: skip


def takes_a_noise_source(subject: Subject) -> None:
    """Noise may be a torch.Generator (simulations) or a NoiseSource such as a keyed stream (between two companies)."""
    keyed = KeyedNoise(bytes(range(32)), "check")
    batch, state = subject.batch(), subject.after(2)
    first, again, other = (subject.update(batch, state, keyed.at(step)).value for step in (0, 0, 1))
    subject.update(batch, state, subject.noise())
    _require(
        _finite(first) and bits(first) == bits(again), "the same finite value for the same step of a keyed stream",
        "it differs" if _finite(first) else "it is not finite", _FROM_SOURCE,
    )  # fmt: skip
    drawn = bits(subject.update(batch, state, 1).value) != bits(subject.update(batch, state, 2).value)
    _require(
        not drawn or bits(first) != bits(other), "another value at another step",
        "a keyed stream makes no difference", _FROM_SOURCE,
    )  # fmt: skip


def unbiased(subject: Subject) -> None:
    """What is added has mean zero, so that training goes where it would go without protection.

    Every entry, and what is added along the gradient, between the classes and over all entries; at the first step and
    in a run. The chance that this rule fails a protection that is right is 1 in a million.
    """
    batch = subject.batch()
    for steps in (0, 3) if subject.facts.alone else ():
        added = _drawn(subject, steps)[0]
        each, names = _means(added, batch)
        draws = len(added)
        limit = _limit(draws, 2 * each.shape[1])
        size = float(batch.grad.abs().max())
        mean, error = each.mean(0), each.std(0) / draws**0.5 + 1e-9 * size
        off = torch.where(mean.abs() <= 1e-6 * size, 0.0, mean.abs() / error)
        worst = int(off.argmax())
        _require(
            float(off[worst]) <= limit,
            f"a mean of zero, within {limit:.1f} standard errors over {draws} draws",
            f"{names(worst)}, at step {steps}, it is {float(mean[worst]):.3g}, with a standard error of "
            f"{float(error[worst]):.2g}",
            "add noise of mean zero to the gradient as it is; scaling or clipping the gradient moves its mean",
        )


def _means(added: Tensor, batch: Batch) -> tuple[Tensor, Callable[[int], str]]:
    """What should be zero on average, for each draw, and its names: entries first, then three sums over them."""
    grad = batch.grad.flatten(1).double()
    positive = batch.labels > 0
    gap = grad[positive].mean(0) - grad[~positive].mean(0)
    apart = torch.where(positive, 1.0, -1.0)[:, None] * gap
    towards = torch.stack([grad, apart, torch.ones_like(grad)])  # (3, batch, width)
    towards = towards / towards.flatten(1).norm(dim=1)[:, None, None]
    sums = torch.einsum("nbw,kbw->nk", added, towards)
    width, count = grad.shape[1], grad.numel()

    def name(place: int) -> str:
        sums_of = ("along the gradient", "between the classes", "over all entries")
        return f"at row {place // width}, column {place % width}" if place < count else sums_of[place - count]

    return torch.cat([added.flatten(1), sums], dim=1), name


def reported_power(subject: Subject) -> None:
    """Where the report has a `power`, it is the mean squared norm of what is added to a row."""
    for steps in (0, 3):
        added, told = _drawn(subject, steps)
        if told is None:
            return
        draws = len(added)
        measured = added.square().sum(-1).mean(-1)  # (draws,)
        error = float((measured - told).std()) / draws**0.5
        off = abs(float((measured - told).mean()))
        _require(
            off <= _limit(draws, 2) * error + 1e-6 * float(told.mean()),
            f"a power of {float(measured.mean()):.4g}, as measured over {draws} draws",
            f"the report says {float(told.mean()):.4g}, at step {steps}",
            "report the expected squared norm of a row's noise, the mean over rows, in the gradient's units",
        )


def _limit(draws: int, count: int) -> float:
    """How many standard errors so many means may be away, all together, at the chance of a false alarm."""
    import scipy.stats  # slow to import, and nothing else of a protection needs it

    return float(scipy.stats.t.isf(FALSE_ALARM / 2 / count, draws - 1))


def _drawn(subject: Subject, steps: int) -> tuple[Tensor, Tensor | None]:
    """What is added to one batch, drawn often, and the power that is reported each time.  (draws, batch, width)

    A step at which zeros are sent, whatever is drawn, adds nothing: it is later ones that are judged.
    """
    if steps not in subject.drawn:
        batch, state, source = subject.batch(), subject.after(steps), subject.noise(77)
        done = [subject.update(batch, state, source, world=draw) for draw in range(DRAWS)]
        sent = torch.stack([one.value.flatten(1) for one in done]).double()
        added = sent - batch.grad.flatten(1) if bool(sent.any()) else sent
        told = [torch.as_tensor(one.report["power"]).double() for one in done if "power" in one.report]
        subject.drawn[steps] = added, torch.stack(told).to(added.device) if len(told) == len(done) else None
    return subject.drawn[steps]


# --- failing closed: where a formula has no answer more is hidden, not less ------------------------------------------

_Odd = Mapping[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]


def _place(labels: Tensor) -> Tensor:
    return torch.arange(len(labels), device=labels.device)


def _same_means(grad: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Every row with its opposite in the same class: both means are zero exactly."""
    half = len(labels) // 2
    return torch.cat([grad[:half], -grad[:half]]), torch.cat([labels[:half], labels[:half]])


_ONE_CLASS: _Odd = {
    "negatives only": lambda g, y: (g, torch.zeros_like(y)),
    "positives only": lambda g, y: (g, torch.ones_like(y)),
    "negatives only in a wide cut": lambda g, y: (g.repeat(1, 50), torch.zeros_like(y)),
    "negatives only in one coordinate": lambda g, y: (g[:, :1], torch.zeros_like(y)),
    "a single row": lambda g, y: (g[:1], y[:1]),
    "a single row in a wide cut": lambda g, y: (g[:1].repeat(1, 50), y[:1]),
    "a single row in one coordinate": lambda g, y: (g[:1, :1], y[:1]),
}
_ONE_OF_A_CLASS: _Odd = {
    "one positive": lambda g, y: (g, (_place(y) == 4).long()),
    "one negative": lambda g, y: (g, (_place(y) != 4).long()),
    "one of each": lambda g, y: (g[:2], y[:2]),
}
_NO_SPREAD: _Odd = {
    "identical rows": lambda g, y: (g[:1].repeat(len(y), 1), y),
    "one row for each class, repeated": lambda g, y: (torch.where(y[:, None] == 1, g[:1], g[1:2]), y),
    "classes with the same mean": _same_means,
    "one coordinate": lambda g, y: (g[:, :1], y),
}
_ZERO: _Odd = {
    "zeros only": lambda g, y: (torch.zeros_like(g), y),
    "zeros only in a wide cut": lambda g, y: (torch.zeros_like(g).repeat(1, 50), y),
    "some rows of zeros": lambda g, y: (g * (_place(y) % 4 > 1)[:, None], y),
    "a class of zeros": lambda g, y: (g * y[:, None], y),
    "zeros only, of one class": lambda g, y: (torch.zeros_like(g), torch.zeros_like(y)),
    "a single row of zeros": lambda g, y: (torch.zeros_like(g[:1]), y[:1]),
}
_SIZES: _Odd = {
    "tiny gradients": lambda g, y: (g * 1e-30, y),
    "one huge row": lambda g, y: (torch.cat([g[:-1] * 1e-9, g[-1:]]), y),
}
ODD: _Odd = {**_ONE_CLASS, **_ONE_OF_A_CLASS, **_NO_SPREAD, **_ZERO, **_SIZES}
"""What each of these makes of an ordinary batch's gradients and labels, by name."""


def hides_every_row(subject: Subject) -> None:
    """No row of an ordinary batch is sent as it is; a row that the protection itself calls untouched counts as such."""
    for steps in (0, 1, 5) if subject.facts.noise else ():
        state = subject.after(steps, dtype=torch.float32)
        for seed in range(3):
            batch = subject.batch(seed, dtype=torch.float32)
            done = subject.update(batch, state, seed)
            told = done.report.get("untouched_rows")
            bare = max(_bare_rows(done.value, batch.grad), 0 if told is None else int(told))
            _require(
                not bare, "that every row is hidden",
                f"{bare} of {len(batch.grad)} rows were sent without noise, at step {steps}",
                "give noise to every row, whatever its class and size; or chain() this one with one that does",
            )  # fmt: skip


def one_class(subject: Subject) -> None:
    """A batch of one class only, or of a single row, is hidden like any other: never sent bare, never NaN."""
    _closed(subject, _ONE_CLASS)


def one_of_a_class(subject: Subject) -> None:
    """A class with a single row, which has no spread of its own, is hidden as well."""
    _closed(subject, _ONE_OF_A_CLASS)


def no_spread(subject: Subject) -> None:
    """Rows that are all alike, classes with the same mean, a single coordinate: hidden, though nothing spreads."""
    _closed(subject, _NO_SPREAD)


def zero_rows(subject: Subject) -> None:
    """Gradients that are zero, all or some of them, get noise too, and no division by their norm gives NaN."""
    _closed(subject, _ZERO)


def extreme_sizes(subject: Subject) -> None:
    """Gradients of 1e-30, and a row a billion times as large as the others, come out finite and hidden."""
    _closed(subject, _SIZES)


def _closed(subject: Subject, odd: _Odd) -> None:
    """Finite and hidden: alone, at the first steps, in a run, and again after itself; and the run is none the worse."""
    for dtype, steps in ((torch.float32, (1, 5)), (torch.float64, (5,))):
        alone = {"on its own": subject.fresh(), "at the first step": subject.protection.init()}
        running = {f"after {count} steps": subject.after(count, dtype=dtype) for count in steps}
        usual = subject.batch(8, dtype=dtype)
        for name, make in odd.items():
            batch = Batch.of(*make(usual.grad, usual.labels))
            cut = tuple(batch.grad.shape[1:])
            for when, state in (alone | running if cut == (6,) else alone).items():
                for seed in (11, 12):
                    state = _hidden(subject, f"{name}, {when}", batch, state, seed)
                after = subject.update(subject.batch(9, cut=cut, dtype=dtype), state, 1).value
                _require(
                    _finite(after), "an ordinary batch after that to come out finite",
                    f"after {name}, {when}, the run sends numbers that are not finite",
                    "let no NaN into the state: keep the statistics of before where a batch has none of its own",
                )  # fmt: skip


def _hidden(subject: Subject, what: str, batch: Batch, state: Any, seed: int) -> Any:
    """The next state, where what is sent is finite and holds no bare row."""
    done = subject.update(batch, state, seed)
    _require(
        _finite(done.value), f"finite numbers for a batch of {what}",
        f"{int((~done.value.isfinite()).sum())} of {done.value.numel()} entries are not finite",
        "where a mean, spread or norm is 0 or undefined, use that of the steps before or the largest row's",
    )  # fmt: skip
    wrong = [name for name, figure in done.report.items() if not _finite(torch.as_tensor(figure))]
    _require(
        not wrong, f"finite figures in the report for a batch of {what}", f"{', '.join(wrong)} is not finite",
        "report 0 where there is nothing to report",
    )  # fmt: skip
    bare = _bare_rows(done.value, batch.grad)
    _require(
        not bare or not subject.facts.noise or _silent(subject, batch, state), f"that a batch of {what} is hidden",
        f"{bare} of {len(batch.grad)} rows were sent as they are: it fails open",
        "where the formula is undefined use the noise of the steps before, or noise as large as the largest row; "
        "never return grad",
    )  # fmt: skip
    return done.state


def _silent(subject: Subject, batch: Batch, state: Any) -> bool:
    """Whether any batch of this shape is answered with zeros in this state, which tell nothing of it."""
    size, *cut = batch.grad.shape
    usual = subject.batch(7, size, tuple(cut), dtype=batch.grad.dtype)
    return not any(bits(subject.update(one, state).value).strip(b"\0") for one in (batch, usual))


def _bare_rows(value: Tensor, grad: Tensor) -> int:
    """How many rows are sent as they are."""
    return int((value == grad).flatten(1).all(-1).sum())


# --- refusing: what can't be hidden never leaves ---------------------------------------------------------------------


def refuses_what_is_not_finite(subject: Subject) -> None:
    """A gradient with NaN or an infinity is refused with a ValueError, and the state stays as it was."""
    for bad in (float("nan"), float("inf"), float("-inf")):
        batch = subject.batch(dtype=torch.float32)
        batch.grad[17, 2] = bad
        _refused(subject, f"a gradient that holds {bad}", batch)


def refuses_wrong_shapes(subject: Subject) -> None:
    """A gradient and labels that do not belong together, and an empty batch, are refused with a ValueError."""
    shapes = {
        "24 rows with 23 labels": ((24, 6), (23,)),
        "labels with a second dimension": ((24, 6), (24, 1)),
        "a single number as labels": ((24, 6), ()),
        "a gradient without a cut": ((24,), (24,)),
        "a batch without rows": ((0, 6), (0,)),
        "a cut without columns": ((24, 0), (24,)),
    }
    for what, (grad, labels) in shapes.items():
        device = subject.device
        _refused(subject, what, Batch.of(torch.ones(grad, device=device), torch.zeros(labels, device=device)))
    whole = subject.batch()
    _refused(subject, "a gradient of whole numbers", Batch.of(whole.grad.long(), whole.labels))


def refuses_other_labels(subject: Subject) -> None:
    """Labels that are not 0 or 1 are refused with a ValueError; a protection that never looks at labels is let off."""
    batch, state = subject.batch(), subject.after(3)
    turned = Batch(batch.grad, 1 - batch.labels, batch.embedding)
    alone, running = (
        {bits(call(one).value) for one in (batch, turned)}
        for call in (subject.once, lambda one: subject.update(one, state))
    )
    if len(alone) == len(running) == 1:
        return
    for bad in (2.0, 0.5, -1.0, float("nan")):
        labels = batch.labels.double()
        labels[13] = bad
        _refused(subject, f"a label {bad}", Batch(batch.grad, labels, batch.embedding))


def _refused(subject: Subject, what: str, batch: Batch) -> None:
    state, kept = subject.after(2), subject.after(2)
    calls: dict[str, Callable[[], Any]] = {"protection(...)": lambda: subject.once(batch)}
    if subject.device == "cpu":  # elsewhere a run need not wait for the device: it answers with NaN and valid = 0
        calls["update(...)"] = lambda: subject.update(batch, state)
    for name, call in calls.items():
        try:
            call()
        except ValueError:
            continue
        except (RuntimeError, TypeError, IndexError, ArithmeticError, AssertionError) as error:
            happened = f"{name} raised {type(error).__name__}: {error}"
        else:
            happened = f"{name} sent an answer"
        raise _FaultError(
            f"expected that {what} is refused with a ValueError before anything is sent; {happened}: check first: "
            "raise tacit.errors.TensorError (a ValueError) that names the row; or subclass GradientProtection, which "
            "does"
        )
    _require(
        same_tree(state, kept), f"that the state stays as it was where {what} is refused",
        "update changed it before it raised", "check before the first change",
    )  # fmt: skip


# --- books: what is kept and told ------------------------------------------------------------------------------------


def state_survives(subject: Subject) -> None:
    """The state goes through a checkpoint and the run goes on to the same bytes: a party that crashes can resume."""
    state = subject.after(4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        try:
            checkpoint.save(path, state)
            back = checkpoint.load(path, map_location=subject.device).state
        except (UsageError, StorageError) as error:
            raise _FaultError(
                "expected a state that a checkpoint can hold and a run without your file's classes can read; "
                f"{error}: keep it in None, numbers, strings, tensors, and tuples, lists or dicts of them"
            ) from error
    for step in range(4, 8):
        batch = subject.batch(100 + step)
        one, other = (subject.update(batch, each, 200 + step) for each in (state, back))
        _require(
            _same(one.value, other.value) and same_tree(one.state, other.state),
            f"the same bytes at step {step} from a stored state as from the one in memory", "they differ",
            "put all that the next step needs into the state, in the dtype that it is computed in",
        )  # fmt: skip
        state, back = one.state, other.state


def event_of_plain_values(subject: Subject) -> None:
    """The event names the mechanism and its options in plain values, and says nothing about labels or gradients.

    Contracts and settings judge by the name, and reports tell it: a protection must not go by the name of one of ours.
    """
    usual = subject.batch()
    event = subject.update(usual, subject.protection.init()).event
    _check_event(event)
    one_class, larger = Batch.of(usual.grad, torch.zeros_like(usual.labels)), Batch.of(usual.grad * 100, usual.labels)
    for batch in (one_class, larger, subject.batch(3, 7)):
        _require(
            subject.update(batch, subject.protection.init(), 9).event == event,
            "the same event for every batch",
            "it changes with the labels, the gradients or the noise, and would tell them to whoever reads it",
            "put options into it, nothing that was measured; that belongs into the report",
        )
    _require(
        _is_ours(subject.protection) or event.mechanism not in gradient.names(), "a name of its own",
        f"it calls itself {event.mechanism!r}, and contracts would take it for ours",
        "name the mechanism after your file",
    )  # fmt: skip


def _is_ours(protection: object) -> bool:
    return type(protection).__module__.partition(".")[0] == "tacit"


def _check_event(event: object) -> None:
    """Refuse what is no event, or one that no file could hold."""
    happened = ""
    if not isinstance(event, Event):
        happened = f"it is a {type(event).__name__}"
    elif not isinstance(event.mechanism, str) or not event.mechanism.strip():
        happened = f"its mechanism is {event.mechanism!r}"
    else:
        for key, value in event.parameters.items():
            plain = value is None or isinstance(value, bool | int | str)
            if not isinstance(key, str) or not (plain or (isinstance(value, float) and math.isfinite(value))):
                happened = f"its parameter {key!r} is {value!r}"
        for part in event.parts:
            _check_event(part)
    _require(
        not happened, "an Event with a name and parameters that are finite numbers or strings", happened,
        'return Event("my_protection", {"strength": 4.0})',
    )  # fmt: skip


def report_of_tensors(subject: Subject) -> None:
    """Every figure of the report is a tensor with one number, so that reading it is the caller's choice."""
    for state in (subject.protection.init(), subject.after(4)):
        report = subject.update(subject.batch(), state).report
        for name, figure in report.items():
            shown = tuple(figure.shape) if isinstance(figure, Tensor) else type(figure).__name__
            _require(
                isinstance(figure, Tensor) and figure.numel() == 1 and not figure.ndim,
                f"report[{name!r}] to be a tensor with one number, of shape ()", f"it is {shown}",
                "report torch.tensor(...) on the gradient's device, without .item()",
            )  # fmt: skip
        _require(
            "untouched_rows" in report, "a figure untouched_rows",
            f"the report has {', '.join(sorted(report)) or 'nothing'}",
            'report {"untouched_rows": (value == grad).flatten(1).all(1).sum()}: the audit reads it',
        )  # fmt: skip


def counts_untouched_rows(subject: Subject) -> None:
    """Rows that are sent as they are, counted in the bytes, are no more than the report says; also in bfloat16.

    Noise below the resolution of a dtype is no noise, so a count by formula is not enough.
    """
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        state = subject.after(2, dtype=dtype)
        for seed in range(3):
            usual = subject.batch(seed, dtype=dtype)
            few = Batch.of((usual.grad + 1).clamp(min=0.5), usual.labels)  # coarse: few bits are left for noise
            for batch in (usual, few, Batch.of(usual.grad * 0, usual.labels)):
                done = subject.update(batch, state, seed)
                told, counted = float(done.report.get("untouched_rows", 0.0)), _bare_rows(done.value, batch.grad)
                _require(
                    counted <= told, f"untouched_rows of {counted}, as counted in what was sent, of {dtype}",
                    f"the report says {told:g}",
                    "count after the cast, in the bytes that are sent: (value == grad).flatten(1).all(1).sum()",
                )  # fmt: skip


RULES: tuple[Callable[[Subject], None], ...] = (
    keeps_shape, keeps_dtype, keeps_device, inputs_untouched, new_tensor, labels_of_any_dtype, strides,
    call_equals_update, same_noise_same_bytes, other_noise_other_bytes, no_randomness_of_its_own, takes_a_noise_source,
    unbiased, reported_power, hides_every_row, one_class, one_of_a_class, no_spread, zero_rows, extreme_sizes,
    refuses_what_is_not_finite, refuses_wrong_shapes, refuses_other_labels, state_survives, event_of_plain_values,
    report_of_tensors, counts_untouched_rows,
)  # fmt: skip
"""What a protection of gradients owes, in the order in which it is asked."""


# --- protections of embeddings ---------------------------------------------------------------------------------------

_INPUTS = 5
_CUTS = ((16, (4,)), (8, (4, 3, 3)), (1, (4,)), (1, (1,)), (2, (7,)), (3, (300,)))
_FROM_ITS_SOURCE = (
    "draw everything from the source that is passed: noise.normal(z.shape, dtype=z.dtype, device=z.device)"
)


@dataclass(frozen=True)
class Shielded:
    """A protection of embeddings that is asked."""

    protection: EmbeddingProtection

    def rows(
        self, size: int = 16, cut: tuple[int, ...] = (4,), *, seed: int = 0, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Inputs (rows, inputs) and an embedding (rows, *cut) that has to do with them, as a leaf of the graph."""
        source = _generator(seed)
        x = torch.randn(size, _INPUTS, generator=source, dtype=torch.float64)
        weight = torch.randn(_INPUTS, torch.Size(cut).numel(), generator=source, dtype=torch.float64)
        z = torch.tanh(x @ weight).reshape(size, *cut)
        return x.to(dtype), z.to(dtype).requires_grad_()

    def noise(self, seed: int = 3) -> NoiseSource:
        """Randomness that a rule can repeat."""
        return noise_source(_generator(seed))

    def sent(self, z: Tensor, seed: int = 3, *, world: int = 0) -> Tensor:
        """What goes out in the place of z."""
        _seed_world(world)
        return self.protection.transform(z, self.noise(seed))

    def made(self, x: Tensor, z: Tensor, *, world: int = 0) -> Regularizer | None:
        """The loss that it adds, with first weights of this seed."""
        _seed_world(world)
        return self.protection.regularizer(x, z, [])


def says_who_it_is(subject: Shielded) -> None:
    """It has a name, an event in plain values, and a repr that is the same in every process."""
    one = subject.protection
    _check_event(one.event)
    _require(
        one.name == one.event.mechanism, "the name to be the event's mechanism",
        f"they are {one.name!r} and {one.event.mechanism!r}", "use one",
    )  # fmt: skip
    _require(
        one.name not in embedding.names() or _is_ours(one), "a name of its own",
        f"it calls itself {one.name!r}, as one of ours does", "name it after your file",
    )  # fmt: skip
    _require(
        " at 0x" not in repr(one), "a repr of the options alone, which a resumed run compares",
        f"it is {one!r}, with an address in memory", "make it a frozen dataclass of its options",
    )  # fmt: skip


def does_something(subject: Shielded) -> None:
    """It changes the embedding, adds a loss, or both."""
    x, z = subject.rows()
    _require(
        bits(subject.sent(z)) != bits(z) or subject.made(x, z) is not None,
        "that transform changes the embedding, or regularizer gives a loss",
        "the embedding goes out as it is, and nothing is learned from a loss", "return something else than z and None",
    )  # fmt: skip


def keeps_the_embeddings_form(subject: Shielded) -> None:
    """What goes out has the embedding's shape and dtype and is finite, and neither it nor the inputs are changed."""
    for size, cut in _CUTS:
        for dtype in (torch.float32, torch.float64):
            x, z = subject.rows(size, cut, dtype=dtype)
            before = bits(x), bits(z)
            sent = subject.sent(z)
            _require(
                (sent.shape, sent.dtype) == (z.shape, dtype) and _finite(sent),
                f"finite numbers of shape {tuple(z.shape)} and {dtype}", f"it made {tuple(sent.shape)} of {sent.dtype}",
                "keep z's shape and dtype, for one row and for cuts of several dimensions",
            )  # fmt: skip
            made = subject.made(x, z)
            if made is not None:
                _loss(subject, made, x, z, f"{size} rows and a cut {cut}")
            _require(
                (bits(x), bits(z)) == before, "that inputs and embedding stay as they are",
                "a call changed them in place", "work on a copy",
            )  # fmt: skip


def _loss(subject: Shielded, made: Regularizer, x: Tensor, z: Tensor, what: str) -> Tensor:
    loss: Tensor = made(x, z, subject.noise())
    holds = not loss.ndim and _finite(loss)
    _require(holds, f"one finite number as the loss of {what}", f"it is {loss.tolist()}", "return a mean or a sum")
    return loss


def same_source_same_bytes(subject: Shielded) -> None:
    """The same source gives the same bytes, and torch's, numpy's and Python's own generators make no difference."""
    x, z = subject.rows()
    equal = bits(subject.sent(z)) == bits(subject.sent(z, world=1))
    _require(equal, "the same bytes from the same source", "what is sent differs", _FROM_ITS_SOURCE)
    made = subject.made(x, z)
    if made is not None:
        losses = []
        for world in (0, 1):
            _seed_world(world)
            losses.append(bits(made(x, z, subject.noise())))
        _require(losses[0] == losses[1], "the same loss from the same source", "the losses differ", _FROM_ITS_SOURCE)


def lets_gradients_through(subject: Shielded) -> None:
    """The embedding learns through it: a finite gradient reaches z, and none reaches the inputs."""
    x, z = subject.rows()
    x.requires_grad_()
    total = subject.sent(z).square().sum()
    made = subject.made(x, z)
    total = total if made is None else total + _loss(subject, made, x, z, "an ordinary batch")
    if total.requires_grad:
        total.backward()
    _require(
        z.grad is not None and _finite(z.grad) and bool((z.grad != 0).any()), "a finite gradient at z that is not zero",
        "there is none" if z.grad is None else "it is zero or not finite",
        "keep transform differentiable; for a step function pass the gradient straight through, as "
        "z + (stepped - z).detach()",
    )  # fmt: skip
    _require(x.grad is None, "no gradient at the inputs", "there is one", "begin the loss with x = x.detach()")


_ODD_ROWS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "equal rows": lambda x, z: (x[:1].repeat(len(x), 1), z[:1].repeat(len(z), 1)),
    "some rows of zeros": lambda x, z: (x, z * (torch.arange(len(z)) % 2)[:, None]),
    "zeros only": lambda x, z: (x * 0, z * 0),
    "a single row": lambda x, z: (x[:1], z[:1]),
    "a single row of zeros": lambda x, z: (x[:1], z[:1] * 0),
    "tiny numbers": lambda x, z: (x * 1e-30, z * 1e-30),
}


def odd_batches(subject: Shielded) -> None:
    """Equal rows, zeros, a single row and tiny numbers give finite embeddings, losses and gradients."""
    for name, make in _ODD_ROWS.items():
        usual_x, usual_z = subject.rows(8)
        x, z = make(usual_x, usual_z.detach())
        z = z.clone().requires_grad_()
        sent = subject.sent(z)
        made = subject.made(x, z)
        total = sent.sum() if made is None else sent.sum() + _loss(subject, made, x, z, name)
        total.backward()
        _require(
            _finite(sent) and z.grad is not None and _finite(z.grad), f"finite numbers for {name}",
            "what is sent, or its gradient, is not",
            "look for a root, a logarithm or a division at 0: its gradient is not finite either",
        )  # fmt: skip


def refuses_a_broken_embedding(subject: Shielded) -> None:
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
        raise _FaultError(
            f"expected that an embedding that holds {bad} is refused with a ValueError; it went through: check first: "
            "raise tacit.errors.TensorError (a ValueError) that names the row"
        )


def what_it_learns_survives(subject: Shielded) -> None:
    """A regularizer that learns goes on to the same bytes from its stored state."""
    x, z = subject.rows()
    one, other = subject.made(x, z, world=1), subject.made(x, z, world=2)
    if one is None or other is None:
        return
    _learn(subject, one, range(3))
    other.load_state_dict({key: value.clone() for key, value in one.state_dict().items()})
    if one.optimizer is not None and other.optimizer is not None:
        other.optimizer.load_state_dict(copy.deepcopy(one.optimizer.state_dict()))
    _require(
        _learn(subject, one, range(3, 6)) == _learn(subject, other, range(3, 6)),
        "the same losses from a stored state as from the one in memory", "they differ",
        "keep what it learns in parameters and buffers, and its optimizer in the attribute optimizer",
    )  # fmt: skip


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


EMBEDDING_RULES: tuple[Callable[[Shielded], None], ...] = (
    says_who_it_is, does_something, keeps_the_embeddings_form, same_source_same_bytes, lets_gradients_through,
    odd_batches, refuses_a_broken_embedding, what_it_learns_survives,
)  # fmt: skip
"""What a protection of embeddings owes, in the order in which it is asked."""
