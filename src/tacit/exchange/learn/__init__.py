"""What the feature party learns at home, from rows and flipped labels alone: rows in, `width` numbers a row out.

One file each; the file's name is the learner's name in configs.
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from tacit.align.encoder import Inputs
from tacit.errors import DataError, UsageError
from tacit.exchange._rows import Target, learnable
from tacit.progress import Progress

LEARNERS = ("trees", "network", "linear")  # the learners that have a name; `own` takes an object of the user's
_SAVED = (*LEARNERS, "pca", "own")  # what a folder may hold
FILE = "bottom.json"


class Bottom(Protocol):
    """What was learnt: it embeds any row alike, now and when the model serves."""

    @property
    def name(self) -> str:
        """The name of the learner."""
        ...

    @property
    def width(self) -> int:
        """How many numbers a row gets."""
        ...

    @property
    def digest(self) -> str:
        """A SHA-256 of everything that decides an embedding: the version of the embedding."""
        ...

    def embed(self, inputs: Inputs, *, threads: int = 1) -> NDArray[np.float32]:
        """The numbers of any rows, the score first; of a row the same bits, whoever comes with it.  (rows, width)"""
        ...

    def save(self, folder: Path) -> None:
        """Write it to a folder, without pickle."""
        ...


@dataclass(frozen=True)
class Task:
    """What there is to learn."""

    inputs: Inputs  # the rows
    target: Target  # what was sent of the labels of the first ones
    mechanism: Any  # by which it was sent
    width: int  # how many numbers a row shall get
    seed: int  # of everything that is drawn
    threads: int  # that may be used
    progress: Progress  # is told how far it is


class Learner(ABC):
    """How to learn."""

    name: ClassVar[str]  # in configs: that of its file

    def fit(
        self,
        inputs: Inputs,
        sent: NDArray[Any],
        mechanism: Any,
        width: int,
        *,
        seed: int = 0,
        threads: int = 1,
        progress: Progress = lambda *_: None,
    ) -> Bottom:
        """Learn from the first `len(sent)` rows, which have labels; rows after them help where no label is needed."""
        target = learnable(inputs, sent, mechanism, width)
        return self.learn(Task(inputs, target, mechanism, width, seed, threads, progress))

    @abstractmethod
    def learn(self, task: Task) -> Bottom:
        """The same, of what was checked."""


def learner(name: str, **options: Any) -> Learner:
    """A learner by its name.

    >>> learner("trees").name
    'trees'
    """
    if name not in LEARNERS:
        raise UsageError(f"there is no learner {name!r}; there are: {', '.join(LEARNERS)}, or own(...) for yours")
    try:
        made: Learner = getattr(importlib.import_module(f"tacit.exchange.learn.{name}"), name)(**options)
    except TypeError as error:
        raise UsageError(f"the learner {name!r} can't be made so ({error}): see its docstring") from None
    return made


def load_bottom(folder: Path) -> Bottom:
    """What a named learner's bottom saved; only files of known learners are read, and nothing in them is run."""
    try:
        state = json.loads((folder / FILE).read_text(encoding="utf-8"))
        name = state["learner"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} holds no bottom ({error!r}): learn again") from None
    if name not in _SAVED:
        raise DataError(f"{folder} holds a bottom of {name!r}, not of {', '.join(_SAVED)}: learn again")
    try:
        loaded: Bottom = importlib.import_module(f"tacit.exchange.learn.{name}").load(folder, state)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise DataError(f"{folder} holds no bottom of {name!r} ({error!r}): learn again") from None
    return loaded
