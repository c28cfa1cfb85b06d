"""Leak AUC against scikit-learn, DeLong's variance against brute force, the interval against its own promise."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from tacit.audit.metrics.leak_auc import (
    auc,
    delong,
    fold,
    judged,
    leak_auc,
)
from tacit.contracts import Guess
from tacit.errors import LabelsError, TensorError


def generator(seed):
    return torch.Generator().manual_seed(seed)


def batches(seed, steps, batch, shift=1.0, share=0.3, levels=None):
    g = generator(seed)
    label = (torch.rand(steps, batch, generator=g) < share).long()
    score = torch.randn(steps, batch, generator=g) + shift * label
    return (score if levels is None else (score * levels).round()), label


def guess_of(score):
    return Guess(torch.arange(score.numel()).reshape(score.shape), score)


@pytest.mark.parametrize("levels", [None, 1, 3])
def test_a_stack_equals_scikit_learn_with_and_without_ties(levels):
    score, label = batches(1, 20, 97, levels=levels)
    expected = [roc_auc_score(y, s) for y, s in zip(label.numpy(), score.numpy(), strict=True)]
    assert np.allclose(auc(score, label).numpy(), expected, atol=1e-12)
    assert len({round(a, 3) for a in expected}) > 5  # the batches do differ


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_any_batch_equals_counting_pairs(rows):
    score, label, counted = (torch.tensor(column) for column in zip(*rows, strict=True))
    high = [s for s, y, c in rows if y and c]
    low = [s for s, y, c in rows if not y and c]
    value = auc(score.float(), label, counted).item()
    if not high or not low:
        assert np.isnan(value)
    else:
        pairs = [(a > b) + (a == b) / 2 for a in high for b in low]
        assert value == pytest.approx(np.mean(pairs), abs=1e-12)


def test_rows_that_do_not_count_change_nothing_even_when_they_are_not_finite():
    score, label = batches(2, 5, 60)
    counted = torch.rand(5, 60, generator=generator(3)) < 0.7
    expected = [roc_auc_score(y[c], s[c]) for s, y, c in zip(score, label, counted, strict=True)]
    spoiled = torch.where(counted, score, torch.nan)
    assert np.allclose(auc(spoiled, torch.where(counted, label, -1), counted).numpy(), expected, atol=1e-12)
    a, variance = delong(spoiled, label, counted)
    plain = [delong(s[c], y[c])[1].item() for s, y, c in zip(score, label, counted, strict=True)]
    assert np.allclose(a.numpy(), expected, atol=1e-12)
    assert np.allclose(variance.numpy(), plain, atol=1e-12)


def test_large_float32_scores_are_not_blurred():
    score = torch.tensor([16777216.0, 16777218.0, 1e30, 1.0])
    assert auc(score, torch.tensor([0, 1, 1, 0])).item() == 1.0


def test_leading_dimensions_and_dtypes():
    score, label = batches(4, 6, 40)
    whole = auc(score.reshape(2, 3, 40), label.reshape(2, 3, 40).bool())
    assert whole.shape == (2, 3)
    assert whole.dtype == torch.float64
    assert torch.equal(whole.flatten(), auc(score, label.float()))


def test_refusals():
    score, label = batches(5, 2, 10)
    with pytest.raises(TensorError, match="not finite"):
        auc(torch.full_like(score, torch.inf), label)
    with pytest.raises(LabelsError, match="neither 0 nor 1"):
        auc(score, label * 2 + 1)
    with pytest.raises(TensorError, match="scores are"):
        auc(score, label[0])
    with pytest.raises(LabelsError, match="no batch holds both classes"):
        leak_auc(guess_of(score), torch.zeros(20))
    with pytest.raises(LabelsError, match="truth holds 3"):
        leak_auc(guess_of(score), torch.zeros(3))
    with pytest.raises(LabelsError, match="one label for each row id"):
        leak_auc(guess_of(score), label)


def brute_delong(score, label):
    """The textbook's double loop: variance of placements, class by class."""
    high, low = score[label == 1], score[label == 0]
    kernel = (high[:, None] > low[None]) + 0.5 * (high[:, None] == low[None])
    return kernel.mean(), kernel.mean(1).var(ddof=1) / len(high) + kernel.mean(0).var(ddof=1) / len(low)


@pytest.mark.parametrize("levels", [None, 2])
def test_delong_equals_the_double_loop(levels):
    score, label = batches(6, 8, 83, levels=levels)
    a, variance = delong(score, label)
    expected = [brute_delong(s, y) for s, y in zip(score.double().numpy(), label.numpy(), strict=True)]
    assert np.allclose(a.numpy(), [e[0] for e in expected], atol=1e-12)
    assert np.allclose(variance.numpy(), [e[1] for e in expected], atol=1e-12)


def test_added_pairs_equal_adding_the_placements_by_hand():
    score, label = batches(7, 1, 50)
    _, variance = delong(score, label, pairs=1)
    s, y = score[0].double().numpy(), label[0].numpy()
    kernel = (s[y == 1][:, None] > s[y == 0][None]).astype(float)
    parts = [kernel.mean(1), kernel.mean(0)]
    by_hand = sum(np.append(part, [0, 1]).var(ddof=1) / len(part) for part in parts)
    assert variance.item() == pytest.approx(by_hand, rel=1e-12)


def test_delong_equals_the_spread_of_a_bootstrap():
    score, label = batches(8, 1, 400)
    g = generator(9)
    high, low = score[label == 1], score[label == 0]
    a = high[torch.randint(len(high), (4000, len(high)), generator=g)]
    b = low[torch.randint(len(low), (4000, len(low)), generator=g)]
    drawn = torch.cat([a, b], 1)
    of = torch.cat([torch.ones_like(a), torch.zeros_like(b)], 1)
    # The standard error of 4000 draws is good to 1/sqrt(8000) = 1.1%: 6% is five of that, plus terms of order 1/n.
    assert delong(score, label)[1].sqrt().item() == pytest.approx(auc(drawn, of).std().item(), rel=0.06)


def test_the_interval_holds_the_true_value_as_often_as_it_says():
    """300 runs at AUC 0.7: 95% - 3.7 standard errors (1.26 points each) of a share; false alarm 1 in 5000."""
    shift = 2**0.5 * 0.5244005127080407  # Phi(shift / sqrt(2)) = 0.7
    estimates = []
    for seed in range(300):
        score, label = batches(1000 + seed, 6, 150, shift=shift)
        estimates.append(leak_auc(guess_of(score), label.flatten()))
    covered = np.mean([e.low <= 0.7 <= e.high for e in estimates])
    assert 0.903 < covered < 0.99
    values = [e.value for e in estimates]
    assert np.mean(values) == pytest.approx(0.7, abs=4 * np.std(values) / 300**0.5)  # 6e-5 by chance


def test_the_interval_widens_when_batches_differ_more_than_their_rows_explain():
    quiet, label = batches(10, 20, 2000, shift=0.0)
    loud = quiet + torch.linspace(0, 2, 20)[:, None] * label
    a = auc(loud, label)
    estimate = leak_auc(guess_of(loud), label.flatten())
    between = (a.std() / 20**0.5).item()
    assert estimate.high - estimate.value == pytest.approx(1.959964 * between, rel=1e-6)
    assert between > 3 * (delong(loud, label)[1].mean() / 20).sqrt().item()


def test_a_perfect_order_of_few_rows_is_not_certainty():
    few = leak_auc(guess_of(torch.arange(20.0)[None]), (torch.arange(20) >= 10).long())
    many = leak_auc(guess_of(torch.arange(2000.0)[None]), (torch.arange(2000) >= 1000).long())
    assert (few.value, few.high) == (1.0, 1.0)
    assert 0.5 < few.low < 0.9
    assert 0.99 < many.low < 1.0


def test_the_fold_is_of_the_mean_and_not_of_each_batch():
    score, label = batches(11, 400, 20, shift=0.0, share=0.5)
    folded = fold(auc(score, label)).nanmean().item()
    estimate = leak_auc(guess_of(score), label.flatten())
    assert folded > 0.58  # the mistake would be seen
    assert estimate.low == 0.5
    assert estimate.value < 0.53
    turned = leak_auc(guess_of(-score), label.flatten())
    assert turned.value == pytest.approx(estimate.value, abs=1e-12)


def test_batches_of_one_class_are_left_out():
    score, label = batches(12, 4, 50)
    label[1] = 0
    estimate = leak_auc(guess_of(score), label.flatten())
    assert estimate.value == pytest.approx(auc(score, label)[[0, 2, 3]].mean().item(), abs=1e-12)


def _batches(leaks, *, positives=100, seed=0):
    """Scores of as many batches as there are leaks, each a shift of the positives that gives that AUC."""
    noise = torch.Generator().manual_seed(seed)
    labels = (torch.arange(1000) < positives).long().repeat(len(leaks), 1)
    shift = torch.tensor([2**0.5 * NormalDist().inv_cdf(leak) for leak in leaks])[:, None]
    score = torch.randn(labels.shape, generator=noise) + shift * labels
    return Guess(torch.arange(labels.numel()).reshape(labels.shape), score), labels.flatten()


def test_the_upper_figure_of_steps_alike_is_the_interval_end_and_not_what_small_batches_scatter():
    made = [_batches([0.55] * 24, positives=20, seed=seed) for seed in range(40)]
    leaks, alike = zip(*(judged(*each) for each in made), strict=True)
    papers = [float(torch.quantile(fold(auc(guess.score, truth[guess.rows])), 0.95)) for guess, truth in made]
    beyond = sum(upper > leak.high for upper, leak in zip(alike, leaks, strict=True))
    assert beyond <= 7  # 5% of 40 by chance: more than 7 happens once in 250 times
    assert sum(papers) / 40 > sum(alike) / 40 + 0.05


def test_the_upper_figure_sees_that_some_batches_leak_more_than_others():
    guess, truth = _batches([0.52] * 18 + [0.8] * 6)
    leak, upper = judged(guess, truth)
    assert upper > leak.high
    assert upper == pytest.approx(0.77, abs=0.05)


@pytest.mark.parametrize(("share", "levels"), [(0.3, None), (0.3, 2), (0.03, None)])
def test_the_leak_among_all_figures_is_that_by_itself(share, levels):
    score, label = batches(11, 12, 40, share=share, levels=levels)
    guess, truth = guess_of(score), label.flatten()
    assert judged(guess, truth)[0] == leak_auc(guess, truth)
    with pytest.raises(LabelsError, match="no batch holds both classes"):
        judged(guess, torch.zeros_like(truth))


def _beside(seed, added, turned=1.0):
    """A guess that knows much without any message, in some batches more than in others; and what messages add to it."""
    g = generator(seed)
    label = (torch.rand(24, 200, generator=g) < 0.2).long()
    knows = torch.randn(24, 200, generator=g) + (0.2 + torch.rand(24, 1, generator=g)) * label
    score = knows + added * (label + torch.randn(24, 200, generator=g))
    guess = replace(guess_of(turned * score), baseline=turned * knows)
    return guess, label.flatten()


@pytest.mark.parametrize("turned", [1.0, -1.0])
def test_messages_that_add_nothing_have_an_upper_figure_of_nothing(turned):
    guess, truth = _beside(0, added=0.0, turned=turned)
    before = leak_auc(guess, truth)
    assert judged(guess, truth)[1] == pytest.approx(before.value, abs=1e-12)
    assert judged(replace(guess, baseline=None), truth)[1] > before.high + 0.03  # as the batches scatter


def test_the_upper_figure_beside_a_baseline_is_about_the_difference():
    """Its interval covers the difference that a great many rows show, and is narrower than that of either alone."""
    ends, widths = [], []
    for seed in range(60):
        guess, truth = _beside(seed, added=0.5)
        before, after = leak_auc(replace(guess, score=guess.baseline), truth), leak_auc(guess, truth)
        ends.append(judged(guess, truth)[1] - before.value)
        widths.append((ends[-1] - (after.value - before.value), after.high - after.value))
    many = [leak_auc(*_beside(100 + seed, added=0.5)).value for seed in range(60)]
    known = [
        leak_auc(replace(guess, score=guess.baseline), truth).value
        for guess, truth in (_beside(100 + s, added=0.5) for s in range(60))
    ]
    difference = (sum(many) - sum(known)) / 60
    assert sum(end < difference for end in ends) <= 5  # 2.5% of 60 by chance: more than 5 happens once in 200 times
    assert sum(own for own, _ in widths) < 0.8 * sum(apart for _, apart in widths)
