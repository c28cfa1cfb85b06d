"""What all replicas of a sweep share: data, network, batch size and what is measured, with the papers' defaults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from tacit.arguments import device_named
from tacit.errors import DataError, UsageError
from tacit.lab.data.rows import Data, Pictures
from tacit.lab.stack.measuring import EVERY_BATCH
from tacit.lab.stack.network import Network, network_for
from tacit.lab.sweeping.settings import Setting


@dataclass(frozen=True)
class Paper:
    """How the papers train on a data set."""

    batch_size: int  # rows of a batch
    learning_rate: float  # of Adam
    epochs: int  # how often every row is visited
    sample: float | None = None  # the share of the rows that they draw at random; None for all
    # the strong end of a protection's usual knob where it is another than everywhere else
    strongest: Mapping[str, float] = field(default_factory=dict)


PAPERS: Mapping[str, Paper] = {
    "criteo": Paper(1024, 1e-4, 5, sample=0.1),
    "avazu": Paper(32768, 1e-4, 5),
    "isic": Paper(128, 1e-5, 1000, strongest={"marvell": 90.0}),
}
"""The papers' choices (Li 2022, appendix A.6) by the data set's name."""

_BATCH, _RATE = 1024, 1e-3  # where the papers have no say
_BATCHES = 16  # of an epoch at least; with fewer rows batches are smaller
_RECORDED = 1 << 21  # numbers of one replica's last gradients that are kept for attacks, about
_FOLLOWED = 1 << 22  # numbers of the gradients of the examples whose every visit is kept, about
_VISITS = 64  # of them at most
_HASHED, _SPREAD = 1 << 25, 10_000  # bytes of a tensor that are all hashed; rows of a larger one


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a sweep trains and tries, and on what machine."""

    # protections as `tacit.lab.sweeping.settings.grid` reads them; `none` is always among them
    protect: Sequence[str] = ("iso", "max_norm", "marvell", "matched")
    strengths: int = 8  # how many of each protection
    seeds: int | Sequence[int] = 1  # how many, or which: of first weights, batches and noise
    settings: Sequence[Setting] | None = None  # these and no others, in place of the three before
    epochs: int = 5  # how often every row is visited
    batch_size: int | None = None  # the papers' for their data sets, else 1024, less where there are few rows
    learning_rate: float | None = None  # of Adam; the papers' for their data sets, else 0.001
    bottom_rate: float | None = None  # of the bottom, where that is another: a slow one follows less of the noise
    # what a replica is, or sizes that differ from the papers' (`{"cut": 4, "layers": 4}`)
    network: Network | Mapping[str, int] | None = None
    attacks: Sequence[str] = EVERY_BATCH  # what is tried on every batch
    errors: Sequence[str] = ()  # of which of these the detection error is measured, too
    layers: Sequence[str] = ("cut", "layer1")  # where; a layer is what its ReLU lets through
    points: int = 50  # into about how many stretches a training is parted
    thorough: bool = True  # whether the attacks that need recorded batches, and those on all visits, run at the end
    batches: bool = False  # whether each batch has a row of its own in the results, with its unfolded AUCs
    device: str = "auto"  # "cpu", "cuda", or "auto": CUDA where there is one
    # the address of a Ray cluster that shares the work ("auto" finds the one that runs here)
    cluster: str | None = None
    together: int | None = None  # replicas that train as one; 8 on a CPU, 128 on CUDA if not given


@dataclass(frozen=True)
class Recipe:
    """What every replica of a sweep has in common."""

    data: str  # the data set's name
    digest: str  # of its rows, so that another draw or another encoding of the same data set is noticed
    training_rows: int  # how many rows are trained on
    test_rows: int  # how many rows are tested on
    network: Network  # what a replica is
    batch_size: int  # rows of a batch
    learning_rate: float  # of Adam
    bottom_rate: float | None  # of the bottom, where that is another
    epochs: int  # how often every row is visited
    attacks: tuple[str, ...]  # what is measured on every batch
    layers: tuple[str, ...]  # where that is measured
    points: int  # into how many stretches a training is parted, about
    thorough: bool  # whether attacks run on recorded batches and on all visits as well, at the end
    device: str  # where it trains
    errors: tuple[str, ...] = ()  # of which of the attacks the detection error is measured, too
    batches: bool = False  # whether each batch has a row of its own

    @property
    def last(self) -> int:
        """How many of the last batches are kept whole for attacks: some thousand rows, fewer of a wide cut."""
        rows = min(16384, max(1024, _RECORDED // cut_size(self.network)))
        return max(2, rows // self.batch_size) if self.thorough else 0

    @property
    def visits(self) -> int:
        """How many visits of the followed examples are kept; 0 where each example is visited once."""
        return min(_VISITS, self.epochs) if self.thorough and self.epochs > 1 else 0

    @property
    def follow(self) -> int:
        """Of how many examples every visit is kept: some thousand, fewer of a wide cut or of many visits."""
        if not self.visits:
            return 0
        return min(4096, self.training_rows, max(256, _FOLLOWED // (cut_size(self.network) * self.visits)))

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, for a results file and for comparing two sweeps."""
        flat = {**asdict(self), "network": {"kind": type(self.network.inputs).__name__, **asdict(self.network)}}
        plain: dict[str, Any] = json.loads(json.dumps(flat))  # tuples become lists, as they are in a file
        return plain


def cut_size(network: Network) -> int:
    """How many numbers one row has at the cut.

    >>> from tacit.lab.data.rows import Table
    >>> cut_size(network_for(Pictures(3, 84))), cut_size(network_for(Table((5,), 2)))
    (1600, 128)
    """
    inputs = network.inputs
    return network.width * ((inputs.size >> network.cut) ** 2 if isinstance(inputs, Pictures) else 1)


def paper_of(data: str) -> Paper | None:
    """How the papers train on the data set of that name, a generated one like the real one; None if they do not."""
    name = data.removeprefix("generated:")
    return PAPERS.get("isic" if name == "ham10000" else name)


def recipe_for(data: Data, plan: Plan) -> Recipe:
    """The recipe for a data set; what is not planned is the papers' choice, and where they have none a usual one.

    On a cluster the device is still as it was asked for: the machines say what they have.
    """
    for name, value in (("epochs", plan.epochs), ("points", plan.points)):
        if value < 1:
            raise UsageError(f"{name} = {value}: a sweep needs one or more")
    rate, bottom = checked_rate(plan.learning_rate), checked_rate(plan.bottom_rate, "bottom_rate")
    _check_classes(data)
    paper = paper_of(data.name)
    size = plan.batch_size
    if not size:  # halved until an epoch has some batches; not below 32
        size = _BATCH if paper is None else paper.batch_size
        while size > 32 and size * _BATCHES > len(data.train):
            size //= 2
        size = min(size, len(data.train))
    if not 2 <= size <= len(data.train):
        raise UsageError(f"batch_size = {size}: choose one from 2 to the {len(data.train)} training rows")
    network = plan.network if isinstance(plan.network, Network) else network_for(data.inputs, **(plan.network or {}))
    if network.inputs != data.inputs:
        raise UsageError(f"the network is for {network.inputs}, but {data.name} has {data.inputs}: build it for these")
    return Recipe(
        data=data.name, digest=digest_of(data), training_rows=len(data.train), test_rows=len(data.test),
        network=network, batch_size=size, learning_rate=rate or (paper.learning_rate if paper else _RATE),
        bottom_rate=bottom, epochs=plan.epochs, attacks=tuple(plan.attacks), layers=tuple(plan.layers),
        points=plan.points, thorough=plan.thorough, errors=tuple(plan.errors), batches=plan.batches,
        device=plan.device if plan.cluster else device_named(plan.device),
    )  # fmt: skip


def checked_rate(rate: float | None, name: str = "learning_rate") -> float | None:
    """A learning rate that Adam can take, or none."""
    if rate is not None and not 0 < rate < float("inf"):
        raise UsageError(f"{name} = {rate}: Adam needs one above 0, such as 0.001")
    return rate


def _check_classes(data: Data) -> None:
    """Refuse parts that lack a class: nothing could be learnt from them, or no AUC be measured on them."""
    for part, rows in (("training", data.train), ("test", data.test)):
        share = float(rows.labels.double().mean()) if len(rows) else float("nan")
        if not 0 < share < 1:
            what = "no row at all" if not len(rows) else f"{len(rows)} rows, all with the label {share:.0f}"
            raise DataError(
                f"the {part} part of {data.name} has {what}: take more rows, another seed, or a larger share for it"
            )


def shortened(recipe: Recipe) -> str | None:
    """How far a sweep is from the papers' number of epochs, in a sentence; None where it is not shorter."""
    paper = paper_of(recipe.data)
    if paper is None or recipe.epochs >= paper.epochs:
        return None
    return f"the papers train {paper.epochs} epochs on such data; this is {recipe.epochs} of them"


def digest_of(data: Data) -> str:
    """A short digest of labels, inputs and days, so that two sweeps are of the same rows.

    Of inputs that are large some ten thousand rows stand for all, evenly spread.
    """
    hashed = hashlib.sha256()
    for rows in (data.train, data.test):
        hashed.update(rows.labels.to("cpu", torch.uint8).numpy().tobytes())
        for x in (*rows.features, *rows.own, *(() if rows.days is None else (rows.days,))):
            hashed.update(f"{tuple(x.shape)} {x.dtype}".encode())
            if x.numel() * x.element_size() > _HASHED:
                x = x[torch.linspace(0, len(x) - 1, _SPREAD, dtype=torch.float64).long().to(x.device)]
            hashed.update(x.cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()[:16]
