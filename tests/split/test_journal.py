"""The journal: what was synced is there after any crash, and what is not as it was written is never loaded."""

import hashlib
import stat
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import StorageError, UsageError
from tacit.split.journal import Journal, Place, Record

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


def test_a_file_is_allocated_beforehand_and_holds_what_was_written_alone(tmp_path):
    with Journal(tmp_path, room=1 << 20) as journal:
        assert (tmp_path / "journal-000000000000.log").stat().st_size == 1 << 20
        journal.append(record(0, b"z" * 1000))
        journal.sync()
        assert content(journal) == [record(0, b"z" * 1000)]
        written = journal.size
        assert 1000 < written < 1500
        journal._release()  # as a kill leaves it
    with Journal(tmp_path, room=1 << 20) as journal:
        assert (content(journal), journal.torn) == ([record(0, b"z" * 1000)], 0)
        journal.rotate(1)
        journal.append(record(1, b"more"))
    assert [path.stat().st_size for path in sorted(tmp_path.glob("*.log"))] == [written, journal.size - written]
    with Journal(tmp_path) as journal:
        assert content(journal) == [record(0, b"z" * 1000), record(1, b"more")]


def test_a_second_user_of_the_folder_is_refused(tmp_path):
    with Journal(tmp_path), pytest.raises(StorageError, match="another process uses this run"):
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


def test_only_the_owner_can_look_into_it(tmp_path):
    with Journal(tmp_path / "a" / "journal") as journal:
        journal.append(record(0, b"x"))
        journal.rotate(5)
        journal.drop_before(1)
    folder = tmp_path / "a" / "journal"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert {path.name for path in folder.iterdir()} == {"lock", "spare", "journal-000000000005.log"}


def test_rotating_follows_the_turns(tmp_path):
    with Journal(tmp_path) as journal:
        journal.rotate(10)
        journal.rotate(10)
        with pytest.raises(UsageError, match=r"rotate\(9\) after rotate\(10\)"):
            journal.rotate(9)
        journal.append(record(12, b"late"))
        journal.rotate(11)  # the turn of a record may be larger than the next segment's: it is kept long enough
        journal.drop_before(12)
        assert content(journal) == [record(12, b"late")]
        journal.drop_before(13)
        assert content(journal) == []


def test_the_bytes_on_disk_stay_bounded(tmp_path):
    sizes = []
    with Journal(tmp_path, sync=False) as journal:
        for turn in range(200):
            if turn % 10 == 0:
                journal.rotate(turn)
                journal.drop_before(turn - 10)
                sizes.append(journal.size)
            journal.append(record(turn, bytes(1000)))
    assert max(sizes) < 45 * 1200
    assert max(sizes[5:]) <= max(sizes[:5]) + 1200


ACTS = st.one_of(
    st.tuples(
        st.just("append"),
        st.sampled_from(["sent", "received", "answered", "note"]),
        st.integers(0, 3),
        st.lists(st.binary(max_size=40), max_size=3),
    ),
    st.tuples(st.sampled_from(["sync", "reopen", "crash"])),
    st.tuples(st.sampled_from(["rotate", "drop"]), st.integers(0, 4)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTS, max_size=40))
def test_it_behaves_as_a_list_does(acts):
    """Against a list of segments, each a list of records; "crash" leaves the files as the end of a process does."""
    with tempfile.TemporaryDirectory() as folder:
        model, starts, turn = [[]], [0], 0
        journal = Journal(folder, sync=False)
        for act, *rest in acts:
            if act == "append":
                kind, later, parts = rest
                turn += later
                written = record(turn, *parts, kind=kind)
                assert journal.read(journal.append(written)) == written
                model[-1].append(written)
            elif act == "rotate" and starts[-1] < turn + rest[0]:
                turn += rest[0]
                journal.rotate(turn)
                model.append([])
                starts.append(turn)
            elif act == "drop":
                journal.drop_before(turn - rest[0])
                while (
                    len(model) > 1
                    and all(each.turn < turn - rest[0] for each in model[0])
                    and starts[0] <= turn - rest[0]
                ):
                    del model[0], starts[0]
            elif act == "sync":
                journal.sync()
            elif act in ("reopen", "crash"):
                journal.close() if act == "reopen" else journal._release()
                journal = Journal(folder, sync=False)
                assert journal.torn == 0
            assert content(journal) == [each for segment in model for each in segment]
            assert content(journal, turn) == [each for segment in model for each in segment if each.turn >= turn]
        journal.close()
