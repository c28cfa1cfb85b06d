"""What the book of embeddings says has left of a row."""

from __future__ import annotations

import numpy as np

from tacit.one_shot.shipments import Shipment, Shipments

KEYS = np.arange(6 * 16, dtype=np.uint8).reshape(6, 16)


def shipment(version, rows):
    return Shipment(f"run {version}", "airline", version, "", rows, 0.5)


def codes(rows, width, start):
    return np.arange(start, start + rows * width, dtype=np.uint8).reshape(rows, width)


def test_all_versions_of_other_runs_lie_side_by_side(tmp_path):
    book = Shipments(tmp_path)
    assert book.before(KEYS, "new") is None
    first, second = codes(6, 2, 10), codes(4, 1, 100)
    book.enter("one", KEYS[::-1], shipment("a", 6), first)
    book.enter("two", KEYS[2:], shipment("b", 4), second)
    found = book.before(KEYS, "new")
    assert np.array_equal(found[:, :2], first[::-1]), "in the order of the keys"
    assert found[:, 2].tolist() == [0, 0, 255, 255, 255, 255], "two rows have not left in this version"
    assert found[:, 3].tolist() == [0, 0, 100, 101, 102, 103]
    assert np.array_equal(book.before(KEYS, "two"), first[::-1]), "a run is not before itself"
    assert book.before(KEYS + 200, "new") is None
    assert book.versions() == {1: 2, 2: 4}


def test_a_run_is_entered_once(tmp_path):
    book = Shipments(tmp_path)
    for value in (1, 2):
        book.enter("one", KEYS, shipment("a", 6), codes(6, 1, value))
    assert np.array_equal(book.before(KEYS, "new"), codes(6, 1, 1))
    assert len(book.all()) == 1
