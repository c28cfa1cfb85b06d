"""Coins: exact frequencies, nested limits, and that the wrong way to nest them would be seen.

Keys and secrets are fixed, so that nothing here changes from run to run; the exact tests have a false-alarm rate of
1 in a million each for keys that were not looked at before.
"""

import functools
import hashlib
import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from tacit.errors import LabelsError, UsageError
from tacit.labels.coins import Coins, _Stream
from tacit.labels.flips import WHOLE, Flips, flips

ROWS = 30_000
ALARM = 1e-6
SECRET = bytes(range(32))


def coins(secret=SECRET, column="late", definition="over 15 minutes", epoch=0):
    return Coins(secret, column=column, definition=definition, epoch=epoch)


def keys_for(rows):
    raw = b"".join(hashlib.blake2b(row.to_bytes(8, "little"), digest_size=16).digest() for row in range(rows))
    return np.frombuffer(raw, np.uint8).reshape(-1, 16)


KEYS = keys_for(ROWS)


@functools.cache
def drawn(mechanism, label, **names):
    return coins(**names).draw(mechanism, KEYS, np.full(ROWS, label, np.int64))


def chance(successes, rows, probability):
    """How likely so unlikely a count is."""
    return binomtest(int(successes), int(rows), float(probability)).pvalue


TWO = [flips(0.6), flips(0.95), flips(0.6, 7.4, rare="positive"), flips(0.7, 4, rare="negative"), flips(0.51)]


@pytest.mark.parametrize("coin", TWO)
@pytest.mark.parametrize("label", [0, 1])
def test_ones_are_as_frequent_as_said(coin, label):
    assert chance(drawn(coin, label).sum(), ROWS, coin.a if label else coin.b) > ALARM


@pytest.mark.parametrize("coin", TWO)
def test_rows_without_a_label_are_pure_redraws(coin):
    assert chance(drawn(coin, -1).sum(), ROWS, Fraction(coin.ones, WHOLE)) > ALARM


@pytest.mark.parametrize("classes", [3, 5])
def test_more_classes_are_as_frequent_as_said(classes):
    coin = flips(0.65, 10, classes=classes)
    sent = drawn(coin, 1)
    assert sent.dtype == np.int16
    for value in range(classes):
        assert chance((sent == value).sum(), ROWS, coin.p if value == 1 else coin.q) > ALARM
    none = drawn(coin, -1)
    assert all(chance((none == value).sum(), ROWS, Fraction(1, classes)) > ALARM for value in range(classes))


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize(("strong", "weak"), [(0.6, 0.7), (0.55, 0.9)])
def test_a_stronger_limit_tells_nothing_that_the_weaker_one_does_not(label, strong, weak):
    """Given the weaker limit's bit, the stronger one's has the same chance of 1 for either label: post-processing."""
    stronger, weaker = flips(strong), flips(weak)
    kept = Fraction(stronger.keep, weaker.keep)
    first, second = drawn(weaker, label), drawn(stronger, label)
    for bit in (0, 1):
        given = second[first == bit]
        assert chance(given.sum(), len(given), kept * bit + (1 - kept) / 2) > ALARM


def test_an_asymmetric_series_is_nested_too():
    strong = flips(0.6, 7.4, rare="positive")
    weak = replace(strong, keep=3 * WHOLE // 10)
    kept = Fraction(strong.keep, weak.keep)
    for label, bit in itertools.product((0, 1), (0, 1)):
        given = drawn(strong, label)[drawn(weak, label) == bit]
        assert chance(given.sum(), len(given), kept * bit + (1 - kept) * Fraction(strong.ones, WHOLE)) > ALARM


def test_classes_are_nested_too():
    weak = flips(0.7, 20, classes=4)
    strong = flips(0.6, 20, classes=4)
    assert strong.series == weak.series
    kept = Fraction(strong.keep, weak.keep)
    for label in (0, 3):
        given = drawn(strong, label)[drawn(weak, label) == 3]
        assert chance((given == 3).sum(), len(given), kept + (1 - kept) / 4) > ALARM


def joint_auc(tables):
    """The best AUC from pairs of bits, by their counts under label 1 and 0."""
    ones, zeros = (np.bincount(2 * first + second, minlength=4) / len(first) for first, second in tables)
    order = sorted(range(4), key=lambda pair: ones[pair] / max(zeros[pair], 1e-12))
    return sum(ones[pair] * (sum(zeros[order[:place]]) + zeros[pair] / 2) for place, pair in enumerate(order))


def test_two_limits_leak_as_the_weaker_and_one_uniform_number_would_leak_more():
    right = [(drawn(flips(0.6), label), drawn(flips(0.7), label)) for label in (1, 0)]
    assert joint_auc(right) == pytest.approx(0.7, abs=0.015)  # five standard errors
    assert all((np.bincount(2 * first + second, minlength=4) > 0).all() for first, second in right)
    words = _Stream(hashlib.blake2b(b"one number for all limits"), KEYS).take(np.arange(ROWS))
    wrong = [
        tuple((words < int(share * WHOLE)).astype(np.int64) for share in shares) for shares in ((0.6, 0.7), (0.4, 0.3))
    ]
    only_one = np.bincount(2 * wrong[0][0] + wrong[0][1], minlength=4) * (
        np.bincount(2 * wrong[1][0] + wrong[1][1], minlength=4) == 0
    )
    assert only_one.sum() > ROWS / 20  # bits (0, 1): only a 1 can have them
    assert joint_auc(wrong) > 0.72


def test_missing_labels_look_like_labels_at_every_limit():
    first, second = drawn(flips(0.7), -1), drawn(flips(0.6), -1)
    kept = Fraction(flips(0.6).keep, flips(0.7).keep)
    assert chance((first == second).sum(), ROWS, (1 + kept) / 2) > ALARM


def test_the_same_row_has_the_same_bit_in_any_order_and_company():
    labels = np.arange(ROWS) % 3 - 1
    sent = coins().draw(flips(0.6), KEYS, labels)
    order = np.random.default_rng(0).permutation(ROWS)[:20_000]
    assert (coins().draw(flips(0.6), KEYS[order], labels[order]) == sent[order]).all()
    assert len(coins().draw(flips(0.6), KEYS[:0], labels[:0])) == 0


def test_bits_are_pinned():
    """A change here is a new version of the coins: every label party's flips would differ from those it has sent."""
    sent = coins().draw(flips(0.6), KEYS[:4096], np.arange(4096) % 3 - 1)
    classes = coins().draw(flips(0.6, 9, classes=5), KEYS[:4096], np.arange(4096) % 6 - 1)
    assert hashlib.sha256(sent.tobytes() + classes.astype("<i2").tobytes()).hexdigest()[:16] == "be409a38e69182e6"


@pytest.mark.parametrize(
    "change",
    [
        {"secret": bytes(range(1, 33))},
        {"column": "later"},
        {"definition": "over 16 minutes"},
        {"epoch": 1},
        {"column": "lateo", "definition": "ver 15 minutes"},  # lengths stand before their texts
    ],
)
def test_another_context_has_unrelated_coins(change):
    same = (drawn(flips(0.6), 1) == drawn(flips(0.6), 1, **change)).sum()
    assert chance(same, ROWS, Fraction(52, 100)) > ALARM


def test_another_series_has_unrelated_coins():
    one, other = flips(0.6), Flips(2, flips(0.6).keep, WHOLE // 2 + 1)
    assert chance((drawn(one, 1) == drawn(other, 1)).sum(), ROWS, Fraction(52, 100)) > ALARM


@pytest.mark.parametrize("bound", [1, 3, 1000, (1 << 63) + 1, (1 << 64) - 1])
def test_uniform_below_a_bound(bound):
    rows = np.arange(ROWS)
    found = _Stream(hashlib.blake2b(b"below"), KEYS).below(rows, np.full(ROWS, bound, np.uint64))
    assert (found < bound).all()
    half = bound // 2
    assert bound == 1 or chance((found < half).sum(), ROWS, Fraction(half, bound)) > ALARM


def test_a_stream_goes_on_into_further_blocks():
    stream = _Stream(hashlib.blake2b(b"words"), KEYS[:3])
    words = np.array([stream.take(np.arange(3)) for _ in range(20)])
    assert len(np.unique(words)) == 60
    again = _Stream(hashlib.blake2b(b"words"), KEYS[2:3])
    assert [int(again.take(np.arange(1))[0]) for _ in range(20)] == words[:, 2].tolist()


def test_positions_are_visited_as_records_are():
    """Whether a range of positions is visited is independent of what is visited above it."""
    stream, rows = _Stream(hashlib.blake2b(b"records"), KEYS), np.arange(ROWS)
    visits = np.zeros((ROWS, 4), bool)
    positions = stream.take(rows)
    while len(rows):
        quarter = (positions >> np.uint64(62)).astype(np.int64)
        visits[rows, quarter] = True
        going = quarter > 0
        rows, positions = rows[going], stream.below(rows[going], positions[going])
    for above in (False, True):
        among = visits[visits[:, 3] == above]
        assert chance(among[:, 2].sum(), len(among), Fraction(1, 3)) > ALARM
        assert chance(among[:, 1].sum(), len(among), Fraction(1, 2)) > ALARM


@pytest.mark.parametrize("labels", [[0, 2, 0], [0, -2, 1]])
def test_labels_outside_of_the_classes(labels):
    with pytest.raises(LabelsError, match="row 1"):
        coins().draw(flips(0.6), KEYS[:3], np.array(labels))


@pytest.mark.parametrize("labels", [np.zeros(3), np.zeros((3, 1), np.int64), np.zeros(3, np.uint64), np.zeros(3, bool)])
def test_labels_of_another_kind(labels):
    with pytest.raises(LabelsError, match="labels are"):
        coins().draw(flips(0.6), KEYS[:3], labels)


def test_keys_that_do_not_fit():
    labels = np.zeros(3, np.int64)
    with pytest.raises(UsageError, match="1 rows have the key of another"):
        coins().draw(flips(0.6), KEYS[[0, 1, 0]], labels)
    for wrong in (KEYS[:2], KEYS[:3].astype(np.int64), KEYS[:3, :8]):
        with pytest.raises(UsageError, match="one for each label"):
            coins().draw(flips(0.6), wrong, labels)


def test_secrets_and_epochs_that_can_not_be():
    with pytest.raises(UsageError, match="32 random bytes"):
        coins(secret=b"short")
    with pytest.raises(UsageError, match="epoch"):
        coins(epoch=-1)
    assert "hidden" in repr(coins())


def chain(top: int, keep: tuple[int, int], sent: tuple[int, int], ones: Fraction) -> dict[tuple[int, int], Fraction]:
    """All that a chain of positions below `top` can send at two strengths, with exact chances, position by position."""
    found: dict[tuple[int, int], Fraction] = {}
    for position, bit in itertools.product(range(top), (0, 1)):
        chance = Fraction(1, top) * (ones if bit else 1 - ones)
        now = tuple(bit if position >= limit else had for limit, had in zip(keep, sent, strict=True))
        further = chain(position, keep, now, ones) if position > min(keep) else {now: Fraction(1)}
        for pair, rest in further.items():
            found[pair] = found.get(pair, Fraction(0)) + chance * rest
    return found


@pytest.mark.parametrize(("weak", "strong"), [(6, 3), (5, 1), (7, 6)])
def test_the_construction_is_exactly_nested_over_8_positions(weak, strong):
    """What `Coins` does below 2**64, done below 8 with every outcome counted: no frequencies, no tolerance."""
    ones = Fraction(1, 3)
    for label in (0, 1):
        joint = chain(8, (weak, strong), (label, label), ones)
        first = sum(chance for (bit, _), chance in joint.items() if bit)
        second = sum(chance for (_, bit), chance in joint.items() if bit)
        assert first == Fraction(weak, 8) * label + (1 - Fraction(weak, 8)) * ones
        assert second == Fraction(strong, 8) * label + (1 - Fraction(strong, 8)) * ones
        kept = Fraction(strong, weak)
        for bit in (0, 1):  # the stronger bit given the weaker one: the same whatever the label
            given = first if bit else 1 - first
            assert joint.get((bit, 1), 0) == given * (kept * bit + (1 - kept) * ones)
