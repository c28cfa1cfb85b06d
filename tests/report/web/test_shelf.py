"""Readers are kept, and used by one thread at a time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tacit.errors import DataError
from tacit.report import reading
from tacit.report.web.shelf import Shelf


def test_one_thread_at_a_time_has_a_reader(tmp_path, make_run):
    make_run(tmp_path / "a" / "runs" / "b")
    shelf = Shelf([tmp_path])
    (place,) = shelf.places()
    inside = threading.Semaphore(1)

    def read(_):
        with shelf.reading(place):
            assert inside.acquire(blocking=False)
            inside.release()
        return shelf.cards()[0]["name"]

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(100))) == {"a / b"}


def test_places_are_looked_for_every_few_seconds_and_less_often_where_that_takes_long(tmp_path, make_run, monkeypatch):
    now = [0.0]
    found = []

    def slow(roots):
        found.append(now[0])
        now[0] += 2.0
        return []

    monkeypatch.setattr("tacit.report.web.shelf.find", slow)
    shelf = Shelf([tmp_path], every=3.0, now=lambda: now[0])
    for second in range(60):
        now[0] = max(now[0], float(second))
        shelf.places()
    assert found == [0.0, 22.0, 44.0]


def test_what_can_not_be_read_is_told_with_its_place(tmp_path, make_run, monkeypatch):
    make_run(tmp_path / "a" / "runs" / "b")
    shelf = Shelf([tmp_path])
    (place,) = shelf.places()

    def broken(self):
        raise KeyError("level")

    monkeypatch.setattr(reading.RunReader, "card", broken)
    with pytest.raises(DataError, match=r"runs/b can't be shown \(KeyError: 'level'\)"), shelf.reading(place) as reader:
        reader.detail()
    (card,) = shelf.cards()
    assert "KeyError" in card["problems"][0]
    assert card["state"] == "unknown"


def test_a_place_that_goes_while_it_is_read_fails_nothing(tmp_path, make_run):
    make_run(tmp_path / "a" / "runs" / "b")
    shelf = Shelf([tmp_path], every=0.0, now=lambda: 0.0)
    (place,) = shelf.places()
    (place.path / "status.json").unlink()
    assert shelf.places() == []
    assert shelf.place(place.id) is None
    with shelf.reading(place) as reader:
        assert reader.card()["id"] == place.id


def test_a_list_does_not_wait_for_who_looks_through_a_large_tree(tmp_path, make_run, monkeypatch):
    make_run(tmp_path / "a" / "runs" / "b")
    now = [0.0]
    shelf = Shelf([tmp_path], now=lambda: now[0])
    (first,) = shelf.cards()
    began, go_on, find = threading.Event(), threading.Event(), reading.find

    def slow(roots):
        began.set()
        assert go_on.wait(20)
        return find(roots)

    monkeypatch.setattr("tacit.report.web.shelf.find", slow)
    now[0] = 100.0
    with ThreadPoolExecutor(2) as pool:
        looking = pool.submit(shelf.places)
        try:
            assert began.wait(20)
            assert pool.submit(shelf.cards).result(timeout=20) == [first]
        finally:
            go_on.set()
        assert len(looking.result(timeout=20)) == 1
