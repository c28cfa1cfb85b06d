"""A data set as both parties of a one-shot training have it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit.align.encoder import Columns, Inputs
from tacit.lab.data.flights import AIRPORT_INPUTS
from tacit.lab.data.rows import Data, Pictures, Table
from tacit.one_shot.reading import looked_for
from tacit.one_shot.target import Target


@dataclass(frozen=True)
class World:
    """A data set as both parties have it, training rows first."""

    name: str  # of the data set
    inputs: Table | Pictures  # what kind of rows these are
    rows: Inputs | Tensor  # the feature party's
    columns: Columns  # their names
    own: Inputs  # the label party's
    target: Target  # the labels
    train: int  # how many rows are for training

    @property
    def share(self) -> float:
        """Of positives, among the training rows."""
        return float(self.target.values[: self.train].mean())

    @property
    def digest(self) -> str:
        """Of the labels and the shape: enough to tell that another data set was meant."""
        shape = f"{self.name} {self.train} {len(self.target)} {self.columns}"
        return hashlib.sha256(shape.encode() + self.target.values.tobytes()).hexdigest()[:16]


def world_of(data: Data) -> World:
    """A data set of the lab as both parties have it."""
    both = [torch.cat(pair) for pair in zip(data.train.features, data.test.features, strict=True)]
    mine = [torch.cat(pair) for pair in zip(data.train.own, data.test.own, strict=True)]
    labels = torch.cat([data.train.labels, data.test.labels]).long().numpy()
    target = Target("classes", 2, labels, np.ones(len(labels), bool), "2 classes")
    empty = Inputs(torch.zeros(len(labels), 0, dtype=torch.int64), torch.zeros(len(labels), 0), ())
    if not isinstance(data.inputs, Table):
        pictures = both[0].float() / (255 if both[0].dtype == torch.uint8 else 1)
        places = looked_for(pictures, len(data.train)).numeric.shape[1]
        named = Columns((), tuple(f"place {number}" for number in range(places)))
        return World(data.name, data.inputs, pictures, named, empty, target, len(data.train))
    rows = Inputs(both[0].long(), both[1].float(), data.inputs.cardinalities)
    own = Inputs(mine[0].long(), mine[1].float(), data.inputs.own_cardinalities) if mine else empty
    codes, numbers = range(len(data.inputs.cardinalities)), range(data.inputs.numeric)
    names = Columns(tuple(f"c{place}" for place in codes), tuple(f"x{place}" for place in numbers))
    names = AIRPORT_INPUTS if data.name == "flights" else names
    return World(data.name, data.inputs, rows, names, own, target, len(data.train))
