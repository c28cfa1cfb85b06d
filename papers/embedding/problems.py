"""The data sets of the lab as split problems: tensors of both parties, models, and what an attacker is after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import UsageError
from tacit.lab.data import fashion
from tacit.lab.data.rows import Data, Rows, Table
from tacit.split.models import adam, wide_deep

__all__ = ["DATA", "Half", "Problem", "problem"]

DATA = ("fashion", "flights", "adult")
"""The data sets there are."""

CUT = 64
"""The width of the cut of a table's model, as in the report."""


@dataclass(frozen=True)
class Half:
    """The training or the test rows.

    Attributes:
        features: the feature party's tensors.
        own: the label party's own tensors; empty where it has none.
        labels: class numbers, or 0 and 1.  (rows,)
    """

    features: tuple[Tensor, ...]
    own: tuple[Tensor, ...]
    labels: Tensor

    def to(self, device: torch.device) -> Half:
        """The same rows on a device."""
        return Half(
            tuple(x.to(device) for x in self.features), tuple(x.to(device) for x in self.own), self.labels.to(device)
        )


@dataclass(frozen=True)
class Problem:
    """A split problem and how it is trained.

    Attributes:
        name: of the data set.
        title: for figures.
        train: what is trained on.
        test: held-out rows; all judging is done on these.
        truth: what an attacker is after, for the test rows, in units that no training changes.  (test rows, columns)
        attribute: a private column of the feature party and its codes in the test rows, where there is one.
        loss: "binary" or "softmax".
        utility: how the model's worth is called: "AUC" or "accuracy".
        epochs: how often every row is visited if nothing else is asked for.
        batch_size: rows of a batch.
        rate: the learning rate, of reconstructors as well.
        table_noise: kind and width of the noise in table 2.
        models: makes bottom and top from a source of first weights.
        reconstructor: makes the report's attacker for embeddings and inputs of these widths.
        optimizer: makes an optimizer for a model.
    """

    name: str
    title: str
    train: Half
    test: Half
    truth: Tensor
    attribute: tuple[str, Tensor] | None
    loss: str
    utility: str
    epochs: int
    batch_size: int
    rate: float
    table_noise: Mapping[str, Any]
    models: Callable[[torch.Generator], tuple[nn.Module, nn.Module]]
    reconstructor: Callable[[int, int], nn.Module]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]

    def to(self, device: torch.device) -> Problem:
        """The same problem with all tensors on a device."""
        private = None if self.attribute is None else (self.attribute[0], self.attribute[1].to(device))
        return replace(
            self, train=self.train.to(device), test=self.test.to(device), truth=self.truth.to(device), attribute=private
        )


def problem(name: str, *, path: Path | None = None, rows: int | None = None, seed: int = 0) -> Problem:
    """A data set as a split problem.

    Args:
        name: one of `DATA`.
        path: where its files are; Debian's folder of Fashion-MNIST if not given. Flights are shipped.
        rows: use only so many rows; all of them if not given.
        seed: draws the test rows of a table.
    """
    if name == "fashion":
        return pictures(_fewer(fashion.pictures(path or fashion.FOLDER, rows=rows), rows))
    if name == "flights":
        if path is not None:
            raise UsageError("the flights are shipped with tacit: leave --folder out")
        from tacit.lab.data import flights

        found = flights.load(rows=rows, seed=seed, by_day=False)
        return _table(name, "flights of 2013", found, "month", flights.AIRPORT_INPUTS.categorical, epochs=3)
    if name == "adult":
        if path is None:
            raise UsageError("Adult is not shipped: pass --folder DIR with adult.csv, or adult.data and adult.test")
        from tacit.lab.data import adult

        found = adult.load(path, rows=rows, seed=seed)
        return _table(name, "Adult", found, "occupation", adult.EMPLOYER_INPUTS.categorical, epochs=10)
    raise UsageError(f"there is no data set {name!r} in the lab; there are: {', '.join(DATA)}")


def pictures(data: fashion.Fashion) -> Problem:
    """Ten classes of clothes with the network of the authors' public code: one linear layer before the cut.

    Pixels run from -0.5 to 0.5: then noise around zero is noise over their range, as that code has it, and squared
    errors stay what they are.
    """
    train, test = (Half((part.images - 0.5,), (), part.labels) for part in (data.train, data.test))
    return Problem(
        name="fashion",
        title="Fashion-MNIST",
        train=train,
        test=test,
        truth=test.features[0],
        attribute=None,
        loss="softmax",
        utility="accuracy",
        epochs=10,
        batch_size=200,
        rate=1e-4,
        table_noise={"noise": "uniform", "width": 0.5},
        models=_picture_models,
        reconstructor=_picture_reconstructor,
        optimizer=lambda module: torch.optim.Adam(module.parameters(), lr=1e-4),
    )


class _HalfTanh(nn.Module):
    """A sigmoid that is moved down by a half: the range of the pixels."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) - 0.5


def _picture_models(generator: torch.Generator) -> tuple[nn.Module, nn.Module]:
    bottom = _linear(784, 784, generator, bias=False)
    hidden, last = _linear(784, 256, generator), _linear(256, len(fashion.CLASSES), generator)
    return bottom, nn.Sequential(hidden, nn.LeakyReLU(0.3), nn.Dropout(0.2), last)


def _picture_reconstructor(width: int, inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, inputs, bias=False), _HalfTanh())


def _linear(inputs: int, outputs: int, generator: torch.Generator, *, bias: bool = True) -> nn.Linear:
    """A linear layer with Glorot uniform weights and zero biases."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _table(name: str, title: str, data: Data, private: str, columns: tuple[str, ...], *, epochs: int) -> Problem:
    """A table with the report's Wide&Deep: three ReLU layers of the cut's width below, a logit and the wide part above.

    Training learns what stands for a category, so the network's input is no fixed thing to be judged by: what an
    attacker is after is each category as one column of zeros and ones for each of its codes, and the standardized
    numbers.
    """
    inputs, (codes, numbers) = data.inputs, data.test.features
    assert isinstance(inputs, Table)

    def models(generator: torch.Generator) -> tuple[nn.Module, nn.Module]:
        return wide_deep(
            inputs.cardinalities, inputs.numeric, own_cardinalities=inputs.own_cardinalities,
            own_numeric=inputs.own_numeric, cut=3, layers=3, width=CUT, generator=generator,
        )  # fmt: skip

    return Problem(
        name=name,
        title=title,
        train=_half(data.train),
        test=_half(data.test),
        truth=one_hot(codes, inputs.cardinalities, numbers),
        attribute=(private, codes[:, columns.index(private)]),
        loss="binary",
        utility="AUC",
        epochs=epochs,
        batch_size=512,
        rate=1e-3,
        table_noise={"noise": "gaussian", "width": 2.0},
        models=models,
        reconstructor=_table_reconstructor,
        optimizer=lambda module: adam(module, lr=1e-3),
    )


def one_hot(codes: Tensor, cardinalities: tuple[int, ...], numbers: Tensor) -> Tensor:
    """Each code as a row of zeros with a single one, then the numbers.  (rows, sum of cardinalities + numbers)"""
    parts = [functional.one_hot(codes[:, i], size).to(numbers.dtype) for i, size in enumerate(cardinalities)]
    return torch.cat([*parts, numbers], dim=1)


def _half(rows: Rows) -> Half:
    return Half(rows.features, rows.own, rows.labels)


def _table_reconstructor(width: int, inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, inputs))


def _fewer(data: fashion.Fashion, rows: int | None) -> fashion.Fashion:
    """With fewer training pictures, also fewer test pictures: half as many, as far as that is enough to judge by."""
    keep = None if rows is None else max(1000, rows // 2)
    return replace(data, test=fashion.Pictures(data.test.images[:keep], data.test.labels[:keep]))
