import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from tacit.errors import LabelsError, UsageError
from tacit.split.protect.labels.randomized_response import randomized_response

ALARM = 1e-6  # chance that one statistical check fails though all is right; 8 are made in this file


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.3, 0.499])
def test_as_many_labels_flip_as_should(seeded, rate):
    n = 200_000
    labels = (torch.rand(n, generator=seeded(0)) < 0.2).long()
    flipped = randomized_response(rate)(labels, seeded(1)).labels
    for name in (0, 1):  # positives as often as negatives
        mine = labels == name
        low, high = binom.interval(1 - ALARM, int(mine.sum()), rate)
        assert low <= int((flipped != labels)[mine].sum()) <= high


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.sampled_from([1e-6, 0.3, 0.499]), st.floats(1e-6, 0.499)), st.floats(-20, 20), st.sampled_from([0, 1])
)
def test_the_expected_loss_is_that_of_the_true_label(rate, logit, label):
    """Over the two outcomes of a flip, weighted exactly; targets are float32, so they carry 1e-7 / (1 - 2 rate)."""
    labels = torch.full((1,), label, dtype=torch.float64)
    loss = {}
    for draw in (0.0, 1 - 2**-24):  # the first number flips at any rate, the last at none
        answer = randomized_response(rate)(labels, Uniform(draw))
        flips = answer.labels.item() != label
        assert flips == (draw == 0)
        z = torch.tensor([logit], dtype=torch.float64)
        loss[flips] = cross_entropy(z, answer.targets.double()).item()
    expected = rate * loss[True] + (1 - rate) * loss[False]
    plain = cross_entropy(torch.tensor([logit], dtype=torch.float64), labels).item()
    assert expected == pytest.approx(plain, abs=1e-6 * (1 + abs(logit)) / (1 - 2 * rate))


class Uniform:
    """A noise source that always draws the same number."""

    def __init__(self, draw):
        self.draw = draw

    def uniform(self, shape, *, dtype, device):
        return torch.full(tuple(shape), self.draw, dtype=dtype, device=device)

    normal = uniform


def test_the_expected_gradient_is_that_of_the_true_labels(seeded):
    """A whole data set at a strong setting: the mean over many flips, within 5 standard errors (6e-7)."""
    labels = (torch.arange(50) % 3 == 0).double()
    features = torch.randn(50, 4, generator=seeded(2), dtype=torch.float64)
    weight = torch.randn(4, generator=seeded(3), dtype=torch.float64)
    prediction = torch.sigmoid(features @ weight)
    repeats = 4000
    noise = seeded(4)
    targets = torch.stack([randomized_response(0.3)(labels, noise).targets for _ in range(repeats)]).double()
    gradients = (prediction - targets) @ features / 50  # (repeats, 4)
    error = gradients.std(0) / math.sqrt(repeats)
    assert ((gradients.mean(0) - (prediction - labels) @ features / 50).abs() < 5 * error).all()
    naive = (prediction - (targets > 0.5).double()) @ features / 50  # without the correction it is far off
    assert ((naive.mean(0) - (prediction - labels) @ features / 50).abs() > 5 * error).any()


def test_the_same_noise_flips_the_same_labels(seeded):
    labels = (torch.arange(1000) % 5 == 0).float()
    first = randomized_response(0.3)(labels, seeded(5))
    again = randomized_response(0.3)(labels, seeded(5))
    assert torch.equal(first.labels, again.labels)
    assert torch.equal(first.targets, again.targets)
    assert not torch.equal(first.labels, randomized_response(0.3)(labels, seeded(6)).labels)
    assert torch.equal(labels, (torch.arange(1000) % 5 == 0).float())


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float64])
def test_labels_of_any_kind_flip_alike(seeded, dtype):
    labels = torch.arange(1000) % 4 == 0
    usual = randomized_response(0.3)(labels.float(), seeded(7))
    other = randomized_response(0.3)(labels.to(dtype), seeded(7))
    assert other.labels.dtype == dtype
    assert torch.equal(other.labels.float(), usual.labels)
    assert torch.equal(other.targets, usual.targets)
    assert other.targets.dtype == torch.float32


def test_targets_by_hand_and_what_the_ledger_gets(seeded):
    answer = randomized_response(0.3)(torch.ones(100), seeded(8))
    torch.testing.assert_close(answer.targets, torch.where(answer.labels == 1, 0.7 / 0.4, -0.3 / 0.4))
    assert answer.epsilon == pytest.approx(math.log(0.7 / 0.3))
    assert answer.event.mechanism == "randomized_response"
    assert answer.event.parameters == {"rate": 0.3}
    assert randomized_response(0.499)(torch.ones(1), seeded(0)).epsilon < 0.005


def test_an_empty_data_set_is_no_error(seeded):
    assert randomized_response(0.3)(torch.ones(0), seeded(0)).labels.shape == (0,)


@pytest.mark.parametrize("rate", [0, 0.0, 0.5, 0.7, 1, -0.1, math.nan, math.inf, True, "0.3", None])
def test_rates_that_hide_nothing_or_everything_are_refused(rate):
    with pytest.raises(UsageError, match="rate = "):
        randomized_response(rate)


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([0, 1, 2]),
        torch.tensor([0.0, 0.5]),
        torch.tensor([0.0, math.nan]),
        torch.zeros(3, 1),
        torch.tensor(1.0),
    ],
)
def test_labels_that_are_not_binary_or_not_in_one_axis_are_refused(seeded, labels):
    with pytest.raises(LabelsError, match="one label for each example, 0 or 1"):
        randomized_response(0.3)(labels, seeded(0))
