"""A record that only grows: what was written is found, what was changed is noticed, what was torn is written anew."""

import json
import os
import stat

import pytest

from tacit.errors import StorageError
from tacit.report import seals

LINES = [{"epoch": 1, "decision": "raise"}, {"epoch": 2, "reason": 'ü: "quoted"\nand a new line'}, {"epoch": 3}]


@pytest.fixture(name="path")
def _path(tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "secret").write_bytes(b"s" * 32)
    path = tmp_path / "runs" / "small" / "gate.jsonl"
    path.parent.mkdir(parents=True)
    for line in LINES:
        seals.append(path, line)
    return path


def test_lines_come_back_in_their_order(path):
    assert seals.read(path) == LINES
    assert seals.read(path.with_name("nothing")) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_torn_tail_is_left_out_and_written_over(path):
    """A crash may leave any part of the last line: nobody has acted on it."""
    whole = path.read_bytes()
    start = whole.rfind(b"\n", 0, -1) + 1
    for end in range(start, len(whole)):
        path.write_bytes(whole[:start])
        seals._count(path, 2)  # as it is before the line is whole
        path.write_bytes(whole[:end])
        assert seals.read(path) == LINES[:2]
        seals.append(path, LINES[2])
        assert path.read_bytes() == whole


def test_every_changed_byte_of_a_line_is_noticed(path):
    whole = path.read_bytes()
    for place in range(len(whole) - 1):  # without its end, the last line is a torn one
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(
            StorageError, match=r"gate\.jsonl, line [123]: it (is not as it was written|does not follow)"
        ):
            seals.read(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines, path: lines[1:],
        lambda lines, path: [lines[0], lines[2]],
        lambda lines, path: [lines[1], lines[0], lines[2]],
        lambda lines, path: [*lines, lines[2]],
        lambda lines, path: [*lines, b"{}"],
        lambda lines, path: [*lines, b"[]"],
        lambda lines, path: [*lines, b"no JSON"],
        lambda lines, path: [*lines, b""],
        lambda lines, path: [*lines, seals._sealed(path, b'{"a": ' + b"[" * 99_999 + b"}")],
        lambda lines, path: [*lines, seals._sealed(path, b'{"a": 1}')],
        lambda lines, path: [*lines, seals._sealed(path, b"{no JSON}")],
    ],
    ids=[
        "first gone",
        "one gone",
        "exchanged",
        "twice",
        "unbound",
        "no object",
        "no JSON",
        "empty",
        "deep",
        "sealed, unbound",
        "sealed, no JSON",
    ],
)
def test_lines_that_are_missing_or_do_not_belong_are_noticed(path, change):
    lines = path.read_bytes().split(b"\n")[:-1]
    path.write_bytes(b"".join(line + b"\n" for line in change(lines, path)))
    with pytest.raises(StorageError, match=r"changed by hand, .* bring the file back"):
        seals.read(path)


def test_a_line_is_on_the_disk_before_it_counts(path, monkeypatch):
    """The order of the calls: written, synced, closed, counted; the folder once, when the file is new."""
    monkeypatch.setattr(seals, "put", lambda *_: calls.append("sealed"))
    calls = []
    for name in ("pwrite", "fsync", "close"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *words, real=real, name=name: calls.append(name) or real(*words))
    seals.append(path, {"epoch": 4})
    assert calls == ["pwrite", "fsync", "close", "sealed"]
    assert seals.read(path)[-1] == {"epoch": 4}


def test_each_line_has_the_digest_of_the_one_before(path):
    said = [json.loads(line)["before"] for line in path.read_text().splitlines()]
    assert said[0] == "0" * 64
    assert len(set(said)) == 3


def test_what_cannot_be_written_is_said(path):
    path = path.parent.with_name("no folder") / "gate.jsonl"
    with pytest.raises(StorageError, match=r"gate\.jsonl"):
        seals.append(path, {})
