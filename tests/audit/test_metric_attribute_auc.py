"""Attribute AUC against scikit-learn; its interval by simulation."""

import pytest
import torch
from sklearn.metrics import roc_auc_score

from tacit.audit.metrics.attribute_auc import attribute_auc
from tacit.contracts import Reconstruction
from tacit.errors import LabelsError, TensorError


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def guess_of(value, rows=None, counted=None):
    rows = torch.arange(len(value)) if rows is None else rows
    return Reconstruction(rows, value, torch.ones(len(value), dtype=torch.bool) if counted is None else counted)


def drawn(n, codes, g, strength=1.0):
    weight = torch.arange(1.0, codes + 1)
    truth = torch.multinomial(weight, n, replacement=True, generator=g)
    score = torch.randn(n, codes, generator=g, dtype=torch.float64)
    return score.scatter_add(1, truth[:, None], torch.full((n, 1), strength, dtype=torch.float64)), truth


@pytest.mark.parametrize("codes", [3, 5, 12])
@pytest.mark.parametrize("ties", [False, True])
def test_it_is_sklearns_weighted_one_against_rest(codes, ties):
    score, truth = drawn(400, codes, generator())
    score = score.softmax(1)
    if ties:  # whole multiples, and rows that add up to one as scikit-learn asks
        score = (score * 8).round() + 1e-9
        score = score / score.sum(1, keepdim=True)
    expected = roc_auc_score(truth.numpy(), score.numpy(), multi_class="ovr", average="weighted")
    assert attribute_auc(guess_of(score), truth).value == pytest.approx(expected, abs=1e-12)


def test_two_codes_are_the_plain_auc_with_delongs_width():
    score, truth = drawn(500, 2, generator(1))
    found = attribute_auc(guess_of(score), truth)
    assert found.value == pytest.approx(roc_auc_score(truth.numpy(), (score[:, 1] - score[:, 0]).numpy()), abs=1e-12)
    turned = attribute_auc(guess_of(score.flip(1)), 1 - truth)
    assert turned.value == pytest.approx(found.value, abs=1e-12)


@pytest.mark.parametrize("codes", [2, 4])
def test_intervals_cover_the_truth_as_often_as_they_say(codes):
    """500 draws of 600 rows at 95%, or at 96% for a little wide is meant: 91% and 99% are four errors off.

    A deviation of 500 is known to 3.2%, and the width is 3% too large: 18% is four errors and more.
    """
    g = generator(2)
    score, truth = drawn(200_000, codes, g)
    long = attribute_auc(guess_of(score), truth).value
    held = 0
    widths, values = [], []
    for _ in range(500):
        score, truth = drawn(600, codes, g)
        found = attribute_auc(guess_of(score), truth)
        held += found.low <= long <= found.high
        widths.append((found.high - found.low) / 2 / 1.96)
        values.append(found.value)
    assert 0.91 <= held / 500 <= 0.99
    assert torch.tensor(widths).mean().item() == pytest.approx(torch.tensor(values).std().item(), rel=0.18)


def test_only_counted_rows_and_visits_are_one_example():
    score, truth = drawn(200, 3, generator(3))
    once = attribute_auc(guess_of(score), truth)
    rows = torch.arange(200).repeat(40)
    often = attribute_auc(guess_of(score[rows], rows), truth)
    assert often.value == pytest.approx(once.value, abs=1e-12)
    assert often.high == pytest.approx(once.high, abs=0.01)
    part = torch.arange(200) < 120
    expected = attribute_auc(guess_of(score[:120]), truth)
    assert attribute_auc(guess_of(score, counted=part), truth) == expected
    hidden = truth.clone()
    hidden[120:] = -1
    assert attribute_auc(guess_of(score), hidden) == expected


def test_a_code_without_a_score_is_a_coin_flip():
    truth = torch.tensor([0, 1, 2]).repeat(50)
    perfect = torch.nn.functional.one_hot(truth, 3).double()
    assert attribute_auc(guess_of(perfect), truth).value == 1.0
    assert attribute_auc(guess_of(perfect[:, :2]), truth).value == pytest.approx((1 + 1 + 0.5) / 3)


def test_a_perfect_order_of_few_rows_is_not_certainty():
    truth = torch.tensor([0, 1] * 5)
    score = torch.stack([1.0 - truth, truth.float()], dim=1)
    found = attribute_auc(guess_of(score), truth)
    assert found.value == found.high == 1.0
    assert found.low < 0.85


def test_refusals():
    score, truth = drawn(20, 3, generator())
    with pytest.raises(LabelsError, match="all hold one code"):
        attribute_auc(guess_of(score), torch.zeros_like(truth))
    with pytest.raises(LabelsError, match="one code for each row id"):
        attribute_auc(guess_of(score), truth.float())
    with pytest.raises(TensorError, match=r"\(rows, codes\)"):
        attribute_auc(guess_of(score[:, :1]), truth)
    with pytest.raises(TensorError, match="row ids run"):
        attribute_auc(guess_of(score), truth[:4])
    score[3, 1] = torch.inf
    with pytest.raises(TensorError, match="not finite"):
        attribute_auc(guess_of(score), truth)
