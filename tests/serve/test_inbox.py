"""What comes from a feature party counts when all of it is on the disk, and not before."""

import numpy as np
import pytest
import torch

from tacit.contracts import Message
from tacit.errors import LinkError, RefusedError, StorageError
from tacit.made_once import made_once
from tacit.serve import job
from tacit.serve.job import sent_rows, store_rows, stored_rows

WIDTH = 3


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(job, "ROWS", 10)


def messages(count):
    rows = np.arange(count * WIDTH, dtype=np.uint8).reshape(count, WIDTH)
    rows[:, 0] = 1
    some = [rows[start : start + 10] for start in range(0, count, 10)]
    return rows, [message(step, part) for step, part in enumerate(some)]


def message(step, part):
    return Message(step, "embedding", torch.from_numpy(part.copy()), b"")


def store(folder, count, following, told=lambda _: None, places=None, total=None):
    """All that comes, as a prediction keeps it; the rows of its file."""
    places, total = np.arange(count) if places is None else places, count if total is None else total
    made = made_once(
        folder, "airport", lambda fresh: store_rows(fresh / "rows.bin", places, total, WIDTH, following, told)
    )
    return stored_rows(made / "rows.bin", total, WIDTH)


@pytest.mark.parametrize("count", [0, 1, 10, 34])
def test_it_is_whole_when_everything_has_come(tmp_path, count):
    rows, some = messages(count)
    told = []
    stored = store(tmp_path, count, iter(some).__next__, told.append)
    assert told == [min(10 * (step + 1), count) for step in range(len(some))]
    assert np.array_equal(stored, rows)
    assert [one.name for one in tmp_path.iterdir()] == ["airport"]
    assert np.array_equal(store(tmp_path, count, None), rows), "nothing is asked for once more"


def test_each_row_stands_at_its_place_in_the_file(tmp_path):
    """In private, rows come in an order of their own, and rows that nobody asked for are unknown."""
    rows, some = messages(34)
    places = np.random.default_rng(1).permutation(50)[:34]
    stored = store(tmp_path, 34, iter(some).__next__, places=places, total=50)
    assert np.array_equal(stored[places], rows)
    assert not stored[np.setdiff1d(np.arange(50), places)].any()


def test_after_a_link_broke_nothing_is_there_and_everything_comes_again(tmp_path):
    rows, some = messages(34)

    def broken():
        yield from some[:2]
        raise LinkError("it broke")

    with pytest.raises(LinkError):
        store(tmp_path, 34, broken().__next__)
    assert not (tmp_path / "airport").exists()
    assert np.array_equal(store(tmp_path, 34, iter(some).__next__), rows)


def test_another_part_than_the_next_is_refused(tmp_path):
    _, some = messages(34)
    wrong = some[0].payload.numpy().copy()
    wrong[3, 0] = 2
    for one in (some[1], message(0, some[3].payload.numpy()), message(0, wrong)):
        with pytest.raises(RefusedError):
            store(tmp_path, 34, iter([one]).__next__)
    assert not (tmp_path / "airport").exists()


def test_what_is_sent_is_read_message_by_message(tmp_path):
    rows, some = messages(34)
    path = tmp_path / "rows.bin"
    path.write_bytes(rows.tobytes())
    assert [part.tolist() for part in sent_rows(path, 34, WIDTH)] == [one.payload.tolist() for one in some]
    path.write_bytes(rows[:33].tobytes())
    with pytest.raises(StorageError, match="ends before row 34"):
        list(sent_rows(path, 34, WIDTH))
