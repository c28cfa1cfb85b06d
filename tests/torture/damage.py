"""Trials on the disk: flipped bytes, missing bytes, a disk that is full."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tacit.split.journal import Journal
from tests.torture.bench import Bench, Result
from tests.torture.world import FEATURES, LABEL, PARTIES, Training, check

__all__ = ["DAMAGE"]

_DISK = 32 << 20  # bytes of the small disk: a whole run fits, with what it records


def _newest(training: Training, name: str, files: str) -> Path:
    return max(training.run_folder(name).glob(files))


def _flip(path: Path, place: float) -> None:
    """Change one bit, at this share of the file."""
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(data)


def flipped_checkpoint(bench: Bench) -> Result:
    """A bit is flipped in the newest checkpoint of either side: the one before it serves."""
    training = bench.halfway()
    for name in PARTIES:
        _flip(_newest(training, name, "checkpoints/checkpoint-*"), 0.7)
    bench.done(training)
    return Result("both fell back to the checkpoint before")


def flipped_journal(bench: Bench) -> Result:
    """A bit is flipped in the middle of a journal: refused; with the right bytes it goes on."""
    training = bench.halfway()
    for name in PARTIES:
        path = min(training.run_folder(name).glob("journal/journal-*"))
        good = path.read_bytes()
        _flip(path, 0.5)
        spoilt = path.read_bytes()
        error = training.refused(training.start(name), "StorageError", "damaged", path.name)
        check(path.read_bytes() == spoilt, f"{path.name} was written over")
        path.write_bytes(good)
    bench.done(training)
    return Result(training.brief(error))


def torn_journal(bench: Bench) -> Result:
    """The last record of the feature party, which nobody has relied on yet, is cut short: it goes on."""
    training = bench.halfway()
    path = _newest(training, FEATURES, "journal/journal-*")
    os.truncate(path, path.stat().st_size - 10)
    bench.done(training)
    return Result("the last answer was asked for again")


def lost_answer(bench: Bench) -> Result:
    """The last record of the label party, an answer that is out, is cut short: it is computed again, the same."""
    training = bench.halfway()
    path = _newest(training, LABEL, "journal/journal-*")
    os.truncate(path, path.stat().st_size - 10)
    bench.done(training)
    return Result("computed again with the same noise: the same bytes")


def lost_turn(bench: Bench) -> Result:
    """The last request and its answer are gone from the label party's journal: refused; brought back, it goes on."""
    training = bench.halfway()
    path = _newest(training, LABEL, "journal/journal-*")
    good = path.read_bytes()
    with Journal(path.parent) as journal:
        place = max((place.segment, place.offset) for place, record in journal.records() if record.kind == "received")
    os.truncate(path, place[1])
    training.start(FEATURES)
    error = training.refused(training.start(LABEL), "StorageError", "older copy")
    path.write_bytes(good)
    bench.done(training)
    return Result(training.brief(error))


def full_disk(bench: Bench, name: str) -> Result:
    """The disk fills up on the way: the party stops; when there is room again it goes on."""
    training = bench.fresh()
    where, aside = training.run_folder(name), training.folder / "aside"
    where.rename(aside)
    where.mkdir(mode=0o700)
    if not _mount(where):
        shutil.rmtree(training.folder)
        return Result("left out: a small disk can't be mounted here", {"left_out": True})
    try:
        shutil.copytree(aside, where, dirs_exist_ok=True)
        other = LABEL if name == FEATURES else FEATURES
        training.start(other)
        process = training.start(name)
        training.wait_for("the first turn", lambda: any(event["event"] == "settled" for event in process.events))
        _fill(where / "ballast")
        error = training.refused(process, "StorageError", "make room")
        check(not training.running[other].over, f"{other} did not wait")
        (where / "ballast").unlink()
        training.finish()
        bench.same(training)
    finally:
        training.stop()
        subprocess.run(["umount", where], check=True)
    bench.discard(training)
    return Result(training.brief(error))


def _mount(where: Path) -> bool:
    """Put a small disk in this place, if the system lets us."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(where)]
    return shutil.which("mount") is not None and not subprocess.run(words, capture_output=True).returncode


def _fill(path: Path) -> None:
    """Take all room that is left on a disk."""
    with path.open("wb", buffering=0) as file:
        for piece in (_DISK // 16, 4096):
            try:
                while True:
                    file.write(bytes(piece))
            except OSError as error:
                check(error.errno == errno.ENOSPC, f"{path}: {error}")


DAMAGE: dict[str, Callable[[Bench], Result]] = {
    "flipped bit in the newest checkpoint": flipped_checkpoint,
    "flipped bit in the journal": flipped_journal,
    "torn end of the feature party's journal": torn_journal,
    "torn end of the label party's journal": lost_answer,
    "last turn missing in the label party's journal": lost_turn,
    "full disk at the label party": lambda bench: full_disk(bench, LABEL),
    "full disk at the feature party": lambda bench: full_disk(bench, FEATURES),
}
"""All of them, by name."""
