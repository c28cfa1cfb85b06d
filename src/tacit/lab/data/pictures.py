"""Pictures of folders, decoded once, to one size, into a file of bytes that is mapped and not read."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import IO

import numpy as np
import torch
from torch import Tensor

from tacit.disk import known_json, replaced, storing, write_json
from tacit.errors import DataError, UsageError
from tacit.lab.data.faults import Faults

CHUNK = 256
"""Pictures that are decoded before they are written."""

Progress = Callable[[int, int], None]
"""Told how many pictures are done, of how many."""

_ENDS = (".jpg", ".jpeg", ".png")


class Album:
    """Pictures in folders by their names, without the end of the file's name; of two with one name the first counts."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.place = ", ".join(map(str, folders))  # for errors
        self.paths: dict[str, str] = {}
        known = hashlib.sha256()
        for folder in folders:
            with os.scandir(folder) as entries:
                files = sorted((entry.name, entry.path, entry.stat()) for entry in entries if entry.is_file())
            for name, path, about in files:
                stem, end = os.path.splitext(name)
                if end.lower() in _ENDS and stem not in self.paths:
                    self.paths[stem] = path
                    known.update(f"{path}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
        self.digest = known.hexdigest()  # changes when a picture does, as far as sizes and times tell


def decoded(
    album: Album, names: Sequence[str], size: int, folder: Path, faults: Faults, *, progress: Progress | None,
    workers: int,
) -> tuple[list[str], Tensor]:  # fmt: skip
    """Those pictures that can be decoded, and their pixels, from the file that an earlier call made or anew.

    Returns:
        Their names, and the pictures in the same order, mapped.  (names, 3, size, size) uint8
    """
    if size < 1:
        raise UsageError(f"size is {size}: choose a number of pixels from 1 on, for example 84")
    pillow()  # is there, or it is said what to install
    about = json.dumps([size, album.digest, faults.bad, list(names)])
    pixels = folder / f"pictures-{hashlib.sha256(about.encode()).hexdigest()[:20]}.bytes"
    kept = pixels.with_suffix(".json")  # the names, written last
    report = progress or (lambda done, total: None)
    good: list[str] = (known_json(kept) if pixels.exists() else None) or []
    if good and pixels.stat().st_size == 3 * size * size * len(good):
        faults.skipped += len(names) - len(good)
        report(len(names), len(names))
    else:
        good.clear()
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)

        def write(file: IO[bytes]) -> None:
            report(0, len(names))
            with ThreadPoolExecutor(workers) as pool:
                for start in range(0, len(names), CHUNK):
                    chunk = names[start : start + CHUNK]
                    for name, found in zip(chunk, pool.map(lambda n: _one(album.paths[n], size), chunk), strict=True):
                        if isinstance(found, Exception):
                            faults.meet(f"the picture {name} in {album.place} can't be decoded ({found})")
                        else:
                            file.write(found)
                            good.append(name)
                    report(start + len(chunk), len(names))

        replaced(pixels, write)
        write_json(kept, good)
    if not good:
        raise DataError(f"none of {len(names)} pictures in {album.place} can be decoded: get them anew")
    # Each page is this process's own once it is written to: torch wants tensors that could be.
    return good, torch.from_numpy(np.memmap(pixels, np.uint8, "c", shape=(len(good), 3, size, size)))


def _one(path: str, size: int) -> bytes | Exception:
    """A picture's bytes, channel by channel, or why there are none."""
    image = pillow()
    try:
        with image.open(io.BytesIO(Path(path).read_bytes()), formats=("JPEG", "PNG")) as picture:
            # A large JPEG file is decoded at a fraction of its size, at least twice the wanted one.
            picture.draft("RGB", (2 * size, 2 * size))
            small = picture.convert("RGB").resize((size, size), image.Resampling.BILINEAR)
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
