"""What every check works with: batches, randomness, and a protection that is called without trusting it."""

from __future__ import annotations

import inspect
import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from tacit.contracts import Noise, Protected, Protection


class CheckError(Exception):
    """A check that did not pass: what the contract asks for, what was seen instead, and what to do about it."""

    def __init__(self, expected: str, happened: str, remedy: str) -> None:
        super().__init__(f"expected {expected}; {happened}: {remedy}")
        self.expected, self.happened, self.remedy = expected, happened, remedy


def require(holds: bool, expected: str, happened: str, remedy: str) -> None:
    """Fail the check where this does not hold."""
    if not holds:
        raise CheckError(expected, happened, remedy)


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


def generator(seed: int = 7, device: str = "cpu") -> torch.Generator:
    """Randomness that a check can repeat."""
    return torch.Generator(device).manual_seed(seed)


def make_batch(
    seed: int = 0, size: int = 24, cut: tuple[int, ...] = (6,), *, dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> Batch:  # fmt: skip
    """Gradients (p - y) times a direction with some spread; every third row is positive."""
    source = generator(seed)
    labels = (torch.arange(size) % 3 == 0).long()
    p = torch.rand(size, generator=source, dtype=torch.float64)
    direction = torch.randn(*cut, generator=source, dtype=torch.float64)
    spread = torch.randn(size, *cut, generator=source, dtype=torch.float64)
    each = (p - labels).reshape(size, *[1] * len(cut))
    return Batch.of((each * (direction + 0.4 * spread)).to(device, dtype), labels.to(device))


@contextmanager
def global_randomness(seed: int) -> Iterator[None]:
    """Every generator that belongs to nobody at this seed, and afterwards as it was before."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (a protection may use it)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        seed_world(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def seed_world(seed: int) -> None:
    """Set every generator that belongs to nobody; only where `global_randomness` puts them back."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # before that torch.manual_seed would note the whole stack, each time
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


@dataclass(frozen=True)
class Subject:
    """A protection under examination."""

    protection: Protection  # what is examined
    device: str = "cpu"  # where its tensors are
    draws: int = 400  # how often a statistical check draws
    # what was drawn, by the steps before it: several checks look at the same draws
    drawn: dict[int, tuple[Tensor, Tensor | None]] = field(default_factory=dict, compare=False, repr=False)

    def batch(self, seed: int = 0, size: int = 24, cut: tuple[int, ...] = (6,), **kind: Any) -> Batch:
        """A batch of both classes on this device."""
        return make_batch(seed, size, cut, device=self.device, **kind)

    def noise(self, seed: int = 7) -> torch.Generator:
        """Randomness on this device."""
        return generator(seed, self.device)

    def update(self, batch: Batch, state: Any, noise: Noise | int = 7, *, world: int = 0) -> Protected:
        """One step of a run, on copies: what a protection does to its arguments is no business of other checks.

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
        seed_world(world)
        done = call(own.grad, own.labels, *state, source, own.embedding)
        if not isinstance(done, Protected) or not isinstance(done.value, Tensor):
            what = "a Protected whose value is no tensor" if isinstance(done, Protected) else f"a {type(done).__name__}"
            raise CheckError(
                "a tacit.contracts.Protected whose value is a tensor", f"it returned {what}",
                "return Protected(value, state, event, report)",
            )  # fmt: skip
        return replace(done, value=done.value.clone())  # it may be the copy that it was given


def finite(tensor: Tensor) -> bool:
    """Whether every entry is a number."""
    return bool(tensor.isfinite().all())


def bits(tensor: Tensor) -> bytes:
    """The bytes of a tensor: -0.0 and 0.0 differ, and a NaN is equal to itself."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same to the last bit; on a GPU, whose kernels may add in another order, nearly so."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.device.type == "cpu" or not one.dtype.is_floating_point:
        return bits(one) == bits(other)
    return torch.allclose(one, other, rtol=1e-3, atol=1e-3 * float(one.abs().max()), equal_nan=True)


def same_tree(one: Any, other: Any) -> bool:
    """Whether two states are the same, tensor by tensor; what is no tensor and no container is compared as it is."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return isinstance(one, Tensor) and isinstance(other, Tensor) and same(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same_tree(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(same_tree(a, b) for a, b in zip(one, other, strict=True))
    if hasattr(one, "__dataclass_fields__"):
        return all(same_tree(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    return bool(one == other)


# --- running checks --------------------------------------------------------------------------------------------------


Examined = TypeVar("Examined")


@dataclass(frozen=True)
class Outcome:
    """What came of one check."""

    name: str  # of the check
    asks: str  # what it asks for, in a sentence or two
    passed: bool  # whether the protection does that
    detail: str  # what was tried; where it failed, what happened
    expected: str | None = None  # what the contract asks for, where it failed
    remedy: str | None = None  # what to do about it, where it failed

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def asked(check: Callable[..., Any]) -> str:
    """What a check asks for: its docstring, on one line."""
    return " ".join((inspect.getdoc(check) or "").split())


def examine(
    subject: Examined,
    checks: Sequence[Callable[[Examined], str]],
    *,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[Outcome]:
    """Run checks, each on its own; one that fails stops no other."""
    found = []
    for done, check in enumerate(checks):
        progress(check.__name__.replace("_", " "), done, len(checks))
        with global_randomness(0):
            found.append(_outcome(subject, check))
    return found


def _outcome(subject: Examined, check: Callable[[Examined], str]) -> Outcome:
    name, asks = check.__name__, asked(check)
    try:
        return Outcome(name, asks, True, check(subject))
    except CheckError as fault:
        return Outcome(name, asks, False, fault.happened, fault.expected, fault.remedy)
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything at all, and that is a finding
        raised = f"it raised {type(error).__name__}: {error}{where(error)}"
        return Outcome(name, asks, False, raised, "an answer", "repeat the call by hand and look at that line")


def where(error: BaseException, file: Path | None = None) -> str:
    """The last line of somebody else's code that an error came through, as ` (file.py, line 12)`; empty if none."""
    found, root = "", Path(__file__).parents[2]
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        foreign = path.is_file() and root not in path.parents and "site-packages" not in path.parts
        if path == file or (file is None and foreign):
            found = f" ({path.name}, line {frame.lineno})"
    return found
