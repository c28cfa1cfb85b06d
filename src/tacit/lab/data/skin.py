"""Skin lesions: a clinic has the pictures, a registry knows which of them are melanomas.

Two collections of the ISIC archive, told apart by the name of their table, are read alike:

- **SIIM-ISIC** (Kaggle: "SIIM-ISIC Melanoma Classification", CC BY-NC 4.0): `train.csv` with `image_name`, `patient_id`
  and `target`, and the folder `jpeg/train` (or `train`, or `images`). The papers' data set; it is named `isic`.
- **HAM10000** (Harvard Dataverse, doi:10.7910/DVN/DBW86T, CC BY-NC 4.0): `HAM10000_metadata.csv` with `image_id`,
  `lesion_id` and `dx`, and the folder `images` (or `HAM10000_images_part_1` and `_2`). It is named `ham10000`: other
  pictures than the papers', so their results are no measure for it.

The papers keep all positives and nine times as many negatives, make the pictures 84 pixels square, and draw a fifth of
them for testing. So do we, with one difference: the pictures of one patient (of one lesion, in HAM10000) are all on one
side, because otherwise a network is tested on lesions that it has seen.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import IO, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.disk import replaced, storing
from tacit.errors import DataError, UsageError
from tacit.lab.data.joined import TEST_SHARE, read, refuse, refuse_twice, truth
from tacit.lab.data.reading import CORRECT, Text, header, require
from tacit.lab.data.rows import Data, Pictures, Rows, limited
from tacit.progress import Count

SIZE = 84
"""Pixels along each side, as in the papers."""

NEGATIVES = 9
"""That are kept for each positive, drawn at random, as in the papers."""

CHUNK = 256
"""Pictures that are decoded before they are written."""

_THREADS = 2  # that decode
_ENDS = (".jpg", ".jpeg", ".png")
_FOLDERS = ("jpeg/train", "train", "images", "HAM10000_images_part_1", "HAM10000_images_part_2")
_NAME, _GROUP, _LABEL = "tacit picture", "tacit group", "tacit label"
_REMEDY = (
    "take train.csv and jpeg/train of Kaggle's 'SIIM-ISIC Melanoma Classification', or HAM10000_metadata.csv and its "
    "pictures from doi:10.7910/DVN/DBW86T, and pass their folder (folder=, --folder)"
)


class _Kind(NamedTuple):
    """One of the two collections: its table, and the columns of it that are used."""

    data: str
    file: str
    name: str
    group: str
    label: str
    meanings: dict[str, bool]


_OTHERS = ("akiec", "bcc", "bkl", "df", "nv", "vasc")
_KINDS = (
    _Kind("isic", "train.csv", "image_name", "patient_id", "target", {"1": True, "0": False}),
    _Kind(
        "ham10000", "HAM10000_metadata.csv", "image_id", "lesion_id", "dx",
        {"mel": True, **dict.fromkeys(_OTHERS, False)},
    ),
)  # fmt: skip


def load(
    folder: str | Path,
    *,
    rows: int | None = None,
    sample: float = 1.0,
    seed: int = 0,
    cache: str | Path | None = None,
    progress: Count | None = None,
) -> Data:
    """The pictures, decoded once into the cache and mapped from there; their name is that of the collection found.

    Args:
        folder: holds one of the two collections.
    """
    limited(0, rows, sample)  # a wrong number is told before anything is read
    place = Path(folder)
    kind, table, album = _found(place)
    chosen = _chosen(table, rows, sample, seed)
    for_test = _scramble(chosen[_GROUP], seed) < TEST_SHARE
    chosen = pl.concat([chosen.filter(~for_test), chosen.filter(for_test)])
    train = len(chosen) - int(for_test.sum())
    if train in (0, len(chosen)):
        raise DataError(
            f"{len(chosen)} pictures leave {train} for training and {len(chosen) - train} for testing: use more of them"
        )
    cached = place.with_name(f"{place.name}.tacit") if cache is None else Path(cache)
    pixels = decoded(album, chosen[_NAME].to_list(), cached, progress or (lambda done, total: None))
    rows_of = Rows((pixels,), (), torch.tensor(chosen[_LABEL].to_list(), dtype=torch.float32))
    return Data(kind.data, rows_of[:train], rows_of[train:], Pictures(3, SIZE))


def made_up(rows: int, seed: int) -> Data:
    """Made-up lesions: melanomas are larger, darker and less round than moles. One picture in ten is of a melanoma."""
    if rows < 10:
        raise UsageError(f"rows is {rows}: choose a number of pictures from 10 on")
    draw, test = np.random.default_rng(seed), rows // 5
    labels = draw.permutation(rows) < rows / 10
    pixels = torch.from_numpy(np.stack([_lesion(label, draw) for label in labels.tolist()]))
    found = Rows((pixels,), (), torch.from_numpy(labels).float())
    return Data("isic", found[: rows - test], found[rows - test :], Pictures(3, SIZE))


def _lesion(positive: bool, draw: np.random.Generator) -> NDArray[np.uint8]:
    """A dark spot on skin.  (3, 84, 84)"""
    down, across = np.mgrid[-42:42, -42:42] / 42.0
    stretch, radius = (1.8, 0.55) if positive else (1.2, 0.38)
    distance = np.hypot(down - draw.normal(0, 0.1), (across - draw.normal(0, 0.1)) / draw.uniform(1, stretch))
    spot = 1 / (1 + np.exp(12 * (distance - radius * draw.uniform(0.7, 1.3))))
    dark = np.array([70.0, 110.0, 120.0]) * (1.25 if positive else 0.9) * draw.uniform(0.8, 1.2)
    skin = np.array([225.0, 175.0, 155.0]) + draw.normal(0, 8, 3)
    picture = skin[:, None, None] - dark[:, None, None] * spot + draw.normal(0, 4, (1, SIZE, SIZE))
    return np.asarray(picture.clip(0, 255).astype(np.uint8))


def _found(place: Path) -> tuple[_Kind, pl.DataFrame, Album]:
    """Which collection it is, its pictures, and the rows that can be used: a picture that is there and was in no row
    before, a patient, and a label.
    """
    kind = next((kind for kind in _KINDS if (place / kind.file).is_file()), None)
    if kind is None:
        raise DataError(f"{place} holds neither {' nor '.join(kind.file for kind in _KINDS)}: {_REMEDY}")
    album = Album([place / name for name in _FOLDERS if (place / name).is_dir()] or [place])
    file, kinds = place / kind.file, {kind.name: "key", kind.group: "key", kind.label: "category"}
    names = header(file, ",", _REMEDY)
    require(file, names, list(kinds), _REMEDY)
    source = Text(file, names, kinds, quoted=True, remedy=_REMEDY)
    table = read(source)
    refuse_twice(source, table, kind.name)
    table = table.with_columns(truth(source, table, kind.label, kind.meanings).alias(_LABEL))
    there = table[kind.name].is_in(list(album.paths))
    refuse(source, table, ~there, kind.name, f"a picture that is not in {album.place}")
    return kind, table.select(pl.col(kind.name).alias(_NAME), pl.col(kind.group).alias(_GROUP), _LABEL), album


def _chosen(table: pl.DataFrame, rows: int | None, sample: float, seed: int) -> pl.DataFrame:
    """All positives and some negatives for each, in an order drawn from the seed, or the first rows of that.

    A sample is one of these: it leaves the share of positives about as it is.
    """
    table = table[np.argsort(_scramble(table[_NAME], seed + 1), kind="stable")]
    positives = int(table[_LABEL].sum())
    negatives = (~table[_LABEL]).cum_sum()
    kept = table.filter(table[_LABEL] | (negatives <= NEGATIVES * positives))
    return kept[: limited(len(kept), rows, sample)]


def _scramble(names: pl.Series, seed: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each name that depends on nothing but the name and the seed."""
    key = seed.to_bytes(16, "big", signed=True)
    words = (hashlib.blake2b(name.encode(), key=key, digest_size=8).digest() for name in names)
    return np.array([int.from_bytes(word, "big") >> 11 for word in words], dtype=np.float64) * 2.0**-53


# --- pictures of folders, decoded once, to one size, into a file of bytes that is mapped and not read ----------------


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


def decoded(album: Album, names: Sequence[str], folder: Path, report: Count) -> Tensor:
    """These pictures, mapped from the file that an earlier call made or anew.  (names, 3, SIZE, SIZE) uint8"""
    pillow()  # is there, or it is said what to install
    about = json.dumps([SIZE, album.digest, list(names)])
    pixels = folder / f"pictures-{hashlib.sha256(about.encode()).hexdigest()[:20]}.bytes"

    def write(file: IO[bytes]) -> None:
        report(0, len(names))
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(0, len(names), CHUNK):
                chunk = names[start : start + CHUNK]
                for name, found in zip(chunk, pool.map(lambda n: _one(album.paths[n]), chunk), strict=True):
                    if isinstance(found, Exception):
                        raise DataError(f"the picture {name} in {album.place} can't be decoded ({found}){CORRECT}")
                    file.write(found)
                report(start + len(chunk), len(names))

    if pixels.exists() and pixels.stat().st_size == 3 * SIZE * SIZE * len(names):
        report(len(names), len(names))
    else:
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        replaced(pixels, write)
    # Each page is this process's own once it is written to: torch wants tensors that could be.
    return torch.from_numpy(np.memmap(pixels, np.uint8, "c", shape=(len(names), 3, SIZE, SIZE)))


def _one(path: str) -> bytes | Exception:
    """A picture's bytes, channel by channel, or why there are none."""
    image = pillow()
    try:
        with image.open(io.BytesIO(Path(path).read_bytes()), formats=("JPEG", "PNG")) as picture:
            # A large JPEG file is decoded at a fraction of its size, at least twice the wanted one.
            picture.draft("RGB", (2 * SIZE, 2 * SIZE))
            small = picture.convert("RGB").resize((SIZE, SIZE), image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, struct.error, image.DecompressionBombError) as error:
        return error
    return np.asarray(small).transpose(2, 0, 1).tobytes()


def pillow() -> ModuleType:
    """Pillow's `Image`, which is an extra and imported only where pictures are decoded or written."""
    try:
        from PIL import Image
    except ImportError:
        raise UsageError("pictures can't be read without Pillow: pip install 'tacit[images]'") from None
    return Image
