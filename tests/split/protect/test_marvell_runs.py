"""Marvell where its formula is undefined, in a run, and on a stack of problems."""

import math

import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from tacit.audit.metrics.leak_auc import auc, fold
from tacit.errors import LabelsError, TensorError, UsageError
from tacit.split.protect.gradient._moments import DECAY
from tacit.split.protect.gradient.marvell import marvell, solve
from tests.split.protect.marvell_batches import ALARM, batch, by_hand, chi_square

# --- where the formula is undefined -----------------------------------------------------------------------------------


def degenerate(kind: str) -> tuple[Tensor, Tensor]:
    shares = {"only negatives": 0.0, "only positives": 1.0, "one positive": 1 / 64, "one negative": 63 / 64}
    grad, labels = batch(40, 64, 5, share=shares.get(kind, 0.3))
    if kind == "identical rows":
        grad = grad[:1].expand(64, -1).clone()
    if kind == "all zero":
        grad = torch.zeros_like(grad)
    if kind == "one row":
        grad, labels = grad[:1], labels[:1]
    if kind == "no gap":  # the classes differ in their variance alone
        half = torch.randn(16, 5, generator=torch.Generator().manual_seed(41), dtype=torch.float64)
        grad = torch.cat([half, -half, 3 * half, -3 * half])
        labels = (torch.arange(64) >= 32).double()
    return grad, labels


KINDS = [
    "only negatives",
    "only positives",
    "one positive",
    "one negative",
    "identical rows",
    "all zero",
    "one row",
    "no gap",
]


@pytest.mark.parametrize("knob", [{"scale": 4.0}, {"leak_auc": 0.6}])
@pytest.mark.parametrize("kind", KINDS)
def test_a_degenerate_batch_gets_the_stateless_noise(seeded, kind, knob):
    grad, labels = degenerate(kind)
    protection = marvell(**knob)
    protected = protection(grad, labels, seeded(42))
    assert protected.report["stateless"] == 1
    assert protected.report["untouched_rows"] == 0
    assert (protected.value != grad).all()
    largest = (grad**2).sum(1).max().item()
    variance = 4 * largest / protection.sum_kl if largest else 4e-24 / protection.sum_kl
    assert protected.report["power"].item() == pytest.approx(grad.shape[1] * variance, rel=1e-6)
    chi_square(((protected.value - grad) ** 2 / variance).sum(), grad.numel())
    assert protected.report["sum_kl"].item() == pytest.approx(protection.sum_kl)


def run(protection, batches, noise, state=None):
    """Protect batches in the course of a run; the last answer and all of them."""
    state = protection.init() if state is None else state
    answers = []
    for grad, labels in batches:
        answers.append(protection.update(grad, labels, state, noise))
        state = answers[-1].state
    return answers


@pytest.mark.parametrize("kind", KINDS)
def test_a_degenerate_batch_in_a_run_uses_running_statistics(seeded, kind):
    past = [batch(50 + i, 64, 5) for i in range(4)]
    *_, last = run(marvell(scale=4.0), [*past, degenerate(kind)], seeded(51))
    grad, _ = degenerate(kind)
    assert last.report["stateless"] == 0
    assert last.report["untouched_rows"] == 0
    assert (last.value != grad).all()
    assert last.report["power"].item() > 1.5  # a multiple of the squared distance of the means, which is 2.0 or so


@pytest.mark.parametrize("stack", [(), (2,)])
def test_averages_too_large_for_a_tiny_batch_are_not_used(seeded, stack):
    """In single precision a variance of 1e16 can't be written in the units of a batch of zeros, 1e-24."""
    past = [tuple(part.float().expand(*stack, *part.shape) for part in batch(55 + i, 64, 5)) for i in range(3)]
    grad, labels = (part.float().expand(*stack, *part.shape) for part in degenerate("all zero"))
    protection = marvell(leak_auc=0.6)
    *_, last = run(protection, [*((1e8 * g, y) for g, y in past), (grad, labels)], seeded(56))
    assert (last.report["stateless"] == 1).all()
    assert torch.isfinite(last.value).all()
    assert (last.value != 0).all()


def test_a_batch_of_the_louder_class_alone_does_not_go_out_bare_where_marvell_gives_it_nothing(seeded):
    past = [batch(57 + i, 64, 5, u=4.0, v=0.01, gap=0.1) for i in range(3)]
    grad, labels = batch(58, 64, 5, u=4.0, share=0.0)
    *_, last = run(marvell(scale=0.5), [*past, (grad, labels)], seeded(59))
    assert last.report["stateless"] == 0
    assert (last.value != grad).any(-1).all()
    assert last.report["untouched_rows"].item() == 0
    assert last.report["power"].item() > 0


def test_running_statistics_are_decayed_means_over_rows(replay, seeded):
    past = [batch(60 + i, 64, 5, share=0.2 + 0.1 * i) for i in range(3)]
    protection = marvell(scale=2.0, warmup=2)
    state = run(protection, past, seeded(61))[-1].state
    grad, _ = batch(69, 64, 5)
    labels = torch.zeros(64, dtype=torch.float64)

    count = sum(DECAY**age * y.sum() for age, (_, y) in enumerate(reversed(past)))
    mean = sum(DECAY**age * g[y == 1].sum(0) for age, (g, y) in enumerate(reversed(past))) / count
    squares = sum(
        DECAY**age * ((g[y == 1] - g[y == 1].mean(0)) ** 2).sum() for age, (g, y) in enumerate(reversed(past))
    )
    v = float(squares / count / 5)
    w = mean - grad.mean(0)
    u, gap = float(((grad - grad.mean(0)) ** 2).mean()), float(w @ w)
    s = solve(u, v, 5, gap, float(count / (count + 64)), power=2.0 * gap)
    along, across = max(s.along_neg, s.along_pos), max(s.across_neg, s.across_pos)  # a batch that lacks a class
    s = s._replace(along_neg=along, along_pos=along, across_neg=across, across_pos=across)
    normal = torch.randn(64, 5, generator=torch.Generator().manual_seed(62), dtype=torch.float64)
    answer = protection.update(grad, labels, state, replay(normal))
    torch.testing.assert_close(answer.value, by_hand(grad, labels, s, w / w.norm(), normal), rtol=1e-9, atol=1e-9)
    assert answer.report["stateless"] == 0
    assert answer.report["power"].item() == pytest.approx(s.along_neg + 4 * s.across_neg, rel=1e-9)


# --- a run ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_the_warm_up_does_not_look_at_labels(warmup):
    protection = marvell(scale=4.0, warmup=warmup)
    batches = [batch(70 + i, 64, 5) for i in range(4)]
    permuted = [(grad, labels.roll(11)) for grad, labels in batches]
    first = run(protection, batches, torch.Generator().manual_seed(71))
    second = run(protection, permuted, torch.Generator().manual_seed(71))
    for step, (a, b) in enumerate(zip(first, second, strict=True)):
        assert a.report["stateless"] == (step < warmup)
        assert torch.equal(a.value, b.value) == (step < warmup)
        if step < warmup:
            sizes = [(grad**2).sum(1).max().item() for grad, _ in batches]
            largest = max(0.99 ** (step - i) * sizes[i] for i in range(step + 1))
            assert a.report["power"].item() == pytest.approx(5 * 16 * largest, rel=1e-9)
            assert (a.value != batches[step][0]).all()


def test_a_call_on_its_own_is_past_the_warm_up(replay):
    grad, labels = batch(80, 64, 5)
    normal = torch.randn(64, 5, generator=torch.Generator().manual_seed(81), dtype=torch.float64)
    alone = marvell(scale=4.0, warmup=9)(grad, labels, replay(normal))
    in_a_run = marvell(scale=4.0, warmup=0).update(grad, labels, None, replay(normal))
    assert torch.equal(alone.value, in_a_run.value)
    assert alone.report["stateless"] == 0


def test_state_and_inputs_are_left_as_they_were(seeded):
    protection = marvell(leak_auc=0.6, warmup=1)
    batches = [batch(90 + i, 64, 5) for i in range(3)]
    state = run(protection, batches, seeded(91))[-1].state
    sums, step = state.packed.clone(), state.step
    grad, labels = batch(95, 64, 5)
    before = grad.clone(), labels.clone()
    first = protection.update(grad, labels, state, seeded(96))
    again = protection.update(grad, labels, state, seeded(96))
    assert torch.equal(first.value, again.value)
    assert torch.equal(state.packed, sums)
    assert state.step == step == 3
    assert first.state.step == 4
    assert not torch.equal(first.state.packed, sums)
    assert torch.equal(grad, before[0])
    assert torch.equal(labels, before[1])
    first.value.zero_()
    assert torch.equal(grad, before[0])


# --- a stack ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knob", [{"scale": 4.0}, {"sum_kl": 0.5}])
def test_a_stack_is_its_problems_one_by_one(replay, seeded, knob):
    """Ordinary and degenerate batches beside each other, alone and over a run."""
    protection = marvell(**knob, warmup=1)
    kinds = ["ordinary", "only negatives", "one positive", "identical rows", "all zero", "ordinary", "no gap"]

    def problems(seed: int) -> list[tuple[Tensor, Tensor]]:
        return [degenerate(k) if k != "ordinary" else batch(seed + i, 64, 5, u=0.5 + i) for i, k in enumerate(kinds)]

    def stacked(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return torch.stack([g for g, _ in pairs]), torch.stack([y.double() for _, y in pairs])

    pairs = problems(100)
    normal = torch.randn(len(kinds), 64, 5, generator=seeded(101), dtype=torch.float64)
    together = protection(*stacked(pairs), replay(normal))
    assert together.report["stateless"].tolist() == [0, 1, 1, 1, 1, 0, 1]
    for i, (grad, labels) in enumerate(pairs):
        alone = protection(grad, labels, replay(normal[i]))
        torch.testing.assert_close(together.value[i], alone.value, rtol=1e-9, atol=1e-9)
        for figure, value in alone.report.items():
            torch.testing.assert_close(together.report[figure][i], value, rtol=1e-8, atol=1e-12)

    steps = [[batch(200 + 10 * t + i, 64, 5) for i in range(len(kinds))] for t in range(2)] + [pairs]
    noise = torch.randn(3, len(kinds), 64, 5, generator=seeded(102), dtype=torch.float64)
    answers = run(protection, [stacked(step) for step in steps], replay(*noise))
    assert answers[-1].report["stateless"].tolist() == [0] * len(kinds)
    for i in range(len(kinds)):
        alone = run(protection, [step[i] for step in steps], replay(*noise[:, i]))
        for one, many in zip(alone, answers, strict=True):
            torch.testing.assert_close(many.value[i], one.value, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(many.state.packed[i], one.state.packed[0], rtol=1e-9, atol=1e-12)


def test_single_precision_is_double_precision_rounded(replay):
    grad, labels = batch(110, 128, 16)
    normal = torch.randn(128, 16, generator=torch.Generator().manual_seed(111), dtype=torch.float64)
    double = marvell(leak_auc=0.6)(grad, labels, replay(normal))
    single = marvell(leak_auc=0.6)(grad.float(), labels.int(), replay(normal))
    assert single.value.dtype == torch.float32
    torch.testing.assert_close(single.value.double(), double.value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("factor", [1e-30, 1e-12, 1e12, 1e30])
def test_gradients_of_any_size_get_noise_of_their_size(replay, factor):
    grad, labels = (part.float() for part in batch(120, 64, 5))
    normal = torch.randn(64, 5, generator=torch.Generator().manual_seed(121))
    usual = marvell(scale=4.0)(grad, labels, replay(normal)).value
    other = marvell(scale=4.0)(grad * factor, labels, replay(normal)).value
    torch.testing.assert_close(other.double() / factor, usual.double(), rtol=1e-4, atol=1e-4)


# --- the papers' example ----------------------------------------------------------------------------------------------


def test_the_toy_example_of_a_model_that_is_less_sure_of_positives(seeded):
    """Appendix A.2: positives and a tenth of the negatives in [0, 1], the other negatives in [1, 2], balanced.

    The best model says 10/11 in [0, 1] and 0 in [1, 2]. Every positive is then 1/11 short, 90% of the negatives are
    met exactly and 10% of them are 10/11 off: the length of the gradient, (prediction - label) times a direction, puts
    every positive above 90% of the negatives and below the rest, an AUC of 0.9.
    """
    labels = torch.cat([torch.ones(1000), torch.zeros(1000)])
    shared = torch.arange(2000) < 1100  # 1000 positives and 100 negatives in [0, 1]
    prediction = torch.where(shared, labels[shared].mean(), labels[~shared].mean())
    assert prediction[0].item() == pytest.approx(10 / 11)
    assert prediction[-1].item() == 0
    missed = (prediction - labels).abs()
    assert missed[labels == 1].tolist() == pytest.approx([1 / 11] * 1000)
    assert (missed[labels == 0] == 0).double().mean() == 0.9
    assert auc(missed, labels).item() == pytest.approx(0.9, abs=1e-12)

    direction = torch.randn(8, generator=seeded(130))
    grad = (prediction - labels)[:, None] * direction
    assert auc(grad.norm(dim=1), labels).item() == pytest.approx(0.9, abs=1e-12)
    error = 0.5 / math.sqrt(1000)
    value = marvell(leak_auc=0.6)(grad, labels, seeded(131)).value
    assert fold(auc(value.norm(dim=1), labels)).item() < 0.6 + norm.isf(ALARM) * error


# --- the call ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warmup", [-1, 1.5, True, "2", None])
def test_a_warm_up_is_a_number_of_steps(warmup):
    with pytest.raises(UsageError, match="warmup"):
        marvell(scale=4.0, warmup=warmup)


def test_bad_rows_and_labels_are_refused_by_row(seeded):
    grad, labels = batch(140, 8, 3)
    broken = grad.clone()
    broken[5, 1] = math.nan
    with pytest.raises(TensorError, match="row 5"):
        marvell(scale=4.0)(broken, labels, seeded(0))
    wrong = labels.clone()
    wrong[3] = 2
    with pytest.raises(LabelsError, match="row 3"):
        marvell(scale=4.0)(grad, wrong, seeded(0))
