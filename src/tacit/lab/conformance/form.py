"""What goes in and what comes out: shapes, dtypes, devices, and that nothing else is touched."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.lab.conformance.subject import Batch, CheckError, Subject, bits, same_tree, seed_world

__all__ = [
    "call_equals_update",
    "inputs_untouched",
    "keeps_device",
    "keeps_dtype",
    "keeps_shape",
    "labels_of_any_dtype",
    "new_tensor",
    "strides",
]

_SHAPES = ((16, (8,)), (16, (2, 3, 3)), (16, (1,)), (1, (8,)), (1, (1,)), (2, (5,)), (24, (300,)))
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_LABELS = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.int8, torch.bool)


def keeps_shape(subject: Subject) -> str:
    """What is sent has the gradient's shape, for one row and many, flat cuts and several-dimensional ones."""
    for size, cut in _SHAPES:
        batch = subject.batch(size=size, cut=cut)
        state = subject.protection.init()
        for done in (first := subject.update(batch, state), subject.update(batch, first.state), subject.once(batch)):
            if done.value.shape != batch.grad.shape:
                raise CheckError(
                    f"a value of shape {tuple(batch.grad.shape)}",
                    f"it sent {tuple(done.value.shape)}",
                    "flatten inside with grad.flatten(1) and give the answer back with .reshape(grad.shape)",
                )
            if not bool(done.value.isfinite().all()):
                raise CheckError(
                    f"finite numbers for an ordinary batch of {size} rows and a cut {cut}",
                    f"{int((~done.value.isfinite()).sum())} entries are not finite",
                    "look for a division by a spread or a norm that is 0 where there are few rows or columns",
                )
    return f"{len(_SHAPES)} shapes, of 1 to 24 rows"


def keeps_dtype(subject: Subject) -> str:
    """What is sent has the gradient's dtype: float32, float64, bfloat16 and float16."""
    for dtype in _DTYPES:
        batch = subject.batch(dtype=dtype)
        for done in (subject.update(batch, subject.protection.init()), subject.once(batch)):
            if done.value.dtype != dtype or not bool(done.value.isfinite().all()):
                what = "values that are not finite" if done.value.dtype == dtype else str(done.value.dtype)
                raise CheckError(
                    f"finite numbers of {dtype}",
                    f"it sent {what}",
                    "compute in float32 or float64 and send value.to(grad.dtype)",
                )
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)


def keeps_device(subject: Subject) -> str:
    """What is sent, and every figure of the report, lies on the gradient's device."""
    batch = subject.batch()
    done = subject.update(batch, subject.protection.init())
    figures = {f"report[{name!r}]": figure for name, figure in done.report.items() if isinstance(figure, Tensor)}
    for name, tensor in {"value": done.value, **figures}.items():
        if tensor.device != batch.grad.device:
            raise CheckError(
                f"{name} on {batch.grad.device}",
                f"it is on {tensor.device}",
                "make every tensor with device=grad.device, and draw noise with device=grad.device",
            )
    return f"on {batch.grad.device}" + ("" if torch.cuda.is_available() else "; there is no CUDA here to try")


def inputs_untouched(subject: Subject) -> str:
    """Gradient, labels, embedding and state are, bit for bit, what they were before the call."""
    for steps in (0, 1, 5):
        batch, state = subject.batch(1), subject.after(steps)
        kept, again = batch.copy(), subject.after(steps)
        subject.protection.update(batch.grad, batch.labels, state, subject.noise(3), batch.embedding)
        subject.protection(batch.grad, batch.labels, subject.noise(3), batch.embedding)
        for name in ("grad", "labels", "embedding"):
            if bits(getattr(batch, name)) != bits(getattr(kept, name)):
                raise CheckError(
                    f"that {name} stays as it is",
                    f"the call changed it, at step {steps}",
                    "work on a copy: no method that ends with _ and no out= on what is passed",
                )
        if not same_tree(state, again):
            raise CheckError(
                "that the state that goes in stays as it is, and a new one comes out",
                f"update changed it in place, at step {steps}, so a step that is tried again would differ",
                "return a new state: a frozen dataclass, tuple or dict, whose tensors are new",
            )
    return "after 0, 1 and 5 steps"


def new_tensor(subject: Subject) -> str:
    """What is sent shares no memory with the gradient and carries no history, so nothing can change it later."""
    batch = subject.batch()
    batch.grad.requires_grad_()
    done = subject.protection(batch.grad, batch.labels, subject.noise(), batch.embedding)
    if done.value.requires_grad:
        raise CheckError(
            "a value without history",
            "it requires a gradient, and the whole graph of the top model hangs on it",
            "begin with grad = grad.detach()",
        )
    if done.value.untyped_storage().data_ptr() == batch.grad.untyped_storage().data_ptr():
        raise CheckError(
            "a new tensor",
            "the value lies in the memory of the gradient itself",
            "send grad.detach() + noise, or a clone()",
        )
    return "no memory and no history is shared"


def labels_of_any_dtype(subject: Subject) -> str:
    """Labels as float, int or bool give the same bytes."""
    batch = subject.batch()
    want = bits(subject.once(batch).value)
    for dtype in _LABELS:
        if bits(subject.once(Batch(batch.grad, batch.labels.to(dtype), batch.embedding)).value) != want:
            raise CheckError(
                f"the same bytes for labels of {dtype} as for int64",
                "they differ",
                "compare once, as positive = labels > 0.5, and compute with that",
            )
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in _LABELS)


def strides(subject: Subject) -> str:
    """Gradients that do not lie in order in memory are protected like those that do."""
    batch = subject.batch(cut=(2, 4))
    want = subject.once(batch).value
    turned = batch.grad.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    spaced = torch.stack([batch.grad, batch.grad], dim=-1)[..., 0]
    for same in (turned, spaced):
        seed_world(0)
        got = subject.protection(same, batch.labels, subject.noise(), batch.embedding).value
        if not torch.allclose(got, want, rtol=0, atol=1e-9 * float(want.abs().max())):
            raise CheckError(
                "the same answer, to 1e-9 of its largest entry, for a gradient with other strides",
                f"an entry differs by {float((got - want).abs().max()):.3g}",
                "use .reshape instead of .view, and never as_strided",
            )
    one = batch.grad[:1].expand_as(batch.grad)  # no memory of its own for each row
    if not bool(subject.protection(one, batch.labels, subject.noise(), batch.embedding).value.isfinite().all()):
        raise CheckError(
            "finite numbers for one row that stands for all",
            "some are not finite",
            "never write into grad, and divide by no spread that may be 0",
        )
    return "turned, spaced, and one row that stands for all"


def call_equals_update(subject: Subject) -> str:
    """Called on a batch on its own it does what update does with a fresh state."""
    batch = subject.batch(2)
    alone, first = subject.once(batch, 5), subject.update(batch, subject.fresh(), 5)
    if bits(alone.value) != bits(first.value):
        raise CheckError(
            "that protection(grad, labels, noise) is update(grad, labels, init(), noise)",
            "their bytes differ",
            "let __call__ be `return self.update(grad, labels, self.init(), noise, embedding)`; where a batch on its "
            "own starts from another state (no warm-up), give that one by a method fresh()",
        )
    return "the same bytes"
