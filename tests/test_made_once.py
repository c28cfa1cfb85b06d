"""Parts of a run on the disk: whole or not there, and their owner's alone."""

from __future__ import annotations

import stat

import pytest

from tacit.made_once import discard, made_once


def made(path):
    """As libraries write what was learnt: for everybody."""
    (path / "floor").mkdir()
    for file in (path / "model.txt", path / "floor" / "model.txt"):
        file.write_text("learnt")
        file.chmod(0o644)


def test_what_was_learnt_is_for_its_owner_alone(tmp_path):
    path = made_once(tmp_path, "learned", made)
    for file in path.rglob("*"):
        assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600), file
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_part_is_made_once_until_it_is_discarded(tmp_path):
    path = made_once(tmp_path, "learned", made)
    assert made_once(tmp_path, "learned", lambda _: pytest.fail("it is there")) == path
    discard(path)
    assert not path.exists()
    points = []
    assert made_once(tmp_path, "learned", made, points.append) == path
    assert points == ["learned made", "learned written"]
    assert not (tmp_path / "learned.part").exists()


def test_a_part_that_fails_has_no_name(tmp_path):
    def fails(path):
        made(path)
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        made_once(tmp_path, "learned", fails)
    assert not (tmp_path / "learned").exists()
    assert (made_once(tmp_path, "learned", made) / "model.txt").read_text() == "learnt"
