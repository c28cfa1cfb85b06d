"""From figures to a decision: the least strength that holds the limit, or nothing more is sent."""

from statistics import NormalDist

import pytest

from tacit.audit.gate import Figure, decide, grown

NORMAL = NormalDist()


def figure(upper, *, low=0.5, on="batches", limit=None, attack="cosine"):
    return Figure(attack, on, min(upper, 0.5 + (upper - 0.5) / 2), low, upper, limit)


def falling(start, *, step=0.05):
    """What attacks would reach: so much at level 0, and a step less at each level."""
    asked = []

    def foresee(level):
        asked.append(level)
        return [figure(0.5), figure(start - step * level)]

    foresee.asked = asked
    return foresee


def decided(measured=(), foresee=None, **options):
    usual = {"limit": 0.6, "on_limit": "raise noise", "level": 0, "highest": 10}
    return decide(list(measured), foresee or falling(0.55), **{**usual, **options})


def test_what_holds_is_kept():
    verdict = decided([figure(0.58)], falling(0.6))
    assert (verdict.action, verdict.level, verdict.broken) == ("keep", 0, False)
    assert (verdict.worst.upper, verdict.foreseen.upper) == (0.58, 0.6)
    assert "the limit 0.6 holds" in verdict.reason


def test_the_strength_is_raised_to_the_least_level_that_holds():
    foresee = falling(0.73)
    verdict = decided([figure(0.58)], foresee, level=1)
    assert (verdict.action, verdict.level) == ("raise", 3)
    assert foresee.asked == [1, 2, 3], "upwards, and no further than needed"
    assert verdict.foreseen.over(0.6) <= 0
    assert "level 3 holds it" in verdict.reason


def test_what_was_measured_counts_more_than_what_is_foreseen():
    """Over the limit on what was sent: at least one level up, though the same level is foreseen to hold."""
    verdict = decided([figure(0.61)], falling(0.5), level=4)
    assert (verdict.action, verdict.level, verdict.broken) == ("raise", 5, False)
    assert decided([figure(0.61)], falling(0.5), level=10).action == "pause", "there is no level above the highest"


@pytest.mark.parametrize(("low", "broken"), [(0.59, False), (0.6, False), (0.601, True)])
def test_a_limit_is_broken_where_even_the_lower_end_is_above_it(low, broken):
    assert decided([figure(0.7, low=low)], falling(0.5)).broken is broken


@pytest.mark.parametrize(("on_limit", "action"), [("raise noise", "pause"), ("pause", "pause"), ("stop", "stop")])
def test_where_no_level_holds_nothing_more_is_sent(on_limit, action):
    verdict = decided([], lambda level: [figure(0.9)], on_limit=on_limit, level=2)
    assert (verdict.action, verdict.level) == (action, 2), "the level stays: nothing is sent at another"
    assert "can't be held" in verdict.reason


@pytest.mark.parametrize("on_limit", ["pause", "stop"])
@pytest.mark.parametrize("measured", [(), (figure(0.7),)], ids=["foreseen", "measured"])
def test_noise_is_raised_only_where_its_owner_wants_that(on_limit, measured):
    verdict = decided(measured, falling(0.61), on_limit=on_limit)
    assert verdict.action == on_limit
    assert decided((), falling(0.6), on_limit=on_limit).action == "keep"


def test_a_protection_without_a_strength_pauses():
    assert decided([], lambda level: [figure(0.61)], highest=0).action == "pause"


@pytest.mark.parametrize(
    ("below", "action"), [(0.59, "lower"), (0.591, "keep"), (0.6, "keep")], ids=["room", "little room", "none"]
)
def test_less_is_tried_only_with_room_below_the_limit(below, action):
    def foresee(level):
        return [figure(below if level == 2 else 0.55)]

    verdict = decided([figure(0.55)], foresee, level=3, may_lower=True)
    assert (verdict.action, verdict.level) == (action, 2 if action == "lower" else 3)
    assert decided([figure(0.55)], foresee, level=3).action == "keep", "not asked for"
    assert decided([figure(0.61)], foresee, level=3, may_lower=True).action == "raise", "never from above the limit"


def test_level_0_is_the_lowest():
    foresee = falling(0.5)
    assert decided([figure(0.5)], foresee, may_lower=True).action == "keep"
    assert -1 not in foresee.asked


def test_a_figure_with_a_limit_of_its_own_is_held_against_that():
    spent = figure(0.65, low=0.65, on="visits", limit=0.7, attack="ledger")
    verdict = decided([], lambda level: [figure(0.55), spent])
    assert (verdict.action, verdict.foreseen.attack) == ("keep", "cosine"), "it is nearer to its limit"
    assert not decided([spent], falling(0.5)).broken, "a forecast breaks nothing"

    over = lambda level: [figure(0.55), figure(0.75 - 0.02 * level, limit=0.7, attack="ledger")]  # noqa: E731
    verdict = decided([], over)
    assert (verdict.action, verdict.level) == ("raise", 3)
    assert "the budget 0.7 would be passed by ledger" in verdict.reason
    stuck = decided([], over, highest=1)
    assert stuck.action == "pause"
    assert "the budget 0.7 can't be held" in stuck.reason


def test_where_nothing_could_be_tried_nothing_is_sent():
    verdict = decided([], lambda level: [], level=2)
    assert (verdict.action, verdict.level, verdict.worst, verdict.foreseen) == ("pause", 2, None, None)
    assert "no attack could be tried" in verdict.reason
    assert decided([], lambda level: [], level=2, may_lower=True).action == "pause", "no room was seen"
    assert decided([], lambda level: [], on_limit="stop").action == "stop"


# --- what visits add up to -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("visits", [1, 2, 5])
@pytest.mark.parametrize("louder", [0.5, 1.0, 8.0])
def test_squares_of_z_add_up_over_visits(visits, louder):
    each = 0.01  # z^2 of one visit so far
    value = NORMAL.cdf((visits * each) ** 0.5)
    (found,) = grown([Figure("norm", "visits", value, 0.5, value + 0.02)], visits, 7, louder)
    total = visits * each + (7 - visits) * each / louder
    assert found.value == pytest.approx(NORMAL.cdf(total**0.5), abs=1e-12)
    assert found.upper - found.value == pytest.approx(0.02)


def test_only_attacks_on_all_visits_grow():
    alone, spent = figure(0.6), figure(0.6, on="visits", limit=0.7)
    assert grown([alone, spent], 1, 5, 1.0) == []
    last = figure(0.6, on="visits")
    (found,) = grown([last], 5, 5, 1.0)
    assert found.upper == pytest.approx(last.upper), "no visit is left"
    certain = Figure("norm", "visits", 1.0, 1.0, 1.0)
    assert grown([certain], 1, 100, 1.0)[0].upper == 1.0
    below = Figure("norm", "visits", 0.45, 0.4, 0.55)
    assert grown([below], 1, 9, 1.0)[0].value == 0.5, "worse than a coin does not grow"


def test_a_figure_says_what_it_is():
    assert str(Figure("norm", "visits", 0.55, 0.5, 0.6)) == "norm over all visits: 0.550, at most 0.600"
    assert "on single messages" in str(figure(0.6))
