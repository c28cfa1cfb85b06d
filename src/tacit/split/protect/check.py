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
from dataclasses import dataclass, replace
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
    """A protection breaks a rule: which one, what it asks for, and what was seen instead."""

    def __init__(self, rule: Callable[..., None], seen: str) -> None:
        asks = " ".join((inspect.getdoc(rule) or "").split("\n\n")[0].split())
        super().__init__(f"{rule.__name__}: {asks} Here: {seen}")
        self.rule = rule.__name__


def check_protection(make: Callable[[], Protection | EmbeddingProtection]) -> None:
    """Check that a protection of your own keeps what every protection owes: nothing happens, or a `BrokenRuleError`.

    The error is an AssertionError that names the first rule that is broken, what was seen and what to do about it. What
    is made is a protection of gradients (`init`, `update`, call) or of embeddings (`name`, `event`, `transform`,
    `regularizer`). Where its file has `FACTS`, what these do not promise is not asked: that every row is hidden of
    `noise=False`, that noise has mean zero of `alone=False`. It takes seconds, trains nothing and attacks nothing.

    Args:
        make: makes the protection anew for each rule, such as `lambda: steady(times=2)`.

    >>> from tacit.split.protect.gradient.iso import iso
    >>> check_protection(lambda: iso(t=1.0))
    """
    if isinstance(_made(make), EmbeddingProtection):
        for shield in EMBEDDING_RULES:
            ask(shield, Shielded(_made(make)))
        return
    for rule in RULES:
        ask(rule, Subject(_made(make)))


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


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _FaultError(otherwise)


@dataclass(frozen=True)
class Batch:
    """What a label party has at one step: gradients, labels, and the embedding that came."""

    grad: Tensor  # (batch, *cut)
    labels: Tensor  # (batch,)

    @property
    def embedding(self) -> Tensor:
        """In the shape of `grad`, and such that the gradient would pull it towards 0."""
        return self.grad * 3


@dataclass(frozen=True)
class Subject:
    """A protection of gradients that is asked."""

    protection: Protection

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
        return Batch((each * (direction + 0.4 * spread)).to(dtype), labels)

    def update(self, batch: Batch, state: Any, noise: Noise | int = 7, *, world: int = 0) -> Protected:
        """One step of a run, on copies: what a protection does to its arguments is no business of other rules.

        The `world` seeds every generator that belongs to nobody, which should make no difference.
        """
        source = _generator(noise) if isinstance(noise, int) else noise
        _seed_world(world)
        done = self.protection.update(batch.grad.clone(), batch.labels.clone(), state, source, batch.embedding)
        _require(
            isinstance(done, Protected) and isinstance(done.value, Tensor),
            f"it returned a {type(done).__name__}: return Protected(value, state, event, report)",
        )
        return replace(done, value=done.value.clone())  # it may be the copy that it was given

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


def _generator(seed: int = 7) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def _finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())


def bits(tensor: Tensor) -> bytes:
    """The bytes of a tensor: -0.0 and 0.0 differ, and a NaN is equal to itself."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def same_tree(one: Any, other: Any) -> bool:
    """Whether two states are the same to the bit; what is no tensor and no container is compared as it is."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and bits(one) == bits(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same_tree(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(same_tree(a, b) for a, b in zip(one, other, strict=True))
    if hasattr(one, "__dataclass_fields__"):
        return all(same_tree(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    return bool(one == other)


# --- protections of gradients ----------------------------------------------------------------------------------------


def keeps_the_gradients_form(subject: Subject) -> None:
    """What is sent is new, finite and has the gradient's shape and dtype, for one row and cuts of any dimensions."""
    kinds = [(torch.float64, size, cut) for size, cut in ((24, (6,)), (16, (2, 3, 3)), (1, (1,)))]
    for dtype, size, cut in (*kinds, (torch.float32, 24, (6,)), (torch.bfloat16, 24, (6,))):
        batch = subject.batch(size=size, cut=cut, dtype=dtype)
        first = subject.update(batch, subject.protection.init())
        for value in (first.value, subject.update(batch, first.state).value):
            _require(
                value.shape == batch.grad.shape and value.dtype == dtype and _finite(value),
                f"of {tuple(batch.grad.shape)} numbers of {dtype} it sent {tuple(value.shape)} of {value.dtype}"
                f"{'' if _finite(value) else ', not all finite'}: compute in grad.flatten(1), look for a division by a "
                "spread or norm of 0, and send value.reshape(grad.shape).to(grad.dtype)",
            )


def inputs_untouched(subject: Subject) -> None:
    """Gradient, labels, embedding and state are, bit for bit, what they were before the call."""
    for steps in (0, 1, 5):
        batch, state, again = subject.batch(1), subject.after(steps), subject.after(steps)
        passed = (batch.grad.clone(), batch.labels.clone(), batch.embedding)
        kept = [tensor.clone() for tensor in passed]
        subject.protection.update(passed[0], passed[1], state, _generator(3), passed[2])
        subject.protection(passed[0], passed[1], _generator(3), passed[2])
        _require(
            same_tree(list(passed), kept),
            f"step {steps} changed what was passed: work on a copy, with no method that ends with _ and no out= on it",
        )
        _require(same_tree(state, again), f"step {steps} changed the state in place: return a new one")


def same_noise_same_bytes(subject: Subject) -> None:
    """The same call with the same noise gives the same bytes, state, event and report: a step can be repeated."""
    for steps in (0, 1, 5):
        state, batch = subject.after(steps), subject.batch(1)
        first = subject.update(batch, state, 3)
        subject.update(subject.batch(2), first.state, 4)
        again = subject.update(batch, state, 3)
        for name in ("value", "state", "event", "report"):
            _require(
                same_tree(getattr(first, name), getattr(again, name)),
                f"{name} differs when step {steps} is computed again with the same noise: keep nothing in the object "
                "between calls; what must be remembered belongs into the state",
            )


def no_randomness_of_its_own(subject: Subject) -> None:
    """All randomness comes from the source that is passed, a torch.Generator or a keyed stream; another gives others.

    Between two companies the source is a keyed stream, so that a step that is repeated after a crash has the same noise
    and nobody else can know it. A protection with another source has noise that can be averaged away, or guessed.
    """
    batch, keyed = subject.batch(), KeyedNoise(bytes(range(32)), "check")
    for state in (subject.fresh(), subject.after(2)):
        values = [bits(subject.update(batch, state, 7, world=world).value) for world in (1, 2)]
        _require(values[0] == values[1], f"a torch.manual_seed changed what was sent: {_FROM_SOURCE}")
        drawn = values[0] != bits(subject.update(batch, state, 8).value)
        stream = [bits(subject.update(batch, state, keyed.at(step)).value) for step in (0, 0, 1)]
        _require(stream[0] == stream[1], f"one step of a keyed stream gave two values: {_FROM_SOURCE}")
        _require(not drawn or stream[0] != stream[2], f"a keyed stream makes no difference: {_FROM_SOURCE}")
        _require(
            drawn or not subject.facts.noise or not any(values[0]),
            "two sources of noise gave the same bytes, so nothing random hides the gradient: add noise from the "
            "source, or chain() it with one that does",
        )


def unbiased(subject: Subject) -> None:
    """What is added has mean zero, so that training goes where it would go without protection.

    Every entry, and what is added along the gradient, between the classes and over all entries; at the first step and
    in a run. The chance that this rule fails a protection that is right is 1 in a million.
    """
    import scipy.stats  # slow to import, and nothing else of a protection needs it

    batch = subject.batch()
    grad, positive = batch.grad.flatten(1), batch.labels > 0
    apart = torch.where(positive, 1.0, -1.0)[:, None] * (grad[positive].mean(0) - grad[~positive].mean(0))
    towards = torch.stack([grad, apart, torch.ones_like(grad)])  # (3, batch, width)
    towards = towards / towards.flatten(1).norm(dim=1)[:, None, None]
    for steps in (0, 3) if subject.facts.alone else ():
        added = _added(subject, batch, steps)  # (draws, batch, width)
        each = torch.cat([added.flatten(1), torch.einsum("nbw,kbw->nk", added, towards)], dim=1)
        limit = float(scipy.stats.t.isf(FALSE_ALARM / 4 / each.shape[1], len(added) - 1))
        mean, size = each.mean(0), float(grad.abs().max())
        off = mean.abs() / (each.std(0) / len(added) ** 0.5 + 1e-9 * size)
        worst = int(torch.where(mean.abs() <= 1e-6 * size, 0.0, off).argmax())
        sums = ("along the gradient", "between the classes", "over all entries")
        row, column = divmod(worst, grad.shape[1])
        where = f"at row {row}, column {column}" if row < len(grad) else sums[worst - grad.numel()]
        _require(
            float(off[worst]) <= limit or float(mean[worst].abs()) <= 1e-6 * size,
            f"{where}, at step {steps}, its mean over {len(added)} draws is {float(mean[worst]):.3g}, "
            f"{float(off[worst]):.1f} standard errors from zero: add noise of mean zero to the gradient as it is; "
            "scaling or clipping the gradient moves its mean",
        )


def _added(subject: Subject, batch: Batch, steps: int) -> Tensor:
    """What is added to one batch, drawn often.

    A step at which zeros are sent, whatever is drawn, adds nothing: it is later ones that are judged.
    """
    state, source = subject.after(steps), _generator(77)
    sent = torch.stack([subject.update(batch, state, source, world=draw).value.flatten(1) for draw in range(DRAWS)])
    return sent.double() - batch.grad.flatten(1) if bool(sent.any()) else sent.double()


_Odd = Mapping[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]
ODD: _Odd = {
    "an ordinary batch": lambda g, y: (g, y),
    "negatives only": lambda g, y: (g, torch.zeros_like(y)),
    "positives only": lambda g, y: (g, torch.ones_like(y)),
    "a single row": lambda g, y: (g[:1], y[:1]),
    "one positive": lambda g, y: (g, (torch.arange(len(y), device=y.device) == 4).long()),
    "one negative": lambda g, y: (g, (torch.arange(len(y), device=y.device) != 4).long()),
    "identical rows": lambda g, y: (g[:1].repeat(len(y), 1), y),
    "one row for each class, repeated": lambda g, y: (torch.where(y[:, None] == 1, g[:1], g[1:2]), y),
    "one coordinate": lambda g, y: (g[:, :1], y),
    "zeros only": lambda g, y: (torch.zeros_like(g), y),
    "some rows of zeros": lambda g, y: (g * (torch.arange(len(y), device=y.device) % 4 > 1)[:, None], y),
    "a class of zeros": lambda g, y: (g * y[:, None], y),
    "tiny gradients": lambda g, y: (g * 1e-30, y),
    "one huge row": lambda g, y: (torch.cat([g[:-1] * 1e-9, g[-1:]]), y),
}
"""What each of these makes of an ordinary batch's gradients and labels, by name."""


def hides_every_row(subject: Subject) -> None:
    """No row is sent as it is and no number is NaN, also of one class, a single row, equal rows, zeros or huge ones.

    A row that the protection itself calls untouched counts as sent.
    """
    usual = subject.batch(8)
    for name, make in ODD.items():
        batch = Batch(*make(usual.grad, usual.labels))
        cut = tuple(batch.grad.shape[1:])
        for when, state in {
            "on its own": subject.fresh(), "at the first step": subject.protection.init(),
            "in a run": subject.after(5, cut=cut),
        }.items():  # fmt: skip
            done = subject.update(batch, state, 11)
            after = subject.update(subject.batch(9, cut=cut), done.state, 1)
            _require(
                _finite(done.value) and _finite(after.value),
                f"{name}, {when}: it, or an ordinary batch after it, is not finite; where a mean, spread or norm is 0, "
                "use that of the steps before or the largest row's",
            )
            told = float(done.report.get("untouched_rows", 0))
            bare = max(int((done.value == batch.grad).flatten(1).all(-1).sum()), int(told))
            _require(
                not bare or not subject.facts.noise or _silent(subject, batch, state),
                f"{name}, {when}: {bare} of {len(batch.grad)} rows were sent as they are; where the formula is "
                "undefined, use the noise of the steps before, or as large as the largest row, and never return grad",
            )


def _silent(subject: Subject, batch: Batch, state: Any) -> bool:
    """Whether any batch of this shape is answered with zeros in this state, which tell nothing of it."""
    size, *cut = batch.grad.shape
    usual = subject.batch(7, size, tuple(cut), dtype=batch.grad.dtype)
    return not any(bits(subject.update(one, state).value).strip(b"\0") for one in (batch, usual))


def refuses_what_is_not_finite(subject: Subject) -> None:
    """A gradient with NaN or an infinity is refused with a ValueError, and the state stays as it was."""
    for bad in (float("nan"), float("inf"), float("-inf")):
        batch, state, kept = subject.batch(dtype=torch.float32), subject.after(2), subject.after(2)
        batch.grad[17, 2] = bad
        for given in (state, subject.fresh()):
            try:
                subject.update(batch, given)
            except ValueError:
                continue
            raise _FaultError(
                f"a gradient that holds {bad} was answered: raise tacit.errors.TensorError (a ValueError) before "
                "anything, or subclass GradientProtection, which does"
            )
        _require(same_tree(state, kept), "the state was changed before it raised: check before the first change")


def state_survives(subject: Subject) -> None:
    """The state goes through a checkpoint and the run goes on to the same bytes: a party that crashes can resume."""
    state = subject.after(4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        try:
            checkpoint.save(path, state)
            back = checkpoint.load(path).state
        except (UsageError, StorageError) as error:
            raise _FaultError(
                "a checkpoint can't hold the state, or a run without your file's classes can't read it; "
                f"{error}: keep it in None, numbers, strings, tensors, and tuples, lists or dicts of them"
            ) from error
    for step in range(4, 8):
        one, other = (subject.update(subject.batch(100 + step), each, 200 + step) for each in (state, back))
        _require(
            same_tree((one.value, one.state), (other.value, other.state)),
            f"step {step} from a stored state differs from the one in memory: put all that the next step needs into "
            "it, in the dtype that it is computed in",
        )
        state, back = one.state, other.state


def event_of_plain_values(subject: Subject) -> None:
    """The event names the mechanism and its options in plain values, and says nothing about labels or gradients.

    Contracts and settings judge by the name, and reports tell it: a protection must not go by the name of one of ours.
    """
    usual = subject.batch()
    event = subject.update(usual, subject.protection.init()).event
    _check_event(event)
    one_class, larger = Batch(usual.grad, torch.zeros_like(usual.labels)), Batch(usual.grad * 100, usual.labels)
    for batch in (one_class, larger, subject.batch(3, 7)):
        _require(
            subject.update(batch, subject.protection.init(), 9).event == event,
            "it changes with the labels, the gradients or the noise, and would tell them to whoever reads it: put "
            "options into it, nothing that was measured; that belongs into the report",
        )
    _require_own_name(subject.protection, event.mechanism, gradient.names())


def _require_own_name(protection: object, name: str, ours: list[str]) -> None:
    _require(
        name not in ours or type(protection).__module__.partition(".")[0] == "tacit",
        f"it calls itself {name!r}, and contracts would take it for ours: name it after your file",
    )


def _check_event(event: object) -> None:
    """Refuse what is no event, or one that no file could hold."""
    plain = isinstance(event, Event) and isinstance(event.mechanism, str) and bool(event.mechanism.strip())
    for key, value in event.parameters.items() if isinstance(event, Event) else ():
        fits = value is None or isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))
        plain = plain and isinstance(key, str) and fits
    _require(plain, f'the event is {event!r}: return Event("my_protection", {{"strength": 4.0}}) with finite numbers')
    for part in event.parts if isinstance(event, Event) else ():
        _check_event(part)


RULES: tuple[Callable[[Subject], None], ...] = (
    keeps_the_gradients_form, inputs_untouched, same_noise_same_bytes, no_randomness_of_its_own, unbiased,
    hides_every_row, refuses_what_is_not_finite, state_survives, event_of_plain_values,
)  # fmt: skip
"""What a protection of gradients owes, in the order in which it is asked."""


# --- protections of embeddings ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shielded:
    """A protection of embeddings that is asked."""

    protection: EmbeddingProtection

    def rows(self, size: int = 16, cut: tuple[int, ...] = (4,), *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Inputs (rows, 5) and an embedding (rows, *cut) that has to do with them, as a leaf of the graph."""
        source = _generator(seed)
        x = torch.randn(size, 5, generator=source)
        z = torch.tanh(x @ torch.randn(5, torch.Size(cut).numel(), generator=source)).reshape(size, *cut)
        return x, z.requires_grad_()

    def noise(self, seed: int = 3) -> NoiseSource:
        """Randomness that a rule can repeat."""
        return noise_source(_generator(seed))

    def made(self, x: Tensor, z: Tensor, *, world: int = 0) -> Regularizer | None:
        """The loss that it adds, with first weights of this seed."""
        _seed_world(world)
        return self.protection.regularizer(x, z, [])


def says_who_it_is(subject: Shielded) -> None:
    """It has a name, an event in plain values, and a repr that is the same in every process."""
    one = subject.protection
    _check_event(one.event)
    _require(one.name == one.event.mechanism, f"its name {one.name!r} is not its event's {one.event.mechanism!r}")
    _require_own_name(one, one.name, embedding.names())
    _require(
        " at 0x" not in repr(one), f"its repr, which a resumed run compares, is {one!r}: make it a frozen dataclass"
    )


def keeps_the_embeddings_form(subject: Shielded) -> None:
    """What goes out keeps shape and dtype and is finite, with its gradient, also of equal rows and zeros."""
    flat = subject.rows(8)
    odd = [
        (flat[0] * 0, flat[1] * 0),
        (flat[0][:1], flat[1][:1] * 0),
        (flat[0][:1].repeat(8, 1), flat[1][:1].repeat(8, 1)),
    ]
    for x, own in (flat, subject.rows(8, (4, 3, 3)), subject.rows(1), subject.rows(1, (1,)), *odd):
        z = own.detach().requires_grad_()
        before = bits(x), bits(z)
        sent, made = subject.protection.transform(z, subject.noise()), subject.made(x, z)
        loss = torch.zeros(()) if made is None else made(x, z, subject.noise())
        total = sent.sum() + loss
        if total.requires_grad:
            total.backward()
        _require(
            (sent.shape, sent.dtype) == (z.shape, z.dtype) and _finite(sent),
            f"of {tuple(z.shape)} numbers it made {tuple(sent.shape)} of {sent.dtype}: keep its form, and finite",
        )
        _require(
            not loss.ndim and _finite(loss) and (z.grad is None or _finite(z.grad)),
            f"the loss of {tuple(z.shape)} numbers, or its gradient, is not finite: look for a root, a logarithm or a "
            "division at 0, whose gradient is not finite either",
        )
        _require((bits(x), bits(z)) == before, "a call changed inputs or embedding in place: work on a copy")


def same_source_same_bytes(subject: Shielded) -> None:
    """The same source gives the same bytes, and torch's, numpy's and Python's own generators make no difference."""
    x, z = subject.rows()
    made, seen = subject.made(x, z), []
    for world in (0, 1):
        _seed_world(world)
        sent = bits(subject.protection.transform(z, subject.noise()))
        seen.append((sent, None if made is None else bits(made(x, z, subject.noise()))))
    _require(
        seen[0] == seen[1],
        "what is sent, or the loss, differs: draw everything from the source that is passed, as noise.normal(z.shape, "
        "dtype=z.dtype, device=z.device)",
    )


def lets_gradients_through(subject: Shielded) -> None:
    """It changes the embedding or adds a loss, and the embedding learns through it: a gradient reaches z, none x."""
    x, z = subject.rows()
    x.requires_grad_()
    sent, made = subject.protection.transform(z, subject.noise()), subject.made(x, z)
    _require(bits(sent) != bits(z) or made is not None, "the embedding goes out as it is, and no loss is added")
    total = sent.square().sum() + (0 if made is None else made(x, z, subject.noise()))
    if total.requires_grad:
        total.backward()
    _require(
        z.grad is not None and _finite(z.grad) and bool((z.grad != 0).any()),
        "no finite gradient that is not zero reaches z: keep transform differentiable; for a step function pass the "
        "gradient straight through, as z + (stepped - z).detach()",
    )
    _require(x.grad is None, "a gradient reaches the inputs: begin the loss with x = x.detach()")


def refuses_a_broken_embedding(subject: Shielded) -> None:
    """An embedding with NaN or an infinity is refused with a ValueError, by transform or by the loss."""
    for bad in (float("nan"), float("inf")):
        x, z = subject.rows()
        made, wrong = subject.made(x, z), z.detach().clone()
        wrong[11, 2] = bad
        try:
            subject.protection.transform(wrong, subject.noise())
            if made is not None:
                made(x, wrong, subject.noise())
        except ValueError:
            continue
        raise _FaultError(f"an embedding that holds {bad} went through: raise tacit.errors.TensorError (a ValueError)")


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
        "losses from a stored state differ from those of the one in memory: keep what it learns in parameters and "
        "buffers, and its optimizer in the attribute optimizer",
    )


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
    says_who_it_is, keeps_the_embeddings_form, same_source_same_bytes, lets_gradients_through,
    refuses_a_broken_embedding, what_it_learns_survives,
)  # fmt: skip
"""What a protection of embeddings owes, in the order in which it is asked."""
