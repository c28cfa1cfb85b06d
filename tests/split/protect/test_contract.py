"""What every gradient protection owes: this file finds them by listing the package, and each lists its options here.

Statistical checks run with fixed seeds; the false-alarm rate in a comment is that of a fresh seed.
"""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from tacit.contracts import NoiseSource, noise_source
from tacit.split.protect import gradient
from tacit.split.protect.check import RULES, BrokenRuleError, Subject, ask, no_randomness_of_its_own
from tacit.split.protect.facts import Facts
from tests.split.protect.cases import (
    CASES,
    OPTIONS,
    QUIET,
    Case,
    batch,
    every,
    generator,
    in_a_run,
    on_every_device,
)
from tests.split.protect.rules import OURS

pytestmark = QUIET
BIASED = {"clip", "matched"}  # they say so themselves
NOISELESS = {"none", "clip"}


def test_every_protection_is_in_this_suite():
    assert {name for case in CASES for name in case.names} == set(gradient.names())
    gone = sorted(set(OPTIONS) - set(gradient.names()))
    assert not gone, f"OPTIONS of {__name__} lists what is no protection: {', '.join(gone)}"


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


# --- the rules that anybody's protection is asked, and more ----------------------------------------------------------

# What is tried elsewhere in this suite, on stacks and with what the rows themselves say, is not tried twice.
HERE = {"unbiased", "hides_every_row", "refuses_what_is_not_finite"}
ASKED = [rule for rule in RULES if rule.__name__ not in HERE]


def test_what_is_tried_here_is_a_rule():
    assert {rule.__name__ for rule in RULES} >= HERE


@every
def test_keeps_the_contract(case):
    for rule in ASKED:
        ask(rule, Subject(case.make()))


@on_every_device
@every
def test_keeps_more_than_anybodys_must(case, device):
    for rule in OURS:
        rule(case.make, device)


@pytest.mark.parametrize("case", [case for case in CASES if case.names <= NOISELESS], ids=str)
def test_what_promises_no_noise_sends_the_same_under_any(case):
    promising = Subject(case.make())
    assert not promising.facts.noise
    promising.__dict__["facts"] = Facts(noise=True)
    with pytest.raises(BrokenRuleError, match="nothing random hides the gradient"):
        ask(no_randomness_of_its_own, promising)


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
    if "matched" in case.names:  # rows that stand out are cut, which is no noise
        added = (added - added.mean(0)) * (times / (times - 1)) ** 0.5
    power = added.square().sum(-1).mean(-1) - report["power"]  # (times,)
    assert abs(float(power.mean())) <= 5 * float(power.std()) / times**0.5 + 1e-9 * float(report["power"].mean())
    assert (float(report["power"].mean()) > 0) == (case.names != {"none"})
