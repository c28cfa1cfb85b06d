"""What learners, heads and audits share: rows as one matrix, labels as targets, losses of a score, threads."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from threadpoolctl import threadpool_limits
from torch import nn

from tacit.align.encoder import Inputs
from tacit.arguments import count
from tacit.config.contract import WIDEST
from tacit.errors import DataError, LabelsError, UsageError

_OWN = "own.skops"
_KEPT = ("collections", "lightgbm", "numpy", "scipy", "sklearn")  # packages whose fitted objects are kept
KEEPABLE = "an object that is to be kept consists of scikit-learn's and LightGBM's parts"


@dataclass(frozen=True)
class Target:
    """What is learnt: classes from 0 on, or numbers."""

    values: NDArray[Any]  # classes as int64, numbers as float64. (rows,)
    classes: int | None  # how many there are; None for numbers

    @property
    def outputs(self) -> int:
        """Scores a row: one for two classes and for numbers, else one for each class."""
        return 1 if self.classes is None or self.classes == 2 else self.classes

    @property
    def scaled(self) -> Target:
        """Numbers with mean 0 and variance 1, so that options mean the same for all; classes as they are."""
        if self.classes is not None:
            return self
        return Target((self.values - self.values.mean()) / (self.values.std() or 1.0), None)


def learnable(inputs: Inputs, sent: NDArray[Any], mechanism: Any, width: int) -> Target:
    """What a learner learns from these rows' labels; a width or a number of rows that can't be is refused."""
    count("width", width, high=WIDEST)
    if len(inputs) < len(sent):
        raise UsageError(f"{len(sent)} labels were sent for {len(inputs)} rows: pass inputs in the common order")
    return received_target(sent, mechanism)


def received_target(sent: NDArray[Any], mechanism: Any) -> Target:
    """What was received of some rows' labels."""
    sent = np.asarray(sent)
    if sent.ndim != 1 or not len(sent):
        raise LabelsError(f"sent labels must be of shape (rows,) with at least one row, not {sent.shape}")
    if hasattr(mechanism, "value_of"):  # cells of numbers stand for unbiased values
        return Target(np.asarray(mechanism.value_of(sent), dtype=np.float64), None)
    return true_target(sent, int(mechanism.classes))


def true_target(labels: NDArray[Any], classes: int | None) -> Target:
    """Labels as a target; classes outside of their range and numbers that are not finite are refused."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels):
        raise LabelsError(f"labels must be of shape (rows,) with at least one row, not {labels.shape}")
    if classes is None:
        numbers = labels.astype(np.float64)
        if not np.isfinite(numbers).all():
            raise LabelsError("labels hold numbers that are not finite: leave rows without a label out")
        return Target(numbers, None)
    whole = labels.astype(np.int64)
    if (whole != labels).any() or whole.min() < 0 or whole.max() >= classes:
        raise LabelsError(f"labels run from {labels.min()} to {labels.max()}, not from 0 to {classes - 1}")
    return Target(whole, classes)


def matrix(inputs: Inputs | None, codes: NDArray[np.uint8] | None = None) -> NDArray[np.float32]:
    """Codes of categories, numbers, then cells of an embedding side by side; one column of 0 where there is none."""
    parts: list[NDArray[Any]] = [] if inputs is None else [inputs.categorical.numpy(), inputs.numeric.numpy()]
    parts += [] if codes is None else [codes]
    rows = len(parts[0]) if parts else 0
    wide = sum(part.shape[1] for part in parts)
    table = np.zeros((rows, max(1, wide)), dtype=np.float32)
    start = 0
    for part in parts:
        table[:, start : start + part.shape[1]] = part
        start += part.shape[1]
    return table


def names_of(inputs: Inputs | None, codes: NDArray[np.uint8] | None = None) -> list[str]:
    """The names of a matrix's columns; none where not all have one."""
    names = [*(() if inputs is None else inputs.names)]
    own = 0 if inputs is None else inputs.categorical.shape[1] + inputs.numeric.shape[1]
    cells = [] if codes is None else [f"partner_{place}" for place in range(codes.shape[1])]
    return [*names, *cells] if len(names) == own else []


def frame(inputs: Inputs | None, codes: NDArray[np.uint8] | None = None) -> Any:
    """The same for an object of the user's: with the columns' names, where pandas is installed and they have some.

    Names are what a scikit-learn `ColumnTransformer` asks for; cells of an embedding are `partner_0` and so on.
    """
    table, names = matrix(inputs, codes), names_of(inputs, codes)
    if not names or importlib.util.find_spec("pandas") is None:
        return table
    import pandas as pd

    return pd.DataFrame(table, columns=names)


def unordered(inputs: Inputs | None, most: int) -> list[int]:
    """The places of categorical columns with more codes than this, which trees do not split by their order."""
    sizes: Sequence[int] = () if inputs is None else inputs.cardinalities
    return [place for place, size in enumerate(sizes) if size > most]


def alike(rows: NDArray[Any]) -> NDArray[np.intp]:
    """For each row of a table a number that rows with the same bytes share; -0.0 is 0.0."""
    table = np.ascontiguousarray(rows + np.zeros(1, dtype=rows.dtype))
    whole = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1])))[:, 0]
    return np.unique(whole, return_inverse=True)[1]


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Let PyTorch and NumPy use this many threads inside; what was before comes back."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, threads))
    try:
        with threadpool_limits(max(1, threads), user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


def fresh(made: Any) -> Any:
    """What the user brought: a copy of an object with `fit` or of a module, or what a factory makes."""
    ready = (hasattr(made, "fit") or isinstance(made, nn.Module)) and not isinstance(made, type)
    return copy.deepcopy(made) if ready else made()


def save_own(model: Any, folder: Path) -> None:
    """Write an object of the user's down by skops, which writes and reads no pickle."""
    from skops.io import dump, get_untrusted_types

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _OWN
    try:
        dump(model, path)
        others = _others(get_untrusted_types(file=path))
    except Exception as error:  # whatever an object of the user's raises when it is taken apart
        raise UsageError(f"{type(model).__name__} can't be written down ({error}): {KEEPABLE}") from None
    if others:
        path.unlink()
        raise UsageError(f"{type(model).__name__} can't be written down, it holds {', '.join(others)}: {KEEPABLE}")


def load_own(folder: Path) -> Any:
    """What `save_own` wrote; a file that holds anything else is refused."""
    from skops.io import get_untrusted_types, load

    path = folder / _OWN
    try:
        types = get_untrusted_types(file=path)
        if others := _others(types):
            raise DataError(f"{path} holds {', '.join(others)}, which are not loaded: fit again")
        return load(path, trusted=types)
    except DataError:
        raise
    except Exception as error:  # of a file that was changed
        raise DataError(f"{path} holds no object that was fitted ({error}): fit again") from None


def _others(types: Sequence[str]) -> list[str]:
    """Types of packages that are not among those whose objects are kept."""
    return [name for name in types if name.partition(".")[0] not in _KEPT]


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores (rows, outputs) as probabilities: (rows,) of the second of two classes, else (rows, classes)."""
    return np.asarray(special.expit(scores[:, 0]) if scores.shape[1] == 1 else special.softmax(scores, axis=1))


def loss(scores: NDArray[np.float64], target: Target) -> float:
    """Mean cross entropy of scores (rows, outputs), or mean squared error of numbers."""
    return float(np.mean(losses(scores, target)))


def losses(scores: NDArray[np.float64], target: Target) -> NDArray[np.float64]:
    """The loss of each row.  (rows,)"""
    if target.classes is None:
        return np.asarray((scores[:, 0] - target.values) ** 2)
    if target.outputs == 1:
        return np.logaddexp(0.0, np.where(target.values == 1, -scores[:, 0], scores[:, 0]))
    return np.asarray(special.logsumexp(scores, axis=1) - scores[np.arange(len(scores)), target.values])
