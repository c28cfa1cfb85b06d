"""Criteo's display advertising challenge (Kaggle, 2014): clicks on 45 million shown advertisements over a week.

Its `train.txt` has no header; each line holds the label, 13 whole numbers and 26 categories as hexadecimal numbers,
with tabs between them. Any of the inputs may be missing. The preprocessing is that of the papers (appendix A.6.1 of
file 004), called "papers" here: a missing category is a category of its own, a missing number is 0, categories become
codes, and numbers are scaled linearly to [0, 1]. In two ways it differs, so that the test rows teach nothing: codes
and ranges come from the training rows alone, and a category that none of them has gets the code 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tacit.lab.data.reading import Text, found
from tacit.lab.data.rows import Data
from tacit.lab.data.streaming import Options, Progress, Schema
from tacit.lab.data.streaming import load as load_streamed

NUMBERS = tuple(f"I{number}" for number in range(1, 14))
"""The columns of numbers."""

CATEGORIES = tuple(f"C{number}" for number in range(1, 27))
"""The columns of categories."""

_REMEDY = (
    'take train.txt from Kaggle\'s "Display Advertising Challenge" (criteo-display-ad-challenge), and pass its folder '
    "or the file"
)
_KINDS = {"label": "label", **dict.fromkeys(NUMBERS, "integer"), **dict.fromkeys(CATEGORIES, "hex")}


def load(  # the options of a data set, by name
    path: str | Path,
    *,
    rows: int | None = None,
    sample: float = 1.0,
    test_share: float = 0.1,
    seed: int = 0,
    min_count: int = 1,
    cache: str | Path | None = None,
    bad: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
) -> Data:
    """Training and test rows, mapped from files; memory grows with the different categories, not with the rows.

    Args:
        path: a folder with `train.txt`, packed (`.gz`) or not, or such a file.
        sample: the share of the rows to use; the papers use 0.1.
        min_count: a category that fewer training rows have shares the code 0 with unknown ones. The papers keep all of
            them, which is 1; over the whole file most codes then belong to a few rows each.
    """
    file = found(Path(path), ["train.txt"], _REMEDY)
    options = Options(rows, sample, test_share, seed, min_count)
    source = Text(file, tuple(_KINDS), _KINDS, "\t", header=False, remedy=_REMEDY)
    return load_streamed(
        source, Schema("criteo", "label", CATEGORIES, NUMBERS), options,
        cache=cache, bad=bad, progress=progress,
    )  # fmt: skip
