"""Avazu's click-through rate challenge (Kaggle, 2014): clicks on 40 million mobile advertisements over eleven days.

Its `train.csv` has a header and only categories. The preprocessing is that of the papers (Li 2022, appendix A.6.1): a
missing category is a category of its own, and categories become codes, here by the training rows alone. The column
`hour` (YYMMDDHH) is taken apart: the hour of the day is a category, and the day says when the row belongs to, for a
training day by day. The `id` of a row is not used. Both parties see all columns, as in `criteo`.
"""

from __future__ import annotations

from pathlib import Path

from tacit.lab.data.reading import Text, found, header, require
from tacit.lab.data.rows import Data
from tacit.lab.data.streaming import Options, Schema
from tacit.lab.data.streaming import load as load_streamed
from tacit.progress import Count

_NAMES = (
    *("site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category"),
    *("device_id", "device_ip", "device_model"),
)
CATEGORIES = (
    *("hour", "C1", "banner_pos"), *_NAMES, *("device_type", "device_conn_type"),
    *(f"C{number}" for number in range(14, 22)),
)  # fmt: skip
"""The columns of categories; `hour` is the hour of the day."""

_REMEDY = (
    'take train.gz from Kaggle\'s "Click-Through Rate Prediction" (avazu-ctr-prediction), and pass its folder or the '
    "file"
)
_KINDS = {"click": "label", **dict.fromkeys(CATEGORIES, "integer"), **dict.fromkeys(_NAMES, "hex"), "hour": "hour"}


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
    """Training and test rows, each sorted by day and otherwise in the file's order, mapped from files.

    Args:
        path: a folder with `train.csv`, packed (`.gz`) or not, or `train.gz`, as Kaggle calls it; or such a file.
        min_count: a category that fewer training rows have shares the code 0 with unknown ones. The papers keep all of
            them, which is 1; most codes are then values of `device_ip` and `device_id`, which belong to few rows each.
    """
    file = found(Path(path), ["train.csv", "train"], _REMEDY)
    names = header(file, ",", _REMEDY)
    require(file, names, list(_KINDS), _REMEDY)
    options = Options(rows, sample, test_share, seed, min_count)
    return load_streamed(
        Text(file, names, _KINDS, remedy=_REMEDY), Schema("avazu", "click", CATEGORIES, days=True), options,
        cache=cache, progress=progress,
    ).shared()  # fmt: skip
