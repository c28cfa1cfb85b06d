"""`check_protection`: ours pass, and each broken protection is refused for its own reason."""

import functools
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import tacit
from tacit.contracts import Event, Protected, noise_source
from tacit.errors import LabelsError, TensorError, UsageError
from tacit.split.protect import check, check_protection, embedding, gradient
from tacit.split.protect.check import (
    EMBEDDING_RULES,
    RULES,
    BrokenRuleError,
    Shielded,
    Subject,
    ask,
    bits,
    global_randomness,
    same_tree,
)
from tacit.split.protect.embedding import embedding_protection
from tacit.split.protect.gradient import protection


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch):
    monkeypatch.setattr(check, "DRAWS", 80)


def failures(make, rules=RULES, subject=Subject) -> set[str]:
    """The names of all rules that are broken, each asked of a protection of its own."""
    broken = set()
    for rule in rules:
        try:
            ask(rule, subject(make()))
        except BrokenRuleError as error:
            broken.add(error.rule)
    return broken


# --- our own ---------------------------------------------------------------------------------------------------------

OURS = {
    "clip": {"norm": 1.0},
    "iso": {"t": 1.0},
    "marvell": {"leak_auc": 0.6},
    "matched": {"leak_auc": 0.6, "visits": 4},
    "max_norm": {},
    "none": {},
}
OUR_EMBEDDINGS = {
    "adversarial": {"weight": 1.0},
    "distance_correlation": {"weight": 1.0},
    "gaussian": {"snr": 1.0},
    "noise_regularization": {"weight": 1.0},
}


def test_all_of_ours_are_here():
    assert list(OURS) == gradient.names()
    assert list(OUR_EMBEDDINGS) == embedding.names()


@pytest.mark.parametrize("name", OURS)
def test_our_own_pass(name):
    check_protection(functools.partial(protection, name, **OURS[name]))


@pytest.mark.parametrize("name", OUR_EMBEDDINGS)
def test_our_own_embedding_protections_pass(name):
    check_protection(functools.partial(embedding_protection, name, **OUR_EMBEDDINGS[name]))


@pytest.mark.parametrize("name", ["none", "max_norm"])
def test_what_sends_bare_rows_is_let_off_by_its_facts_alone(name, monkeypatch):
    """`max_norm` leaves the longest row of each batch as it is, `none` all of them; both say so."""
    module = getattr(gradient, name)
    check_protection(getattr(module, name))
    monkeypatch.delattr(module, "FACTS")
    assert failures(getattr(module, name)) == {"hides_every_row"} | (
        {"no_randomness_of_its_own"} if name == "none" else set()
    )


# --- a protection that is right, and ways to break it ----------------------------------------------------------------


@dataclass(frozen=True)
class Right:
    """Noise as large as the largest row, written without any help of ours."""

    times: float = 1.0

    def init(self):
        return (0, torch.zeros((), dtype=torch.float64))  # steps, and the largest row so far

    def update(self, grad, labels, state, noise, embedding=None):
        grad = grad.detach()
        if labels.ndim != 1 or grad.ndim < 2 or len(grad) != len(labels) or not grad.numel():
            raise TensorError("shapes")
        if not grad.is_floating_point() or not bool(grad.isfinite().all()):
            raise TensorError("not finite")
        if not bool(((labels == 0) | (labels == 1)).all()):
            raise LabelsError("labels")
        wide = grad.double()
        largest = torch.maximum(wide.flatten(1).norm(dim=1).max(), state[1] / 2).clamp(min=1e-12)
        added = self.noise(wide, labels, largest, noise)
        value = (wide + added).to(grad.dtype)
        power = torch.as_tensor(self.times**2) * largest**2
        report = {"power": power, "untouched_rows": (value == grad).flatten(1).all(1).sum()}
        return Protected(value, (state[0] + 1, largest), Event("right", {"times": self.times}), report)

    def noise(self, grad, labels, largest, noise):
        draw = noise_source(noise).normal(grad.shape, dtype=grad.dtype, device=grad.device)
        return draw * largest * self.times / grad[0].numel() ** 0.5

    def __call__(self, grad, labels, noise, embedding=None):
        return self.update(grad, labels, self.init(), noise, embedding)


class FailsOpenOnOneClass(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state, noise)
        if bool((labels == labels[0]).all()):
            rows = torch.tensor(len(grad))
            return replace(done, value=grad.clone(), report={"power": rows * 0.0, "untouched_rows": rows})
        return done


class FailsOpenOnOnePositive(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state, noise)
        if len(labels) > 1 and int((labels != 0).sum()) == 1:
            rows = torch.tensor(len(grad))
            return replace(done, value=grad.clone(), report={"power": rows * 0.0, "untouched_rows": rows})
        return done


class ChangesItsInput(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state, noise)
        grad.data.zero_()
        return done


class ChangesItsState(Right):
    def init(self):
        return [0, torch.zeros((), dtype=torch.float64)]

    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, tuple(state), noise)
        state[0] += 1  # a count that nothing depends on
        return replace(done, state=[state[0], done.state[1]])


class UsesTheGlobalGenerator(Right):
    def noise(self, grad, labels, largest, noise):
        return torch.randn(grad.shape, dtype=grad.dtype) * largest * self.times / grad[0].numel() ** 0.5


class Remembers(Right):
    """Keeps a counter in the object, and draws otherwise at the next call."""

    def noise(self, grad, labels, largest, noise):
        self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
        return super().noise(grad, labels, largest, noise) * (1 + 1e-6 * self.__dict__["calls"])


class Biased(Right):
    """Noise with a drift; the power that it reports knows of it."""

    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state, noise)
        power = done.report["power"] * (1 + 0.3**2)
        return replace(done, report={**done.report, "power": power})

    def noise(self, grad, labels, largest, noise):
        push = torch.full_like(grad, 0.3) * largest * self.times / grad[0].numel() ** 0.5
        return super().noise(grad, labels, largest, noise) + push


class NotANumberOnZeroRows(Right):
    def noise(self, grad, labels, largest, noise):
        norms = grad.flatten(1).norm(dim=1)
        own = (norms / norms).reshape(-1, *[1] * (grad.ndim - 1))  # 1, or 0/0
        return super().noise(grad, labels, largest, noise) * own


class ForeignState(Right):
    @dataclass(frozen=True)
    class State:
        inner: tuple

    def init(self):
        return self.State(super().init())

    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state.inner, noise)
        return replace(done, state=self.State(done.state))


class TellsTheLabels(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state, noise)
        return replace(done, event=Event("right", {"positives": int(labels.double().sum())}))


class GoesByOurName(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        return replace(super().update(grad, labels, state, noise), event=Event("matched", {"leak_auc": 0.5}))


class TakesWhatIsNotFinite(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        clean = torch.nan_to_num(grad, posinf=1.0, neginf=-1.0) if grad.is_floating_point() else grad
        return super().update(clean, labels, state, noise)


class GeneratorsOnly(Right):
    def noise(self, grad, labels, largest, noise):
        draw = torch.randn(grad.shape, generator=noise, dtype=grad.dtype)
        return draw * largest * self.times / grad[0].numel() ** 0.5


class AlwaysSingle(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state, noise)
        return replace(done, value=done.value.to(torch.float64 if grad.dtype == torch.float64 else torch.float32))


class FailsOpenOnIdenticalRows(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state, noise)
        if len(grad) > 1 and bool((grad == grad[:1]).all()) and bool(grad.any()):
            rows = torch.tensor(len(grad))
            return replace(done, value=grad.clone(), report={"power": rows * 0.0, "untouched_rows": rows})
        return done


class FailsOpenOnTinyGradients(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state, noise)
        if 0 < float(grad.detach().abs().max()) < 1e-25:
            rows = torch.tensor(len(grad))
            return replace(done, value=grad.clone(), report={"power": rows * 0.0, "untouched_rows": rows})
        return done


class FlattensTheCut(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state, noise)
        return replace(done, value=done.value.flatten(1))


BROKEN = [
    (FailsOpenOnOneClass(), "hides_every_row"),
    (FailsOpenOnOnePositive(), "hides_every_row"),
    (FailsOpenOnIdenticalRows(), "hides_every_row"),
    (FailsOpenOnTinyGradients(), "hides_every_row"),
    (NotANumberOnZeroRows(), "hides_every_row"),
    (ChangesItsInput(), "inputs_untouched"),
    (ChangesItsState(), "inputs_untouched"),
    (UsesTheGlobalGenerator(), "no_randomness_of_its_own"),
    (GeneratorsOnly(), "no_randomness_of_its_own"),
    (Biased(), "unbiased"),
    (ForeignState(), "state_survives"),
    (TellsTheLabels(), "event_of_plain_values"),
    (GoesByOurName(), "event_of_plain_values"),
    (TakesWhatIsNotFinite(), "refuses_what_is_not_finite"),
    (AlwaysSingle(), "keeps_the_gradients_form"),
    (FlattensTheCut(), "keeps_the_gradients_form"),
]


def test_a_protection_that_is_right_passes():
    check_protection(Right)
    assert failures(Right) == set()


@pytest.mark.parametrize(
    ("broken", "rule"), BROKEN, ids=lambda one: one if isinstance(one, str) else type(one).__name__
)
def test_each_fault_is_refused_for_its_own_reason(broken, rule):
    with pytest.raises(BrokenRuleError, match=f"^{rule}: ") as caught:
        check_protection(lambda: broken)
    assert caught.value.rule == rule
    assert failures(lambda: broken) == {rule}


class TheSameNoiseAlways(Right):
    def noise(self, grad, labels, largest, noise):
        return super().noise(grad, labels, largest, torch.Generator().manual_seed(1))


class LeavesARowBare(Right):
    def update(self, grad, labels, state, noise, embedding=None):
        done = super().update(grad, labels, state, noise)
        value = done.value.clone()
        value[0] = grad[0]
        power = done.report["power"] * (len(grad) - 1) / len(grad)
        return replace(done, value=value, report={**done.report, "power": power, "untouched_rows": torch.tensor(1)})


@pytest.mark.parametrize(
    ("broken", "rule", "others"),
    [
        (Remembers, "same_noise_same_bytes", {"keeps_the_gradients_form", "unbiased", "hides_every_row"}),
        (TheSameNoiseAlways, "no_randomness_of_its_own", {"keeps_the_gradients_form", "hides_every_row"}),
        (LeavesARowBare, "hides_every_row", {"unbiased", "same_noise_same_bytes"}),
    ],
)
def test_of_a_fault_that_breaks_several_rules_the_first_is_told(broken, rule, others):
    """`others` are rules that it does keep."""
    found = failures(broken)
    assert rule in found
    assert not found & others
    with pytest.raises(BrokenRuleError) as caught:
        check_protection(broken)
    assert caught.value.rule == next(one.__name__ for one in RULES if one.__name__ in found)


def test_one_who_leaves_a_row_bare_and_says_nothing_is_caught():
    class Liar(LeavesARowBare):
        def update(self, grad, labels, state, noise, embedding=None):
            done = super().update(grad, labels, state, noise)
            return replace(done, report={**done.report, "untouched_rows": torch.tensor(0)})

    assert "hides_every_row" in failures(Liar)


# --- protections of embeddings ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RightShield:
    """Noise on every entry, written without any help of ours."""

    std: float = 1.0

    name = "right"

    @property
    def event(self):
        return Event(self.name, {"std": self.std})

    def transform(self, z, noise):
        if not bool(z.isfinite().all()):
            raise TensorError("not finite")
        return z + self.std * noise.normal(z.shape, dtype=z.dtype, device=z.device)

    def regularizer(self, x, z, others):
        return None


class GoesByTheNameOfOurs(RightShield):
    name = "gaussian"


class DoesNothing(RightShield):
    def transform(self, z, noise):
        super().transform(z, noise)
        return z


class Widens(RightShield):
    def transform(self, z, noise):
        return super().transform(z, noise).double()


class DrawsItsOwn(RightShield):
    def transform(self, z, noise):
        return super().transform(z, noise) + torch.randn(z.shape, dtype=z.dtype)


class CutsTheGraph(RightShield):
    def transform(self, z, noise):
        return super().transform(z, noise).detach()


class DividesByTheNorm(RightShield):
    def transform(self, z, noise):
        flat = z.flatten(1)
        return super().transform(z, noise) + (flat / flat.norm(dim=1, keepdim=True)).nan_to_num().reshape(z.shape)


class LetsAnythingThrough(RightShield):
    def transform(self, z, noise):
        return super().transform(z.nan_to_num(posinf=1.0), noise)


class KeepsWeightsToItself(RightShield):
    class Loss(nn.Module):
        optimizer = None

        def __init__(self):
            super().__init__()
            self.weight = torch.rand(())  # neither a parameter nor a buffer

        def forward(self, x, z, noise):
            return self.weight * z.square().mean()

    def regularizer(self, x, z, others):
        return self.Loss()


BROKEN_SHIELDS = [
    (GoesByTheNameOfOurs, "says_who_it_is"),
    (DoesNothing, "lets_gradients_through"),
    (Widens, "keeps_the_embeddings_form"),
    (DrawsItsOwn, "same_source_same_bytes"),
    (CutsTheGraph, "lets_gradients_through"),
    (DividesByTheNorm, "keeps_the_embeddings_form"),
    (LetsAnythingThrough, "refuses_a_broken_embedding"),
    (KeepsWeightsToItself, "what_it_learns_survives"),
]


def test_an_embedding_protection_that_is_right_passes():
    check_protection(RightShield)


@pytest.mark.parametrize(("broken", "rule"), BROKEN_SHIELDS)
def test_each_fault_of_an_embedding_protection_is_refused_for_its_own_reason(broken, rule):
    with pytest.raises(BrokenRuleError, match=f"^{rule}: ") as caught:
        check_protection(broken)
    assert caught.value.rule == rule
    assert rule in failures(broken, EMBEDDING_RULES, Shielded)


def test_every_rule_has_a_protection_that_breaks_it():
    assert {rule for _, rule in BROKEN} | {"same_noise_same_bytes"} == {rule.__name__ for rule in RULES}
    assert {rule for _, rule in BROKEN_SHIELDS} == {rule.__name__ for rule in EMBEDDING_RULES}


# --- what an error says ----------------------------------------------------------------------------------------------


def test_every_rule_says_what_it_asks_and_an_error_what_happened_and_what_to_do():
    for rule in (*RULES, *EMBEDDING_RULES):
        assert rule.__doc__.split("\n\n")[0].endswith(".")
    with pytest.raises(AssertionError) as caught:
        check_protection(AlwaysSingle)
    assert str(caught.value) == (
        "keeps_the_gradients_form: What is sent is new, finite and has the gradient's shape and dtype, for one row and "
        "cuts of any dimensions. Here: of (24, 6) numbers of torch.bfloat16 it sent (24, 6) of torch.float32: compute "
        "in grad.flatten(1), look for a division by a spread or norm of 0, and send "
        "value.reshape(grad.shape).to(grad.dtype)"
    )


def test_what_raises_breaks_the_rule_and_its_error_is_the_cause():
    class Raises(Right):
        def noise(self, grad, labels, largest, noise):
            raise ZeroDivisionError("seven")

    with pytest.raises(
        BrokenRuleError, match=r"^keeps_the_gradients_form: .* it raised ZeroDivisionError: seven$"
    ) as caught:
        check_protection(Raises)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_returns_no_protected_is_told_what_to_return():
    class Bare(Right):
        def update(self, grad, labels, state, noise, embedding=None):
            return super().update(grad, labels, state, noise).value

    with pytest.raises(BrokenRuleError, match=r"it returned a Tensor: return Protected\(value, state, event, report\)"):
        check_protection(Bare)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (3, "3 is no function that makes a protection"),
        (tacit.iso(t=1.0), r"no function that makes a protection: pass one, as lambda: steady\(times=2\)"),
        (tacit.gaussian(std=1.0), "no function that makes a protection"),
        (lambda: 3, "what was made, 3, is no protection"),
        (lambda: Right, "is no protection: one of gradients has init, update"),
    ],
)
def test_what_makes_no_protection_is_refused(make, says):
    with pytest.raises(UsageError, match=says):
        check_protection(make)


# --- what rules are made of ------------------------------------------------------------------------------------------


def test_global_randomness_is_as_it_was_afterwards():
    import random

    import numpy as np

    def draw():
        return torch.rand(1).item(), random.random(), np.random.rand()  # noqa: NPY002

    with global_randomness(5):
        inside = draw()
    with global_randomness(9):
        expected = draw()
        with global_randomness(5):
            assert draw() == inside
    with global_randomness(9):
        assert draw() == expected


def test_states_are_compared_to_the_bit():
    a = {"x": (torch.tensor([0.0, float("nan")]), 3)}
    assert same_tree(a, {"x": (torch.tensor([0.0, float("nan")]), 3)})
    assert not same_tree(a, {"x": (torch.tensor([-0.0, float("nan")]), 3)})
    assert not same_tree(a, {"x": (torch.tensor([0.0, float("nan")]), 4)})
    assert not same_tree(a, {"x": [torch.tensor([0.0, float("nan")]), 3]})
    assert not same_tree(torch.zeros(2), torch.zeros(2).double())
    assert bits(torch.tensor(1.0).bfloat16()) == b"\x80\x3f"


def test_the_false_alarm_rate_is_small_over_many_seeds(monkeypatch):
    """30 seeds at 1e-6 each: the chance of a false alarm is 3e-5."""
    seed, off = 0, 0.0

    def draws(subject, batch, steps):
        source, state = torch.Generator().manual_seed(1000 + seed), subject.after(steps)
        done = [subject.protection.update(batch.grad, batch.labels, state, source) for _ in range(60)]
        return torch.stack([(one.value - batch.grad).flatten(1) for one in done]) + off

    monkeypatch.setattr(check, "_added", draws)
    for seed in range(30):  # noqa: B007 (the draws take it)
        ask(check.unbiased, Subject(Right()))
    off = 0.2
    with pytest.raises(BrokenRuleError, match="standard errors from zero"):
        ask(check.unbiased, Subject(Right()))
