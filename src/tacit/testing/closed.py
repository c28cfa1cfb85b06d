"""Where a formula has no answer: a protection then hides more, not less, and refuses what it can't hide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tacit.testing.form import bare_rows
from tacit.testing.subject import Batch, CheckError, Subject, bits, finite, require, same_tree

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
}
_BOTH: _Odd = {
    "zeros only, of one class": lambda g, y: (torch.zeros_like(g), torch.zeros_like(y)),
    "a single row of zeros": lambda g, y: (torch.zeros_like(g[:1]), y[:1]),
}
_SIZES: _Odd = {
    "tiny gradients": lambda g, y: (g * 1e-30, y),
    "one huge row": lambda g, y: (torch.cat([g[:-1] * 1e-9, g[-1:]]), y),
}
ODD: _Odd = {**_ONE_CLASS, **_ONE_OF_A_CLASS, **_NO_SPREAD, **_ZERO, **_BOTH, **_SIZES}
"""What each of these makes of an ordinary batch's gradients and labels, by name."""


def hides_every_row(subject: Subject) -> str:
    """No row of an ordinary batch is sent as it is; a row that the protection itself calls untouched counts as such."""
    for steps in (0, 1, 5):
        state = subject.after(steps, dtype=torch.float32)
        for seed in range(3):
            batch = subject.batch(seed, dtype=torch.float32)
            done = subject.update(batch, state, seed)
            told = done.report.get("untouched_rows")
            bare = max(bare_rows(done.value, batch.grad), 0 if told is None else int(told))
            require(
                not bare, "that every row is hidden",
                f"{bare} of {len(batch.grad)} rows were sent without noise, at step {steps}",
                "give noise to every row, whatever its class and size; or chain() this one with one that does",
            )  # fmt: skip
    return "9 batches, at the steps 0, 1 and 5"


def one_class(subject: Subject) -> str:
    """A batch of one class only, or of a single row, is hidden like any other: never sent bare, never NaN."""
    return _closed(subject, _ONE_CLASS)


def one_of_a_class(subject: Subject) -> str:
    """A class with a single row, which has no spread of its own, is hidden as well."""
    return _closed(subject, _ONE_OF_A_CLASS)


def no_spread(subject: Subject) -> str:
    """Rows that are all alike, classes with the same mean, a single coordinate: hidden, though nothing spreads."""
    return _closed(subject, _NO_SPREAD)


def zero_rows(subject: Subject) -> str:
    """Gradients that are zero, all or some of them, get noise too, and no division by their norm gives NaN."""
    return _closed(subject, _ZERO)


def zeros_of_one_class(subject: Subject) -> str:
    """Both at once, zeros and one class: judged where each alone is hidden, so that one fault is told once."""
    try:
        return _closed(subject, _BOTH)
    except CheckError:
        for alone in (one_class, zero_rows):
            try:
                alone(subject)
            except CheckError:
                return f"not judged, because of {alone.__name__}"
        raise


def extreme_sizes(subject: Subject) -> str:
    """Gradients of 1e-30, and a row a billion times as large as the others, come out finite and hidden."""
    return _closed(subject, _SIZES)


def _closed(subject: Subject, odd: _Odd) -> str:
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
                require(
                    finite(after), "an ordinary batch after that to come out finite",
                    f"after {name}, {when}, the run sends numbers that are not finite",
                    "let no NaN into the state: keep the statistics of before where a batch has none of its own",
                )  # fmt: skip
    return ", ".join(odd)


def _hidden(subject: Subject, what: str, batch: Batch, state: Any, seed: int) -> Any:
    """The next state, where what is sent is finite and holds no bare row."""
    done = subject.update(batch, state, seed)
    require(
        finite(done.value), f"finite numbers for a batch of {what}",
        f"{int((~done.value.isfinite()).sum())} of {done.value.numel()} entries are not finite",
        "where a mean, spread or norm is 0 or undefined, use that of the steps before or the largest row's",
    )  # fmt: skip
    wrong = [name for name, figure in done.report.items() if not finite(torch.as_tensor(figure))]
    require(
        not wrong, f"finite figures in the report for a batch of {what}", f"{', '.join(wrong)} is not finite",
        "report 0 where there is nothing to report",
    )  # fmt: skip
    bare = bare_rows(done.value, batch.grad)
    require(
        not bare or _silent(subject, batch, state), f"that a batch of {what} is hidden",
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


def refuses_what_is_not_finite(subject: Subject) -> str:
    """A gradient with NaN or an infinity is refused with a ValueError, and the state stays as it was."""
    for bad in (float("nan"), float("inf"), float("-inf")):
        batch = subject.batch(dtype=torch.float32)
        batch.grad[17, 2] = bad
        _refused(subject, f"a gradient that holds {bad}", batch)
    return "NaN and both infinities"


def refuses_wrong_shapes(subject: Subject) -> str:
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
    return ", ".join(shapes)


def refuses_other_labels(subject: Subject) -> str:
    """Labels that are not 0 or 1 are refused with a ValueError; a protection that never looks at labels is let off."""
    batch, state = subject.batch(), subject.after(3)
    turned = Batch(batch.grad, 1 - batch.labels, batch.embedding)
    alone, running = (
        {bits(call(one).value) for one in (batch, turned)}
        for call in (subject.once, lambda one: subject.update(one, state))
    )
    if len(alone) == len(running) == 1:
        return "it does not look at labels"
    for bad in (2.0, 0.5, -1.0, float("nan")):
        labels = batch.labels.double()
        labels[13] = bad
        _refused(subject, f"a label {bad}", Batch(batch.grad, labels, batch.embedding))
    return "2, 0.5, -1 and NaN"


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
        raise CheckError(
            f"that {what} is refused with a ValueError before anything is sent",
            happened,
            "check first: raise tacit.errors.TensorError (a ValueError) that names the row; or subclass "
            "GradientProtection, which does",
        )
    require(
        same_tree(state, kept), f"that the state stays as it was where {what} is refused",
        "update changed it before it raised", "check before the first change",
    )  # fmt: skip


CHECKS: tuple[Callable[[Subject], str], ...] = (
    hides_every_row, one_class, one_of_a_class, no_spread, zero_rows, zeros_of_one_class, extreme_sizes,
    refuses_what_is_not_finite, refuses_wrong_shapes, refuses_other_labels,
)  # fmt: skip
