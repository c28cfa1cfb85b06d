"""What goes in, what comes out and what is kept: shapes, dtypes, state, event, report; and that nothing is touched."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tacit.contracts import Event
from tacit.errors import StorageError, UsageError
from tacit.protect.gradient import names
from tacit.testing.subject import Batch, CheckError, Subject, bits, finite, require, same, same_tree, seed_world
from tacit.wire import checkpoint

_SHAPES = ((16, (8,)), (16, (2, 3, 3)), (16, (1,)), (1, (8,)), (1, (1,)), (2, (5,)), (24, (300,)))
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LABELS = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.int8, torch.bool)


def keeps_shape(subject: Subject) -> str:
    """What is sent has the gradient's shape, for one row and many, flat cuts and several-dimensional ones."""
    for size, cut in _SHAPES:
        _alike(subject, subject.batch(size=size, cut=cut), f"an ordinary batch of {size} rows and a cut {cut}")
    return f"{len(_SHAPES)} shapes, of 1 to 24 rows"


def keeps_dtype(subject: Subject) -> str:
    """What is sent has the gradient's dtype: float32, float64, bfloat16 and float16."""
    for dtype in _DTYPES:
        _alike(subject, subject.batch(dtype=dtype), f"an ordinary batch of {dtype}")
    return _spelled(_DTYPES)


def _alike(subject: Subject, batch: Batch, what: str) -> None:
    """At the first step, at the next one and on its own a batch comes out in its shape and dtype, and finite."""
    first = subject.update(batch, subject.protection.init())
    for value in (first.value, subject.update(batch, first.state).value, subject.once(batch).value):
        require(
            value.shape == batch.grad.shape, f"a value of shape {tuple(batch.grad.shape)}",
            f"it sent {tuple(value.shape)}",
            "flatten inside with grad.flatten(1) and give the answer back with .reshape(grad.shape)",
        )  # fmt: skip
        require(
            value.dtype == batch.grad.dtype, f"numbers of {batch.grad.dtype}", f"it sent {value.dtype}",
            "compute in float32 or float64 and send value.to(grad.dtype)",
        )  # fmt: skip
        require(
            finite(value), f"finite numbers for {what}", f"{int((~value.isfinite()).sum())} entries are not finite",
            "look for a division by a spread or a norm that is 0 where there are few rows or columns, or for numbers "
            "that the dtype cannot hold",
        )  # fmt: skip


def _spelled(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def keeps_device(subject: Subject) -> str:
    """What is sent, and every figure of the report, lies on the gradient's device."""
    batch = subject.batch()
    done = subject.update(batch, subject.protection.init())
    figures = {f"report[{name!r}]": figure for name, figure in done.report.items() if isinstance(figure, Tensor)}
    for name, tensor in {"value": done.value, **figures}.items():
        require(
            tensor.device == batch.grad.device, f"{name} on {batch.grad.device}", f"it is on {tensor.device}",
            "make every tensor with device=grad.device, and draw noise with device=grad.device",
        )  # fmt: skip
    return f"on {batch.grad.device}" + ("" if torch.cuda.is_available() else "; there is no CUDA here to try")


def inputs_untouched(subject: Subject) -> str:
    """Gradient, labels, embedding and state are, bit for bit, what they were before the call."""
    for steps in (0, 1, 5):
        batch, state = subject.batch(1), subject.after(steps)
        kept, again = batch.copy(), subject.after(steps)
        subject.protection.update(batch.grad, batch.labels, state, subject.noise(3), batch.embedding)
        subject.protection(batch.grad, batch.labels, subject.noise(3), batch.embedding)
        for name in ("grad", "labels", "embedding"):
            require(
                bits(getattr(batch, name)) == bits(getattr(kept, name)),
                f"that {name} stays as it is", f"the call changed it, at step {steps}",
                "work on a copy: no method that ends with _ and no out= on what is passed",
            )  # fmt: skip
        require(
            same_tree(state, again),
            "that the state that goes in stays as it is, and a new one comes out",
            f"update changed it in place, at step {steps}, so a step that is tried again would differ",
            "return a new state: a frozen dataclass, tuple or dict, whose tensors are new",
        )
    return "after 0, 1 and 5 steps"


def new_tensor(subject: Subject) -> str:
    """What is sent shares no memory with the gradient and carries no history, so nothing can change it later."""
    batch = subject.batch()
    batch.grad.requires_grad_()
    value = subject.protection(batch.grad, batch.labels, subject.noise(), batch.embedding).value
    require(
        not value.requires_grad, "a value without history",
        "it requires a gradient, and the whole graph of the top model hangs on it", "begin with grad = grad.detach()",
    )  # fmt: skip
    require(
        value.untyped_storage().data_ptr() != batch.grad.untyped_storage().data_ptr(),
        "a new tensor", "the value lies in the memory of the gradient itself",
        "send grad.detach() + noise, or a clone()",
    )  # fmt: skip
    return "no memory and no history is shared"


def labels_of_any_dtype(subject: Subject) -> str:
    """Labels as float, int or bool give the same bytes."""
    batch = subject.batch()
    want = bits(subject.once(batch).value)
    for dtype in _LABELS:
        value = subject.once(Batch(batch.grad, batch.labels.to(dtype), batch.embedding)).value
        require(
            bits(value) == want, f"the same bytes for labels of {dtype} as for int64", "they differ",
            "compare once, as positive = labels > 0.5, and compute with that",
        )  # fmt: skip
    return _spelled(_LABELS)


def strides(subject: Subject) -> str:
    """Gradients that do not lie in order in memory are protected like those that do."""
    batch = subject.batch(cut=(2, 4))
    want = subject.once(batch).value
    turned = batch.grad.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    spaced = torch.stack([batch.grad, batch.grad], dim=-1)[..., 0]
    for grad in (turned, spaced):
        seed_world(0)
        got = subject.protection(grad, batch.labels, subject.noise(), batch.embedding).value
        require(
            torch.allclose(got, want, rtol=0, atol=1e-9 * float(want.abs().max())),
            "the same answer, to 1e-9 of its largest entry, for a gradient with other strides",
            f"an entry differs by {float((got - want).abs().max()):.3g}",
            "use .reshape instead of .view, and never as_strided",
        )
    one = batch.grad[:1].expand_as(batch.grad)  # no memory of its own for each row
    require(
        finite(subject.protection(one, batch.labels, subject.noise(), batch.embedding).value),
        "finite numbers for one row that stands for all", "some are not finite",
        "never write into grad, and divide by no spread that may be 0",
    )  # fmt: skip
    return "turned, spaced, and one row that stands for all"


def call_equals_update(subject: Subject) -> str:
    """Called on a batch on its own it does what update does with a fresh state."""
    batch = subject.batch(2)
    alone, first = subject.once(batch, 5), subject.update(batch, subject.fresh(), 5)
    require(
        bits(alone.value) == bits(first.value),
        "that protection(grad, labels, noise) is update(grad, labels, init(), noise)", "their bytes differ",
        "let __call__ be `return self.update(grad, labels, self.init(), noise, embedding)`; where a batch on its "
        "own starts from another state (no warm-up), give that one by a method fresh()",
    )  # fmt: skip
    return "the same bytes"


CHECKS: tuple[Callable[[Subject], str], ...] = (
    keeps_shape, keeps_dtype, keeps_device, inputs_untouched, new_tensor, labels_of_any_dtype, strides,
    call_equals_update,
)  # fmt: skip
"""What a call owes."""


# --- what is kept and told -------------------------------------------------------------------------------------------


def state_survives(subject: Subject) -> str:
    """The state goes through a checkpoint and the run goes on to the same bytes: a party that crashes can resume."""
    state = subject.after(4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        try:
            checkpoint.save(path, state)
            back = checkpoint.load(path, map_location=subject.device).state
        except (UsageError, StorageError) as error:
            raise CheckError(
                "a state that a checkpoint can hold and a run without your file's classes can read", str(error),
                "keep it in None, numbers, strings, tensors, and tuples, lists or dicts of them",
            ) from error  # fmt: skip
    for step in range(4, 8):
        batch = subject.batch(100 + step)
        one, other = (subject.update(batch, each, 200 + step) for each in (state, back))
        require(
            same(one.value, other.value) and same_tree(one.state, other.state),
            f"the same bytes at step {step} from a stored state as from the one in memory", "they differ",
            "put all that the next step needs into the state, in the dtype that it is computed in",
        )  # fmt: skip
        state, back = one.state, other.state
    return "stored after 4 steps, 4 more the same"


def event_for_the_ledger(subject: Subject) -> str:
    """The event names the mechanism and its options in plain values, and says nothing about labels or gradients.

    The ledger keeps it for every answer and judges by the name. A name that it does not know counts as no protection,
    so a protection must not go by the name of one of ours.
    """
    usual = subject.batch()
    event = subject.update(usual, subject.protection.init()).event
    check_event(event)
    one_class, larger = Batch.of(usual.grad, torch.zeros_like(usual.labels)), Batch.of(usual.grad * 100, usual.labels)
    for batch in (one_class, larger, subject.batch(3, 7)):
        require(
            subject.update(batch, subject.protection.init(), 9).event == event,
            "the same event for every batch",
            "it changes with the labels, the gradients or the noise, and would tell them to whoever reads it",
            "put options into it, nothing that was measured; that belongs into the report",
        )
    ours = type(subject.protection).__module__.partition(".")[0] == "tacit"
    require(
        ours or event.mechanism not in names(), "a name of its own",
        f"it calls itself {event.mechanism!r}, and the ledger would judge it by the rules of ours",
        "name the mechanism after your file",
    )  # fmt: skip
    return f"{event.mechanism}({', '.join(f'{key}={value}' for key, value in event.parameters.items())})"


def check_event(event: object) -> None:
    """Refuse what is no event, or one that a ledger could not write down."""
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
            check_event(part)
    require(
        not happened, "an Event with a name and parameters that are finite numbers or strings", happened,
        'return Event("my_protection", {"strength": 4.0})',
    )  # fmt: skip


def report_of_tensors(subject: Subject) -> str:
    """Every figure of the report is a tensor with one number, so that reading it is the caller's choice."""
    seen = []
    for state in (subject.protection.init(), subject.after(4)):
        report = subject.update(subject.batch(), state).report
        for name, figure in report.items():
            shown = tuple(figure.shape) if isinstance(figure, Tensor) else type(figure).__name__
            require(
                isinstance(figure, Tensor) and figure.numel() == 1 and not figure.ndim,
                f"report[{name!r}] to be a tensor with one number, of shape ()", f"it is {shown}",
                "report torch.tensor(...) on the gradient's device, without .item()",
            )  # fmt: skip
        seen = sorted(report)
    require(
        "untouched_rows" in seen, "a figure untouched_rows", f"the report has {', '.join(seen) or 'nothing'}",
        'report {"untouched_rows": (value == grad).flatten(1).all(1).sum()}: the ledger and the audit read it',
    )  # fmt: skip
    return ", ".join(seen)


def bare_rows(value: Tensor, grad: Tensor) -> int:
    """How many rows are sent as they are."""
    return int((value == grad).flatten(1).all(-1).sum())


def counts_untouched_rows(subject: Subject) -> str:
    """Rows that are sent as they are, counted in the bytes, are no more than the report says; also in bfloat16.

    Noise below the resolution of a dtype is no noise, so a count by formula is not enough.
    """
    bare = 0
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        state = subject.after(2, dtype=dtype)
        for seed in range(3):
            usual = subject.batch(seed, dtype=dtype)
            few = Batch.of((usual.grad + 1).clamp(min=0.5), usual.labels)  # coarse: few bits are left for noise
            for batch in (usual, few, Batch.of(usual.grad * 0, usual.labels)):
                done = subject.update(batch, state, seed)
                told, counted = float(done.report.get("untouched_rows", 0.0)), bare_rows(done.value, batch.grad)
                bare += counted
                require(
                    counted <= told, f"untouched_rows of {counted}, as counted in what was sent, of {dtype}",
                    f"the report says {told:g}",
                    "count after the cast, in the bytes that are sent: (value == grad).flatten(1).all(1).sum()",
                )  # fmt: skip
    return f"{bare} bare rows in 27 batches, all reported" if bare else "no bare row in 27 batches"


BOOKS: tuple[Callable[[Subject], str], ...] = (
    state_survives, event_for_the_ledger, report_of_tensors, counts_untouched_rows,
)  # fmt: skip
"""What is kept and told."""
