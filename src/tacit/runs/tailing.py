"""A file that grows by lines of JSON, read as far as it is new."""

from __future__ import annotations

import json
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

    def fresh(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether all lines before are void, and the new ones."""
        try:
            with self._path.open("rb") as file:
                told = self._path.stat()
                anew = self._place > 0 and (told.st_ino != self._inode or told.st_size < self._place)
                if anew:
                    self._place = self.lost = 0
                self._inode = told.st_ino
                file.seek(self._place)
                text = file.read()
        except OSError:  # not there, or not for us: as if it were empty
            gone, self._place, self._inode = self._place > 0, 0, -1
            return gone, []
        whole = text.rfind(b"\n") + 1
        self._place += whole
        return anew, [line for line in map(self._line, text[:whole].splitlines()) if line is not None]

    def _line(self, text: bytes) -> dict[str, Any] | None:
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if isinstance(said, dict):
            return said
        self.lost += bool(text.strip())
        return None
