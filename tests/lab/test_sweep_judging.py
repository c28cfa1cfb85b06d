"""What a training's batches say about a leak: means, parts, intervals that hold, and what a model is worth."""

import pytest
import torch
from scipy.stats import norm as normal
from scipy.stats import t as reference_student
from sklearn.metrics import log_loss as reference_loss
from sklearn.metrics import roc_auc_score

from tacit.lab.sweeping.judging import leaks, parts, student, utility


def test_students_quantile():
    for freedom in (1, 2, 3, 4, 5, 9, 30, 1000):
        assert student(freedom) == pytest.approx(reference_student.ppf(0.975, freedom), rel=1e-9)


@pytest.mark.parametrize("batches", [2, 4, 20])
def test_intervals_hold_the_truth_nineteen_times_in_twenty(batches, seeded):
    each = 0.7 + 0.05 * torch.randn(batches, 2000, generator=seeded(0), dtype=torch.float64)
    found = leaks(each, fewest=1000)
    held = sum(one.leak.low <= 0.7 <= one.leak.high for one in found) / 2000
    assert 0.935 < held < 0.965  # three standard errors of a share of 2000


def test_a_leak_is_folded_once_of_the_mean(seeded):
    chance = 0.5 + 0.1 * torch.randn(400, 1, generator=seeded(0), dtype=torch.float64)
    (found,) = leaks(chance, fewest=10)
    assert found.leak.value < 0.515
    assert found.leak.low == 0.5
    assert found.q95 > 0.65, "the papers' figure folds every batch"
    (turned,) = leaks(torch.tensor([[0.1], [0.2]]), fewest=10)
    assert turned.leak.value == pytest.approx(0.85)
    assert turned.mean == pytest.approx(0.15)


@pytest.mark.parametrize("count", [2, 6, 10])
def test_students_quantile_for_several_parts(count):
    z = normal.ppf(1 - 0.025 / count)
    for freedom in (7, 15, 100):
        assert student(freedom, z) == pytest.approx(reference_student.ppf(1 - 0.025 / count, freedom), rel=1e-9)


def test_a_phase_that_leaks_and_a_sign_that_turns_are_found(seeded):
    chance = 0.5 + 0.02 * torch.randn(1000, generator=seeded(0), dtype=torch.float64)
    phase, turning = chance.clone(), chance.clone()
    phase[100:200] += 0.2
    turning[:500] += 0.3
    turning[500:] -= 0.3
    each = torch.stack([chance, phase, turning], dim=1)
    calm, brief, turned = parts(each, fewest=100)
    assert [(one.first, one.last) for one in calm] == [(100 * place + 1, 100 * place + 100) for place in range(10)]
    worst = max(brief, key=lambda one: one.leak.high)
    assert worst.spelled == "updates 101 to 200"
    assert worst.leak.low > 0.68
    assert leaks(each, fewest=100)[2].leak.value < 0.51, "the mean over the whole says that nothing leaks"
    assert min(one.leak.low for one in turned) > 0.78
    assert max(one.leak.high for one in calm) < 0.52


def test_a_part_has_some_batches_that_were_looked_at():
    each = torch.full((400, 3), torch.nan)
    each[7::8, 0] = 0.6  # a sample: 50 of 400
    each[:15, 1] = 0.6
    sampled, few, none = parts(each, fewest=10)
    assert [(one.first, one.last) for one in sampled] == [(8, 136), (144, 272), (280, 400)]
    assert few == none == []
    assert [len(one) for one in parts(each, fewest=10, least=8)] == [6, 0, 0]


def test_all_parts_hold_the_truth_together_nineteen_times_in_twenty(seeded):
    each = 0.7 + 0.05 * torch.randn(80, 2000, generator=seeded(0), dtype=torch.float64)
    held = [all(part.leak.low <= 0.7 <= part.leak.high for part in found) for found in parts(each, fewest=1000)]
    assert 0.94 < sum(held) / 2000 < 0.98


def test_chance_alone_seldom_looks_like_a_leak(seeded):
    draws = 0.5 + 0.05 * torch.randn(1000, 50 * 20, generator=seeded(0), dtype=torch.float64)
    highs = [max(part.leak.high for part in found) for found in parts(draws, fewest=100)]
    sweeps = torch.tensor(highs).view(50, 20).amax(1)  # of 20 settings each
    assert (sweeps > 0.55).sum() == 0
    assert (torch.tensor(highs) > 0.535).double().mean() < 0.01


def test_a_short_training_can_still_show_that_it_holds(seeded):
    """Of 48 batches of 1024 rows, a fifth of them positive: what leaks nothing is told from what leaks 0.6."""
    chance = 0.5 + 0.023 * torch.randn(48, 400, generator=seeded(0), dtype=torch.float64)
    highs = torch.tensor([max(part.leak.high for part in found) for found in parts(chance, fewest=200)])
    assert float(highs.quantile(0.95)) < 0.54


def test_batches_without_a_class_do_not_count():
    nan = float("nan")
    one, none = leaks(torch.tensor([[0.6, nan], [nan, nan], [0.8, nan]]), fewest=10)
    assert one.leak.value == pytest.approx(0.7)
    assert none is None


def test_figures_of_all_replicas_at_once_are_those_of_each(seeded):
    each = torch.rand(101, 5, generator=seeded(0), dtype=torch.float64)
    each[torch.rand(101, 5, generator=seeded(1)) < 0.3] = torch.nan
    for column, found in zip(each.unbind(1), leaks(each, fewest=1000), strict=True):
        counted = column[~column.isnan()]
        mean = float(counted.mean())
        half = student(len(counted) - 1) * float(counted.std()) / len(counted) ** 0.5
        assert found.q95 == pytest.approx(float(torch.maximum(counted, 1 - counted).quantile(0.95)), rel=1e-12)
        assert found.leak.high == pytest.approx(max(mean, 1 - mean) + half, rel=1e-12)


def test_perfect_order_in_few_rows_is_no_certainty():
    (many,) = leaks(torch.ones(10, 1), fewest=100)
    (few,) = leaks(torch.ones(2, 1), fewest=4)
    (single,) = leaks(torch.full((1, 1), 0.8), fewest=25)
    assert many.leak.low == pytest.approx(1 - 1.96 / 1000, abs=1e-4)
    assert few.leak.low < 0.8
    assert single.leak.high - single.leak.value == pytest.approx(1.96 * (0.16 / 25 + 1 / 625) ** 0.5, abs=1e-3)


def test_utility_agrees_with_scikit_learn(seeded):
    logits = torch.randn(500, generator=seeded(0))
    labels = (torch.rand(500, generator=seeded(1)) < torch.sigmoid(logits)).float()
    ran_away = logits.clone()
    ran_away[3] = torch.nan
    found, away = utility(torch.stack([logits, ran_away]), labels)
    assert found["test_auc"] == pytest.approx(roc_auc_score(labels, logits))
    assert found["test_loss"] == pytest.approx(reference_loss(labels, torch.sigmoid(logits)), rel=1e-5)
    assert 0 < found["test_ace"] < 0.2
    assert set(away.values()) == {None}
