"""Where a data set's pictures are: in folders, or in one tar file that is read as it is."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tacit.errors import DataError

_ENDS = (".jpg", ".jpeg", ".png")


class Album(Protocol):
    """Pictures by their names, without the end of the file's name."""

    place: str  # where it is, for errors
    names: frozenset[str]  # of all pictures
    digest: str  # changes when a picture does, as far as sizes and times tell

    def read(self, name: str) -> bytes:
        """The file of one picture; several threads may read at once."""
        ...


class Folders:
    """Pictures in one or several folders; where two have the same name, the first one counts."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.place = ", ".join(map(str, folders))
        self._paths: dict[str, str] = {}
        known = hashlib.sha256()
        for folder in folders:
            with os.scandir(folder) as entries:
                files = sorted((entry.name, entry.path, entry.stat()) for entry in entries if entry.is_file())
            for name, path, about in files:
                stem, end = os.path.splitext(name)
                if end.lower() in _ENDS and stem not in self._paths:
                    self._paths[stem] = path
                    known.update(f"{path}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
        self.names = frozenset(self._paths)
        self.digest = known.hexdigest()

    def read(self, name: str) -> bytes:
        """The file of one picture."""
        return Path(self._paths[name]).read_bytes()


class Tar:
    """Pictures in a tar file, which is never unpacked: each one is read from its place in the file.

    It must not be compressed, because a compressed one has no places.
    """

    def __init__(self, path: Path) -> None:
        self.place, self._path = str(path), path
        self._places: dict[str, tuple[int, int]] = {}
        self._others: dict[str, tuple[int, int]] = {}
        try:
            with tarfile.open(path, "r:") as packed:
                for member in packed:
                    if member.isreg():
                        stem, end = os.path.splitext(os.path.basename(member.name))
                        places, key = (self._places, stem) if end.lower() in _ENDS else (self._others, stem + end)
                        places.setdefault(key, (member.offset_data, member.size))
            about = path.stat()
        except FileNotFoundError:
            raise DataError(f"{path} is missing: check the path") from None
        except (OSError, tarfile.TarError) as error:
            raise DataError(
                f"{path} can't be read as a plain tar file ({error}): unpack its compression (gunzip), or get it anew"
            ) from error
        self.names = frozenset(self._places)
        self.digest = hashlib.sha256(f"{path.resolve()}\0{about.st_size}\0{about.st_mtime_ns}".encode()).hexdigest()

    @property
    def others(self) -> Mapping[str, bytes]:
        """The files that are no pictures, by their names: a table, or a licence."""
        return {name: self._content(*place) for name, place in self._others.items()}

    def read(self, name: str) -> bytes:
        """The file of one picture."""
        return self._content(*self._places[name])

    def _content(self, start: int, size: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(start)
            return file.read(size)
