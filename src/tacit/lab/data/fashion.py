"""Fashion-MNIST as a problem of two classes: is it an ankle boot? One picture in ten is one.

The ten classes of the files are equally many; one of them against the others is a problem with the share of positives
that the papers' skin lesions have, on pictures that train in seconds. The feature party has the pictures, the label
party has the labels and nothing else. The files and where to get them: `tacit.lab.fashion`.
"""

from __future__ import annotations

from pathlib import Path

import torch

from tacit.errors import UsageError
from tacit.lab import fashion
from tacit.lab.data.rows import Data, Pictures, Rows

__all__ = ["load", "write_generated"]

_TESTS = 7  # one picture in so many is a test picture, as in the whole data set


def load(folder: str | Path | None = None, *, rows: int | None = None, positive: str = "ankle boot") -> Data:
    """The pictures, divided into training and test as their authors divide them.

    Args:
        folder: of the four idx files; where Debian's package puts them if None.
        rows: use this many pictures, training and test together, six to one, the first ones of each file; None for
            all.
        positive: the class whose pictures have the label 1.
    """
    if positive not in fashion.CLASSES:
        raise UsageError(f"there is no class {positive!r}; there are: {', '.join(fashion.CLASSES)}")
    if rows is not None and rows < _TESTS:
        raise UsageError(f"rows is {rows}: choose a number of pictures from {_TESTS} on, or None for all")
    tests = None if rows is None else rows // _TESTS
    trains = None if rows is None or tests is None else rows - tests
    pictures = fashion.load(fashion.FOLDER if folder is None else folder, rows=trains, test_rows=tests)
    wanted = fashion.CLASSES.index(positive)
    return Data(
        name="fashion",
        train=_rows(pictures.train, wanted),
        test=_rows(pictures.test, wanted),
        inputs=Pictures(1, fashion.SIDE),
        made=(
            f"{len(pictures.train):,} training and {len(pictures.test):,} test pictures of Fashion-MNIST were read, "
            "as its authors divide them.",
            f"The label says which pictures are of the class {positive!r}; the nine other classes are the negatives.",
            "Grey values stay bytes.",
        ),
    )


def write_generated(folder: str | Path, rows: int, seed: int) -> None:
    """Made-up pictures in the four official files: `tacit.lab.fashion.generated`, one in seven of them for testing."""
    if rows < _TESTS:
        raise UsageError(f"rows is {rows}: choose a number of pictures from {_TESTS} on")
    tests = rows // _TESTS
    fashion.save(fashion.generated(rows - tests, seed, test_rows=tests), folder)


def _rows(pictures: fashion.Pictures, wanted: int) -> Rows:
    grey = (pictures.squares * 255).round().to(torch.uint8)
    return Rows((grey,), (), (pictures.labels == wanted).float())
