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

    Args:
        path: of the file, which may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._inode = -1

    def anew(self) -> bool:
        """Whether all lines before are void, because the file is gone, another one, or shorter; then it starts over."""
        try:
            stat = self._path.stat()
            inode, size = stat.st_ino, stat.st_size
        except OSError:
            inode, size = -1, 0
        over = self._place > 0 and (inode != self._inode or size < self._place)
        if over:
            self._place = 0
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
                    try:
                        line = json.loads(text)
                    except (ValueError, RecursionError):
                        continue
                    if isinstance(line, dict):
                        yield line
        except OSError:  # not there, or not for us: as if it were empty
            return
