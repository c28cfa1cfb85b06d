"""Hidden sums as a mechanism of their own: agreed on, charged, certified, and turned into targets."""

from statistics import NormalDist

import numpy as np
import pytest
from pydantic import ValidationError

from tacit.config import Exchange
from tacit.errors import ProtocolError, RefusedError, UsageError
from tacit.lab import one_exchange
from tacit.one_shot.book import Terms, open_book
from tacit.one_shot.certificate import certify
from tacit.one_shot.flips import flips
from tacit.one_shot.grouping import averages, partitions
from tacit.one_shot.hiding import bits_shown, check_enough_rows
from tacit.one_shot.mechanisms import check_agreed, read_mechanism
from tacit.one_shot.records import Rows
from tacit.one_shot.sums import sums


@pytest.mark.parametrize("wrong", [{"classes": 3}, {"target": "number", "low": 0.0, "high": 1.0}])
def test_hidden_sums_are_for_two_classes_and_who_has_others_is_told_what_to_write(wrong):
    assert Exchange(width=1, labels="hidden_sums", unit="person").labels == "hidden_sums"
    with pytest.raises(ValidationError, match="1 problems") as error:
        Exchange(width=1, labels="hidden_sums", **wrong)
    assert 'two classes: write "flips"' in str(error.value.errors()[0]["ctx"])


def test_groups_are_of_one_size_and_fewer_rows_than_that_are_left_over(made_up):
    groups = partitions(made_up.inputs, 32, 3, seed=1, taking_part=np.ones((3000, 3), bool))
    assert groups.shape == (3000, 3)
    for partition in groups.T:
        assert np.bincount(partition[partition >= 0]).tolist() == [32] * 93
        assert (partition < 0).sum() == 24
    assert not np.array_equal(groups[:, 0], groups[:, 1])
    codes = made_up.inputs.categorical.numpy()[:, 0]
    counts = np.stack([np.bincount(codes[groups[:, 0] == number], minlength=6) for number in range(93)])
    alike = np.square(counts / 32).sum(1).mean()  # two of a group have the same code: 0.65 to 0.71, by lot 0.17
    assert alike > 0.4, "rows of a group are alike"


def test_rows_that_take_no_part_in_a_partition_are_in_none_of_its_groups(made_up):
    taking_part = np.zeros((3000, 2), bool)
    taking_part[::2, 0] = taking_part[1::2, 1] = True
    groups = partitions(made_up.inputs, 32, 2, seed=1, taking_part=taking_part)
    assert (groups[~taking_part] == -1).all()
    for place in (0, 1):
        mine = groups[taking_part[:, place], place]
        assert np.bincount(mine[mine >= 0]).tolist() == [32] * 46
        assert (mine < 0).sum() == 28


@pytest.mark.parametrize(("rows", "size"), [(6, 2), (6, 3), (9, 3), (8, 4), (7, 2)])
def test_nameless_sums_are_one_of_as_many_cases_as_is_said(rows, size):
    """Whatever bits are encrypted and whatever the groups are, there are no more outcomes than that."""
    groups = np.arange(rows) // size
    inside = groups < rows // size
    seen = {
        tuple(sorted(np.bincount(groups[inside], weights=bits[inside]).tolist()))
        for bits in np.array(list(np.ndindex(*[2] * rows)))
    }
    assert bits_shown(rows, size, 1) == pytest.approx(np.log2(len(seen)))
    assert bits_shown(rows, size, 3) == pytest.approx(3 * bits_shown(rows, size, 1))


def test_too_few_rows_for_a_group_are_told_at_home():
    check_enough_rows(32, 32, "rows")
    with pytest.raises(UsageError, match="31 rows to train on make no group of 32: agree on a lower group_size"):
        check_enough_rows(32, 31, "rows")


def test_a_row_gets_the_mean_of_its_groups_averages_and_of_all_where_it_was_left_over():
    groups = np.array([[0, 1], [0, -1], [1, 0], [1, 0], [-1, 1]])
    told = averages(groups, [np.array([2, 0]), np.array([4, 2])])
    assert told.tolist() == [(1 + 1) / 2, (1 + 1.5) / 2, (0 + 2) / 2, (0 + 2) / 2, (0.5 + 1) / 2]


def test_a_book_keeps_labels_and_charges_of_hidden_sums_and_answers_nothing_else_in_their_run(tmp_path):
    book, mechanism = open_book(tmp_path, b"s" * 32), sums(0.6, groups=32, partitions=2, hidden=True)
    keys = np.arange(640 * 16, dtype=np.uint64).view(np.uint8)[: 640 * 16].reshape(640, 16).copy()
    rows = Rows(keys, keys, np.arange(640) % 3 - 1)
    terms = Terms("run", ("airport",), "late", "classes 2", "row", ("id",), 0.62, None, delta=0.005)
    none = np.zeros((0, 2), np.int64)
    for _ in range(2):
        assert len(book.release("a", rows, mechanism, terms, groups=none)) == 0
    assert book.frozen("a").tolist() == rows.labels.tolist()
    assert book.summary(0.005).auc == mechanism.auc == sums(0.6, groups=32, partitions=2).auc
    later = certify(flips(0.6), 640, book.summary(0.005), None, 0.005)
    assert "discrete logarithms" in later.sentence, "what flips add to was sent encrypted before"
    with pytest.raises(RefusedError, match="other groups"):
        book.release("a", rows, mechanism, terms, groups=np.zeros((640, 2), np.int64))
    with pytest.raises(UsageError, match=r"budget = 0.62"):
        book.release("b", rows, mechanism, terms, groups=none)
    assert book.check().bits == 0
    assert (book.releases, book.counted) == (1, 1)
    for _ in range(2):
        book.answer_once("a", 0, b"one")
    book.answer_once("a", 1, b"other")
    with pytest.raises(RefusedError, match="another batch"):
        book.answer_once("a", 0, b"other")
    assert (book.releases, book.counted) == (1, 3)
    book.close()


def test_a_unit_pays_for_hidden_sums_once_however_many_rows_it_has_and_for_all_else_together(tmp_path):
    """mu^2 adds up over partitions, runs and mechanisms: hidden sums twice, open sums and flips of the same units."""
    book, count = open_book(tmp_path, b"s" * 32), 320
    keys = np.arange(2 * count, dtype="<u8").view(np.uint8).reshape(count, 16).copy()
    units = keys[np.arange(count) // 2 * 2]  # two rows each
    rows = Rows(keys, units, np.arange(count) % 2)
    terms = Terms("run", ("airport",), "late", "classes 2", "person", ("id",), None, None, delta=0.005)
    hidden, coin = sums(0.6, groups=32, partitions=2, hidden=True), flips(0.6)
    none = np.zeros((0, 2), np.int64)
    book.release("a", rows, hidden, terms, groups=none)
    assert book.summary(0.005).auc == hidden.auc
    book.release("b", rows, hidden, terms, groups=none)
    assert book.summary(0.005).auc == pytest.approx(hidden.loss().times(2).auc(), abs=1e-9)
    book.release("c", rows, coin, terms)
    whole = hidden.loss().times(2).then(coin.loss().times(2))
    assert book.summary(0.005).auc == pytest.approx(whole.auc(), abs=1e-9)
    gaussian = NormalDist().cdf(2 * NormalDist().inv_cdf(hidden.auc) / 2**0.5)
    assert hidden.loss().times(2).auc() == pytest.approx(gaussian, abs=2e-4), "mu adds up in squares"
    book.close()


def test_hidden_sums_are_another_mechanism_than_open_ones():
    mechanism, opened = sums(0.6, hidden=True), sums(0.6)
    assert read_mechanism(mechanism.parameters()) == mechanism != opened
    assert mechanism.series != opened.series
    one, other = (each.noise(b"s" * 32, b"w" * 32, (40,), number=0, run="r") for each in (mechanism, opened))
    assert one.tolist() != other.tolist()
    for agreed, wrong in (("hidden_sums", opened), ("sums", mechanism)):
        with pytest.raises(ProtocolError, match="where the contract says"):
            check_agreed(wrong, Exchange(width=1, labels=agreed))
    check_agreed(mechanism, Exchange(width=1, labels="hidden_sums"))


def test_a_demo_of_hidden_sums_is_of_who_is_late_alone(tmp_path):
    with pytest.raises(UsageError, match="two classes: leave --label out"):
        one_exchange.run(tmp_path, label="when", hidden_sums=True, progress=lambda *_: None)
