"""Releases added up: against brute force over all outcomes, in fractions."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import UsageError
from tacit.labels.flips import flips
from tacit.labels.loss import Atoms, Lattice, Loss, product, up

Pairs = list[tuple[Fraction, Fraction]]


def brute(*releases: Pairs) -> tuple[Fraction, Fraction]:
    """AUC and odds over all products of outcomes, none merged; mass that only one label can have is in the pairs."""
    outcomes = [
        (math.prod(p for p, _ in parts), math.prod(q for _, q in parts)) for parts in itertools.product(*releases)
    ]
    auc = Fraction(0)
    for p, q in outcomes:
        for r, s in outcomes:  # p of the one label against s of the other
            left, right = p * s, r * q
            auc += p * s if left > right else p * s / 2 if left == right else 0
    odds = max(max(p / q, q / p) for p, q in outcomes if p and q)
    return auc, odds


@st.composite
def releases(draw):
    size = draw(st.integers(2, 3))
    sides = [draw(st.lists(st.integers(1, 9), min_size=size, max_size=size)) for _ in range(2)]
    return [(Fraction(p, sum(sides[0])), Fraction(q, sum(sides[1]))) for p, q in zip(*sides, strict=True)]


def turned(pairs: Pairs) -> Pairs:
    return [(q, p) for p, q in pairs]


@settings(deadline=None, max_examples=50)
@given(releases(), releases(), releases())
def test_three_releases_are_what_brute_force_says(one, two, three):
    loss = Loss.of(one).then(Loss.of(two)).then(Loss.of(three))
    auc, _ = brute(one, two, three)
    assert loss.atoms.auc() == auc
    assert Fraction(loss.auc()) >= auc
    assert loss.auc() == pytest.approx(float(auc), rel=1e-15)


@settings(deadline=None, max_examples=50)
@given(releases(), releases())
def test_directions_change_no_auc_and_odds_are_the_worst_of_them(one, two):
    loss = Loss.of(one).then(Loss.of(two))
    found = [brute(one, two), brute(one, turned(two)), brute(turned(one), two), brute(turned(one), turned(two))]
    assert {auc for auc, _ in found} == {loss.atoms.auc()}
    assert loss.most == max(odds for _, odds in found)
    assert loss.odds() == up(loss.most)


def test_figures_of_the_design():
    assert flips(0.6).loss().times(2).auc() == pytest.approx(0.648, abs=1e-12)
    assert flips(0.6, 7.4, rare="positive").loss().times(2).auc() == pytest.approx(0.675, abs=5e-4)
    assert flips(0.6, 7.4, rare="positive").loss().times(2).odds() == pytest.approx(7.4**2)


@pytest.mark.parametrize("coin", [flips(0.6), flips(0.7, 5, rare="positive"), flips(0.6, 9, classes=7)])
def test_one_release_is_its_coin(coin):
    assert coin.loss().auc() == coin.auc
    assert coin.loss().odds() == coin.odds


def test_sixty_four_flips_are_exact():
    coin, count = flips(0.55), 64
    one = [math.comb(count, k) * coin.a**k * (1 - coin.a) ** (count - k) for k in range(count + 1)]
    other = [math.comb(count, k) * coin.b**k * (1 - coin.b) ** (count - k) for k in range(count + 1)]
    auc = sum(p * (sum(other[:k]) + other[k] / 2) for k, p in enumerate(one))
    loss = coin.loss().times(count)
    assert loss.atoms.auc() == auc
    assert loss.most == coin.exact_odds**count
    assert len(loss.atoms.pairs) == count + 1


def test_mass_that_only_one_label_can_have():
    loss = Loss.of([(Fraction(4, 5), Fraction(1)), (Fraction(1, 5), Fraction(0))])  # a fifth of the positives, outright
    assert loss.auc() == up(Fraction(3, 5))
    assert loss.odds() == math.inf
    assert loss.times(2).auc() == up(Fraction(68, 100))
    assert Loss.of([(Fraction(0), Fraction(1)), (Fraction(1), Fraction(0))]).auc() == 1


def test_missing_mass_counts_as_given_away():
    assert Loss.of([(Fraction(1, 2), Fraction(1, 2))]).auc() == 0.875
    assert Loss.of([(Fraction(1, 2), Fraction(1, 2))]).odds() == math.inf


def test_nothing_costs_nothing():
    coin = flips(0.6).loss()
    assert Loss.nothing().auc() == 0.5
    assert Loss.nothing().odds() == 1
    assert coin.times(0) == Loss.nothing()
    assert coin.then(Loss.nothing()).auc() == coin.auc() == coin.times(1).auc()


def test_equal_ratios_become_one_and_unequal_ones_never_do():
    whole = 1 << 128
    near = Atoms.of([(whole // 2, whole // 2), (whole // 2 - 1, whole // 2 - 2)], whole)
    assert len(near.pairs) == 2
    assert Atoms.of([(2, 4), (1, 2), (1, 1)], 8).pairs == ((1, 1), (3, 6))


@pytest.mark.parametrize(
    "pairs", [[], [(Fraction(-1, 2), Fraction(1))], [(Fraction(1), Fraction(1)), (Fraction(1, 9), Fraction(0))]]
)
def test_what_is_no_distribution(pairs):
    with pytest.raises(UsageError, match="Loss"):
        Loss.of(pairs)


@pytest.mark.parametrize("count", [-1, True, 1.5])
def test_counts_are_checked(count):
    with pytest.raises(UsageError, match="count"):
        flips(0.6).loss().times(count)


@settings(deadline=None, max_examples=30)
@given(releases(), releases())
def test_a_lattice_is_never_below_the_truth_and_hardly_above(one, two):
    exact = Loss.of(one).then(Loss.of(two))
    rough = Lattice.over(Loss.of(one).atoms).then(Lattice.over(Loss.of(two).atoms))
    assert exact.atoms.auc() <= rough.atoms().auc() <= exact.atoms.auc() + Fraction(1, 10**4)
    outcomes = rough.atoms()
    assert min(outcomes.only) >= 0
    assert max(outcomes.only) < outcomes.whole >> 40


@pytest.mark.parametrize("coin", [flips(0.6), flips(0.6, 7.4, rare="positive"), flips(0.6, 7.4, classes=10)])
def test_a_lattice_over_thirty_releases_is_nearly_exact(coin):
    exact = coin.loss().times(30)
    rough = Lattice.over(coin.loss().atoms)
    two = rough.then(rough)
    four = two.then(two)
    sixteen = four.then(four).then(four).then(four)
    rough = sixteen.then(four).then(four).then(four).then(two)
    assert 0 <= rough.atoms().auc() - exact.atoms.auc() < Fraction(1, 10**4)


def test_very_many_releases_are_known_to_give_the_label_away():
    loss = flips(0.52).loss().times(300)
    d = math.sqrt(300) * 0.08  # 300 bits with 0.52 and 0.48, nearly normal
    assert 0.5 * (1 + math.erf(d / 2)) == pytest.approx(loss.auc(), abs=2e-3)
    assert loss.odds() == pytest.approx(float(flips(0.52).exact_odds) ** 300, rel=1e-9)
    sure = flips(odds=20).loss().times(512)
    assert (sure.auc(), sure.odds()) == (1, math.inf)
    assert repr(sure) == "Loss(auc=1, odds=inf)"
    assert isinstance(loss.atoms, Lattice)


def test_mass_that_gives_a_label_away_stays_so_on_the_lattice():
    fifth = Loss.of([(Fraction(4, 5), Fraction(1)), (Fraction(1, 5), Fraction(0))])
    rough = Lattice.over(fifth.atoms)
    assert 0 <= rough.then(rough).atoms().auc() - Fraction(68, 100) < Fraction(1, 10**4)
    sure = Lattice.over(Loss.of([(Fraction(0), Fraction(1)), (Fraction(1), Fraction(0))]).atoms)
    assert sure.then(rough).atoms().auc() == 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 1 << 30), max_size=9), st.lists(st.integers(0, 1 << 30), max_size=9))
def test_products_of_polynomials(one, other):
    expected = [0] * (len(one) + len(other) - 1 if one and other else 0)
    for (i, x), (j, y) in itertools.product(enumerate(one), enumerate(other)):
        expected[i + j] += x * y
    assert product(tuple(one), tuple(other), 70) == expected


@settings(deadline=None, max_examples=50)
@given(st.lists(releases(), min_size=1, max_size=3), releases())
def test_one_loss_that_dominates_several(several, further):
    whole = math.lcm(*(part.denominator for pairs in several for pair in pairs for part in pair))
    loss = Loss.dominating([[(int(p * whole), int(q * whole)) for p, q in pairs] for pairs in several], whole)
    for pairs in several:
        assert loss.atoms.auc() >= Loss.of(pairs).atoms.auc()
        assert loss.then(Loss.of(further)).atoms.auc() >= Loss.of(pairs).then(Loss.of(further)).atoms.auc()
    assert loss.most == max(Loss.of(pairs).most for pairs in several)
    if len(several) == 1:
        assert loss.atoms.auc() == Loss.of(several[0]).atoms.auc()
