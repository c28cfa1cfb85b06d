import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from tacit.errors import UsageError
from tacit.split.protect.gradient._base import (
    detection_error_bound,
    gaussian_auc,
    model_figures,
    one_knob,
    read_batch,
    theorem_1,
)
from tacit.split.protect.gradient._knob import stateless_variance, sum_kl_for


def test_every_spelling_by_hand():
    assert sum_kl_for("sum_kl", 0.3) == 0.3
    assert sum_kl_for("scale", 8) == 0.125
    assert sum_kl_for("detection_error", 0.25) == 1.0
    assert sum_kl_for("leak_auc", norm.cdf(1.0)) == pytest.approx(2.0, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.floats(0.5001, 0.9999))
def test_leak_auc_is_the_auc_of_two_gaussians_with_that_divergence(wanted):
    k = sum_kl_for("leak_auc", wanted)  # N(0, 1) and N(sqrt(k), 1): the sum of both divergences is k
    best, _ = quad(lambda x: norm.pdf(x, math.sqrt(k)) * norm.cdf(x), math.sqrt(k) - 12, math.sqrt(k) + 12)
    assert best == pytest.approx(wanted, abs=1e-7)
    assert gaussian_auc(torch.tensor(k, dtype=torch.float64)).item() == pytest.approx(wanted, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 0.49))
def test_detection_error_is_what_pinsker_leaves(error):
    k = sum_kl_for("detection_error", error)  # the total variation is at most sqrt(k)/2, the error (1 - that)/2
    assert 0.5 - math.sqrt(k) / 4 == pytest.approx(error, rel=1e-9)
    shift = math.sqrt(k)  # a pure shift with that divergence: its best detector errs at least as often
    assert norm.cdf(-shift / 2) >= error


def test_more_noise_is_a_smaller_divergence():
    for knob, values in {
        "scale": (0.1, 1, 10, 1e6),
        "sum_kl": (10, 1, 0.1, 1e-6),
        "detection_error": (0.01, 0.2, 0.4, 0.499),
        "leak_auc": (0.999, 0.8, 0.6, 0.501),
    }.items():
        allowed = [sum_kl_for(knob, value) for value in values]
        assert allowed == sorted(allowed, reverse=True)
        assert allowed[-1] > 0


@pytest.mark.parametrize("knob", ["scale", "sum_kl", "detection_error", "leak_auc"])
@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.nan, math.inf, -math.inf, True, "0.6", [0.6]])
def test_strengths_out_of_range_are_refused_by_name(knob, value):
    with pytest.raises(UsageError, match=knob):
        sum_kl_for(knob, value)


@pytest.mark.parametrize(("knob", "value"), [("detection_error", 0.5), ("leak_auc", 0.5), ("leak_auc", 1.0)])
def test_the_limits_themselves_are_refused(knob, value):
    with pytest.raises(UsageError, match=knob):
        sum_kl_for(knob, value)


def test_theorem_1_is_monotone_continuous_and_above_the_gaussian():
    k = torch.linspace(0, 6, 6001, dtype=torch.float64)
    bound = theorem_1(k)
    assert bound[0] == 0.5
    assert (bound.diff() >= 0).all()
    assert bound.diff().max() < 0.016  # sqrt(0.001) / 2: no jump at 4
    assert (bound[k >= 4] == 1).all()
    assert (bound >= gaussian_auc(k)).all()
    assert theorem_1(torch.tensor(1.0)).item() == 0.875


def test_figures_are_named_as_statements_of_the_model():
    usable = torch.tensor([True, False, True])
    figures = model_figures(torch.tensor([0.0, 0.16, 1e300], dtype=torch.float64), usable)
    bounds = ["model_auc_theorem_1", "model_auc_gaussian", "model_detection_error"]
    assert list(figures) == ["sum_kl", *bounds, "stateless"]
    assert figures["stateless"].tolist() == [0.0, 1.0, 0.0]
    assert figures["model_auc_theorem_1"].tolist() == pytest.approx([0.5, 0.68, 1.0])
    assert figures["model_detection_error"].tolist() == pytest.approx([0.5, 0.4, 0.0])
    assert figures["model_auc_gaussian"].tolist() == pytest.approx([0.5, norm.cdf(math.sqrt(0.08)), 1.0])


@pytest.mark.parametrize(("shift", "wider"), [(0.2, 1.0), (1.0, 1.0), (0.0, 1.5), (0.7, 2.0), (4.0, 1.0)])
def test_no_labelling_of_two_gaussians_errs_less_than_the_bound(shift, wider):
    """The best set calls positive where the positive density is the larger one: its error by numbers."""
    x = np.linspace(-30, 30, 400_001)
    negative, positive = norm.pdf(x), norm.pdf(x, shift, wider)
    least = np.minimum(negative, positive).sum() * (x[1] - x[0]) / 2
    both = (wider**2 + shift**2 + (1 + shift**2) / wider**2 - 2) / 2  # the sum of both divergences
    (bound,) = detection_error_bound(torch.tensor([both], dtype=torch.float64)).tolist()
    assert bound <= least + 1e-9
    assert bound == pytest.approx(max(0.0, 0.5 - math.sqrt(both) / 4))
    for asked in (0.1, 0.3, 0.4):
        k = sum_kl_for("detection_error", asked)
        assert float(detection_error_bound(torch.tensor(k, dtype=torch.float64))) == pytest.approx(asked)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e15])
def test_stateless_noise_holds_for_any_two_rows(scale):
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(4, 50, 7, generator=g) * scale
    rows[2, 3] = -rows[2, rows[2].norm(dim=-1).argmax()]  # the worst case: two longest rows, opposite
    rows[3] = 0
    batch = read_batch(rows, torch.zeros(4, 50))
    k = 0.25
    variance, peak = stateless_variance(batch.squares, batch.scale, torch.zeros(4, dtype=torch.float64), k)
    assert peak[:3].tolist() == pytest.approx((rows.double() ** 2).sum(-1).amax(-1)[:3].tolist(), rel=1e-5)
    left = torch.cdist(batch.rows, batch.rows).square().amax((1, 2)) / variance  # sumKL of two Gaussians of one shape
    assert (left <= k * (1 + 1e-5)).all()
    assert left[2].item() == pytest.approx(k, rel=1e-5)  # and no more than needed there
    assert left[3].item() == 0
    assert (variance > 0).all()


def test_stateless_noise_remembers_the_largest_row_and_forgets_it_slowly():
    batch = read_batch(torch.ones(1, 4, 3), torch.zeros(1, 4))
    remembered = torch.tensor([300.0], dtype=torch.float64)
    variance, peak = stateless_variance(batch.squares, batch.scale, remembered, 0.5)
    assert peak.item() == pytest.approx(297.0)
    assert variance.item() == pytest.approx(4 * 297.0 / 0.5)


def test_one_strength_and_not_two():
    assert one_knob("m", scale=None, sum_kl=0.5) == ("sum_kl", 0.5)
    with pytest.raises(UsageError, match=r"m\(\) takes exactly one strength of scale, sum_kl; got none"):
        one_knob("m", scale=None, sum_kl=None)
    with pytest.raises(UsageError, match="got scale and sum_kl"):
        one_knob("m", scale=1.0, sum_kl=0.5)
