"""A small network, for tables with many codes; its trunk may have learnt without labels before."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn

from tacit.align.encoder import Inputs
from tacit.arguments import count
from tacit.errors import UsageError
from tacit.exchange._batches import placed
from tacit.exchange._network import (
    Fitting,
    Members,
    Scorer,
    TableTrunk,
    device_of,
    fit_scorer,
    same_draws,
    scores_of,
    units_of,
)
from tacit.exchange._rows import Target
from tacit.exchange.learn import FILE, Learner, Task
from tacit.exchange.learn._mix import covariance, mixing
from tacit.exchange.pretrain import pretrain, trunk_for
from tacit.same_bits import mixed

_BLOCK = 8192
_SPREAD_ROWS = 1 << 20  # rows at most, evenly spread, that say how units vary
_MOST_MEMBERS = 64
_WEIGHTS = "network.safetensors"


@dataclass(frozen=True)
class NetworkBottom:
    """A trunk, and what makes `width` numbers of its units."""

    trunk: nn.Module  # rows to units
    mix: NDArray[np.float64]  # a matrix (units, width)
    name = "network"

    @property
    def width(self) -> int:
        """How many numbers a row gets."""
        return int(self.mix.shape[1])

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of weights and matrix."""
        return hashlib.sha256(save(self._tensors())).hexdigest()

    def embed(self, inputs: Inputs, *, threads: int = 1) -> NDArray[np.float32]:
        """The numbers of any rows, the score first.  (rows, width)"""
        blocks = [mixed(units, self.mix) for units in _units(self.trunk, inputs.tensors)]
        return np.concatenate(blocks) if blocks else np.zeros((0, self.width), dtype=np.float32)

    def save(self, folder: Path) -> None:
        """Write weights as safetensors and the trunk's shape as JSON."""
        members = list(self.trunk.trunks) if isinstance(self.trunk, Members) else [self.trunk]
        if not isinstance(members[0], TableTrunk):
            raise UsageError("a bottom around a trunk of your own can't be built again from a file: save its weights")
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self._tensors(), folder / _WEIGHTS)
        state = {"learner": self.name, "trunk": members[0].shape, "members": len(members)}
        (folder / FILE).write_text(json.dumps(state), encoding="utf-8")

    def _tensors(self) -> dict[str, Tensor]:
        weights = {f"trunk.{key}": value.contiguous() for key, value in self.trunk.state_dict().items()}
        return weights | {"mix": torch.from_numpy(np.ascontiguousarray(self.mix))}


def load(folder: Path, state: Mapping[str, Any]) -> NetworkBottom:
    """What `NetworkBottom.save` wrote; `state` is its JSON."""
    members = count("members", state["members"], high=_MOST_MEMBERS)
    trunk = Members([TableTrunk(**state["trunk"]) for _ in range(members)])
    tensors = load_file(folder / _WEIGHTS)
    mix = tensors.pop("mix").double().numpy().reshape(members * state["trunk"]["width"], -1)
    trunk.load_state_dict({key.removeprefix("trunk."): value for key, value in tensors.items()})
    return NetworkBottom(trunk.eval(), mix)


@dataclass(frozen=True)
class Network(Learner):
    """A learner of a small network."""

    fitting: Fitting  # how it is fitted
    # True to learn without labels first, False not to, or a trunk of the user's (rows to units)
    pretraining: bool | nn.Module = True
    # how many networks there are, each stopped on rows of its own that it has not seen: the mean of their scores is
    # steadier. Of trunks of the user's there is one
    members: int = 4
    device: str = "cpu"  # where it learns: "cpu", "cuda", or "auto" for CUDA where there is one
    name = "network"

    def learn(self, task: Task) -> NetworkBottom:
        """Rows without labels help before there are any."""
        labels, seed, threads = len(task.target.values), task.seed, task.threads
        target, device = task.target.scaled, device_of(self.device)
        link = _flipped(task.mechanism) if target.classes == 2 else None
        trunks = self._trunks(task)
        tensors = [tensor[:labels] for tensor in task.inputs.tensors]
        rows = placed(tensors, device)  # once for all members
        weights = []
        for place, trunk in enumerate(trunks):
            with same_draws(seed + 1 + place, threads, device):
                net = Scorer(trunk, units_of(trunk, tensors), target.outputs)
                _start(net, target, task.mechanism)
                fit_scorer(net, rows, target, self.fitting, link=link, progress=task.progress, device=device)
                weights.append(net.score.weight.detach().double().numpy().T / len(trunks))
        whole = Members(trunks).eval()
        some = [tensor[:: -(-labels // _SPREAD_ROWS)] for tensor in tensors]
        with same_draws(seed, threads):
            mix = mixing(covariance(_units(whole, some)), np.concatenate(weights), task.width)
        return NetworkBottom(whole, mix)

    def _trunks(self, task: Task) -> list[nn.Module]:
        """What is fitted: the user's trunk, or ours that has learnt without labels or nothing yet."""
        inputs, seed, threads = task.inputs, task.seed, task.threads
        if isinstance(self.pretraining, nn.Module):
            return [copy.deepcopy(self.pretraining)]
        if self.pretraining and len(inputs) > 1:
            learnt = pretrain(inputs, seed=seed, threads=threads, progress=task.progress, device=self.device)
            return [copy.deepcopy(learnt) for _ in range(self.members)]
        with same_draws(seed, threads):
            return [trunk_for(inputs) for _ in range(self.members)]


def network(*, pretraining: bool | nn.Module = True, members: int = 4, **fitting: Any) -> Network:
    """A small network; further options are those of `Fitting`.

    >>> network(pretraining=False, epochs=3).fitting.epochs
    3
    """
    usual = {"epochs": 24, "patience": 4, "batch": 512, "rate": 1e-3, "decay": 0.01}
    return Network(Fitting(**(usual | fitting)), pretraining, count("members", members, high=_MOST_MEMBERS))


def _start(net: Scorer, target: Target, mechanism: Any) -> None:
    """Begin at the share of the second of two classes, so that the first steps are not spent on it."""
    if target.classes == 2:
        share = (float(target.values.mean()) - float(mechanism.b)) / float(mechanism.a - mechanism.b)
        with torch.no_grad():
            net.score.bias.fill_(float(np.log((share := min(max(share, 0.01), 0.99)) / (1 - share))))


def _flipped(mechanism: Any) -> Any:
    """From the logit of a true label to that of a flipped one: the loss is BCE(sent, b + (a - b) p).

    Then scores are of true labels, and a network ranks better by them, too.
    """
    a, b = float(mechanism.a), float(mechanism.b)
    return lambda scores: torch.logit(b + (a - b) * torch.sigmoid(scores), eps=1e-6)


def _units(trunk: nn.Module, tensors: Sequence[Tensor]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(tensors[0]), _BLOCK):
        yield scores_of(trunk, [tensor[start : start + _BLOCK] for tensor in tensors])
