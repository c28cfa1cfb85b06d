"""What every gradient protection owes: this file finds them by listing the package, and each lists its options here.

Statistical checks run with fixed seeds; the false-alarm rate in a comment is that of a fresh seed.
"""

import functools
import importlib
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.contracts import Event, NoiseSource, Protection, noise_source
from tacit.errors import LabelsError, TacitError, TensorError
from tacit.protect import gradient
from tacit.protect.gradient import chain
from tacit.testing import CHECKS, Subject, examine
from tacit.testing.closed import ODD
from tacit.testing.subject import same_tree

pytestmark = [  # what torch itself says on a device, when it compiles and when it looks for waiting
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]
CUDA = torch.cuda.is_available()
DEVICES = ["cpu", *(["cuda"] if CUDA else [])]

# Mild, strong and every spelling of the strength; of a protection that is not listed here, the ends of its sweeps.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "clip": [{"norm": 2.0}, {"norm": 0.01}],
    "iso": [{"t": 0.01}, {"t": 25.0}],
    "label_distance_correlation": [{"weight": 0.01}, {"weight": 10.0, "log": False}],
    "marvell": [
        {"scale": 0.1},
        {"scale": 40.0, "warmup": 0},
        {"sum_kl": 0.01},
        {"detection_error": 0.45},
        {"leak_auc": 0.7},
    ],
    "matched": [{"scale": 1.0}, {"leak_auc": 0.9, "warmup": 1}, {"leak_auc": 0.55, "visits": 15}],
    "max_norm": [{}],
    "none": [{}],
}
BIASED = {"clip", "label_distance_correlation", "matched"}  # they say so themselves
NOISELESS = {"none", "clip", "label_distance_correlation"}
NEEDS_EMBEDDING = {"label_distance_correlation"}
# By their own formulas; their reports count the rows.
MAY_LEAVE_ROWS = {"none", "clip", "max_norm", "marvell", "label_distance_correlation"}
BLIND = {"none"}  # does not look at labels at all


@dataclass(frozen=True)
class Embedded:
    """A protection that is always told an embedding: one that the gradient would pull towards 0."""

    inner: Any

    @property
    def name(self) -> str:
        return self.inner.name

    def init(self):
        return self.inner.init()

    def fresh(self):
        return self.inner.fresh()

    def update(self, grad, labels, state, noise, embedding=None):
        return self.inner.update(grad, labels, state, noise, grad * 3 if embedding is None else embedding)

    def __call__(self, grad, labels, noise, embedding=None):
        return self.inner(grad, labels, noise, grad * 3 if embedding is None else embedding)


@dataclass(frozen=True)
class Case:
    """A protection with options, or a chain of such."""

    parts: tuple[tuple[str, dict[str, Any]], ...]

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.parts}

    def make(self, *, embedded: bool = True) -> Protection:
        made = [
            Embedded(gradient.protection(name, **options))
            if embedded and name in NEEDS_EMBEDDING
            else gradient.protection(name, **options)
            for name, options in self.parts
        ]
        return made[0] if len(made) == 1 else chain(*made)

    def __str__(self) -> str:
        return "+".join(f"{name}({','.join(f'{k}={v}' for k, v in options.items())})" for name, options in self.parts)


def usual(name: str) -> list[dict[str, Any]]:
    """The mild and the strong end of every spelling of a strength."""
    known = gradient.facts(name).strengths
    return [{option.name: end} for option in known for end in option.sweep or ()] or [{}]


CASES = [Case(((name, options),)) for name in gradient.names() for options in OPTIONS.get(name) or usual(name)]
CASES += [
    Case((("clip", {"norm": 0.5}), ("marvell", {"leak_auc": 0.6}))),
    Case((("iso", {"t": 1.0}), ("matched", {"leak_auc": 0.6, "visits": 2}))),
    Case((("label_distance_correlation", {"weight": 0.1}), ("matched", {"leak_auc": 0.6}))),
]
every = pytest.mark.parametrize("case", CASES, ids=str)
on_every_device = pytest.mark.parametrize("device", DEVICES)


def test_every_protection_is_in_this_suite():
    assert {name for case in CASES for name in case.names} == set(gradient.names())
    gone = sorted(set(OPTIONS) - set(gradient.names()))
    assert not gone, f"OPTIONS of {__name__} lists what is no protection: {', '.join(gone)}"


# --- batches, noise and states ---------------------------------------------------------------------------------------


def generator(seed: int = 7, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def batch(
    seed: int = 0,
    size: int = 24,
    cut: tuple[int, ...] = (6,),
    *,
    stack: int | None = None,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> tuple[Tensor, Tensor]:
    """Gradients (p - y) times a direction with some spread, of both classes where there are two rows."""
    g = generator(seed)
    lead = (size,) if stack is None else (stack, size)
    labels = (torch.arange(size) % 3 == 0).long().expand(lead).clone()
    p = torch.rand(*lead, generator=g, dtype=torch.float64)
    direction = torch.randn(*cut, generator=g, dtype=torch.float64)
    spread = torch.randn(*lead, *cut, generator=g, dtype=torch.float64)
    each = (p - labels).reshape(*lead, *[1] * len(cut))
    return (each * (direction + 0.4 * spread)).to(dtype).to(device), labels.to(device)


@dataclass
class Recorder:
    """A noise source that writes down what it gave."""

    source: NoiseSource
    given: list[Tensor] = field(default_factory=list)

    def normal(self, shape, *, dtype, device):
        self.given.append(self.source.normal(shape, dtype=dtype, device=device))
        return self.given[-1].clone()

    def uniform(self, shape, *, dtype, device):
        self.given.append(self.source.uniform(shape, dtype=dtype, device=device))
        return self.given[-1].clone()


@dataclass
class Replay:
    """A noise source that gives fixed tensors, one after the other."""

    tensors: list[Tensor]

    def normal(self, shape, *, dtype, device):
        tensor = self.tensors.pop(0)
        assert tuple(tensor.shape) == tuple(shape)
        assert (tensor.dtype, tensor.device.type) == (dtype, torch.device(device).type)
        return tensor.clone()

    uniform = normal


def in_a_run(protection: Protection, steps: int, device: str = "cpu", **kind: Any) -> Any:
    """The state after some ordinary steps."""
    state = protection.init()
    for step in range(steps):
        state = protection.update(*batch(100 + step, device=device, **kind), state, generator(200 + step, device)).state
    return state


# --- the contract, as anybody's protection is examined ---------------------------------------------------------------

# What is tried elsewhere in this file, on stacks and with what the rows themselves say, is not tried twice.
HERE = {"unbiased", "reported_power", "report_of_tensors", "time_per_call"}
HERE |= {"hides_every_row", "one_class", "one_of_a_class", "no_spread"}
HERE |= {"zero_rows", "zeros_of_one_class", "extreme_sizes"}
HERE |= {"refuses_what_is_not_finite", "refuses_wrong_shapes", "refuses_other_labels"}
CHECKED = [check for check in CHECKS if check.__name__ not in HERE]


def test_what_is_tried_here_is_a_check():
    assert {check.__name__ for check in CHECKS} >= HERE


@on_every_device
@every
def test_keeps_the_contract(case, device):
    failed = {one.name for one in examine(Subject(case.make(embedded=False), device), CHECKED) if not one.passed}
    assert failed == ({"other_noise_other_bytes"} if case.names <= NOISELESS else set())


# --- a stack has the form of its problems ----------------------------------------------------------------------------


@on_every_device
@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("size", "cut"), [(16, (2, 3, 3)), (1, (1,))], ids=str)
def test_a_stack_keeps_its_shape_dtype_and_device(case, size, cut, dtype, device):
    protection = case.make()
    grad, labels = batch(size=size, cut=cut, stack=2, dtype=dtype, device=device)
    first = protection.update(grad, labels, protection.init(), generator(1, device))
    second = protection.update(grad, labels, first.state, generator(2, device))
    for done in (first, second, protection(grad, labels, generator(device=device))):
        assert (done.value.shape, done.value.dtype, done.value.device) == (grad.shape, dtype, grad.device)
        assert torch.isfinite(done.value).all()


# --- a stack is its problems -----------------------------------------------------------------------------------------


def mixed_stack(step: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Four problems of other sizes; at some steps one of them lacks a class or holds zeros."""
    grad, labels = batch(50 + step, stack=4, device=device)
    grad = grad * torch.tensor([1.0, 1e-3, 50.0, 1.0], dtype=grad.dtype, device=device)[:, None, None]
    if step % 2:
        labels[3] = 0
        grad[2] = 0
    return grad, labels


@on_every_device
@every
def test_a_stack_equals_its_problems_given_the_same_normals(case, device):
    """To 1e-8 of the largest entry: float64, and sums may run in another order."""
    protection = case.make()
    stacked, single = protection.init(), [protection.init() for _ in range(4)]
    for step in range(6):
        grad, labels = mixed_stack(step, device)
        recorder = Recorder(noise_source(generator(step, device)))
        whole = protection.update(grad, labels, stacked, recorder)
        stacked = whole.state
        for r in range(4):
            replay = Replay([given[r : r + 1] for given in recorder.given])
            one = protection.update(grad[r], labels[r], single[r], replay)
            single[r] = one.state
            assert not replay.tensors
            size = float(one.value.abs().max())
            torch.testing.assert_close(whole.value[r], one.value, rtol=0, atol=1e-8 * size)
            for name, figure in one.report.items():
                torch.testing.assert_close(whole.report[name][r], figure, rtol=1e-6, atol=1e-30)


@on_every_device
@every
def test_the_order_of_rows_does_not_matter(case, device):
    """Rows in another order with their noise in that order come out in that order, to 1e-8 of the largest entry."""
    protection = case.make()
    grad, labels = batch(3, device=device)
    order = torch.randperm(len(labels), generator=generator(1)).to(device)
    for state in (protection.init(), in_a_run(protection, 4, device)):
        recorder = Recorder(noise_source(generator(9, device)))
        want = protection.update(grad, labels, state, recorder).value[order]
        replay = Replay([given[:, order] for given in recorder.given])
        got = protection.update(grad[order], labels[order], state, replay).value
        torch.testing.assert_close(got, want, rtol=0, atol=1e-8 * float(want.abs().max()))


# --- noise: its mean and its power -----------------------------------------------------------------------------------


def drawn_often(case: Case, grad: Tensor, labels: Tensor, steps: int, device: str, times: int = 1500):
    """Many draws for one batch, as a stack, after some steps of a run (of a stack of equal problems)."""
    protection = case.make()
    state = protection.init()
    for step in range(steps):
        other, its_labels = batch(100 + step, device=device)
        state = protection.update(
            other.expand(times, -1, -1), its_labels.expand(times, -1), state, generator(step, device)
        ).state
    many = grad.expand(times, -1, -1), labels.expand(times, -1)
    done = protection.update(*many, state, generator(77, device))
    return done.value - grad, done.report


def one_class(device: str = "cpu") -> tuple[Tensor, Tensor]:
    grad, labels = batch(5, device=device)
    return grad, torch.zeros_like(labels)


@on_every_device
@every
@pytest.mark.parametrize("steps", [0, 3], ids=["first step", "in a run"])
@pytest.mark.parametrize("make", [batch, one_class], ids=["both classes", "one class"])
def test_noise_has_mean_zero_and_the_power_that_the_report_says(case, make, steps, device):
    """Each entry's mean within 5 standard errors (144 entries: false alarms 1e-4), the power within 5 (6e-7)."""
    grad, labels = make(device=device)
    added, report = drawn_often(case, grad, labels, steps, device)
    times = added.shape[0]
    if "matched" in case.names and steps == 0:  # zeros are sent; what links before it have drawn is gone with the rows
        assert (added == -grad).all()
        assert (report["power"] == 0).all() or "iso" in case.names
        return
    if not case.names & BIASED:
        error = added.std(0) / times**0.5
        assert (added.mean(0).abs() <= 5 * error + 1e-12).all()
    if case.names <= NEEDS_EMBEDDING:  # what it adds is the same each time, and is not called noise
        assert (report["power"] == 0).all()
        return
    if "matched" in case.names:  # rows that stand out are cut, which is no noise
        added = (added - added.mean(0)) * (times / (times - 1)) ** 0.5
    power = added.square().sum(-1).mean(-1) - report["power"]  # (times,)
    assert abs(float(power.mean())) <= 5 * float(power.std()) / times**0.5 + 1e-9 * float(report["power"].mean())
    assert (float(report["power"].mean()) > 0) == (case.names != {"none"})


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
                assert counted == (len(grad) if case.names <= NEEDS_EMBEDDING else equal)
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
        assert callable(getattr(importlib.import_module(f"tacit.protect.gradient.{name}"), name))


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
