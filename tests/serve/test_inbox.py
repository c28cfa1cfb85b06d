"""What comes from a feature party counts when all of it is on the disk, and not before."""

import numpy as np
import pytest
import torch

from tacit.contracts import Message
from tacit.errors import LinkError, RefusedError, StorageError
from tacit.serve import job
from tacit.serve.job import Inbox, parts

WIDTH = 3


@pytest.fixture(name="path", autouse=True)
def _path(tmp_path, monkeypatch):
    monkeypatch.setattr(job, "CHUNK", 10 * WIDTH)
    return tmp_path / "airport.bin"


def messages(count):
    rows = np.arange(count * WIDTH, dtype=np.uint8).reshape(count, WIDTH)
    rows[:, 0] = 1
    some = [rows[start : start + 10] for start in range(0, count, 10)]
    return rows, [message(step, part) for step, part in enumerate(some)]


def message(step, part):
    return Message(step, "embedding", torch.from_numpy(part.copy()), b"")


@pytest.mark.parametrize("count", [0, 1, 10, 34])
def test_it_is_whole_when_everything_has_come(path, count):
    rows, some = messages(count)
    inbox = Inbox(path, count, WIDTH)
    assert not inbox.whole
    told = []
    inbox.store(iter(some).__next__, told.append)
    assert told == [min(10 * (step + 1), count) for step in range(len(some))]
    again = Inbox(path, count, WIDTH)
    assert again.whole
    assert np.array_equal(again.read(), rows)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_after_a_link_broke_nothing_is_there_and_everything_comes_again(path):
    rows, some = messages(34)
    inbox = Inbox(path, 34, WIDTH)

    def broken():
        yield from some[:2]
        raise LinkError("it broke")

    with pytest.raises(LinkError):
        inbox.store(broken().__next__)
    assert not Inbox(path, 34, WIDTH).whole
    path.with_name("airport.bin.part").write_bytes(b"as after a kill")
    again = Inbox(path, 34, WIDTH)
    assert not again.whole
    again.store(iter(some).__next__)
    assert np.array_equal(Inbox(path, 34, WIDTH).read(), rows)


def test_another_part_than_the_next_is_refused(path):
    _, some = messages(34)
    inbox = Inbox(path, 34, WIDTH)
    wrong = some[0].payload.numpy().copy()
    wrong[3, 0] = 2
    for one in (some[1], message(0, some[3].payload.numpy()), message(0, wrong)):
        with pytest.raises(RefusedError):
            inbox.store(iter([one]).__next__)
    assert not Inbox(path, 34, WIDTH).whole


def test_what_is_sent_is_read_message_by_message(path):
    rows, some = messages(34)
    path.write_bytes(rows.tobytes())
    assert [part.tolist() for part in parts(path, 34, WIDTH)] == [one.payload.tolist() for one in some]
    path.write_bytes(rows[:33].tobytes())
    with pytest.raises(StorageError, match="ends before row 34"):
        list(parts(path, 34, WIDTH))
