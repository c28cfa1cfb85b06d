"""Files of a run that are whole or not there, and a full disk said in one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tacit.errors import StorageError

__all__ = ["replaced", "storing"]


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Whatever the disk refuses in here is a `StorageError` about this file."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} can't be written ({error.strerror or error}): make room on the disk, then give the same command "
            "again; it goes on where it was"
        ) from error


def replaced(path: Path, write: Callable[[IO[bytes]], Any], *, durable: bool = True) -> None:
    """Write a file anew: a reader sees the old one or the new one, never a part.

    Args:
        path: the file.
        write: writes the content to a file that is open in binary mode.
        durable: whether it must be on the disk when this returns.
    """
    part = path.with_name(path.name + ".part")
    with storing(path):
        with part.open("wb") as file:
            write(file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
