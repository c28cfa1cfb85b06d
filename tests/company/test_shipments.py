"""What the book of embeddings says has left of a row."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from tacit.company import shipments
from tacit.company.shipments import Shipment, Shipments, version_of
from tacit.errors import StorageError

KEYS = np.arange(6 * 16, dtype=np.uint8).reshape(6, 16)
OTHER = np.zeros((1, 1), np.uint8)  # what no book has


def shipment(version, rows):
    return Shipment(f"run {version}", "airline", version, "", rows, 0.5)


def codes(rows, width, start):
    return np.arange(start, start + rows * width, dtype=np.uint8).reshape(rows, width)


def numbers(book, run_id="new", keys=KEYS, leaving=OTHER):
    return book.before(keys, run_id).besides(leaving)


def test_all_versions_lie_side_by_side(tmp_path):
    book = Shipments(tmp_path)
    assert numbers(book) is None
    first, second = codes(6, 2, 10), codes(4, 1, 100)
    book.enter("one", KEYS[::-1], shipment("a", 6), first)
    book.enter("two", KEYS[2:], shipment(version_of("two", second), 4), second)
    found = numbers(book)
    assert np.array_equal(found[:, :2], first[::-1]), "in the order of the keys"
    assert found[:, 2].tolist() == [0, 0, 255, 255, 255, 255], "two rows have not left in this version"
    assert found[:, 3].tolist() == [0, 0, 100, 101, 102, 103]
    assert np.array_equal(numbers(book, "two", leaving=second), first[::-1]), "what leaves again is not before itself"
    assert numbers(book, keys=KEYS + 200) is None
    assert book.versions() == {1: 2, 2: 4}


def test_a_version_is_entered_once(tmp_path):
    book = Shipments(tmp_path)
    for value in (1, 2):
        book.enter("one", KEYS, shipment("a", 6), codes(6, 1, value))
    assert np.array_equal(numbers(book), codes(6, 1, 1))
    assert len(book.all()) == 1


def test_another_embedding_of_the_same_run_is_another_version(tmp_path):
    """The run's folder was removed, and other flips came."""
    book = Shipments(tmp_path)
    first, second = codes(6, 1, 1), codes(6, 1, 50)
    for values in (first, second):
        book.enter("one", KEYS, shipment(version_of("one", values), 6), values)
    assert len(book.all()) == 2
    assert book.versions() == {2: 6}
    assert np.array_equal(numbers(book, "one", leaving=second), first), "attacked together with the first"
    assert np.array_equal(numbers(book), np.concatenate([first, second], axis=1))


def test_what_an_audit_has_not_seen_keeps_a_release_at_home(tmp_path):
    """Two runs overlap: each was attacked before the other was entered."""
    book = Shipments(tmp_path)
    first, second = codes(6, 1, 1), codes(6, 1, 50)
    seen = book.before(KEYS, "one").versions
    assert book.enter("one", KEYS, shipment("a", 6), first, seen)
    assert not book.enter("two", KEYS, shipment("b", 6), second, seen)
    assert len(book.all()) == 1
    assert book.enter("three", KEYS + 200, shipment("c", 6), second, seen), "of other rows"
    assert book.enter("two", KEYS, shipment("b", 6), second, book.before(KEYS, "two").versions)
    assert book.enter("one", KEYS, shipment("a", 6), first, seen), "it is entered, and those after it have seen it"
    assert len(book.all()) == 3


def test_a_book_of_an_earlier_version_is_refused(tmp_path):
    with closing(sqlite3.connect(tmp_path / "book.sqlite")) as db, db:
        db.execute("CREATE TABLE shipments (id INTEGER PRIMARY KEY, run_id TEXT UNIQUE NOT NULL)")
    with pytest.raises(StorageError, match="earlier version"):
        Shipments(tmp_path)


def test_many_rows_in_no_order_come_back_as_they_went(tmp_path, monkeypatch):
    """However they are entered, and read some at a time; of rows that leave a second time only what is new counts."""
    monkeypatch.setattr(shipments, "_SOME", 100)
    draw, book = np.random.default_rng(3), Shipments(tmp_path)
    keys, values = (
        draw.integers(256, size=(1000, 16), dtype=np.uint8),
        draw.integers(256, size=(1000, 3), dtype=np.uint8),
    )
    book.enter("one", keys[:600], shipment("a", 600), values[:600])
    about = replace(shipment("b", 500), run="run a")
    book.add("two", about, [(keys[at : at + 50], values[at : at + 50], None) for at in range(500, 1000, 50)])
    left = book.before(keys, "new").embeddings
    assert np.array_equal(left["a"][:600, 1:], values[:600])
    assert (left["a"][:, 0] == np.where(np.arange(1000) < 600, 255, 0)).all()
    assert np.array_equal(left["b"][600:, 1:], values[600:])
    assert not left["b"][:600].any(), "these had left in this run, with the same numbers"
    mixed = draw.permutation(1000)[:300]
    assert np.array_equal(
        book.before(keys[mixed], "new").of(np.arange(50, 90)).embeddings["a"], left["a"][mixed[50:90]]
    )
