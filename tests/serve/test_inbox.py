"""What comes from a feature party is kept part by part; only what is on the disk for sure counts afterwards."""

import numpy as np
import pytest

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
    return rows, [rows[start : start + 10] for start in range(0, count, 10)]


def test_it_goes_on_after_a_link_broke_where_it_was(path):
    rows, some = messages(34)
    inbox = Inbox(path, 34, WIDTH)

    def broken():
        with inbox.taking():
            inbox.take(0, some[0])
            inbox.take(1, some[1])
            raise LinkError("it broke")

    with pytest.raises(LinkError):
        broken()
    again = Inbox(path, 34, WIDTH)
    assert (again.have, again.rows, again.whole) == (2, 20, False)
    with again.taking():
        for step in (2, 3):
            again.take(step, some[step])
    last = Inbox(path, 34, WIDTH)
    assert (last.whole, last.rows) == (True, 34)
    with last.taking():
        pass  # nothing is missing, and nothing is lost
    assert np.array_equal(last.read(), rows)


def test_what_the_disk_has_not_for_sure_does_not_count(path):
    """As after a kill: the file has more than what was written down beside it."""
    _, some = messages(34)
    inbox = Inbox(path, 34, WIDTH)
    with inbox.taking():
        inbox.take(0, some[0])
    path.write_bytes(path.read_bytes() + bytes(40))
    again = Inbox(path, 34, WIDTH)
    assert again.have == 1
    with again.taking():
        assert path.read_bytes()[30:] == bytes(24 * WIDTH), "room for the rest, and nothing in it"
    for lost in (b"", bytes(20)):
        path.with_name(f"{path.name}.sure").write_bytes(lost)
        assert Inbox(path, 34, WIDTH).have == 0, "as after a power cut"
    path.unlink()
    assert Inbox(path, 34, WIDTH).have == 0


@pytest.mark.parametrize("torn", [b"", bytes(20), b"\xff" * 20, b"-0000000000000000001"])
def test_where_it_is_not_readable_what_the_disk_has_everything_is_asked_for_again(path, torn):
    rows, some = messages(34)
    inbox = Inbox(path, 34, WIDTH)
    with inbox.taking():
        inbox.take(0, some[0])
    path.with_name("airport.bin.sure").write_bytes(torn)
    again = Inbox(path, 34, WIDTH)
    assert again.have == 0
    with again.taking():
        for step, part in enumerate(some):
            again.take(step, part)
    last = Inbox(path, 34, WIDTH)
    assert last.whole
    assert np.array_equal(last.read(), rows)


def test_now_and_then_it_is_written_down_what_the_disk_has(path, monkeypatch):
    monkeypatch.setattr(job, "_PAUSE", -1.0)
    _, some = messages(34)
    inbox = Inbox(path, 34, WIDTH)
    with inbox.taking():
        for step, part in enumerate(some):
            inbox.take(step, part)
            inbox._syncing.result()
            assert step <= Inbox(path, 34, WIDTH).have <= step + 1


def test_another_part_than_the_next_is_refused(path):
    _, some = messages(34)
    inbox = Inbox(path, 34, WIDTH)
    wrong = some[0].copy()
    wrong[3, 0] = 2
    with inbox.taking():
        for step, part in ((1, some[0]), (0, some[3]), (0, wrong)):
            with pytest.raises(RefusedError):
                inbox.take(step, part)
    assert Inbox(path, 34, WIDTH).have == 0


def test_what_is_sent_is_read_message_by_message_from_where_the_other_side_is(path):
    rows, some = messages(34)
    path.write_bytes(rows.tobytes())
    for have in range(5):
        sent = [part.copy() for part in parts(path, 34, WIDTH, have)]
        assert [part.tolist() for part in sent] == [part.tolist() for part in some[have:]]
    path.write_bytes(rows[:33].tobytes())
    with pytest.raises(StorageError, match="ends before row 34"):
        list(parts(path, 34, WIDTH, 2))
