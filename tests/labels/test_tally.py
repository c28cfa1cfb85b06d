"""How much of a run ever left: an older copy is known by it, and no kill makes a folder look like one."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tacit.errors import StorageError
from tacit.labels.tally import Tally


@pytest.fixture(name="path")
def _path(tmp_path):
    return tmp_path / "state" / "run"


def opened(path, begun=True, **options):
    tally = Tally(path, **options)
    tally.begin(begun=begun)
    return tally


def test_what_left_is_counted_and_an_older_copy_refused(path):
    tally = opened(path, begun=False)
    tally.check(0, 0)
    for left in (1, 2, 3):
        tally.reach(left)
    tally.close()
    for known in (0, 2):
        again = opened(path)
        with pytest.raises(StorageError, match=f"an older copy: it knows of {known} messages, and 3 have left"):
            again.check(known, known)
        again.close()
    for known in (3, 4):  # killed between the journal and the count
        again = opened(path)
        again.check(known, known)
        again.close()
    assert int(path.read_text()) == 4


def test_an_answer_that_follows_from_its_request_is_no_older_copy(path):
    """It is computed again, the same, and counted once."""
    tally = opened(path, begun=False)
    tally.check(0, 0)
    tally.reach(5)
    tally.close()
    for _ in range(2):
        again = opened(path)
        again.check(5, 4)
        again.reach(5)
        again.close()
    assert int(path.read_text()) == 5


def test_a_book_is_held_against_its_count_by_one_run_after_the_other(path):
    """Two runs of one party overlap: the second waits for the first, and counts what both have entered."""
    book = []
    entering = threading.Event()

    def enter():
        with Tally(path).around(lambda: len(book)):
            entering.set()
            book.append("an entry")

    with ThreadPoolExecutor(1) as pool, Tally(path).around(lambda: len(book)):
        other = pool.submit(enter)
        assert not entering.wait(0.2)
        book.append("an entry")
    other.result(timeout=10)
    assert int(path.read_text()) == 2
    book.pop()
    with pytest.raises(StorageError, match="older copy"), Tally(path).around(lambda: len(book)):
        pytest.fail("it is used")


def test_a_copy_from_before_the_run_began_is_an_older_one_too(path):
    opened(path, begun=False).close()
    path.write_text("5\n")
    with pytest.raises(StorageError, match="0 messages, and 5 have left"):
        opened(path, begun=False).check(0, 0)


@pytest.mark.parametrize("content", [None, b"", b"no number", b"-3"])
def test_a_count_that_is_gone_is_missed_when_the_run_has_begun(path, content):
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with pytest.raises(StorageError, match=r"gone or another one's.*--after-restore"):
        opened(path).check(7, 7)


@pytest.mark.parametrize("content", [None, "9\n"])
def test_somebody_may_answer_for_it_and_is_told_what_is_missing(path, content):
    if content is not None:
        path.parent.mkdir()
        path.write_text(content)
    told = []
    tally = opened(path, restored=told.append)
    tally.check(7, 7)
    tally.reach(8)
    tally.close()
    assert len(told) == 1
    assert int(path.read_text()) == 8
    opened(path, restored=told.append).check(8, 8)
    assert len(told) == 1, "where nothing is missing nobody has to answer for anything"


def test_the_count_is_kept_when_the_process_is_killed(path):
    """Without a sync: what was handed to the operating system outlives the process."""
    code = (
        "import os, sys; from pathlib import Path; from tacit.labels.tally import Tally\n"
        "tally = Tally(Path(sys.argv[1])); tally.begin(begun=False); tally.check(0, 0)\n"
        "for left in range(1001): tally.reach(left)\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], timeout=60).returncode == -9
    again = opened(path)
    again.check(1000, 1000)
    again.close()


def test_two_processes_with_one_run_do_not_count_at_once(path):
    first = opened(path, begun=False)
    with pytest.raises(StorageError, match="another process uses this run"):
        opened(path)
    first.close()
    opened(path).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_where_it_cannot_be_written_nothing_begins(tmp_path):
    (tmp_path / "state").mkdir(mode=0o500)
    with pytest.raises(StorageError, match="set TACIT_STATE"):
        opened(tmp_path / "state" / "run", begun=False)


def test_where_its_folder_cannot_be_made_nothing_begins(tmp_path):
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StorageError, match="set TACIT_STATE"):
        opened(tmp_path / "state" / "inner" / "run", begun=False)
