"""Crashes at every byte, and damage at every record: nothing is lost without a word."""

import shutil

import pytest

from tacit.errors import StorageError
from tacit.ledger import log as frames
from tacit.ledger.ledger import Ledger
from tacit.ledger.log import Reader

SYNCED, TURNS = 6, 10  # turns


@pytest.fixture
def crashed(made, where):
    """Folders as a crash leaves them: synced after six turns, and so many bytes of twelve written; and the whole."""
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, made.keys(made.SMALL.count))
        made.answer_all(book, made.SMALL, turns=SYNCED)
        book.sync()
        then = (where / "log").stat().st_size
        mark = (where / "synced").read_bytes()
        made.answer_all(book, made.SMALL, turns=TURNS)
        whole = (where / "log").read_bytes()
    (where / "synced").write_bytes(mark)

    def after(length, junk=b""):
        (where / "log").write_bytes(whole[:length] + junk)
        (where / "synced").write_bytes(mark)

    return after, then, whole


def test_a_tail_that_was_torn_at_any_byte_is_cut_and_filled_in_by_the_replay(made, where, crashed):
    after, then, whole = crashed
    ends = [frame.end for frame in Reader(where).new()]
    for length in range(then, len(whole) + 1):
        after(length)
        good = max(end for end in ends if end <= length)
        found = Ledger(where).check()
        assert (found.bytes, found.torn) == (good, length - good), "a reader stops before what is not whole"
        if length not in (good, good + 1, good + 40, len(whole) - 1):
            continue
        with Ledger(where) as ledger:
            book = ledger.begin(made.SMALL, made.keys(made.SMALL.count))
            book.resume(SYNCED)
            made.answer_all(book, made.SMALL, first=SYNCED, turns=TURNS)
        assert (where / "log").read_bytes() == whole
        assert Ledger(where).check().torn == 0


@pytest.mark.parametrize(
    "junk", [bytes(300), b"\xff" * 90, b"\x40\0\0\0\0" + bytes(60)], ids=["zeros", "ones", "frame"]
)
def test_what_a_power_cut_leaves_behind_the_last_sync_is_cut(made, where, crashed, junk):
    after, then, whole = crashed
    after(then, junk)
    with Ledger(where) as ledger:
        book = ledger.begin(made.SMALL, made.keys(made.SMALL.count))
        made.answer_all(book, made.SMALL, first=SYNCED, turns=TURNS)
    assert (where / "log").read_bytes() == whole


def test_shorter_than_what_was_synced_is_no_torn_tail(made, where, crashed):
    after, then, _ = crashed
    for length in range(then - 1, frames.HEAD_SIZE - 1, -7):
        after(length)
        with pytest.raises(StorageError, match="damaged at byte"):
            Ledger(where).check()
        with Ledger(where) as ledger, pytest.raises(StorageError, match="damaged at byte"):
            ledger.begin(made.SMALL, made.keys(made.SMALL.count))
        assert (where / "log").stat().st_size == length, "nothing is cut off where something is wrong"


def test_damage_at_every_record_is_named_with_file_and_byte(made, full):
    reader = Reader(full)
    places = [(frame.start, frame.end) for frame in reader.new()]
    whole = (full / "log").read_bytes()
    assert len(places) > 40
    for number, (start, end) in enumerate(places):
        changed = bytearray(whole)
        changed[start + number % (end - start)] ^= 1 << number % 8
        (full / "log").write_bytes(changed)
        with pytest.raises(StorageError, match=rf"log: damaged at byte {start}:"):
            Ledger(full).check()
    with Ledger(full) as ledger, pytest.raises(StorageError, match="damaged at byte"):
        ledger.begin(made.SMALL, made.keys(made.SMALL.count))
    (full / "log").write_bytes(whole)
    assert Ledger(full).check().records == len(places)


def test_a_last_record_that_was_taken_off_after_a_clean_end_is_noticed(full):
    places = [frame.start for frame in Reader(full).new()]
    whole = (full / "log").read_bytes()
    (full / "log").write_bytes(whole[: places[-1]])
    with pytest.raises(StorageError, match="records are missing"):
        Ledger(full).summary()


def test_files_beside_the_log_are_checked(full):
    for path in full.glob("keys-*"):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(StorageError, match=path.name):
            Ledger(full).check()
        path.unlink()
        with pytest.raises(StorageError, match=path.name):
            Ledger(full).check()
        path.write_bytes(whole)
    Ledger(full).check()


def test_a_missing_or_foreign_mark_is_noticed(made, full, tmp_path):
    mark = (full / "synced").read_bytes()
    for said, wrong in (("missing", None), ("bytes", b"short"), ("another ledger", mark[:-1] + b"x")):
        (full / "synced").unlink(missing_ok=True)
        if wrong is not None:
            (full / "synced").write_bytes(wrong)
        with pytest.raises(StorageError, match=said):
            Ledger(full).check()
    (full / "synced").write_bytes(mark)
    (full / "log").rename(tmp_path / "log")
    with Ledger(full) as ledger, pytest.raises(StorageError, match="missing"):
        ledger.begin(made.SMALL, made.keys(made.SMALL.count))


def test_a_crash_while_the_ledger_is_made(made, where):
    with Ledger(where) as ledger:
        ledger.begin(made.SMALL, None)
    (where / "log").write_bytes((where / "log").read_bytes()[: frames.HEAD_SIZE])
    (where / "synced").unlink()
    with Ledger(where) as ledger:
        made.answer_all(ledger.begin(made.SMALL, None), made.SMALL, turns=3)
    assert Ledger(where).summary().answers == 48


def test_an_older_copy_of_the_whole_folder_is_noticed_by_the_checkpoint(made, where, tmp_path):
    with Ledger(where) as ledger:
        made.answer_all(ledger.begin(made.SMALL, None), made.SMALL, turns=5)
    shutil.copytree(where, tmp_path / "copy")
    with Ledger(where) as ledger:
        made.answer_all(ledger.begin(made.SMALL, None), made.SMALL, first=5, turns=9)
    with Ledger(tmp_path / "copy") as ledger:
        book = ledger.begin(made.SMALL, None)
        with pytest.raises(StorageError, match="older copy"):
            book.resume(9)


def test_a_full_disk_ends_the_adding(made, full, monkeypatch):
    with Ledger(full) as ledger:
        book = ledger.begin(made.SMALL, made.keys(made.SMALL.count))
        monkeypatch.setattr("os.pwritev", lambda *_: 0)
        fresh = ledger.begin(made.SMALL, made.keys(made.SMALL.count))
        with pytest.raises(StorageError, match="No space left"):
            book.tell(99, 1)
        monkeypatch.undo()
        with pytest.raises(StorageError, match="nothing can be added"):
            fresh.tell(99, 1)
    Ledger(full).check()
