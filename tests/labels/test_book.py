"""The label party's book: frozen labels, releases that are the same when asked again, and what they add up to."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from tacit.errors import StorageError, UsageError
from tacit.labels.book import open_book
from tacit.labels.flips import flips
from tacit.labels.records import Rows, Terms

SECRET = bytes(range(32))


def terms(**more):
    return Terms(run="r", partners=("airport",), label="late", definition="2 classes", **more)


def release(book, run_id, rows, mechanism, **more):
    return book.release(run_id, rows, mechanism, terms(**more))


def rows_of(count, first=0, per_unit=1):
    number = np.arange(first, first + count, dtype="<u8")
    keys = np.zeros((count, 16), np.uint8)
    keys[:, :8] = number.view(np.uint8).reshape(-1, 8)
    units = np.zeros((count, 16), np.uint8)
    units[:, 8:] = (number // per_unit).astype("<u8").view(np.uint8).reshape(-1, 8)
    return Rows(keys, keys if per_unit == 1 else units, (number % 3 == 0).astype(np.int64))


HALVES = slice(2500), slice(2500, None)


@pytest.fixture(name="book")
def _book(tmp_path):
    book = open_book(tmp_path, SECRET)
    yield book
    book.close()


def test_the_same_question_gets_the_same_bits_and_another_book_of_the_same_secret_too(book, tmp_path):
    rows = rows_of(500)
    sent = release(book, "a", rows, flips(0.6))
    assert np.array_equal(release(book, "a", rows, flips(0.6)), sent)
    assert np.array_equal(release(book, "b", rows, flips(0.6)), sent), "another run, the same bits"
    other = open_book(tmp_path / "other", SECRET)
    assert np.array_equal(release(other, "c", rows, flips(0.6)), sent)
    assert not np.array_equal(release(open_book(tmp_path / "third", bytes(32)), "c", rows, flips(0.6)), sent)


def test_a_corrected_label_is_never_sent(book):
    rows = rows_of(2000)
    sent = release(book, "a", rows, flips(0.9))
    corrected = Rows(rows.keys, rows.units, 1 - rows.labels)
    assert np.array_equal(release(book, "b", corrected, flips(0.9)), sent)
    assert not np.array_equal(release(book, "c", corrected, flips(0.9), epoch=1), sent), "a paid reissue"
    assert book.summary().auc == pytest.approx(flips(0.9).loss().then(flips(0.9).loss()).auc())


def test_limits_of_one_series_cost_the_weakest_and_another_coin_adds(book):
    rows = rows_of(100)
    release(book, "a", rows, flips(0.6))
    release(book, "b", rows, flips(0.7))
    release(book, "c", rows, flips(0.65))
    assert book.summary().auc == flips(0.7).auc
    assert book.summary().odds == pytest.approx(flips(0.7).odds)
    rare = flips(0.6, 7.4, rare="positive")
    release(book, "d", rows, rare, odds_budget=20.0)
    both = flips(0.7).loss().then(rare.loss())
    assert (book.summary().auc, book.summary().odds) == (both.auc(), both.odds())


def test_rows_of_one_unit_are_charged_together(book):
    release(book, "a", rows_of(90, per_unit=3), flips(0.6), unit="person")
    (charge,) = book.summary().charges
    assert (charge.units, charge.auc) == (30, flips(0.6).loss().times(3).auc())
    with pytest.raises(UsageError, match="unit = person before"):
        release(book, "b", rows_of(90), flips(0.6))


@pytest.mark.parametrize("limits", [{"budget": 0.65}, {"odds_budget": 2.0}])
def test_what_a_budget_has_no_room_for_is_sent_as_it_was_paid_before(book, limits):
    rows = rows_of(5000)
    known, fresh = (Rows(rows.keys[part], rows.units[part], rows.labels[part]) for part in HALVES)
    before = release(book, "a", known, flips(0.6), **limits)
    sent = release(book, "b", rows, flips(0.7), **limits)
    assert np.array_equal(sent[HALVES[0]], before), "what was paid for, and no more"
    assert book.unpaid("a") == 0
    assert book.unpaid("b") == 5000
    assert book.summary().auc == flips(0.6).auc, "nothing was charged"
    # of the others nothing was paid: what is sent of them hangs on no label
    other = open_book(book.path.parent / "other", SECRET)
    release(other, "a", known, flips(0.6), **limits)
    turned = Rows(rows.keys, rows.units, np.where(np.arange(5000) < 2500, rows.labels, 1 - rows.labels))
    assert np.array_equal(release(other, "b", turned, flips(0.7), **limits), sent)
    assert {charge.units for charge in book.summary().charges} == {2500}
    # for good, whatever budget there is later
    assert np.array_equal(release(book, "c", rows, flips(0.7)), sent)
    turned = Rows(fresh.keys, fresh.units, 1 - fresh.labels)
    assert np.array_equal(release(book, "d", fresh, flips(0.9)), release(other, "d", turned, flips(0.9)))
    assert np.array_equal(release(book, "e", known, flips(0.6)), before)
    assert book.check().releases == 5


def test_only_units_that_have_no_room_go_without(book):
    """A unit is sent as before with all of its rows; what others cost is charged."""
    rows = rows_of(3000, per_unit=2)
    first = Rows(*(each[:1001] for each in (rows.keys, rows.units, rows.labels)))
    limits = {"budget": flips(0.6).loss().times(2).auc(), "unit": "person"}
    before = release(book, "a", first, flips(0.6), **limits)
    sent = release(book, "b", rows, flips(0.62), **limits)
    assert book.unpaid("b") == 3000, "two rows at 0.62 are more than there is room for"
    assert np.array_equal(sent[:1001], before)
    assert book.check().releases == 2


def test_rows_that_there_is_room_for_are_charged_beside_others(book):
    rows, rare = rows_of(3000), flips(0.6, 7.4, rare="positive")
    first = Rows(*(each[:1000] for each in (rows.keys, rows.units, rows.labels)))
    release(book, "a", first, rare)
    sent = release(book, "b", rows, flips(0.6), budget=rare.auc + 0.001)
    assert book.unpaid("b") == 1000
    expected = release(open_book(book.path.parent / "other", SECRET), "b", rows, flips(0.6))
    assert np.array_equal(sent[1000:], expected[1000:])
    assert sorted(charge.units for charge in book.summary().charges) == [1000, 2000]
    assert book.check().releases == 2


def test_a_price_is_what_the_release_then_costs_and_is_not_paid(book, tmp_path):
    rows = rows_of(500)
    known = Rows(rows.keys[:300], rows.units[:300], rows.labels[:300])
    release(book, "a", known, flips(0.6))
    cases = [
        (flips(0.6), {}, (200, 0, 0)),
        (flips(0.7), {}, (200, 300, 0)),
        (flips(0.7), {"budget": 0.65}, (200, 0, 500)),
    ]
    for mechanism, limits, counts in cases:
        before = book.path.read_bytes()
        price = book.price(rows, mechanism, terms(**limits))
        assert book.path.read_bytes() == before
        assert (price.rows, price.new, price.raised, price.unpaid) == (500, *counts)
        other = open_book(tmp_path / f"{counts} {limits}", SECRET)
        release(other, "a", known, flips(0.6))
        release(other, "b", rows, mechanism, **limits)
        assert (price.auc, price.odds) == (other.summary().auc, other.summary().odds)
        assert price.unpaid == other.unpaid("b")


def test_one_run_has_one_mechanism_and_one_answer(book):
    sent = release(book, "a", rows_of(50), flips(0.6))
    with pytest.raises(UsageError, match="another mechanism"):
        release(book, "a", rows_of(50), flips(0.61))
    assert np.array_equal(release(book, "a", rows_of(50, first=1), flips(0.6)), sent), "whatever rows are called now"


def test_another_secret_is_refused(book, tmp_path):
    with pytest.raises(StorageError, match="bring that secret back"):
        open_book(tmp_path, bytes(32))


def test_a_check_draws_every_bit_again(book, tmp_path):
    rows = rows_of(3000)
    sent = release(book, "a", rows, flips(0.6))
    release(book, "b", rows_of(10, first=5000), flips(0.7, 3.0, classes=3))
    assert (book.check().releases, book.check().bits) == (2, 3010)
    with sqlite3.connect(tmp_path / "book.sqlite") as raw:
        raw.execute("UPDATE released SET sent = ? WHERE release = 1", ((1 - sent).astype(np.uint8).tobytes(),))
    with pytest.raises(StorageError, match="'r' was sent is not"):
        book.check()
    with sqlite3.connect(tmp_path / "book.sqlite") as raw:
        raw.execute("UPDATE released SET sent = ? WHERE release = 1", (sent.tobytes(),))
        raw.execute("UPDATE frozen SET label = 1 - label WHERE series = 1")
    with pytest.raises(StorageError, match="is not what the secret and the frozen labels give"):
        book.check()


def test_rows_without_a_label_stay_in_and_stay_without_one(book):
    rows = rows_of(4000)
    sent = release(book, "a", Rows(rows.keys, rows.units, np.full(4000, -1)), flips(0.9))
    assert 0.45 < sent.mean() < 0.55  # 6 deviations
    assert np.array_equal(release(book, "b", rows, flips(0.9)), sent), "frozen as unknown"


def test_a_book_knows_rows_by_one_coin_id_for_good(book):
    release(book, "a", rows_of(50), flips(0.6), coin_id=("id",))
    with pytest.raises(UsageError, match=r"coin_id = \['id'\]"):
        release(book, "b", rows_of(50, first=50), flips(0.6), coin_id=("ticket",))
    assert book.summary().labels == 50


def test_a_row_has_one_unit_under_all_coins(book):
    release(book, "a", rows_of(90, per_unit=3), flips(0.6), unit="person")
    rows = rows_of(90, per_unit=3)
    moved, rare = Rows(rows.keys, np.roll(rows.units, 1, axis=1), rows.labels), flips(0.6, 7.4, rare="positive")
    before = book.summary().charges
    sent = release(book, "b", moved, rare, unit="person")
    assert book.unpaid("b") == 87, "three have no unit but 0"
    assert sum(charge.units for charge in book.summary().charges) == before[0].units
    turned = Rows(moved.keys, moved.units, 1 - moved.labels)
    other = open_book(book.path.parent / "other", SECRET)
    release(other, "a", rows_of(90, per_unit=3), flips(0.6), unit="person")
    assert (release(other, "b", turned, rare, unit="person") != sent).sum() <= 3, "nothing of their labels is sent"
    assert book.check().releases == 2


def test_only_its_owner_can_read_a_book(book, tmp_path):
    release(book, "a", rows_of(50), flips(0.6))
    assert (tmp_path / "book.sqlite").stat().st_mode & 0o777 == 0o600
