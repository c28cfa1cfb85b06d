"""Where a protection has nothing to protect with, or gets what it can't protect: it fails closed, or refuses."""

import functools
import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.contracts import Event, Protection
from tacit.errors import LabelsError, TacitError, TensorError
from tacit.split.protect import gradient
from tacit.split.protect.check import same_tree
from tests.split.protect.cases import (
    BLIND,
    CASES,
    CUDA,
    MAY_LEAVE_ROWS,
    QUIET,
    batch,
    every,
    generator,
    in_a_run,
    on_every_device,
)
from tests.split.protect.rules import ODD

pytestmark = QUIET


# --- fails closed ----------------------------------------------------------------------------------------------------


@functools.cache
def _in_a_run(case: str, steps: int, device: str, dtype: torch.dtype) -> Any:
    """A state for all odd batches: `test_keeps_the_contract` sees to it that no update changes the one it is given."""
    (found,) = (one for one in CASES if str(one) == case)
    return in_a_run(found.make(), steps, device, dtype=dtype)


@on_every_device
@every
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_fails_closed(case, odd, dtype, device):
    """Finite, and every row changed but those that the report counts; alone, at the first step and in a run."""
    protection = case.make()
    grad, labels = ODD[odd](*batch(8, dtype=dtype, device=device))
    runs = [protection.fresh() if hasattr(protection, "fresh") else protection.init(), protection.init()]
    if grad.shape[1:] == (6,):
        runs += [_in_a_run(str(case), steps, device, dtype) for steps in (1, 5)]
    for state in runs:
        for step in range(2):  # the odd batch, and the same again after itself
            done = protection.update(grad, labels, state, generator(11 + step, device))
            state = done.state
            assert torch.isfinite(done.value).all()
            assert all(torch.isfinite(figure.double()).all() for figure in done.report.values())
            silent = "matched" in case.names and not done.value.any()  # zeros whatever the gradients are: not theirs
            equal = 0 if silent else int((done.value == grad).all(-1).sum())
            counted = float(done.report["untouched_rows"])
            if len(case.parts) == 1:
                assert counted == equal
            assert equal <= counted  # a chain counts at most too many
            if not case.names <= MAY_LEAVE_ROWS:
                assert counted == 0
        after = protection.update(
            *batch(9, cut=grad.shape[1:], dtype=dtype, device=device), state, generator(1, device)
        )
        assert torch.isfinite(after.value).all()  # and the state is none the worse


# --- refuses what it can't protect -----------------------------------------------------------------------------------


def refuse(protection: Protection, grad: Tensor, labels: Tensor) -> str:
    """The message of the refusal, which is one clear error of ours."""
    with pytest.raises(TensorError) as caught:
        protection(grad, labels, generator(device=str(grad.device)))
    assert isinstance(caught.value, TacitError)
    return str(caught.value)


@on_every_device
@every
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_gradient_that_is_not_finite_is_refused_by_row(case, bad, dtype, device):
    grad, labels = batch(dtype=dtype, device=device)
    grad[17, 2] = bad
    said = refuse(case.make(), grad, labels)
    assert "gradient" in said
    assert "row 17" in said
    assert "not finite" in said
    assert refuse(case.make(), grad, 1 - labels) == said  # and it says nothing about labels


@on_every_device
@pytest.mark.parametrize("case", [case for case in CASES if not case.names <= BLIND], ids=str)
@pytest.mark.parametrize("bad", [2, 0.5, -1, float("nan")])
def test_a_label_that_is_not_0_or_1_is_refused_by_row(case, bad, device):
    grad, labels = batch(device=device)
    messages = []
    for others in (labels, 1 - labels):
        wrong = others.double()
        wrong[13] = bad
        messages.append(refuse(case.make(), grad, wrong))
        with pytest.raises(LabelsError):
            case.make()(grad, wrong, generator(device=device))
    assert messages[0] == messages[1]  # nothing about the labels of other rows
    assert "row 13" in messages[0]
    assert f"label {float(bad)}" in messages[0]


@every
@pytest.mark.parametrize("stack", [None, 2])
def test_bad_input_in_a_run_is_refused_too(case, stack):
    """On a CPU; elsewhere a run answers with NaN and `valid` = 0, so that it need not wait for the device."""
    protection = case.make()
    state = in_a_run(protection, 4, stack=stack)
    before = in_a_run(protection, 4, stack=stack)
    grad, labels = batch(stack=stack)
    grad[..., 3, 1] = float("nan")
    with pytest.raises(TensorError, match="row 3 "):
        protection.update(grad, labels, state, generator())
    assert same_tree(before, state)


@on_every_device
@every
@pytest.mark.parametrize(
    ("grad", "labels"),
    [
        ((24, 6), (23,)),
        ((24, 6), (24, 1)),
        ((24, 6), ()),
        ((24,), (24,)),
        ((2, 24, 6), (24,)),
        ((2, 24, 6), (3, 24)),
        ((2, 2, 24, 6), (2, 2, 24)),
        ((0, 6), (0,)),
        ((24, 0), (24,)),
        ((0, 24, 6), (0, 24)),
    ],
    ids=str,
)
def test_wrong_shapes_and_empty_batches_are_refused_with_the_shapes(case, grad, labels, device):
    said = refuse(case.make(), torch.ones(grad, device=device), torch.zeros(labels, device=device))
    assert str(grad) in said
    assert "pass (batch, *cut)" in said or "at least one row" in said


@on_every_device
@every
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_a_gradient_of_another_kind_is_refused(case, dtype, device):
    grad, labels = torch.ones(24, 6, dtype=dtype, device=device), torch.zeros(24, device=device)
    assert str(dtype) in refuse(case.make(), grad, labels)


@every
def test_what_is_no_dense_tensor_is_refused_by_name(case):
    grad, labels = torch.ones(24, 6), torch.zeros(24)
    assert "gradient: a dense torch tensor is needed, not ndarray" in refuse(case.make(), grad.numpy(), labels)
    assert "gradient: a dense torch tensor" in refuse(case.make(), grad.to_sparse(), labels)
    assert "labels: a dense torch tensor is needed, not list" in refuse(case.make(), grad, [0.0] * 24)


# --- what is reported ------------------------------------------------------------------------------------------------


@on_every_device
@every
@pytest.mark.parametrize("stack", [None, 1, 3])
def test_the_report_holds_one_number_for_each_problem(case, stack, device):
    protection = case.make()
    for state in (protection.init(), in_a_run(protection, 4, device, stack=stack)):
        report = protection.update(*batch(stack=stack, device=device), state, generator(device=device)).report
        assert {"power", "untouched_rows", "valid"} <= set(report)
        for figure in report.values():
            assert isinstance(figure, Tensor)
            assert figure.shape == (() if stack is None else (stack,))
            assert figure.device.type == device
        assert report["valid"].all()
        assert (report["power"] >= 0).all()


@every
def test_the_event_names_the_mechanism_and_its_options(case):
    protection = case.make()
    events = [
        protection.update(*ODD[odd](*batch()), protection.init(), generator()).event
        for odd in ("negatives only", "zeros only", "some rows of zeros")
    ]
    assert all(event == events[0] for event in events)  # public: whatever the labels and gradients were
    parts = events[0].parts if len(case.parts) > 1 else (events[0],)
    assert len(case.parts) == 1 or events[0].mechanism == "chain"
    for (name, options), event in zip(case.parts, parts, strict=True):
        assert isinstance(event, Event)
        assert event.mechanism == name
        assert all(isinstance(value, float | int | str) for value in event.parameters.values())
        spoken = {event.parameters.get("knob"): event.parameters.get("strength"), **event.parameters}
        assert options.items() <= spoken.items()


def test_every_protection_can_be_imported_by_its_own_name():
    for name in gradient.names():
        assert callable(getattr(importlib.import_module(f"tacit.split.protect.gradient.{name}"), name))


# --- on a device -----------------------------------------------------------------------------------------------------

if CUDA:

    @every
    @pytest.mark.parametrize("cut", [(6,), (300,)], ids=str)
    def test_the_hot_path_does_not_wait_for_the_device(case, cut):
        """A stack in a run; `matched` between two refreshes (the fifth or sixth step after its warm-up)."""
        protection = case.make()
        state = in_a_run(protection, 7, "cuda", stack=3, cut=cut)
        batches = [batch(step, stack=3, cut=cut, device="cuda") for step in range(3)]
        source = generator(device="cuda")
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            sent = [protection.update(grad, labels, state, source).value for grad, labels in batches]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert all(torch.isfinite(value).all() for value in sent)

    @pytest.mark.parametrize("case", [case for case in CASES if not case.names <= BLIND], ids=str)
    def test_bad_input_in_a_run_on_a_device_comes_out_as_nan(case):
        protection = case.make()
        state = in_a_run(protection, 4, "cuda", stack=3)
        grad, labels = batch(stack=3, device="cuda")
        grad[1, 3, 2] = float("nan")
        done = protection.update(grad, labels, state, generator(device="cuda"))
        assert done.report["valid"].tolist() == [True, False, True]
        assert done.value[1].isnan().all()
        assert torch.isfinite(done.value[[0, 2]]).all()
        after = protection.update(*batch(1, stack=3, device="cuda"), done.state, generator(device="cuda"))
        assert torch.isfinite(after.value).all()


@pytest.mark.parametrize(("name", "options"), [("iso", {"t": 1e-11}), ("marvell", {"scale": 1e-11})])
def test_noise_below_the_resolution_of_the_dtype_counts_as_none(name, options):
    g = torch.Generator().manual_seed(3)
    grad = (1 + torch.rand(64, 8, generator=g)).bfloat16()
    labels = (torch.rand(64, generator=g) < 0.3).float()
    protected = gradient.protection(name, **options)(grad, labels, g)
    same = (protected.value == grad).all(-1).sum().item()
    assert same > 0
    assert protected.report["untouched_rows"].item() == same


@pytest.mark.parametrize(
    ("name", "options"), [("iso", {"t": 1e6}), ("marvell", {"scale": 4.0}), ("matched", {"scale": 4.0})]
)
def test_noise_that_no_number_can_hold_is_refused(name, options):
    g = torch.Generator().manual_seed(4)
    grad = torch.randn(64, 8, generator=g) * 1e38
    labels = (torch.rand(64, generator=g) < 0.3).float()
    with pytest.raises(TensorError, match="does not fit"):
        gradient.protection(name, **options)(grad.clamp(-3e38, 3e38), labels, g)


@pytest.mark.parametrize("name", ["marvell", "matched"])
def test_one_row_far_larger_than_the_run_so_far_is_still_hidden(name):
    g = torch.Generator().manual_seed(5)
    protect = gradient.protection(name, leak_auc=0.6)
    state = protect.init()
    for _ in range(20):
        labels = (torch.rand(64, generator=g) < 0.3).float()
        state = protect.update(torch.randn(64, 8, generator=g) * 1e-3 + labels[:, None] * 1e-3, labels, state, g).state
    row = torch.full((1, 8), 10.0)
    added = torch.cat([protect.update(row, torch.ones(1), state, g).value - row for _ in range(200)])
    assert added.norm(dim=-1).mean() > 0.2 * row.norm()
