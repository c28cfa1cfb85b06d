"""A small network, for pictures and for tables with many codes; its trunk may have learnt without labels before."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn

from tacit.align.encoder import Inputs
from tacit.errors import DataError, UsageError
from tacit.one_shot._network import (
    Fitting,
    PictureTrunk,
    Scorer,
    TableTrunk,
    fit_scorer,
    same_draws,
    scores_of,
    units_of,
)
from tacit.one_shot._rows import Progress, learnable
from tacit.one_shot.learn import FILE
from tacit.one_shot.learn._mix import covariance, mixing
from tacit.one_shot.pretrain import pretrain, trunk_for

__all__ = ["Network", "NetworkBottom", "load", "network"]

_BLOCK = 8192
_WEIGHTS = "network.safetensors"


@dataclass(frozen=True)
class NetworkBottom:
    """A trunk, and what makes `width` numbers of its units.

    Attributes:
        trunk: rows to units.
        mix: a matrix (units, width).
    """

    trunk: nn.Module
    mix: NDArray[np.float64]
    name: str = field(default="network", init=False)

    @property
    def width(self) -> int:
        """How many numbers a row gets."""
        return int(self.mix.shape[1])

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of weights and matrix."""
        return hashlib.sha256(save(self._tensors())).hexdigest()

    def embed(self, inputs: Inputs | Tensor, *, threads: int = 1) -> NDArray[np.float32]:
        """The numbers of any rows, the score first.  (rows, width)"""
        blocks = [(units @ self.mix).astype(np.float32) for units in _units(self.trunk, _tensors_of(inputs))]
        return np.concatenate(blocks) if blocks else np.zeros((0, self.width), dtype=np.float32)

    def save(self, folder: Path) -> None:
        """Write weights as safetensors and the trunk's shape as JSON."""
        if not isinstance(self.trunk, TableTrunk | PictureTrunk):
            raise UsageError("a bottom around a trunk of your own can't be built again from a file: save its weights")
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self._tensors(), folder / _WEIGHTS)
        state = {"learner": self.name, "kind": type(self.trunk).__name__, "trunk": self.trunk.shape}
        (folder / FILE).write_text(json.dumps(state), encoding="utf-8")

    def _tensors(self) -> dict[str, Tensor]:
        weights = {f"trunk.{key}": value.contiguous() for key, value in self.trunk.state_dict().items()}
        return weights | {"mix": torch.from_numpy(np.ascontiguousarray(self.mix))}


def load(folder: Path, state: Mapping[str, Any]) -> NetworkBottom:
    """What `NetworkBottom.save` wrote; `state` is its JSON."""
    kinds: dict[str, type[TableTrunk | PictureTrunk]] = {"TableTrunk": TableTrunk, "PictureTrunk": PictureTrunk}
    try:
        trunk = kinds[state["kind"]](**state["trunk"])
        tensors = load_file(folder / _WEIGHTS)
        mix = tensors.pop("mix").double().numpy().reshape(trunk.width, -1)
        trunk.load_state_dict({key.removeprefix("trunk."): value for key, value in tensors.items()})
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise DataError(f"{folder} holds no network ({error!r}): learn again") from None
    return NetworkBottom(trunk.eval(), mix)


@dataclass(frozen=True)
class Network:
    """A learner of a small network.

    Attributes:
        fitting: how it is fitted.
        pretraining: True to learn without labels first, False not to, or a trunk of the user's (rows to units).
        corrected: whether the loss is that of the flipped label, BCE(sent, b + (a - b) p): for probabilities. The plain
            one ranks as well.
    """

    fitting: Fitting
    pretraining: bool | nn.Module = True
    corrected: bool = False
    name: str = field(default="network", init=False)

    def fit(
        self,
        inputs: Inputs | Tensor,
        sent: NDArray[Any],
        mechanism: Any,
        width: int,
        *,
        seed: int = 0,
        threads: int = 1,
        progress: Progress = lambda *_: None,
    ) -> NetworkBottom:
        """Learn from the first `len(sent)` rows; those after them help without labels."""
        target = learnable(inputs, sent, mechanism, width).scaled
        link = _flipped(mechanism) if self.corrected and target.classes == 2 else None
        trunk = self._trunk(inputs, seed, threads, progress)
        tensors = [tensor[: len(sent)] for tensor in _tensors_of(inputs)]
        with same_draws(seed + 1, threads):
            net = Scorer(trunk, units_of(trunk, tensors), target.outputs)
            fit_scorer(net, tensors, target, self.fitting, link=link, progress=progress)
            weights = net.score.weight.detach().double().numpy().T
            mix = mixing(covariance(_units(trunk, tensors)), weights, width)
        return NetworkBottom(trunk, mix)

    def _trunk(self, inputs: Inputs | Tensor, seed: int, threads: int, progress: Progress) -> nn.Module:
        if isinstance(self.pretraining, nn.Module):
            return copy.deepcopy(self.pretraining)
        if self.pretraining and len(inputs) > 1:
            return pretrain(inputs, seed=seed, threads=threads, progress=progress)
        with same_draws(seed, threads):
            return trunk_for(inputs)


def network(*, pretraining: bool | nn.Module = True, corrected: bool = False, **fitting: Any) -> Network:
    """A small network; further options are those of `Fitting`.

    >>> network(pretraining=False, epochs=3).fitting.epochs
    3
    """
    return Network(Fitting(**({"decay": 0.1, "rate": 1e-3} | fitting)), pretraining, corrected)


def _flipped(mechanism: Any) -> Any:
    """From the logit of a true label to that of a flipped one: the forward correction."""
    a, b = float(mechanism.a), float(mechanism.b)
    return lambda scores: torch.logit(b + (a - b) * torch.sigmoid(scores), eps=1e-6)


def _units(trunk: nn.Module, tensors: Sequence[Tensor]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(tensors[0]), _BLOCK):
        yield scores_of(trunk, [tensor[start : start + _BLOCK] for tensor in tensors])


def _tensors_of(inputs: Inputs | Tensor) -> tuple[Tensor, ...]:
    return inputs.tensors if isinstance(inputs, Inputs) else (inputs,)
