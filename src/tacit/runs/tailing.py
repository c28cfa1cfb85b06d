"""A file that grows by lines of JSON, read as far as it is new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Tail"]


class Tail:
    """The lines of a file that have not been read yet.

    A line that is not finished is left for the next time. A file that was written anew, or is shorter than before, is
    read from its beginning; whoever keeps what was read before must forget it then.

    Attributes:
        lost: lines that said nothing, since the beginning.

    Args:
        path: of the file, which may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._inode = -1
        self.lost = 0

    def anew(self) -> bool:
        """Whether all lines before are void, because the file is gone, another one, or shorter; then it starts over."""
        try:
            told = self._path.stat()
        except OSError:
            told = None
        inode = -1 if told is None else told.st_ino
        over = self._place > 0 and (told is None or inode != self._inode or told.st_size < self._place)
        if over:
            self._place = self.lost = 0
        self._inode = inode
        return over

    def fresh(self) -> Iterator[dict[str, Any]]:
        """The new lines, a piece of the file at a time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                for text in file:
                    if not text.endswith(b"\n"):
                        return
                    self._place += len(text)
                    said = self._line(text)
                    if said is not None:
                        yield said
        except OSError:  # not there, or not for us: as if it were empty
            return

    def _line(self, text: bytes) -> dict[str, Any] | None:
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if isinstance(said, dict):
            return said
        self.lost += bool(text.strip())
        return None
