"""The private head: any model of the label party's, on true labels, its own columns and the embedding. Nothing leaves.

`codes=None` fits the fallback, which tells what the other side is worth, and scores rows that have no partner.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tacit.align.encoder import Inputs
from tacit.arguments import count
from tacit.errors import DataError, TensorError, UsageError
from tacit.exchange._forest import Forest, Growth
from tacit.exchange._network import Fitting, Scorer, TableTrunk, device_of, fit_scorer, same_draws, scores_of, units_of
from tacit.exchange._rows import (
    Target,
    frame,
    fresh,
    load_own,
    matrix,
    names_of,
    save_own,
    softmax,
    true_target,
    unordered,
)
from tacit.progress import Progress

HEADS = ("trees", "network")  # the heads that have a name; anything else is an object or a factory of the user's
FILE = "head.json"
_WEIGHTS = "network.safetensors"
_GROWTH = Growth(
    folds=3,
    rounds=40,
    step=5,
    patience=2,
    leaves=63,
    leaf_rows=100,
    rate=0.4,
    shrink=10.0,
    columns=0.4,
    rows=1.0,
    bins=255,
)
_FEW_CODES = 2  # true labels tell categories apart, so that no order of theirs is needed


@dataclass(frozen=True)
class Shape:
    """What a head is for: it refuses rows of another shape."""

    width: int  # the numbers a row of the embedding; 0 for the fallback
    categorical: int  # the label party's own categorical columns
    numeric: int  # its own numeric columns
    classes: int | None  # how many classes there are; None for numbers

    @classmethod
    def of(cls, codes: NDArray[np.uint8] | None, own: Inputs | None, classes: int | None) -> Shape:
        """The shape of these rows."""
        wide = (0, 0) if own is None else (own.categorical.shape[1], own.numeric.shape[1])
        return cls(0 if codes is None else codes.shape[1], *wide, classes)

    def check(self, codes: NDArray[np.uint8] | None, own: Inputs | None) -> None:
        """Refuse rows that the head was not fitted for."""
        if codes is not None and (codes.ndim != 2 or codes.dtype != np.uint8):
            raise TensorError(f"codes must be cells of shape (rows, width) and dtype uint8, not {codes.dtype}")
        if codes is None and own is None:
            raise UsageError("there are neither codes nor own columns: pass at least one, if only to count the rows")
        if codes is not None and own is not None and len(codes) != len(own):
            raise TensorError(f"codes have {len(codes)} rows and own columns {len(own)}: pass the same rows")
        if Shape.of(codes, own, self.classes) != self:
            raise TensorError(f"the head was fitted for {self}, not for {Shape.of(codes, own, self.classes)}")


Codes = NDArray[np.uint8] | None  # the embedding in cells; None for the fallback (rows, width)


@dataclass(frozen=True)
class Head(ABC):
    """A fitted head."""

    shape: Shape  # what it is for

    def predict(self, codes: Codes, own: Inputs | None, *, threads: int = 1) -> NDArray[np.float64]:
        """Probabilities (rows,) of class 1, (rows, K) of K classes, or numbers (rows,)."""
        self.shape.check(codes, own)
        return self._predicted(codes, own, threads)

    @abstractmethod
    def _predicted(self, codes: Codes, own: Inputs | None, threads: int) -> NDArray[np.float64]: ...

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write it to a folder, without pickle."""


def fit_head(  # each setting by name; most callers leave most of them as they are
    kind: Any,
    codes: Codes,
    own: Inputs | None,
    labels: NDArray[Any],
    *,
    classes: int | None = 2,
    train: int | None = None,
    seed: int = 0,
    threads: int = 1,
    device: str = "cpu",
    blank: int = 0,
    progress: Progress = lambda *_: None,
) -> Head:
    """Fit a head on the first `train` rows' true labels; it validates in private and shows nothing.

    Args:
        kind: "trees", "network", an object with `fit` and `predict_proba` (`predict` for numbers), a factory of such
            objects, or an `nn.Module` that makes hidden units of rows: of numbers and cells, or, where own columns have
            categories, of their codes and of these. It is copied. Networks get cells with mean 0 and variance 1.
        labels: classes from 0 on, -1 where there is none; numbers, NaN where there is none.  (rows,) or (train,)
        classes: how many there are; None for numbers.
        device: where a network is fitted: "cpu", "cuda", or "auto" for CUDA where there is one.
        blank: of the fallback, how many cells an object of the user's gets that are always 0: it may ask for them by
            name.
    """
    if classes is not None:
        count("classes", classes, low=2)
    shape = Shape.of(codes, own, classes)
    shape.check(codes, own)
    labels = np.asarray(labels)[: len(labels) if train is None else count("train", train)]
    known = np.flatnonzero(~np.isnan(labels) if classes is None else labels >= 0)
    if not len(known):
        raise UsageError("no training row has a label: a head can't be fitted")
    target = true_target(labels[known], classes)
    if kind not in HEADS and classes is not None and len(np.unique(target.values)) == 1:
        kind = "trees"  # a constant: many models can't be fitted to one class, and the partner has picked the rows
    if kind == "trees":
        table = matrix(own, codes)[known]
        plain = unordered(own, _FEW_CODES)
        grown = Forest.fit(
            table, target, _GROWTH, unordered=plain, names=names_of(own, codes), seed=seed, threads=threads,
            progress=progress,
        )  # fmt: skip
        return TreesHead(shape, grown)
    if kind == "network" or isinstance(kind, nn.Module):
        ours, places = kind == "network", torch.from_numpy(known)
        scaling = _Scaling.of(codes, known)
        tensors = [tensor[places] for tensor in _tensors(codes, own, ours, scaling)]
        sizes = () if own is None else own.cardinalities
        where = device_of(device)
        with same_draws(seed, threads, where):
            trunk = TableTrunk(sizes, tensors[1].shape[1], layers=2) if ours else fresh(kind)
            net = Scorer(trunk, units_of(trunk, tensors), target.outputs)
            fit_scorer(net, tensors, target.scaled, Fitting(), progress=progress, device=where)
        numbers = classes is None
        shift, scale = (float(target.values.mean()), float(target.values.std()) or 1.0) if numbers else (0.0, 1.0)
        return NetworkHead(shape, net, shift, scale, scaling)
    if isinstance(kind, str):
        raise UsageError(f"there is no head {kind!r}; there are: {', '.join(HEADS)}, or pass an object or a factory")
    rows = None if own is None else own[torch.from_numpy(known)]
    cells = np.zeros((len(known), blank), np.uint8) if codes is None and blank else codes
    table = frame(rows, cells if cells is None or codes is None else codes[: len(labels)][known])
    return _fit_own(kind, shape, table, target, 0 if codes is not None else blank)


def load_head(folder: Path) -> Head:
    """What the head of a named kind saved; nothing in its files is run."""
    try:
        state = json.loads((folder / FILE).read_text(encoding="utf-8"))
        kind, shape = state["kind"], Shape(**state["shape"])
        folds = count("folds", state["folds"]) if kind == "trees" else 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} holds no head ({error!r}): fit again") from None
    if kind == "trees":
        return TreesHead(shape, Forest.load(folder, folds, _outputs(shape)))
    if kind == "network":
        return NetworkHead.load(folder, shape, state)
    if kind == "own":
        return OwnHead(shape, load_own(folder), tuple(state["present"]), int(state["blank"]))
    raise DataError(f"{folder} holds a head of kind {kind!r}, not of {', '.join(HEADS)}: fit again")


@dataclass(frozen=True)
class TreesHead(Head):
    """Boosted trees."""

    forest: Forest  # the trees of all folds

    def _predicted(self, codes: Codes, own: Inputs | None, threads: int) -> NDArray[np.float64]:
        return _linked(self.forest.scores(matrix(own, codes), threads), self.shape)

    def save(self, folder: Path) -> None:
        """Write LightGBM's own text."""
        _save_state(folder, "trees", self.shape, folds=len(self.forest.models))
        self.forest.save(folder)


@dataclass(frozen=True)
class _Scaling:
    """What gives the cells of training rows mean 0 and variance 1, of however many bits they are."""

    means: tuple[float, ...] = ()  # of each number
    spreads: tuple[float, ...] = ()

    @classmethod
    def of(cls, codes: Codes, rows: NDArray[np.intp]) -> _Scaling:
        """That of these rows; of the fallback there is none."""
        every, means, spreads = np.arange(256), [], []
        for place in range(0 if codes is None else codes.shape[1]):
            assert codes is not None  # else it has no number
            share = np.bincount(codes[rows, place], minlength=256) / len(rows)
            means.append(float(share @ every))
            spreads.append(math.sqrt(share @ np.square(every - means[-1])) or 1.0)
        return cls(tuple(means), tuple(spreads))

    def scaled(self, codes: NDArray[np.uint8]) -> Tensor:
        """Any rows' cells in these units."""
        numbers = codes.astype(np.float32)
        numbers -= np.array(self.means, np.float32)
        numbers /= np.array(self.spreads, np.float32)
        return torch.from_numpy(numbers)


@dataclass(frozen=True)
class NetworkHead(Head):
    """A small network."""

    net: Scorer  # rows to scores
    shift: float = 0.0  # what is added to a score of numbers
    scale: float = 1.0  # what it is multiplied with before
    cells: _Scaling = _Scaling()

    def _predicted(self, codes: Codes, own: Inputs | None, threads: int) -> NDArray[np.float64]:
        scores = scores_of(self.net, _tensors(codes, own, isinstance(self.net.trunk, TableTrunk), self.cells))
        return _linked(scores * self.scale + self.shift, self.shape)

    def save(self, folder: Path) -> None:
        """Write its weights as safetensors; a module of the user's is saved by the user."""
        trunk = self.net.trunk
        if not isinstance(trunk, TableTrunk):
            raise UsageError("the head is a module of your own, which only you can build again: save its weights")
        _save_state(
            folder, "network", self.shape, trunk=trunk.shape, shift=self.shift, scale=self.scale,
            cells=[self.cells.means, self.cells.spreads],
        )  # fmt: skip
        save_file(self.net.state_dict(), folder / _WEIGHTS)

    @classmethod
    def load(cls, folder: Path, shape: Shape, state: Mapping[str, Any]) -> NetworkHead:
        """What `save` wrote; `state` is its JSON."""
        try:
            trunk = TableTrunk(**state["trunk"])
            net = Scorer(trunk, trunk.width, _outputs(shape))
            net.load_state_dict(load_file(folder / _WEIGHTS))
            means, spreads = (tuple(map(float, each)) for each in state["cells"])
            if len(means) != shape.width or len(spreads) != shape.width:
                raise ValueError("the cells' scaling is of another width")
            return cls(shape, net.eval(), float(state["shift"]), float(state["scale"]), _Scaling(means, spreads))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise DataError(f"{folder} holds no network ({error}): fit again") from None


def _tensors(codes: Codes, own: Inputs | None, ours: bool, cells: _Scaling) -> list[Tensor]:
    """Own codes, and own numbers with scaled cells beside them; a user's module gets codes if there are any."""
    rows = len(own) if own is not None else 0 if codes is None else len(codes)
    categorical = torch.zeros(rows, 0, dtype=torch.int64) if own is None else own.categorical
    numbers = [] if own is None else [own.numeric]
    numbers += [] if codes is None else [cells.scaled(codes)]
    plain = torch.cat(numbers, dim=1) if numbers else torch.zeros(rows, 0)
    return [categorical, plain] if ours or categorical.shape[1] else [plain]


@dataclass(frozen=True)
class OwnHead(Head):
    """An object of the user's with `predict_proba`, or `predict` for numbers."""

    model: Any  # the fitted object; it gets codes of categories, numbers and cells side by side, as a pandas DataFrame
    present: tuple[int, ...]  # the classes that it saw
    blank: int = 0  # of the fallback, how many cells it gets that are always 0

    def _predicted(self, codes: Codes, own: Inputs | None, threads: int) -> NDArray[np.float64]:
        rows = 0 if own is None else len(own)
        cells = np.zeros((rows, self.blank), np.uint8) if codes is None and self.blank else codes
        table = frame(own, cells)
        if self.shape.classes is None:
            return np.asarray(self.model.predict(table), dtype=np.float64)
        found = np.asarray(self.model.predict_proba(table), dtype=np.float64)
        if found.shape != (len(table), len(self.present)):
            raise TensorError(f"predict_proba gave {found.shape}, not ({len(table)}, {len(self.present)})")
        full = np.zeros((len(table), self.shape.classes))
        full[:, list(self.present)] = found
        return full[:, 1] if self.shape.classes == 2 else full

    def save(self, folder: Path) -> None:
        """Write it by skops, which writes no pickle."""
        save_own(self.model, folder)
        _save_state(folder, "own", self.shape, present=list(self.present), blank=self.blank)


def _fit_own(kind: Any, shape: Shape, table: Any, target: Target, blank: int) -> OwnHead:
    """Fit a copy of what the user brought; a factory is called first."""
    if not (hasattr(kind, "fit") or callable(kind)):
        raise UsageError(f"a head is 'trees', 'network', an object with fit, or a factory of one, not {kind!r}")
    model = fresh(kind)
    wanted = "predict" if shape.classes is None else "predict_proba"
    if not hasattr(model, "fit") or not hasattr(model, wanted):
        raise UsageError(f"{type(model).__name__} has no fit and {wanted}: a head needs both")
    fitted = model.fit(table, target.values)
    present = () if shape.classes is None else tuple(np.unique(target.values).tolist())
    return OwnHead(shape, model if fitted is None else fitted, present, blank)


def _linked(scores: NDArray[np.float64], shape: Shape) -> NDArray[np.float64]:
    return np.asarray(scores[:, 0]) if shape.classes is None else softmax(scores)


def _outputs(shape: Shape) -> int:
    return Target(np.zeros(1), shape.classes).outputs


def _save_state(folder: Path, kind: str, shape: Shape, **more: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    state: Mapping[str, Any] = {"kind": kind, "shape": vars(shape), **more}
    (folder / FILE).write_text(json.dumps(state), encoding="utf-8")
