"""Fashion-MNIST: 70,000 small pictures of clothes in ten classes, read from their official idx files.

As a data set of the lab it is a problem of two classes: is it an ankle boot? The ten classes are equally many; one of
them against the others is a problem with the share of positives that the papers' skin lesions have, on pictures that
train in seconds. The feature party has the pictures, the label party has the labels and nothing else.

Debian ships the four files as the package `dataset-fashion-mnist`; elsewhere they come from the data set's own page
(https://github.com/zalandoresearch/fashion-mnist, MIT licence). Packed (`.gz`) or not, they are read alike.

>>> data = generated(rows=500, seed=0)
>>> data.train.images.shape, data.test.labels.dtype
(torch.Size([500, 784]), torch.int64)
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import DataError, UsageError
from tacit.lab.data.rows import Data, Rows
from tacit.lab.data.rows import Pictures as PictureInputs

FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package puts the files."""

SIDE = 28
"""Pixels along each side of a picture."""

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
"""What the class numbers stand for."""

_TESTS = 7  # one picture in so many is a test picture, as in the whole data set
_UNSIGNED_BYTES = 0x08  # idx files of this data set hold nothing else
_REMEDY = (
    "apt-get install dataset-fashion-mnist, or put the four files of github.com/zalandoresearch/fashion-mnist into one "
    "folder and pass that folder"
)


@dataclass(frozen=True)
class Pictures:
    """The training or the test pictures."""

    images: Tensor  # grey values from 0 to 1, row by row. (rows, 784) float32
    labels: Tensor  # class numbers from 0 to 9. (rows,) int64

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def squares(self) -> Tensor:
        """The same pictures as a convolution takes them.  (rows, 1, 28, 28)"""
        return self.images.reshape(-1, 1, SIDE, SIDE)


@dataclass(frozen=True)
class Fashion:
    """Training and test pictures, as the data set's authors divide them."""

    train: Pictures
    test: Pictures


def load(folder: str | Path | None = None, *, rows: int | None = None) -> Data:
    """The pictures, divided into training and test as their authors divide them.

    Args:
        folder: of the four idx files; where Debian's package puts them if None.
        rows: use this many pictures, training and test together, six to one, the first ones of each file; None for
            all.
    """
    trains, tests = (None, None) if rows is None else _divided(rows)
    found = pictures(FOLDER if folder is None else folder, rows=trains, test_rows=tests)
    return _data(found)


def _data(found: Fashion) -> Data:
    train, test = (_rows(part, CLASSES.index("ankle boot")) for part in (found.train, found.test))
    return Data("fashion", train, test, PictureInputs(1, SIDE))


def pictures(folder: str | Path = FOLDER, *, rows: int | None = None, test_rows: int | None = None) -> Fashion:
    """Both parts, from the four idx files of a folder."""
    for name, value in (("rows", rows), ("test_rows", test_rows)):
        if value is not None and value < 1:
            raise UsageError(f"{name} = {value}: choose a number of pictures from 1 on, or None for all")
    return Fashion(train=_part(Path(folder), "train", rows), test=_part(Path(folder), "t10k", test_rows))


def generated(rows: int, seed: int, test_rows: int | None = None) -> Fashion:
    """Made-up pictures of the same shapes and range, for tests and for trying things out without the files.

    Each class has a smooth pattern of its own, and each picture a mixture of a few smooth patterns that all classes
    share and some fine grain: so a class can be learnt, most of a picture can be reconstructed from a good embedding,
    and what was reconstructed can be told from a class's mean.
    """
    if rows < 1:
        raise UsageError(f"rows = {rows} is out of range: choose a number of pictures from 1 on")
    test_rows = max(10, rows // 4) if test_rows is None else test_rows
    generator = torch.Generator().manual_seed(seed)
    count = rows + test_rows
    patterns = _smooth(len(CLASSES) + 12, generator)  # (patterns, 784)
    labels = torch.randint(len(CLASSES), (count,), generator=generator)
    shares = torch.randn(count, 12, generator=generator)
    grain = 0.15 * torch.randn(count, SIDE * SIDE, generator=generator)
    images = torch.sigmoid(1.5 * patterns[labels] + 0.6 * shares @ patterns[len(CLASSES) :] + grain - 1.0)
    return Fashion(Pictures(images[:rows], labels[:rows]), Pictures(images[rows:], labels[rows:]))


def made_up(rows: int, seed: int) -> Data:
    """`generated` pictures as a data set of the lab, one in seven of them for testing."""
    trains, tests = _divided(rows)
    return _data(generated(trains, seed, test_rows=tests))


def _divided(rows: int) -> tuple[int, int]:
    """How many of so many pictures are for training, and for testing."""
    if rows < _TESTS:
        raise UsageError(f"rows is {rows}: choose a number of pictures from {_TESTS} on, or None for all")
    return rows - rows // _TESTS, rows // _TESTS


def read_idx(path: Path) -> Tensor:
    """All of an idx file of unsigned bytes, packed (`.gz`) or not, in the shape that it states."""
    path = next((file for file in (path.with_name(f"{path.name}.gz"), path) if file.is_file()), path)
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except FileNotFoundError:
        raise DataError(f"{path} is missing, packed (.gz) or not: {_REMEDY}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} can't be read ({error}): get the file anew ({_REMEDY})") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTES or not content[3]:
        raise DataError(
            f"{path} begins with {content[:4].hex(' ') or 'nothing'}, where an idx file of bytes begins with "
            f"00 00 08 and the number of its dimensions: get the file anew ({_REMEDY})"
        )
    head = 4 + 4 * content[3]
    shape = [int.from_bytes(content[place : place + 4], "big") for place in range(4, head, 4)]
    if len(content) < head or len(content) - head != math.prod(shape):
        stated = " x ".join(map(str, shape))
        raise DataError(
            f"{path} holds {max(0, len(content) - head)} values after its head, which states {stated}: it is cut off "
            f"or damaged; get the file anew ({_REMEDY})"
        )
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)[head:].reshape(shape)


def _rows(pictures: Pictures, wanted: int) -> Rows:
    grey = (pictures.squares * 255).round().to(torch.uint8)
    return Rows((grey,), (), (pictures.labels == wanted).float())


def _part(folder: Path, name: str, rows: int | None) -> Pictures:
    """The first so many pictures of one part, with their labels."""
    images_path, labels_path = (folder / f"{name}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1"))
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        raise DataError(f"{images_path} states the shape {tuple(images.shape)}: pictures of {SIDE} x {SIDE} are needed")
    if labels.ndim != 1 or len(labels) != len(images):
        raise DataError(
            f"{labels_path} states the shape {tuple(labels.shape)} for the {len(images)} pictures of "
            f"{images_path.name}: take both files from the same place"
        )
    if len(labels) and int(labels.max()) >= len(CLASSES):
        row = int((labels >= len(CLASSES)).nonzero()[0])
        raise DataError(f"{labels_path} has the class {int(labels[row])} in row {row}: classes run from 0 to 9")
    if rows is not None and rows > len(images):
        raise UsageError(f"{rows} pictures are wanted and {images_path} has {len(images)}: ask for fewer")
    return Pictures(images[:rows].flatten(1).float() / 255, labels[:rows].long())


def _smooth(count: int, generator: torch.Generator) -> Tensor:
    """Smooth patterns of mean 0 and variance 1.  (count, 784)"""
    coarse = torch.randn(count, 1, 7, 7, generator=generator)
    wide = functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear", align_corners=True).flatten(1)
    return (wide - wide.mean(1, keepdim=True)) / wide.std(1, keepdim=True)
