"""From figures to a decision: training goes on where the limit holds, or nothing more is sent."""

import math
from statistics import NormalDist

import pytest

from tacit.audit.gate import Figure, decide, grown

NORMAL = NormalDist()
HOLDS = Figure("norm", "batches", 0.5, 0.5, 0.5)


def figure(upper, *, low=0.5, on="batches"):
    return Figure("cosine", on, min(upper, 0.5 + (upper - 0.5) / 2), low, upper)


def decided(measured=(), foreseen=(HOLDS,), limit=0.6, on_limit="pause"):
    return decide(measured, foreseen, limit=limit, on_limit=on_limit)


def test_what_holds_is_kept():
    verdict = decided([figure(0.58)], [HOLDS, figure(0.6)])
    assert (verdict.action, verdict.broken) == ("keep", False)
    assert (verdict.worst.upper, verdict.foreseen.upper) == (0.58, 0.6)
    assert "the limit 0.6 holds" in verdict.reason


@pytest.mark.parametrize("on_limit", ["pause", "stop"])
@pytest.mark.parametrize(
    ("measured", "foreseen"),
    [([figure(0.61)], [HOLDS]), ([], [HOLDS, figure(0.61)]), ([figure(0.7)], [figure(0.61)])],
    ids=["measured", "foreseen", "both"],
)
def test_what_passes_the_limit_is_the_end_of_sending(measured, foreseen, on_limit):
    verdict = decided(measured, foreseen, on_limit=on_limit)
    assert (verdict.action, verdict.broken) == (on_limit, False)
    assert f"the limit 0.6 can't be held: cosine on single messages: {(measured or foreseen)[-1].value:.3f}" in (
        verdict.reason
    ), "what was measured counts more than what is foreseen"


@pytest.mark.parametrize(("low", "broken"), [(0.59, False), (0.6, False), (0.601, True)])
def test_a_limit_is_broken_where_even_the_lower_end_is_above_it(low, broken):
    assert decided([figure(0.7, low=low)]).broken is broken


@pytest.mark.parametrize("on_limit", ["pause", "stop"])
@pytest.mark.parametrize("measured", [(), (HOLDS,)], ids=["nothing measured", "measured"])
def test_where_nothing_could_be_foreseen_nothing_is_sent(measured, on_limit):
    verdict = decided(measured, [], on_limit=on_limit)
    assert (verdict.action, verdict.foreseen) == (on_limit, None)
    assert "no attack could be tried" in verdict.reason


@pytest.mark.parametrize("on_limit", ["pause", "stop"])
@pytest.mark.parametrize("missing", ["value", "low", "upper"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_number_holds_no_limit_wherever_it_stands(missing, place, on_limit):
    ends = {"value": 0.5, "low": 0.5, "upper": 0.5} | {missing: math.nan}
    some = [HOLDS, figure(0.55)]
    some.insert(place, Figure("cosine", "visits", **ends))
    assert decided(some, on_limit=on_limit).action == on_limit
    assert decided((), some, on_limit=on_limit).action == on_limit


# --- what visits add up to -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("visits", [1, 2, 5])
def test_squares_of_z_add_up_over_visits(visits):
    each = 0.01  # z^2 of one visit so far
    value = NORMAL.cdf((visits * each) ** 0.5)
    (found,) = grown([Figure("norm", "visits", value, 0.5, value + 0.02)], visits, 7)
    assert found.value == pytest.approx(NORMAL.cdf((7 * each) ** 0.5), abs=1e-12)
    assert found.upper - found.value == pytest.approx(0.02)


def test_only_attacks_on_all_visits_grow():
    assert grown([figure(0.6)], 1, 5) == []
    last = figure(0.6, on="visits")
    (found,) = grown([last], 5, 5)
    assert found.upper == pytest.approx(last.upper), "no visit is left"
    certain = Figure("norm", "visits", 1.0, 1.0, 1.0)
    assert grown([certain], 1, 100)[0].upper == 1.0
    below = Figure("norm", "visits", 0.45, 0.4, 0.55)
    assert grown([below], 1, 9)[0].value == 0.5, "worse than a coin does not grow"
    (unknown,) = grown([Figure("norm", "visits", math.nan, 0.5, 0.5)], 1, 9)
    assert unknown.over(1.0) == math.inf


def test_a_figure_says_what_it_is():
    assert str(Figure("norm", "visits", 0.55, 0.5, 0.6)) == "norm over all visits: 0.550, at most 0.600"
    assert "on single messages" in str(figure(0.6))
