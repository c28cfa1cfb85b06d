"""A count of what has ever left, kept apart from the party's folder: an older copy of the folder is known by it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tacit.disk import locked, make_folder, sync_file, sync_folder, write_at
from tacit.errors import StorageError

Restored = Callable[[str], None]
"""Told what an older copy of a folder lacks, where somebody answers for going on from it."""

_PATIENCE = 600.0  # seconds in which another run of the same party is done with a book


class Counted(NamedTuple):
    """In the words of a refusal: what a tally counts, what an older copy has and what there was, what to do instead."""

    what: str
    behind: str
    remedy: str
    command: str = "tacit train"  # with which somebody answers for going on


MESSAGES = Counted(
    "what was sent in this run",
    "it knows of {} messages, and {} have left",
    "What was answered may not be answered again: bring back the newest copy, or start a new run under another name",
)
COINS = Counted(
    "what this party ever sent of its labels",
    "its book has {} releases, and {} were made",
    "Frozen labels would thaw, and what was told would not be charged: bring back the newest copy, coins/ in it",
)


class Tally:
    """Counts the messages of a run that left, in a file outside its folder. One process uses it at a time.

    A message is counted before it leaves and after the journal has it on the disk, so a journal that is behind the
    count is an older copy; a kill in between leaves it ahead. The file is handed to the operating system at once, and
    so survives every end of the process; it is synced with each checkpoint, so a power cut may set it back by what was
    sent since then, and never forward. The entries of a party's books are counted likewise.

    Args:
        path: of the file; its folder is made where there is none.
        restored: told what is missing where somebody answers for going on all the same; without it that is refused.
        counted: what is counted.
    """

    def __init__(self, path: Path, restored: Restored | None = None, counted: Counted = MESSAGES) -> None:
        self.path = path
        self._restored, self._counted = restored, counted
        self._patience = 0.0
        self._value: int | None = None
        self._fd = -1

    def begin(self, *, begun: bool) -> None:
        """Open the file, or make it for a run that has not begun: of one that has, a missing file is missed."""
        if not begun or self.path.exists():
            self._open()
            if not begun and self._value is None:
                self.reach(0)
                self.sync()

    @contextmanager
    def around(self, entries: Callable[[], int]) -> Iterator[None]:
        """Hold a book against the count before it is used, and count what it has afterwards.

        Its entries are on the disk when they are counted. Another run of the same party waits for this one.
        """
        try:
            self._patience = _PATIENCE
            self.begin(begun=entries() > 0)
            self.check(entries(), entries())
            yield
            self.reach(entries())
        finally:
            self.close()

    def _open(self) -> None:
        folder = self.path.parent
        with suppress(StorageError):
            make_folder(folder)
        if not os.access(folder, os.W_OK):
            raise StorageError(
                f"{folder}: what was sent in a run is counted here, apart from the party's folder, and it can't be "
                "made or written: set TACIT_STATE to a folder that lasts and can"
            )
        self._fd = locked(self.path, patience=self._patience)
        sync_folder(folder)
        said = os.pread(self._fd, 32, 0).strip()
        self._value = int(said) if said.isdigit() else None

    def check(self, known: int, left: int) -> None:
        """Go on from what the folder knows of: a `StorageError` where more messages have left.

        Known are those that the journal has, or that follow from what it has, bit for bit; left are those it has.
        """
        problem = ""
        if self._value is None:
            problem = (
                f"it counts {self._counted.what}, and is gone or another one's, so that nobody can tell whether this "
                "folder is an older copy (TACIT_STATE says where it is kept; in a container, name a volume that lasts)"
            )
        elif known < self._value:
            problem = f"this folder is an older copy: {self._counted.behind.format(known, self._value)}"
        if problem and self._restored is None:
            raise StorageError(
                f"{self.path}: {problem}. {self._counted.remedy}; who answers for going on all the same says so with "
                f"`{self._counted.command} --after-restore NAME --reason WHY`, which stays on record"
            )
        if problem and self._restored is not None:
            self._restored(problem)
            if self._fd < 0:
                self._open()
            self._value = 0
        self.reach(left)
        self.sync()

    def reach(self, left: int) -> None:
        """So many have left, with the one that is about to."""
        value = max(left, self._value or 0)
        write_at(self._fd, self.path, [f"{value:020d}\n".encode()], 0)
        self._value = value

    def sync(self) -> None:
        """Return once the disk has it."""
        sync_file(self._fd, self.path)

    def close(self) -> None:
        """Sync, and let another process count."""
        if self._fd >= 0:
            try:
                self.sync()
            finally:
                os.close(self._fd)
                self._fd = -1
