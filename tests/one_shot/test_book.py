"""The label party's book: frozen labels, releases that are the same when asked again, and what they add up to."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from tacit.errors import StorageError, UsageError
from tacit.one_shot.book import open_book
from tacit.one_shot.flips import flips
from tacit.one_shot.records import Rows, Terms

SECRET = bytes(range(32))


def release(book, run_id, rows, mechanism, **more):
    terms = Terms(run="r", partners=("airport",), label="late", definition="2 classes", **more)
    return book.release(run_id, rows, mechanism, terms)


def rows_of(count, first=0, per_unit=1):
    number = np.arange(first, first + count, dtype="<u8")
    keys = np.zeros((count, 16), np.uint8)
    keys[:, :8] = number.view(np.uint8).reshape(-1, 8)
    units = np.zeros((count, 16), np.uint8)
    units[:, 8:] = (number // per_unit).astype("<u8").view(np.uint8).reshape(-1, 8)
    return Rows(keys, keys if per_unit == 1 else units, (number % 3 == 0).astype(np.int64))


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
    with pytest.raises(UsageError, match="another unit"):
        release(book, "c", rows_of(90, per_unit=2), flips(0.6), unit="person")


def test_a_budget_is_kept_and_nothing_is_entered_where_it_would_be_passed(book):
    rows = rows_of(50)
    release(book, "a", rows, flips(0.6), budget=0.65)
    with pytest.raises(UsageError, match=r"budget = 0.65.*50 of the units"):
        release(book, "b", rows, flips(0.7), budget=0.65)
    with pytest.raises(UsageError, match=r"odds_budget = 2.*odds"):
        release(book, "b", rows, flips(0.7), odds_budget=2.0)
    assert [one.run for one in book.summary().releases] == ["r"]
    assert book.summary().auc == flips(0.6).auc
    release(book, "b", rows_of(50, first=50), flips(0.6), budget=0.65)
    assert book.summary().labels == 100


def test_one_run_has_one_mechanism_and_one_set_of_rows(book):
    release(book, "a", rows_of(50), flips(0.6))
    with pytest.raises(UsageError, match="another mechanism"):
        release(book, "a", rows_of(50), flips(0.61))
    with pytest.raises(UsageError, match="other rows"):
        release(book, "a", rows_of(50, first=1), flips(0.6))


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
    moved = Rows(rows.keys, np.roll(rows.units, 1, axis=1), rows.labels)
    with pytest.raises(UsageError, match="87 rows were released under another unit"):
        release(book, "b", moved, flips(0.6, 7.4, rare="positive"), unit="person")


def test_only_its_owner_can_read_a_book(book, tmp_path):
    release(book, "a", rows_of(50), flips(0.6))
    assert (tmp_path / "book.sqlite").stat().st_mode & 0o777 == 0o600
