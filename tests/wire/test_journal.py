"""The journal: what was synced is there after any crash, and what is not as it was written is never loaded."""

import hashlib

import pytest

from tacit.errors import StorageError, UsageError
from tacit.wire.journal import Journal, Place, Record

DIGEST = hashlib.sha256(b"some payload").digest()


def record(turn, *parts, kind="sent", peer="clinic"):
    return Record(kind, turn, peer, hashlib.sha256(b"".join(parts)).digest(), parts)


def content(journal, from_turn=0):
    return [found for _, found in journal.records(from_turn)]


def test_what_was_appended_is_read_back_in_order(tmp_path):
    written = [
        record(0, b"a" * 70, b""),
        record(0, kind="note", peer=""),
        record(1, b"\0" * 5000, b"x", kind="answered"),
    ]
    with Journal(tmp_path) as journal:
        places = [journal.append(each) for each in written]
        journal.sync()
        assert content(journal) == written
        assert [place for place, _ in journal.records()] == places
        assert [journal.read(place) for place in reversed(places)] == written[::-1]
        assert content(journal, from_turn=1) == written[2:]
    with Journal(tmp_path) as journal:
        assert content(journal) == written
        assert journal.torn == 0
        assert journal.read(places[1]) == written[1]


def test_segments_are_rotated_and_dropped(tmp_path):
    with Journal(tmp_path) as journal:
        for turn in range(40):
            if turn % 10 == 0:
                journal.rotate(turn)
            journal.append(record(turn, bytes([turn]) * 100))
        first = next(iter(journal.records()))[0]
        journal.drop_before(25)
        assert [each.turn for each in content(journal)] == list(range(20, 40))
        with pytest.raises(StorageError, match="was dropped"):
            journal.read(first)
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [
        "journal-000000000020.log",
        "journal-000000000030.log",
    ]
    with Journal(tmp_path) as journal:
        journal.rotate(40)  # writes over the segment that was dropped
        journal.append(record(40, b"new"))
        journal.drop_before(1000)
        assert content(journal) == [record(40, b"new")]
    with Journal(tmp_path) as journal:
        assert content(journal) == [record(40, b"new")]
        assert journal.torn == 0


def test_syncing_in_the_background(tmp_path):
    with Journal(tmp_path) as journal:
        for turn in range(20):
            journal.append(record(turn, b"z" * 1000))
            journal.sync_soon()
            journal.append(record(turn, b"y" * 1000))
            journal.sync()
        assert len(content(journal)) == 40


def test_a_second_user_of_the_folder_is_refused(tmp_path):
    with Journal(tmp_path), pytest.raises(StorageError, match="another process uses this journal"):
        Journal(tmp_path)
    Journal(tmp_path).close()


def test_wrong_records_are_refused():
    with pytest.raises(UsageError, match="kinds are sent, received"):
        Record("lost", 0, "clinic", DIGEST)
    with pytest.raises(UsageError, match="turn -1"):
        Record("sent", -1, "clinic", DIGEST)
    with pytest.raises(UsageError, match="not 5 bytes"):
        Record("sent", 0, "clinic", b"short")
    with pytest.raises(UsageError, match="65 parts"):
        Record("sent", 0, "clinic", DIGEST, (b"",) * 65)


def test_a_closed_journal_says_so(tmp_path):
    journal = Journal(tmp_path)
    journal.close()
    journal.close()
    with pytest.raises(StorageError, match="closed"):
        journal.append(record(0))
    with pytest.raises(StorageError, match="closed"):
        journal.read(Place(0, 0))
