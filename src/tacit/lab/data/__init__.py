"""The lab's data sets by name, each with the papers' preprocessing, fitted on its training rows alone.

`SOURCES` has all of them, with where to get their files and under which licence they may be used. A path that ends with
`.toml` is a description of your own files (`tacit.lab.data.own`). `generated:NAME` is a made-up data set with the
columns of that one, as large as `rows` says, for tests and for measuring speed.

>>> data = load("generated:credit", rows=1000)
>>> len(data.train) + len(data.test), data.inputs.numeric
(1000, 10)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tacit.errors import DataError, UsageError
from tacit.progress import Count

if TYPE_CHECKING:  # a list of names needs no torch, and a machine for training needs no polars
    from tacit.lab.data.rows import Data


@dataclass(frozen=True)
class Source:
    """Where a data set comes from."""

    what: str  # its label, in a few words
    files: str  # what its folder must hold; empty where it is shipped
    where: str  # to get them
    licence: str  # under which they may be used
    module: str  # of this package, which reads them
    folder: bool = True  # whether a folder must be given; Debian puts Fashion-MNIST's in a known place


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "criteo": Source(
            "clicks on advertisements", "train.txt", 'Kaggle, "Display Advertising Challenge" (Criteo)',
            "Criteo's terms", "criteo",
        ),
        "avazu": Source(
            "clicks on mobile advertisements, by day", "train.csv", 'Kaggle, "Click-Through Rate Prediction" (Avazu)',
            "Kaggle's rules", "avazu",
        ),
        "isic": Source(
            "melanomas among skin lesions",
            "train.csv and jpeg/train/*.jpg (or HAM10000_metadata.csv and images/*.jpg)",
            'Kaggle, "SIIM-ISIC Melanoma Classification" (HAM10000: doi:10.7910/DVN/DBW86T)', "CC BY-NC 4.0", "skin",
        ),
        "fashion": Source(
            "ankle boots among clothes", "the four idx files", "Debian, dataset-fashion-mnist", "MIT", "fashion",
            folder=False,
        ),
        "adult": Source(
            "incomes over 50,000 dollars", "adult.data and adult.test, or adult.csv",
            "archive.ics.uci.edu, data set 2", "CC BY 4.0", "adult",
        ),
        "credit": Source(
            "clients who failed to pay, in two files",
            "default_credit_hetero_guest.csv and default_credit_hetero_host.csv",
            "github.com/FederatedAI/FATE, examples/data", "CC BY 4.0", "credit",
        ),
        "flights": Source(
            "flights that came late, by day", "", "shipped with tacit", "CC0", "flights", folder=False,
        ),
    }
)  # fmt: skip
"""Every data set that has a name."""

_MADE_UP = "generated:"


def names() -> tuple[str, ...]:
    """The names that `load` knows, beside paths of descriptions and `generated:NAME`.

    >>> names()
    ('adult', 'avazu', 'credit', 'criteo', 'fashion', 'flights', 'isic')
    """
    return tuple(sorted(SOURCES))


def load(
    name: str | Path,
    *,
    folder: str | Path | None = None,
    rows: int | None = None,
    sample: float | None = None,
    seed: int = 0,
    cache: str | Path | None = None,
    progress: Count | None = None,
) -> Data:
    """A data set by its name, encoded for both parties.

    Options that only one data set has (the days of `flights`, the vocabulary of `criteo`) are arguments of the `load`
    of its own module.

    Args:
        name: one of `names()`, the path of a description (`.toml`) of your own files, or `generated:NAME`.
        folder: of the files that `SOURCES` names; some have a known place and need none.
        rows: use this many rows at most, training and test together; None for all. Of a source that is read whole they
            are drawn at random, of one that is streamed (`criteo`, `avazu`) and of `fashion` they are
            the first ones, so that the rest is never read. A made-up data set has exactly so many.
        sample: the share of the rows to use, drawn at random from all of them; from the first ones where `rows` takes
            these. All of them if None. `fashion` and what is made up have none: say `rows`.
        seed: draws the sample, the test rows, and everything that is made up.
        cache: a folder for what large data sets keep between two runs; one beside their files if None.
        progress: told how much is done, of how much, while a large data set is read.
    """
    if rows is not None and rows < 1:
        raise UsageError(f"rows is {rows}: choose a number of rows from 1 on, or leave it out for all")
    options = {
        "rows": rows,
        "sample": 1.0 if sample is None else sample,
        "seed": seed,
        "cache": cache,
        "progress": progress,
    }
    text = str(name)
    if text.startswith(_MADE_UP):
        if sample is not None:
            raise UsageError(f"{text} can be of any size: say how many rows, and leave out the sample of {sample:g}")
        return _generated(text, _known(text.removeprefix(_MADE_UP)), rows, seed, folder)
    if text.endswith(".toml"):
        if folder is not None:
            raise UsageError(f"{text} names its files itself, relative to where it lies: leave out the folder {folder}")
        taken = {key: options[key] for key in ("rows", "sample", "seed")}
        own: Data = import_module("tacit.lab.data.own").load(name, **taken)
        return own
    known = _known("isic" if text == "ham10000" else text)
    return _read(known, _folder(known, folder), options)


def _read(name: str, folder: Path | None, options: Mapping[str, Any]) -> Data:
    """Through the `load` of its own module, with those of the options that it takes."""
    read: Callable[..., Data] = import_module(f"tacit.lab.data.{SOURCES[name].module}").load
    taken = {option: value for option, value in options.items() if option in signature(read).parameters}
    if "sample" not in taken and options["sample"] != 1:
        raise UsageError(f"{name} has no sample: take some of it with rows (rows=, --rows)")
    return read(*([folder] if SOURCES[name].files else []), **taken)


def _known(name: str) -> str:
    if name not in SOURCES:
        raise UsageError(
            f"there is no data set {name!r}; there are: {', '.join(names())}, {_MADE_UP}NAME with the number of rows, "
            "and descriptions of your own files that end with .toml"
        )
    return name


def _folder(name: str, folder: str | Path | None) -> Path | None:
    source = SOURCES[name]
    if folder is None and not source.folder:
        return None
    if not source.files:
        raise UsageError(f"{name} is shipped with tacit: leave out the folder {folder}")
    act = f"get {source.files} from {source.where}, and pass their folder (folder=, --folder)"
    if folder is None:
        raise DataError(f"{name} is not shipped with tacit ({source.licence}): {act}; or try {_MADE_UP}{name}")
    if not Path(folder).exists():
        raise DataError(f"{folder} is not there: {act}")
    return Path(folder)


def _generated(text: str, name: str, rows: int | None, seed: int, folder: str | Path | None) -> Data:
    """A made-up data set, with the columns or the shape of that name."""
    if folder is not None:
        raise UsageError(f"{text} is made up and reads no files: leave out the folder {folder}")
    if rows is None:
        raise UsageError(f"{text} can be of any size: say how many rows (rows=, --rows)")
    module = SOURCES[name].module
    made: Data = (
        import_module(f"tacit.lab.data.{module}").made_up(rows, seed)
        if module in ("fashion", "skin")
        else import_module("tacit.lab.data.generated").like(name, rows, seed)
    )
    return replace(made, name=text)
