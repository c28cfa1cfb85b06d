"""Embeddings that no label had a part in: what a learnt one must be worth more than, at the same leak.

Each is a bottom like a learner's. Which is best is decided on flipped labels, which the feature party has anyway.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from tacit.align.encoder import Inputs
from tacit.audit.fitting import drawn, trained
from tacit.config.contract import WIDEST
from tacit.contracts import Estimate, noise_source
from tacit.errors import DataError, LabelsError
from tacit.models.layers import count
from tacit.one_shot._rows import using_threads
from tacit.one_shot.decoders import forest, ranked, updates_for
from tacit.one_shot.findings import Z95
from tacit.one_shot.questions import areas, shares
from tacit.one_shot.same_bits import in_blocks

Floats = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]

FLOORS = ("pca", "waist", "clusters")  # their names, which are those of the functions that make them
_FILE = "floor.safetensors"
_LEARNT = 20_000  # rows that one is made from
_JUDGED = 60_000  # rows that show its worth, and as many to learn it from
_CODES = 64  # of a category that are told apart: the most common ones
_CLUSTERS = 64
_ROUNDS = 12


@dataclass(frozen=True)
class Floor:
    """An embedding without labels; it embeds any row alike."""

    name: str  # one of `FLOORS`
    width: int  # how many numbers a row gets
    arrays: Arrays  # all that decides an embedding

    @property
    def digest(self) -> str:
        """A SHA-256 of everything that decides an embedding: its version."""
        made = hashlib.sha256(self.name.encode())
        for key, value in sorted(self.arrays.items()):
            made.update(f"|{key}|{value.dtype.str}|{value.shape}|".encode() + np.ascontiguousarray(value).tobytes())
        return made.hexdigest()

    def embed(self, inputs: Inputs, *, threads: int = 1) -> Floats:
        """The numbers of any rows.  (rows, width)"""

        made = {key: torch.from_numpy(array) for key, array in self.arrays.items()}

        def embedded(categorical: Tensor, numeric: Tensor) -> Tensor:
            x = _flat(Inputs(categorical, numeric, ()), self.arrays)
            if self.name == "pca":
                return x @ made["axes"]
            if self.name == "clusters":
                return torch.stack([_closest(x, centres) for centres in made["centres"]], dim=1).float()
            hidden = functional.relu(functional.linear(x, made["0.weight"], made["0.bias"]))
            return functional.linear(hidden, made["2.weight"], made["2.bias"])

        with using_threads(threads):
            return in_blocks(embedded, inputs.tensors).numpy()

    def save(self, folder: Path) -> None:
        """Write it to a folder, without pickle."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.arrays, folder / _FILE, metadata={"name": self.name, "width": str(self.width)})

    @classmethod
    def load(cls, folder: Path) -> Floor:
        """What `save` wrote; nothing in it is run."""
        try:
            arrays = load_file(folder / _FILE)
        except (OSError, SafetensorError) as error:
            raise DataError(f"{folder} holds no label-free embedding ({error}): make it again") from None
        name, width = FLOORS[int(arrays["kind"][0])], int(arrays["kind"][1])
        return cls(name, width, arrays)


def pca(inputs: Inputs, width: int, *, seed: int = 0) -> Floor:
    """The principal components of columns and codes."""
    x, arrays = _start("pca", inputs, width, seed)
    return Floor("pca", width, arrays | {"axes": _axes(x, width).contiguous().numpy()})


def clusters(inputs: Inputs, width: int, *, seed: int = 0) -> Floor:
    """Which of 64 groups of alike rows a row is in, in `width` groupings; groups are numbered along the first axis."""
    x, arrays = _start("clusters", inputs, width, seed)
    draw = torch.Generator().manual_seed(seed)
    axis = _axes(x, 1)[:, 0]
    found = []
    for _ in range(width):
        centres = x[torch.randperm(len(x), generator=draw)[:_CLUSTERS]].clone()
        for _ in range(_ROUNDS):
            of = _closest(x, centres)
            counts = torch.bincount(of, minlength=len(centres))
            sums = torch.zeros_like(centres).index_add_(0, of, x)
            centres = torch.where(counts[:, None] > 0, sums / counts.clamp_min(1)[:, None], centres)
        found.append(centres[(centres @ axis).argsort()])
    return Floor("clusters", width, arrays | {"centres": torch.stack(found).numpy()})


def waist(inputs: Inputs, width: int, *, seed: int = 0) -> Floor:
    """The waist of a network that learnt to give rows back through it."""
    x, arrays = _start("waist", inputs, width, seed)
    source = noise_source(torch.Generator().manual_seed(seed))
    hidden = 64
    layers = [nn.Linear(x.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, width)]
    network = nn.Sequential(*layers, nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, x.shape[1]))
    drawn(network, source, x.device)
    fit, held = torch.arange(len(x)).tensor_split([len(x) - max(1, len(x) // 8)])
    updates = updates_for(len(fit))
    trained(network, x, x, fit, held, source, updates=updates, loss=functional.mse_loss, rate=3e-3)
    state = {key: value.numpy() for key, value in network.state_dict().items() if key.startswith(("0.", "2."))}
    return Floor("waist", width, arrays | state)


def worth(z: NDArray[Any], sent: NDArray[Any], mechanism: Any, *, seed: int = 0, cut: int | None = None) -> Estimate:
    """How well flipped labels are told from an embedding, on rows that had no part in learning it: 0 nothing, 1 all.

    Of classes 2 AUC - 1 (the mean over classes, by how often they come), of numbers the share of the variance. Trees
    answer, so that embeddings of any kind, ranked or not, are compared alike. A coin limits it: 2 limit - 1 is the
    most. Rows from `cut` on are judged and those before it learnt from; None draws a fifth.
    """
    if len(z) != len(sent) or len(z) < 10:
        raise LabelsError(f"{len(z)} embeddings and {len(sent)} labels: pass one label for each row, ten or more")
    order = np.random.default_rng(seed).permutation(len(z)) if cut is None else np.arange(len(z))
    cut = 4 * len(z) // 5 if cut is None else cut
    learnt, judged = order[:cut][:_JUDGED], order[cut:][:_JUDGED]
    level = ranked(np.asarray(z), learnt).astype(np.uint8)
    number = hasattr(mechanism, "value_of")
    values = np.asarray(mechanism.value_of(sent) if number else sent)
    kinds = np.arange(1, 2) if number or mechanism.classes == 2 else np.arange(mechanism.classes)
    answers = (values[:, None] if number else values[:, None] == kinds).astype(np.float32)
    belief = forest(level[learnt], answers[learnt], level[judged], seed=seed, trees=24, depth=7)
    if number:
        value, error = shares(belief, answers[judged], answers[learnt].mean(0, dtype=np.float64))
        weight = np.ones(1)
    else:
        value, error = areas(belief, answers[judged])
        weight = np.where(np.isfinite(value), answers[judged].mean(0), 0.0)
        weight = weight / max(weight.sum(), 1e-12)
    told, half = float(np.nansum(weight * value)), Z95 * float(np.nansum(weight * error))
    return Estimate(told, told - half, told + half)


# --- rows as numbers -------------------------------------------------------------------------------------------------


def _start(name: str, inputs: Inputs, width: int, seed: int) -> tuple[Tensor, Arrays]:
    """Some rows as numbers, and what made them so."""
    count("width", width, high=WIDEST)
    some = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))[:_LEARNT]
    rows, pairs = inputs[some], []
    for place, size in enumerate(inputs.cardinalities):
        often = torch.bincount(rows.categorical[:, place], minlength=size)
        common = often.argsort(descending=True, stable=True)[:_CODES].sort().values
        pairs += [[place, code] for code in common.tolist()]
    kind = np.array([FLOORS.index(name), width], dtype=np.int64)
    arrays: Arrays = {"kind": kind, "codes": np.array(pairs, dtype=np.int64).reshape(-1, 2)}
    arrays["mean"] = np.zeros(len(pairs) + inputs.numeric.shape[1], dtype=np.float32)
    x = _flat(rows, arrays)
    arrays["mean"] = x.mean(0).numpy()
    return _flat(rows, arrays), arrays


def _flat(inputs: Inputs, arrays: Arrays) -> Tensor:
    """Common codes as columns of 0 and 1 beside the numbers, all around their mean.  (rows, columns)"""
    columns, codes = torch.from_numpy(arrays["codes"]).unbind(1)
    ones = (inputs.categorical[:, columns] == codes).float()
    return torch.cat([ones, inputs.numeric.clamp(-8, 8)], dim=1) - torch.from_numpy(arrays["mean"])


def _axes(x: Tensor, width: int) -> Tensor:
    """The directions of most variance, each with its largest entry positive; 0 where there are no more."""
    _, vectors = torch.linalg.eigh((x.mT @ x).double())
    axes = vectors.flip(1)[:, :width].float()
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    return functional.pad(axes, (0, width - axes.shape[1]))


def _closest(x: Tensor, centres: Tensor) -> Tensor:
    return (centres.square().sum(1) - 2 * x @ centres.mT).argmin(1)
