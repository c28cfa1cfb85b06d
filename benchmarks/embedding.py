"""What each embedding protection costs: a split step with it over one without, and distance correlation by its rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._measure import Result, interleaved
from benchmarks.protect import spelled
from benchmarks.step import CATEGORIES, NUMBERS, VOCABULARY, data, steps_of
from tacit.audit.dependence import distance_correlation
from tacit.split.feature_party import FeatureParty
from tacit.split.label_party import LabelParty
from tacit.split.models import adam, wide_deep
from tacit.split.protect.embedding import embedding_protection
from tacit.split.protect.gradient.none import none

REPEATS = 4  # steps for each time that is taken
ROUNDS = 12
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gaussian", {"snr": 4.0}),
    ("gaussian", {"std": 0.5, "clip": 4.0}),
    ("distance_correlation", {"weight": 0.1}),
    ("noise_regularization", {"weight": 0.01}),
    ("adversarial", {"weight": 1.0}),
)
ROWS = (512, 2048, 8192)


@dataclass(frozen=True)
class _Setup:
    """A model and a batch to measure steps with."""

    name: str
    batch: int
    loss: str
    models: Callable[[], tuple[nn.Module, nn.Module]]
    data: Callable[[], tuple[tuple[Tensor, ...], Tensor]]


def run() -> Iterator[Result]:
    """Protections by turns with the bare step; then distance correlation alone; on CUDA too where it is."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for device in devices:
        for setup in (_TABLE, _PICTURES):
            yield from _steps(setup, device)
    for device in devices:
        yield from _correlations(device)


def _steps(setup: _Setup, device: str) -> Iterator[Result]:
    """Milliseconds of the bare step, and how many times as long a step takes with each protection."""
    chains: list[Sequence[tuple[str, dict[str, Any]]]] = [[], *([case] for case in CASES)]
    chains.append([("distance_correlation", {"weight": 0.1}), ("noise_regularization", {"weight": 0.01}), CASES[0]])
    steps = [_step(setup, chain, device) for chain in chains]
    bare, *others = (statistics.median(times) for times in interleaved(*steps, rounds=ROUNDS))
    where = f"{setup.name}, batch {setup.batch}" + _on(device)
    yield Result("embedding", f"bare split step, {where}", bare / REPEATS * 1e3, "ms")
    for chain, value in zip(chains[1:], others, strict=True):
        case = " + ".join(spelled(name, options) for name, options in chain)
        yield Result("embedding", f"step with {case} over bare step, {where}", value / bare, "x")


def _step(setup: _Setup, chain: Sequence[tuple[str, dict[str, Any]]], device: str) -> Callable[[], None]:
    """A few steps of both parties in one process."""
    torch.manual_seed(0)
    bottom, top = (half.to(device) for half in setup.models())
    features, labels = setup.data()
    feature_party = FeatureParty(
        bottom=bottom, features=[x.to(device) for x in features], optimizer=adam(bottom),
        protect=[embedding_protection(name, **options) for name, options in chain],
        noise=torch.Generator(device).manual_seed(0),
    )  # fmt: skip
    label_party = LabelParty(
        top=top, labels=labels.to(device), optimizer=adam(top), protect=none(), loss=setup.loss,
        noise=torch.Generator(device).manual_seed(1),
    )  # fmt: skip
    return steps_of(feature_party, label_party, rows=len(labels), batch=setup.batch, repeats=REPEATS, device=device)


def _correlations(device: str) -> Iterator[Result]:
    """The loss and its gradient from all pairs."""
    for rows in ROWS:
        generator = torch.Generator(device).manual_seed(0)
        x = torch.randn(rows, 128, generator=generator, device=device)
        z = (x[:, :64] + torch.randn(rows, 64, generator=generator, device=device)).requires_grad_()
        work = partial(_loss_and_gradient, x, z)
        (times,) = interleaved(work, rounds=3 if rows > 2048 else ROUNDS, warmup=1)
        what = f"{rows} rows of 128 and 64 columns{_on(device)}"
        exact = statistics.median(times)
        yield Result("embedding", f"distance correlation and gradient from all pairs, {what}", exact * 1e3, "ms")


def _loss_and_gradient(x: Tensor, z: Tensor) -> None:
    distance_correlation(x, z).backward()


def _on(device: str) -> str:
    return f", on {torch.cuda.get_device_name()}" if device == "cuda" else ""


def _table_models() -> tuple[nn.Module, nn.Module]:
    return wide_deep([VOCABULARY] * CATEGORIES, NUMBERS, cut=3, layers=3, width=64, sparse=True)


def _table_data() -> tuple[tuple[Tensor, ...], Tensor]:
    codes, numbers, labels = data(8 * 512)
    return (codes, numbers), labels


def _picture_models() -> tuple[nn.Module, nn.Module]:
    top = nn.Sequential(nn.Linear(784, 256), nn.LeakyReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    return nn.Linear(784, 784, bias=False), top


def _picture_data() -> tuple[tuple[Tensor, ...], Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(8 * 200, 784, generator=generator),), torch.randint(10, (8 * 200,), generator=generator)


_TABLE = _Setup("Wide&Deep cut at 64", 512, "binary", _table_models, _table_data)
_PICTURES = _Setup("Fashion-MNIST's linear bottom", 200, "softmax", _picture_models, _picture_data)
