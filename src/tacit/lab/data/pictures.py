"""Pictures decoded once, to one size, into a file of bytes that is mapped and not read.

A cache has a place for every picture of an album, which stays empty until the picture is asked for: another draw of the
rows decodes only what is new to it. What is decoded is on disk before it is marked as such, chunk by chunk, so a run
that was killed goes on after its last chunk. Two processes may fill one cache at once: both write the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import StorageError, UsageError
from tacit.lab.data.albums import Album
from tacit.lab.data.faults import Faults

CHUNK = 256
"""Pictures that are decoded before they are written and marked."""

Progress = Callable[[int, int], None]
"""Told how many pictures are done, of how many."""

_DONE = 1  # the mark of a picture that is there; 0 for all others
_VERSION = 1  # of how pictures are decoded; another one makes another cache


class Cache:
    """The decoded pictures of one album at one size."""

    def __init__(self, folder: Path, album: Album, size: int) -> None:
        if size < 1:
            raise UsageError(f"size is {size}: choose a number of pixels from 1 on, for example 84")
        self._album, self._size = album, size
        self._names = sorted(album.names)
        self._place = {name: place for place, name in enumerate(self._names)}
        key = hashlib.sha256(f"{_VERSION} {size} {album.digest}".encode()).hexdigest()[:20]
        self.folder = folder / f"pictures-{key}"
        self._pixels, self._marks = self.folder / "pixels.bytes", self.folder / "marks.bytes"

    @property
    def _bytes(self) -> int:
        return 3 * self._size * self._size

    def decode(self, names: Sequence[str], faults: Faults, *, progress: Progress | None, workers: int) -> list[str]:
        """Decode those that are not yet; returns the names of those that are now there."""
        pillow()
        marks = self._open()
        missing = [name for name in names if marks[self._place[name]] != _DONE]
        lost: set[str] = set()
        report = progress or (lambda done, total: None)
        report(len(names) - len(missing), len(names))
        with ThreadPoolExecutor(workers) as pool:
            for start in range(0, len(missing), CHUNK):
                chunk = missing[start : start + CHUNK]
                found = dict(zip(chunk, pool.map(self._decoded, chunk), strict=True))
                good = {name: pixels for name, pixels in found.items() if isinstance(pixels, bytes)}
                self._write(good)
                for name, cause in found.items():
                    if isinstance(cause, Exception):
                        faults.meet(f"the picture {name} in {self._album.place} can't be decoded ({cause})")
                        lost.add(name)
                report(len(names) - len(missing) + start + len(chunk), len(names))
        return [name for name in names if name not in lost]

    def mapped(self, names: Sequence[str]) -> Tensor:
        """Decoded pictures in this order, mapped from a file that has no name and goes away with the tensor.

        Returns:
            The pictures.  (names, 3, size, size) uint8
        """
        pixels = np.memmap(self._pixels, np.uint8, "r", shape=(len(self._names), self._bytes))
        places = np.array([self._place[name] for name in names])
        shape = (len(names), 3, self._size, self._size)
        with _storing(self.folder), tempfile.TemporaryFile(dir=self.folder) as file:
            for start in range(0, len(places), CHUNK):
                file.write(pixels[places[start : start + CHUNK]].tobytes())
            file.flush()
            # Each page is this process's own once it is written to: torch wants tensors that could be.
            return torch.from_numpy(np.memmap(file, np.uint8, "c", shape=shape))

    def _open(self) -> NDArray[np.uint8]:
        with _storing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for path, size in ((self._pixels, self._bytes * len(self._names)), (self._marks, len(self._names))):
                with path.open("ab") as file:
                    if file.tell() not in (0, size):
                        raise StorageError(
                            f"{path} has {file.tell()} bytes, where {size} are needed: delete the folder {self.folder}"
                        )
                    file.truncate(size)  # takes no room: what is not written yet is a hole
            return np.frombuffer(self._marks.read_bytes(), np.uint8)

    def _write(self, decoded: dict[str, bytes]) -> None:
        """Pixels first, and then that they are there."""
        with _storing(self.folder):
            for path, content in ((self._pixels, decoded), (self._marks, dict.fromkeys(decoded, bytes([_DONE])))):
                with path.open("r+b") as file:
                    for name, one in content.items():
                        file.seek(self._place[name] * len(one))
                        file.write(one)
                    file.flush()
                    os.fdatasync(file.fileno())

    def _decoded(self, name: str) -> bytes | Exception:
        """A picture's bytes, channel by channel, or why there are none."""
        image = pillow()
        try:
            content = self._album.read(name)
            with image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as picture:
                # A large JPEG file is decoded at a fraction of its size, at least twice the wanted one.
                picture.draft("RGB", (2 * self._size, 2 * self._size))
                small = picture.convert("RGB").resize((self._size, self._size), image.Resampling.BILINEAR)
        except (OSError, ValueError, SyntaxError, struct.error, image.DecompressionBombError) as error:
            return error
        return np.asarray(small).transpose(2, 0, 1).tobytes()


def pillow() -> ModuleType:
    """Pillow's `Image`, which is an extra and imported only where pictures are decoded or written."""
    try:
        from PIL import Image
    except ImportError:
        raise UsageError("pictures can't be read without Pillow: pip install -e '.[images]' in the checkout") from None
    return Image


@contextmanager
def _storing(folder: Path) -> Iterator[None]:
    """Say of which cache it is that it can't be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the cache {folder} can't be used ({error}): make room there, or choose another folder (cache=, --cache)"
        ) from error
