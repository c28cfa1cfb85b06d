"""What is kept and told: state, event, report, and the time it takes."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tacit.contracts import Event
from tacit.errors import StorageError, UsageError
from tacit.lab.conformance.closed import bare_rows
from tacit.lab.conformance.subject import Batch, CheckError, Subject, same, same_tree
from tacit.protect.gradient import names
from tacit.wire import checkpoint

__all__ = [
    "check_event",
    "counts_untouched_rows",
    "event_for_the_ledger",
    "report_of_tensors",
    "state_survives",
    "time_per_call",
]


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
                "a state that a checkpoint can hold and a run without your file's classes can read",
                str(error),
                "keep it in None, numbers, strings, tensors, and tuples, lists or dicts of them",
            ) from error
    for step in range(4, 8):
        batch = subject.batch(100 + step)
        one, other = (subject.update(batch, each, 200 + step) for each in (state, back))
        if not same(one.value, other.value) or not same_tree(one.state, other.state):
            raise CheckError(
                f"the same bytes at step {step} from a stored state as from the one in memory",
                "they differ",
                "put all that the next step needs into the state, in the dtype that it is computed in",
            )
        state, back = one.state, other.state
    return "stored after 4 steps, 4 more the same"


def event_for_the_ledger(subject: Subject) -> str:
    """The event names the mechanism and its options in plain values, and says nothing about labels or gradients.

    The ledger keeps it for every answer and judges by the name. A name that it does not know counts as no protection,
    so a protection must not go by the name of one of ours.
    """
    usual = subject.batch()
    others = [
        Batch.of(usual.grad, torch.zeros_like(usual.labels)),
        Batch.of(usual.grad * 100, usual.labels),
        subject.batch(3, 7),
    ]
    event = subject.update(usual, subject.protection.init()).event
    check_event(event)
    for batch in others:
        if subject.update(batch, subject.protection.init(), 9).event != event:
            raise CheckError(
                "the same event for every batch",
                "it changes with the labels, the gradients or the noise, and would tell them to whoever reads it",
                "put options into it, nothing that was measured; that belongs into the report",
            )
    ours = type(subject.protection).__module__.partition(".")[0] == "tacit"
    if event.mechanism in names() and not ours:
        raise CheckError(
            "a name of its own",
            f"it calls itself {event.mechanism!r}, and the ledger would judge it by the rules of ours",
            "name the mechanism after your file",
        )
    return f"{event.mechanism}({', '.join(f'{key}={value}' for key, value in event.parameters.items())})"


def check_event(event: object) -> None:
    """Refuse what is no event, or one that a ledger could not write down."""
    happened = None
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
    if happened:
        raise CheckError(
            "an Event with a name and parameters that are finite numbers or strings",
            happened,
            'return Event("my_protection", {"strength": 4.0})',
        )


def report_of_tensors(subject: Subject) -> str:
    """Every figure of the report is a tensor with one number, so that reading it is the caller's choice."""
    seen = []
    for state in (subject.protection.init(), subject.after(4)):
        report = subject.update(subject.batch(), state).report
        for name, figure in report.items():
            if not isinstance(figure, Tensor) or figure.numel() != 1 or figure.ndim:
                shown = tuple(figure.shape) if isinstance(figure, Tensor) else type(figure).__name__
                raise CheckError(
                    f"report[{name!r}] to be a tensor with one number, of shape ()",
                    f"it is {shown}",
                    "report torch.tensor(...) on the gradient's device, without .item()",
                )
        seen = sorted(report)
    if "untouched_rows" not in seen:
        raise CheckError(
            "a figure untouched_rows",
            f"the report has {', '.join(seen) or 'nothing'}",
            'report {"untouched_rows": (value == grad).flatten(1).all(1).sum()}: the ledger and the audit read it',
        )
    return ", ".join(seen)


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
                told = float(done.report.get("untouched_rows", 0.0))
                found = bare_rows(done.value, batch.grad)
                bare += found
                if found > told:
                    raise CheckError(
                        f"untouched_rows of {found}, as counted in what was sent, of {dtype}",
                        f"the report says {told:g}",
                        "count after the cast, in the bytes that are sent: (value == grad).flatten(1).all(1).sum()",
                    )
    return f"{bare} bare rows in 27 batches, all reported" if bare else "no bare row in 27 batches"


def time_per_call(subject: Subject) -> str:
    """How long a call takes for 1024 rows of 128, in draws of as many normal numbers. Reported, not judged."""
    batch = subject.batch(5, 1024, (128,), dtype=torch.float32)
    state, source = subject.protection.init(), subject.noise()
    for _ in range(3):
        state = subject.update(batch, state, source).state
    plain = _median(lambda: torch.randn(1024, 128, generator=source, device=subject.device))
    update = subject.protection.update
    call = _median(lambda: update(batch.grad, batch.labels, state, source, batch.embedding).value)
    return f"{call * 1e3:.2f} ms, {call / plain:.1f} times a plain draw of the noise"


def _median(call: Callable[[], Tensor], times: int = 9) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call().sum().item()  # waits for a device
        taken.append(time.perf_counter() - start)
    return sorted(taken)[times // 2]
