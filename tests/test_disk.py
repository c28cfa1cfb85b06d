"""Files of a run: whole or not there, on the disk when that is promised, and each refusal with its own remedy."""

import errno
import os
import stat

import pytest

from tacit.disk import append_line, read_lines, replaced, storing
from tacit.errors import StorageError


@pytest.fixture(name="synced")
def _synced(monkeypatch):
    """What was synced: folders by their number, files as "file"."""
    found = []

    def synced(fd):
        status = os.fstat(fd)
        found.append(status.st_ino if stat.S_ISDIR(status.st_mode) else "file")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "fdatasync", synced)
    return found


def test_a_file_that_must_last_is_synced_and_so_is_its_name(tmp_path, synced):
    replaced(tmp_path / "a", lambda file: file.write(b"one"))
    assert synced == ["file", tmp_path.stat().st_ino]
    assert (tmp_path / "a").read_bytes() == b"one"


def test_a_file_that_may_be_lost_costs_no_sync(tmp_path, synced):
    replaced(tmp_path / "a", lambda file: file.write(b"one"), durable=False)
    assert synced == []


def test_what_fails_leaves_the_old_file(tmp_path):
    replaced(tmp_path / "a", lambda file: file.write(b"one"))

    def fail(file):
        file.write(b"tw")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StorageError, match="make room on the disk"):
        replaced(tmp_path / "a", fail)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"one"]


def test_a_line_that_must_last_is_synced_and_so_is_a_new_name(tmp_path, synced):
    append_line(tmp_path / "log", {"n": 1}, durable=True)
    append_line(tmp_path / "log", {"n": 2}, durable=True)
    assert synced == ["file", tmp_path.stat().st_ino, "file"]
    assert list(read_lines(tmp_path / "log")) == [{"n": 1}, {"n": 2}]
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "make room on the disk"),
        (errno.EDQUOT, "make room on the disk"),
        (errno.EACCES, "who may write in"),
        (errno.EROFS, "look at the disk"),
        (errno.EIO, "look at the disk"),
    ],
)
def test_the_remedy_fits_what_the_system_says(tmp_path, code, remedy):
    with pytest.raises(StorageError) as caught, storing(tmp_path / "a"):
        raise OSError(code, os.strerror(code))
    said = str(caught.value)
    assert os.strerror(code) in said
    assert remedy in said
    assert ("make room" in said) == (code in (errno.ENOSPC, errno.EDQUOT))
    assert str(tmp_path / "a") in said
