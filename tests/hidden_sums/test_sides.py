"""Both sides together: what comes out, and every game that either of them may play."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from tacit.errors import ProtocolError, RefusedError, UsageError
from tacit.hidden_sums.encryption import EncryptedLabels
from tacit.hidden_sums.feature_side import FeatureSide
from tacit.hidden_sums.label_side import LabelSide, rows_of_units
from tacit.hidden_sums.messages import arrays_of, bytes_of
from tacit.hidden_sums.scalars import ORDER, ints_of, scalars_of
from tacit.hidden_sums.shuffle import Shuffle
from tests.hidden_sums.sides import FEATURE_SECRET, LABEL_SECRET, Pair, agreed, no_noise, some_groups, some_labels


def true_sums(groups, labels):
    return np.bincount(groups[groups >= 0], weights=labels[groups >= 0]).astype(int).tolist()


@pytest.mark.parametrize(("rows", "group"), [(40, 8), (37, 8), (8, 8), (9, 2)])
def test_sums_come_out_for_every_partition(tmp_path, rows, group):
    pair = Pair(tmp_path, agreed(rows=rows, group=group, partitions=2)).meet()
    for partition in (0, 1):
        groups = some_groups(rows, group, seed=partition)
        sums = pair.features.read(
            partition, groups, pair.label.answer(partition, pair.features.batch(partition, groups))
        )
        assert sums.tolist() == true_sums(groups, pair.labels)


def test_noise_is_asked_for_once_with_the_hash_of_the_batch(tmp_path):
    asked = []

    def noise(partition, digest, count):
        asked.append((partition, digest, count))
        return np.arange(count) - 1

    pair = Pair(tmp_path, noise=noise).meet()
    groups = some_groups()
    batch = pair.features.batch(1, groups)
    answers = {pair.label.answer(1, batch) for _ in range(3)}
    assert len(answers) == 1
    assert asked == [(1, hashlib.sha256(batch).digest(), 5)]
    sums = pair.features.read(1, groups, answers.pop())
    assert sorted(sums - true_sums(groups, pair.labels)) == [-1, 0, 1, 2, 3]


def test_of_each_unit_one_row_takes_part_chosen_by_key(tmp_path):
    units = np.arange(40) // 3
    agreement = agreed(group=4, units=True)
    pair = Pair(tmp_path, agreement, units=units).meet()
    masks = [pair.features.taking_part(number) for number in range(3)]
    for number, mask in enumerate(masks):
        assert np.bincount(units[mask]).tolist() == [1] * 14
        groups = some_groups(14, 4, seed=number)
        sums = pair.features.read(number, groups, pair.label.answer(number, pair.features.batch(number, groups)))
        assert sums.tolist() == true_sums(groups, pair.labels[mask])
    assert not np.array_equal(masks[0], masks[1])
    other = Pair(tmp_path / "other", agreement, labels=1 - pair.labels, units=units).meet()
    assert np.array_equal(masks[0], other.features.taking_part(0))  # whatever the labels are


def test_every_row_of_a_unit_has_its_turn():
    units, seen = np.repeat(np.arange(5), 4), np.zeros(20, int)
    for partition in range(400):
        seen += rows_of_units(units, partition, LABEL_SECRET, b"context")
    assert seen.min() > 50  # 100 of 400 each; so far off once in 10**8 times


def test_sizes_depend_on_nothing_but_the_agreement(tmp_path):
    sizes = set()
    for seed in range(2):
        pair = Pair(tmp_path / str(seed), labels=np.full(40, seed)).meet()
        batch = pair.features.batch(0, some_groups(seed=seed))
        sizes.add((len(pair.label.commitment()), len(batch), len(pair.label.answer(0, batch))))
    assert len(sizes) == 1


# --- a feature party that cheats -----------------------------------------------------------------------------------


class _NoLabel:
    """Stands where labels, keys and noise are used: touching it fails the test."""

    def __init__(self, monkeypatch, pair):
        def touched(*_):
            raise AssertionError("a label, a key or noise was touched for a batch that is refused")

        monkeypatch.setattr("tacit.hidden_sums.label_side.decrypt_sums", touched)
        monkeypatch.setattr("tacit.hidden_sums.label_side.secret_key", touched)
        pair.label._noise = pair.label._charge = touched


def read(batch):
    return Shuffle(**arrays_of(Shuffle.shapes(40), batch))


def in_place(batch, name, act):
    made = read(batch)
    value = getattr(made, name).copy()
    act(value)
    return bytes_of(replace(made, **{name: value}))


def repeat_first(value):
    value[1] = value[0]


def turn_bit(value):
    value[-1, -1] ^= 1


def too_large(value):
    value[0] = 255


CHEATS = {
    "a row twice": lambda batch: in_place(in_place(batch, "a", repeat_first), "b", repeat_first),
    "a commitment twice": lambda batch: in_place(batch, "c", repeat_first),
    "another response": lambda batch: in_place(batch, "s_prime", turn_bit),
    "a scalar too large": lambda batch: in_place(batch, "s_hat", too_large),
    "no point": lambda batch: in_place(batch, "t_hat", too_large),
    "a byte less": lambda batch: batch[:-1],
    "a byte more": lambda batch: batch + b"\0",
    "nothing": lambda batch: b"",
    "noise": lambda batch: bytes(len(batch)),
}


def said(error):
    return (type(error.value), str(error.value), error.value.field, error.value.__cause__)


@pytest.mark.parametrize("cheat", CHEATS)
def test_every_cheat_gets_the_same_refusal_and_closes_the_partition(pair, monkeypatch, cheat):
    honest = pair.features.batch(0, some_groups())
    _NoLabel(monkeypatch, pair)
    with pytest.raises(RefusedError) as first:
        pair.label.answer(0, CHEATS[cheat](honest))
    with pytest.raises(RefusedError) as second:
        pair.label.answer(0, honest)
    with pytest.raises(RefusedError) as third:
        pair.label.answer(7, honest)
    assert said(first) == said(second) == said(third)
    assert "closed" in str(first.value)
    assert not any(word in str(first.value) for word in ("point", "scalar", "bytes", "proven"))


def test_other_partitions_live_on(pair):
    groups = some_groups()
    with pytest.raises(RefusedError):
        pair.label.answer(0, b"")
    sums = pair.features.read(1, groups, pair.label.answer(1, pair.features.batch(1, groups)))
    assert sums.tolist() == true_sums(groups, pair.labels)


def test_a_batch_is_for_its_partition_run_contract_and_labels(pair, tmp_path, monkeypatch):
    groups = some_groups()
    batch = pair.features.batch(0, groups)
    others = {
        "partition": (pair, 1),
        "run": (Pair(tmp_path / "run", agreed(run="r2")), 0),
        "contract": (Pair(tmp_path / "contract", agreed(contract="decaf")), 0),
        "labels": (Pair(tmp_path / "labels", labels=1 - pair.labels), 0),
    }
    for other, number in others.values():
        other.label.commitment()
        _NoLabel(monkeypatch, other)
        with pytest.raises(RefusedError):
            other.label.answer(number, batch)


def test_another_batch_for_an_answered_partition_is_refused_and_not_charged(tmp_path):
    charged = []
    pair = Pair(tmp_path, charge=lambda partition, _: charged.append(partition)).meet()
    groups = some_groups()
    batch = pair.features.batch(0, groups)
    answer = pair.label.answer(0, batch)
    assert charged == [0]
    other = FeatureSide(tmp_path / "other", b"o" * 32, pair.agreement)  # honest, with other random numbers
    other.accept(pair.label.commitment())
    with pytest.raises(RefusedError):
        pair.label.answer(0, other.batch(0, groups))
    assert pair.label.answer(0, batch) == answer
    assert charged == [0]


def test_a_budget_that_is_spent_stops_the_answer(tmp_path):
    def charge(*_):
        raise UsageError("budget")

    pair = Pair(tmp_path, noise=None, charge=charge).meet()
    batch = pair.features.batch(0, some_groups())
    for _ in range(2):
        with pytest.raises(UsageError, match="budget"):
            pair.label.answer(0, batch)


def test_a_book_that_knows_another_batch_closes_the_partition(tmp_path):
    def charge(*_):
        raise RefusedError("hidden sums", "another batch")

    pair = Pair(tmp_path, noise=None, charge=charge).meet()
    for _ in range(2):
        with pytest.raises(RefusedError, match="closed"):
            pair.label.answer(0, pair.features.batch(0, some_groups()))


@pytest.mark.parametrize(
    "groups",
    [np.zeros(40, int), some_groups(39), some_groups() + 1, some_groups().astype(float), np.full(40, -1)],
)
def test_groups_of_other_sizes_are_refused_at_home(pair, groups):
    with pytest.raises(UsageError, match="groups"):
        pair.features.batch(0, groups)


def test_other_groups_are_refused_at_home(pair):
    pair.features.batch(0, some_groups())
    with pytest.raises(UsageError, match="other groups"):
        pair.features.batch(0, some_groups(seed=1))


# --- a label party that cheats -----------------------------------------------------------------------------------


def test_labels_are_committed_to_once(pair, tmp_path):
    again = LabelSide(tmp_path / "label", LABEL_SECRET, pair.agreement, 1 - pair.labels, no_noise)
    with pytest.raises(UsageError, match="encrypted once"):
        again.commitment()
    other = Pair(tmp_path / "other", labels=1 - pair.labels)
    with pytest.raises(RefusedError, match="once"):
        pair.features.accept(other.label.commitment())
    after = FeatureSide(tmp_path / "features", FEATURE_SECRET, pair.agreement)  # the same party, started again
    with pytest.raises(RefusedError, match="once"):
        after.accept(other.label.commitment())
    after.accept(pair.label.commitment())


def test_ciphertexts_that_are_not_proven_are_refused(tmp_path):
    pair = Pair(tmp_path)
    made = EncryptedLabels(**arrays_of(EncryptedLabels.shapes(40), pair.label.commitment()))
    swapped = replace(made, a=made.b, b=made.a)
    with pytest.raises(RefusedError, match="not proven"):
        pair.features.accept(bytes_of(swapped))
    other = made.c0.copy()
    other[3] = scalars_of([(ints_of(other[3:4])[0] + 1) % ORDER])[0]
    with pytest.raises(RefusedError, match="not proven"):
        pair.features.accept(bytes_of(replace(made, c0=other)))
    with pytest.raises(ProtocolError, match="bytes"):
        pair.features.accept(b"")
    with pytest.raises(UsageError, match="accept"):
        pair.features.batch(0, some_groups())


@pytest.mark.parametrize("wrong", [-101, 109, 2**62])
def test_answers_out_of_range_end_the_run(pair, wrong):
    groups = some_groups()
    pair.features.batch(0, groups)
    for fine in (-100, 108):
        pair.features.read(0, groups, np.array([0, fine, 3, 0, 0], "<i8").tobytes())
    with pytest.raises(ProtocolError, match="no labels and no noise"):
        pair.features.read(0, groups, np.array([0, wrong, 3, 0, 0], "<i8").tobytes())
    with pytest.raises(ProtocolError, match="bytes"):
        pair.features.read(0, groups, bytes(8))


def test_masks_that_single_rows_out_are_refused(tmp_path):
    agreement = agreed(group=4, units=True)
    pair = Pair(tmp_path, agreement, units=np.arange(40) // 3)
    raw = bytearray(pair.label.commitment())
    raw[-5:] = bytes(5)  # nobody takes part in the last partition
    with pytest.raises(ProtocolError, match="as many rows"):
        pair.features.accept(bytes(raw))


def test_what_does_not_fit_the_agreement_is_refused_at_home(tmp_path):
    for labels, units in ((some_labels(39), None), (some_labels(40), np.arange(40))):
        with pytest.raises(UsageError):
            LabelSide(tmp_path, LABEL_SECRET, agreed(), labels, no_noise, units=units)
    with pytest.raises(UsageError, match="units"):
        LabelSide(tmp_path, LABEL_SECRET, agreed(units=True), some_labels(40), no_noise, units=np.arange(3))
    for wrong in ({"group": 1}, {"group": 41}, {"partitions": 0}):
        with pytest.raises(UsageError, match="hidden sums"):
            agreed(**wrong)


def test_the_order_of_groups_and_rows_is_drawn_anew_for_each_partition(pair):
    groups = np.repeat(np.arange(5), 8)
    orders = [pair.features._shuffled(number, groups) for number in range(3)]
    assert len({tuple(order) for order, _ in orders}) > 1
    for order, psi in orders:
        assert groups[psi].reshape(5, 8).tolist() == [[number] * 8 for number in order]
        assert any((np.diff(rows) < 0).any() for rows in psi.reshape(5, 8))
