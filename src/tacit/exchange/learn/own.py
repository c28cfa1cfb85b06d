"""A learner of the user's: any object with `fit`, such as scikit-learn's, a factory of one, or an `nn.Module`.

An estimator gets codes and numbers side by side, by name where pandas is installed; its embedding is its `transform`,
else its score. A module is a trunk: rows to units, which are fitted and mixed as those of the learner `network` are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from tacit.align.encoder import Inputs
from tacit.errors import TensorError, UsageError
from tacit.exchange._rows import frame, fresh, load_own, save_own
from tacit.exchange.learn import FILE, Bottom, Learner, Task
from tacit.exchange.learn.network import network

_SCORES = ("transform", "decision_function", "predict_proba", "predict")


@dataclass(frozen=True)
class OwnBottom:
    """A fitted object of the user's."""

    model: Any  # the object
    width: int  # how many numbers a row gets
    # a SHA-256 of the embedding of the training rows, the version of the embedding: nobody can look inside
    digest: str = ""
    name = "own"

    def embed(self, inputs: Inputs, *, threads: int = 1) -> NDArray[np.float32]:
        """The numbers of any rows, the score first.  (rows, width)"""
        found = _numbers(self.model, frame(inputs))
        if found.shape[1] < self.width:
            raise UsageError(
                f"{type(self.model).__name__} gives {found.shape[1]} numbers a row, fewer than the width {self.width}: "
                "give it a transform with more, or lower the width"
            )
        return found[:, : self.width]

    def save(self, folder: Path) -> None:
        """Write it by skops, which writes no pickle."""
        save_own(self.model, folder)
        state = {"learner": self.name, "width": self.width, "digest": self.digest}
        (folder / FILE).write_text(json.dumps(state), encoding="utf-8")


@dataclass(frozen=True)
class Own(Learner):
    """A learner around an object of the user's or a factory of one."""

    made: Any
    name = "own"

    def learn(self, task: Task) -> Bottom:
        """Fit a copy of it to the labels as they were sent."""
        model, labels = fresh(self.made), len(task.target.values)
        if isinstance(model, nn.Module):
            return network(pretraining=model).learn(task)
        if not hasattr(model, "fit") or not any(hasattr(model, name) for name in _SCORES):
            raise UsageError(
                f"{type(model).__name__} has no fit with one of {', '.join(_SCORES)}: a learner needs both"
            )
        fitted = model.fit(frame(task.inputs[:labels]), task.target.values)
        bottom = OwnBottom(model if fitted is None else fitted, task.width)
        version = hashlib.sha256(bottom.embed(task.inputs[:labels]).tobytes())
        task.progress("fitting", 1, 1)
        return replace(bottom, digest=version.hexdigest())


def own(made: Any) -> Learner:
    """A learner from an estimator, an `nn.Module`, or a factory of either.

    >>> from sklearn.linear_model import LogisticRegression
    >>> own(LogisticRegression()).name
    'own'
    """
    if isinstance(made, nn.Module):
        return network(pretraining=made)
    if not (hasattr(made, "fit") or callable(made)):
        raise UsageError(f"a learner is an object with fit, an nn.Module or a factory of one, not {made!r}")
    return Own(made)


def own_unlabelled(made: Any, inputs: Inputs, width: int) -> OwnBottom:
    """An object of the user's that learns without labels: `fit(rows)`, then `transform(rows)`."""
    model = fresh(made)
    if not hasattr(model, "fit") or not hasattr(model, "transform"):
        raise UsageError(f"{type(model).__name__} has no fit and transform: without labels a learner needs both")
    fitted = model.fit(frame(inputs))
    bottom = OwnBottom(model if fitted is None else fitted, width)
    return replace(bottom, digest=hashlib.sha256(bottom.embed(inputs).tobytes()).hexdigest())


def load(folder: Path, state: Mapping[str, Any]) -> OwnBottom:
    """What `save` wrote; `state` is its JSON."""
    return OwnBottom(load_own(folder), int(state["width"]), str(state["digest"]))


def _numbers(model: Any, rows: Any) -> NDArray[np.float32]:
    """What the object says about rows: its `transform`, or its score.  (rows, numbers)"""
    name = next(each for each in _SCORES if hasattr(model, each))
    found = np.asarray(getattr(model, name)(rows), dtype=np.float32)
    if name == "predict_proba" and found.ndim == 2 and found.shape[1] == 2:
        found = found[:, 1]
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or len(found) != len(rows) or not np.isfinite(found).all():
        raise TensorError(
            f"{name} of {type(model).__name__} gave {found.shape}, not finite numbers of {len(rows)} rows"
        )
    return found
