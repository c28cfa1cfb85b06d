"""Curves, thinned without losing a peak."""

import numpy as np
import pytest

from tacit.report.series import Series, thinned


@pytest.mark.parametrize("count", [0, 1, 5, 100, 1001, 100_003])
def test_thinning_keeps_ends_and_peaks_within_its_number_of_points(count):
    y = np.random.default_rng(0).normal(size=count)
    kept = thinned(y, 100)
    assert len(kept) <= max(100, 4)
    assert (np.diff(kept) > 0).all()
    if count:
        assert kept[0] == 0
        assert kept[-1] == count - 1
        assert y[kept].max() == y.max()
        assert y[kept].min() == y.min()


def test_figures_that_are_missing_do_not_hide_a_peak():
    y = np.full(1000, np.nan)
    y[500] = 3.0
    assert 500 in thinned(y, 20)


def test_looks_are_folded_and_their_running_mean_is_folded_as_a_whole():
    one = Series("norm", "leak", "leak_auc")
    for step in range(32):
        one.add(step, 0.4 if step % 2 else 0.6)
    told = one.shown(100)
    assert told["y"] == pytest.approx([0.6] * 32)
    assert told["mean"][0] == pytest.approx(0.6)
    assert told["mean"][-1] == pytest.approx(0.5), "what goes up and down alike is chance"


def test_the_running_mean_is_that_of_numpy():
    one, values = Series("norm", "leak", "variance_read"), np.random.default_rng(1).uniform(size=50)
    for step, value in enumerate(values):
        one.add(step, value)
    expected = [values[max(0, end - 15) : end + 1].mean() for end in range(50)]
    assert one.shown(100)["mean"] == pytest.approx(expected)


def test_no_more_points_are_shown_than_asked_for():
    one = Series("loss", "utility")
    for step in range(10_000):
        one.add(step, step)
    told = one.shown(50)
    assert len(told["x"]) <= 50
    assert (told["x"][0], told["x"][-1]) == (0, 9999)


def test_what_json_can_not_say_is_null():
    one = Series("loss", "utility")
    for value in (1.0, float("nan"), float("inf")):
        one.add(0, value)
    assert one.shown(10)["y"] == [1.0, None, None]
