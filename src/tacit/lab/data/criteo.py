"""Criteo's display advertising challenge (Kaggle, 2014): clicks on 45 million shown advertisements over a week.

Its `train.txt` has no header; each line holds the label, 13 whole numbers and 26 categories as hexadecimal numbers,
with tabs between them. Any of the inputs may be missing. The preprocessing is that of the papers (Li 2022, appendix
A.6.1): a missing category is a category of its own, a missing number is 0, categories become codes, and numbers are
scaled linearly to [0, 1]. In two ways it differs, so that the test rows teach nothing: codes and ranges come from the
training rows alone, and a category that none of them has gets the code 0.

Both parties see all columns, as in the papers: the feature party in the deep part of the network, the label party in
its wide part. That is no two companies' case, but what the papers measured (Li 2022, section 5, footnote 3).
"""

from __future__ import annotations

from pathlib import Path

from tacit.lab.data.reading import Text, found
from tacit.lab.data.rows import Data
from tacit.lab.data.streaming import Options, Schema
from tacit.lab.data.streaming import load as load_streamed
from tacit.progress import Count

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
    progress: Count | None = None,
) -> Data:
    """Training and test rows, mapped from files; memory grows with the different categories, not with the rows.

    Args:
        path: a folder with `train.txt`, packed (`.gz`) or not, or such a file.
        min_count: a category that fewer training rows have shares the code 0 with unknown ones. The papers keep all of
            them, which is 1; over the whole file most codes then belong to a few rows each.
    """
    file = found(Path(path), ["train.txt"], _REMEDY)
    options = Options(rows, sample, test_share, seed, min_count)
    source = Text(file, tuple(_KINDS), _KINDS, "\t", header=False, remedy=_REMEDY)
    return load_streamed(
        source, Schema("criteo", "label", CATEGORIES, NUMBERS), options,
        cache=cache, progress=progress,
    ).shared()  # fmt: skip
