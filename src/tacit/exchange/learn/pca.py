"""Principal components of the columns (scikit-learn): an embedding that no label had a part in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sklearn.decomposition import PCA
from torch import Tensor

from tacit.align.encoder import Inputs
from tacit.errors import UsageError
from tacit.exchange.learn import FILE
from tacit.same_bits import in_blocks

_ROWS = 100_000  # that components are worked out from, at most
_CODES = 64  # of a category that count as columns of their own: the most common ones
_FAR = 8.0  # deviations to which numbers are clipped
_ARRAYS = "pca.safetensors"

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class PcaBottom:
    """Components, and the codes that count as columns."""

    arrays: Arrays  # codes (columns, 2), mean (columns,), axes (columns, width)
    name = "pca"

    @property
    def width(self) -> int:
        """How many numbers a row gets."""
        return int(self.arrays["axes"].shape[1])

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of everything that decides an embedding."""
        made = hashlib.sha256(self.name.encode())
        for key, value in sorted(self.arrays.items()):
            made.update(f"|{key}|{value.dtype.str}|{value.shape}|".encode() + np.ascontiguousarray(value).tobytes())
        return made.hexdigest()

    def embed(self, inputs: Inputs, *, threads: int = 1) -> NDArray[np.float32]:
        """The numbers of any rows, that of the largest variance first.  (rows, width)"""
        codes, mean, axes = (torch.from_numpy(self.arrays[key]) for key in ("codes", "mean", "axes"))

        def embedded(categorical: Tensor, numeric: Tensor) -> Tensor:
            return (_flat(categorical, numeric, codes) - mean) @ axes

        return in_blocks(embedded, inputs.tensors).float().numpy()

    def save(self, folder: Path) -> None:
        """Write it to a folder, without pickle."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.arrays, folder / _ARRAYS)
        (folder / FILE).write_text(json.dumps({"learner": self.name}), encoding="utf-8")


def load(folder: Path, state: Mapping[str, Any]) -> PcaBottom:
    """What `PcaBottom.save` wrote; `state` is its JSON."""
    return PcaBottom(load_file(folder / _ARRAYS))


def fit(inputs: Inputs, width: int, *, seed: int = 0) -> PcaBottom:
    """Principal components of numbers and common codes, from some of the rows."""
    some = np.sort(np.random.default_rng([seed, 5]).permutation(len(inputs))[:_ROWS])
    rows, pairs = inputs[torch.from_numpy(some)], []
    for place, size in enumerate(inputs.cardinalities):
        often = torch.bincount(rows.categorical[:, place].long(), minlength=size)
        common = often.argsort(descending=True, stable=True)[:_CODES].sort().values
        pairs += [[place, code] for code in common.tolist()]
    codes = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    x = _flat(rows.categorical, rows.numeric, torch.from_numpy(codes)).numpy()
    if width > min(x.shape):
        raise UsageError(f"{x.shape[1]} columns have no {width} principal components: agree on fewer numbers")
    found = PCA(width, svd_solver="full", random_state=seed).fit(x)
    axes = np.ascontiguousarray(found.components_.T, dtype=np.float32)
    return PcaBottom({"codes": codes, "mean": found.mean_.astype(np.float32), "axes": axes})


def _flat(categorical: Tensor, numeric: Tensor, codes: Tensor) -> Tensor:
    """Common codes as columns of 0 and 1, beside numbers.  (rows, columns)"""
    columns, wanted = codes.unbind(1)
    return torch.cat([(categorical[:, columns] == wanted).float(), numeric.clamp(-_FAR, _FAR)], dim=1)
