"""The coin: exact chances, the safe side of rounding, and everything that is refused."""

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ProtocolError, UsageError
from tacit.labels.flips import MAX_ODDS, WHOLE, Flips, flips

HALF_UNIT = Fraction(1, 1 << 60)


def best_auc(rows: list[list[Fraction]]) -> Fraction:
    """By brute force: for each two labels, outcomes by likelihood ratio, ties half."""
    best = Fraction(0)
    for one in rows:
        for other in rows:
            ratio = [p / q for p, q in zip(one, other, strict=True)]
            wins = sum(
                p * q for p, r in zip(one, ratio, strict=True) for q, s in zip(other, ratio, strict=True) if r > s
            )
            ties = sum(
                p * q for p, r in zip(one, ratio, strict=True) for q, s in zip(other, ratio, strict=True) if r == s
            )
            best = max(best, wins + ties / 2)
    return best


def table(coin: Flips) -> list[list[Fraction]]:
    """How likely each class is sent for each label."""
    if coin.classes == 2:
        return [[1 - coin.b, coin.b], [1 - coin.a, coin.a]]
    return [[coin.p if sent == label else coin.q for sent in range(coin.classes)] for label in range(coin.classes)]


limits = st.floats(0.5, 1, exclude_min=True, exclude_max=True)
factors = st.floats(1, MAX_ODDS, exclude_min=True)


@settings(deadline=None)
@given(limits | st.none(), factors, st.sampled_from(["positive", "negative", "neither"]))
def test_two_classes_keep_to_both_limits_exactly(limit, odds, rare):
    coin = flips(limit, odds, rare=rare)
    rows = table(coin)
    assert coin.exact_auc == best_auc(rows)
    assert coin.exact_odds == max(rows[i][k] / rows[1 - i][k] for i in (0, 1) for k in (0, 1))
    assert coin.exact_odds <= Fraction(odds)
    assert coin.exact_odds <= Fraction(coin.odds)
    assert coin.auc <= (1.0 if limit is None else limit)
    assert coin.odds <= odds


@settings(deadline=None)
@given(limits, factors, st.sampled_from(["positive", "negative"]))
def test_with_a_rare_class_one_of_the_limits_is_used_up_and_mirrors_agree(limit, odds, rare):
    coin, mirror = flips(limit, odds, rare="positive"), flips(limit, odds, rare="negative")
    assert (1 - mirror.b, 1 - mirror.a) == (coin.a, coin.b)
    assert mirror.exact_odds == coin.exact_odds
    if coin.why:
        assert coin.ones == WHOLE // 2
        assert coin.exact_auc == pytest.approx(float(odds / (1 + odds)))
    else:
        assert 2 * limit - 1 - coin.keep / WHOLE == pytest.approx(0, abs=1e-11)
    if rare == "positive" and coin.keep > 1 << 40:
        assert float(coin.exact_odds) == pytest.approx(odds, rel=1e-6)


def test_figures_of_the_design():
    coin = flips(0.6)
    assert (coin.auc, round(coin.odds, 12)) == (0.6, 1.5)
    assert round(coin.posterior(0.087)[1], 3) == 0.125
    sharp = flips(0.6, 7.4, rare="positive")
    assert sharp.auc <= 0.6 < sharp.auc + 1e-12
    assert round(sharp.posterior(0.087)[1], 3) == 0.414
    assert sharp.posterior(0.087)[0] < 0.087
    assert flips(odds=3).auc == 0.75
    assert flips(0.6, 3).odds == pytest.approx(1.5)  # neither is rare: symmetric


def test_odds_decide_where_they_are_the_stricter_and_it_is_said():
    coin = flips(0.9, 3, rare="positive")
    assert coin.auc == 0.75
    assert "odds of 3 decide" in coin.why
    assert "0.75" in coin.why
    assert flips(0.99).odds == MAX_ODDS
    assert "odds of 20 decide" in flips(0.99).why
    assert flips(0.6).why == flips(odds=2).why == flips(0.6, 3, rare="negative").why == ""


@settings(deadline=None)
@given(st.integers(3, 60), limits, factors)
def test_more_classes_keep_to_both_limits_and_use_one_up(classes, limit, odds):
    coin = flips(limit, odds, classes=classes)
    assert coin.p + (classes - 1) * coin.q == 1
    assert coin.auc <= limit
    assert coin.odds <= odds
    more = Flips(classes, coin.keep + 1, 0)
    assert more.exact_auc > Fraction(limit) or more.exact_odds > Fraction(odds)


@pytest.mark.parametrize("classes", [3, 4, 7])
def test_auc_of_more_classes_is_that_of_brute_force(classes):
    coin = flips(0.63, 15, classes=classes)
    assert coin.exact_auc == best_auc(table(coin))
    assert coin.exact_odds == coin.p / coin.q


@pytest.mark.parametrize(("classes", "factor"), [(3, None), (10, None), (100, 12.9)])
def test_closed_form_of_more_classes(classes, factor):
    gap = 0.2
    t = (1 + math.sqrt(1 + (1 - gap) * classes * (classes - 2))) / (1 - gap)
    coin = flips(0.6, 20, classes=classes)
    assert coin.odds == pytest.approx(t - classes + 1, rel=1e-9)
    assert factor is None or coin.odds == pytest.approx(factor, abs=0.05)


def test_which_limits_are_of_one_series():
    assert flips(0.6).series == flips(0.7).series
    assert flips(0.6, 20, classes=5).series == flips(0.61, 20, classes=5).series
    assert flips(0.6, 4, rare="positive").series != flips(0.61, 4, rare="positive").series


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((), {}),
        ((0.5,), {}),
        ((1.0,), {}),
        ((1,), {}),
        ((0.3,), {}),
        ((math.nan,), {}),
        ((True,), {}),
        (("0.6",), {}),
        ((10**400,), {}),
        ((0.6, 1.0), {}),
        ((0.6, 0.5), {}),
        ((0.6, 20.5), {}),
        ((0.6, math.inf), {}),
        ((0.6, math.nan), {}),
        ((0.6,), {"classes": 3}),
        ((0.6, 3), {"classes": 1}),
        ((0.6, 3), {"classes": 2.0}),
        ((0.6, 3), {"classes": 40000}),
        ((0.6, 3), {"classes": 3, "rare": "positive"}),
        ((0.6, 3), {"rare": "both"}),
    ],
)
def test_bad_limits_are_refused(arguments, names):
    with pytest.raises(UsageError, match=r"limit|odds|classes|rare"):
        flips(*arguments, **names)


def test_a_share_that_is_none_is_refused():
    with pytest.raises(UsageError, match="share"):
        flips(0.6).posterior(1.5)


@settings(deadline=None)
@given(limits, factors, st.integers(2, 9), st.sampled_from(["positive", "negative"]))
def test_parameters_come_back_through_json(limit, odds, classes, rare):
    coin = flips(limit, odds, classes=classes, rare=rare if classes == 2 else "neither")
    assert Flips.read(json.loads(json.dumps(coin.parameters()))) == coin


@pytest.mark.parametrize(
    "change",
    [
        {"mechanism": "sums"},
        {"mechanism": ["flips"]},
        {"version": 2},
        {"version": True},
        {"classes": 1},
        {"classes": 2.0},
        {"classes": True},
        {"classes": 3},
        {"classes": 10**9},
        {"keep": "0"},
        {"keep": 5},
        {"keep": "05"},
        {"keep": "-5"},
        {"keep": "١٢"},
        {"keep": " 5"},
        {"keep": str(1 << 64)},
        {"keep": "9" * 5000},
        {"keep": str((1 << 64) - 1)},
        {"ones": "0"},
        {"ones": "1"},
        {"ones": None},
        {"extra": 1},
    ],
)
def test_nothing_from_a_peer_is_trusted(change):
    with pytest.raises(ProtocolError):
        Flips.read({**flips(0.6).parameters(), **change})


@pytest.mark.parametrize("wrong", [None, [], "flips", {}, {"mechanism": "flips"}])
def test_what_is_no_coin_at_all(wrong):
    with pytest.raises(ProtocolError):
        Flips.read(wrong)
