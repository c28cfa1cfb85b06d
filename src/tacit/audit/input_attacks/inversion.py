"""The inversion attack: no pair is known, only how the bottom is built and what inputs look like."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.audit import fitting, views
from tacit.audit.facts import Facts
from tacit.audit.input_attacks import _common
from tacit.audit.input_attacks._ridge import Line
from tacit.contracts import InputAttack, KnownInputs, Noise, NoiseSource, Reconstruction, View, noise_source
from tacit.errors import TensorError, UsageError

_BATCH = 512
_RATE = 0.03  # of an update, in units of a layer's weights
_BIAS_RATE = 0.01  # in units of the embeddings
_PENALTY = 1.0  # of the ridge that reads a surrogate, times the number of samples: strong, for surrogates are wrong
_NUMBERS = 64  # that a bottom makes on its way of each number of an input, more or less
_FITTING = 6  # rounds in which a fresh surrogate's weights are scaled to the size of the embeddings

FACTS = Facts(order=30)


def inversion(surrogate: nn.Module | Callable[[], nn.Module], surrogates: int = 8, updates: int = 500) -> InputAttack:
    """Guesses inputs without a single pair, through surrogates whose embeddings of other inputs look the same.

    Each surrogate has the bottom's architecture and fresh weights, and is fitted until its embeddings of the samples
    are distributed as those received: the energy distance of the two is made small, which needs no pairs. Ridge
    regression learns to read the surrogate, where pairs are at hand, and is then shown what was received. Many
    different surrogates fit a distribution, so the answers of several are averaged: what they agree on stays, the rest
    falls back to the mean.

    How far it gets, relative to the mean (in brackets a ridge that knows all pairs): trained ReLU layers on
    Fashion-MNIST 0.51 (784 to 128; 0.17) and 0.52 (784 to 128 to 64; 0.26); a linear layer on five made-up tables of
    four skewed columns 0.47 to 0.89 (0.00); but on tables of twenty columns 0.96 to 1.12, and on 8 x 8 digits 1.01 to
    1.14, which is nothing. So it shows that something can be read without pairs, never that nothing can; single
    surrogates are often worse than the mean. Optimising the inputs through the surrogates afterwards changed such
    figures by a few hundredths at most, and a search from fresh weights and a smoothness prior, without samples, ended
    at 2.3 and more on Fashion-MNIST, no better than an empty picture: so neither is done.

    Args:
        surrogate: a module that maps an input to an embedding as the bottom does, or what makes one. Only its
            architecture is used: its weights are drawn anew, so nothing of a victim's weights can slip in.
        surrogates: how many are fitted.
        updates: how many each gets.

    Knows: the embeddings; known.samples; the bottom's architecture, never its weights.
    Costs: surrogates * updates updates of the bottom at 512 rows, and a ridge of the cut's width for each surrogate.
    """
    views.check_count("inversion", "surrogates", surrogates, "surrogate")
    views.check_count("inversion", "updates", updates, "update")
    if not callable(surrogate):
        raise UsageError(f"inversion(surrogate={surrogate!r}): pass a module like the bottom, or what makes one")
    return _Inversion(surrogate, surrogates, updates)


@dataclass(frozen=True)
class _Inversion:
    surrogate: nn.Module | Callable[[], nn.Module]
    surrogates: int
    updates: int
    name: str = "inversion"

    def __call__(self, view: View, known: KnownInputs, noise: Noise) -> Reconstruction:
        source = noise_source(noise)
        rows = _common.seen(view, known, "inversion").rows
        received = views.embedding(view, "inversion", sent=True)
        z = received.flatten(0, 1).float()  # not standardized: a surrogate has units
        samples = _samples(known, z.device)
        total = torch.zeros(z.shape[0], samples[0].numel(), device=z.device)
        for _ in range(self.surrogates):
            network = self._fitted(samples, z, source)
            made = fitting.answer(network, samples, _NUMBERS * samples[0].numel()).flatten(1)
            total += _read(made, samples.flatten(1), z)
        value = (total / self.surrogates).reshape(-1, *samples.shape[1:])
        return Reconstruction(rows, value, self._unknown(rows, known))

    def _unknown(self, rows: Tensor, known: KnownInputs) -> Tensor:
        """Which rows may be judged: those whose input was not granted to anybody, though this attack reads no pair."""
        if known.inputs is None:
            return torch.ones_like(rows, dtype=torch.bool)
        return ~_common.known_rows(rows, known.inputs.to(rows.device), self.name, "inputs")[rows]

    def _fitted(self, samples: Tensor, z: Tensor, source: NoiseSource) -> nn.Module:
        """A surrogate of fresh weights whose embeddings of the samples are distributed like those received."""
        with torch.random.fork_rng(devices=[]):  # what makes a module draws first weights, which are not used
            made = copy.deepcopy(self.surrogate) if isinstance(self.surrogate, nn.Module) else self.surrogate()
        network = fitting.drawn(made, source, z.device).eval()
        _scale(network, samples, z)
        unit = (z - z.mean(0)).square().mean().sqrt()
        unit = torch.where(unit > 0, unit, 1.0)
        optimizer = torch.optim.Adam(_groups(network, unit))
        falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / self.updates)
        with torch.enable_grad():
            for _ in range(self.updates):
                made_here = network(_some(samples, source)).flatten(1)
                optimizer.zero_grad()
                _energy_distance(made_here / unit, _some(z, source) / unit).backward()
                optimizer.step()
                falling.step()
        return network


def _samples(known: KnownInputs, device: torch.device) -> Tensor:
    if known.samples is None or known.samples.shape[0] < 2:
        raise UsageError("the attack 'inversion' needs known.samples: grant it two inputs or more, or leave it out")
    samples = known.samples.detach().to(device).float()
    if not bool(torch.isfinite(samples).all()):
        raise TensorError("known.samples hold numbers that are not finite: look for overflow in what produced them")
    return samples


def _some(x: Tensor, source: NoiseSource) -> Tensor:
    """A batch of random rows."""
    draw = source.uniform((min(_BATCH, x.shape[0]),), dtype=torch.float64, device=x.device)
    return x[(draw * x.shape[0]).long().clamp_max(x.shape[0] - 1)]


@torch.no_grad()
def _scale(network: nn.Module, samples: Tensor, z: Tensor) -> None:
    """Multiply all weights by one factor, such that embeddings of samples are about as long as those received."""
    weights = [parameter for parameter in network.parameters() if parameter.ndim > 1]
    made = network(samples[:2]).flatten(1)
    if made.shape[1] != z.shape[1]:
        raise UsageError(
            f"the surrogate makes {made.shape[1]} numbers of an input, but an embedding has {z.shape[1]}: pass a "
            "module of the bottom's architecture"
        )
    for _ in range(_FITTING):
        here = network(samples[:_BATCH]).square().mean()
        factor = torch.where(here > 0, z.square().mean() / here, 1.0).sqrt()
        for weight in weights:
            weight.mul_(factor ** (1 / len(weights)))


def _groups(network: nn.Module, unit: Tensor) -> list[dict[str, Any]]:
    """Each layer's parameters with a rate in its own units: a layer of many inputs has small weights."""
    groups = []
    for parameter in network.parameters():
        size = parameter.detach().square().mean().sqrt() if parameter.ndim > 1 else unit
        groups.append({"params": [parameter], "lr": float(size) * (_RATE if parameter.ndim > 1 else _BIAS_RATE)})
    return groups


def _energy_distance(a: Tensor, b: Tensor) -> Tensor:
    """Twice the mean distance across two sets less those within them: 0 where both are drawn from one distribution."""

    def within(x: Tensor) -> Tensor:
        return torch.cdist(x, x).sum() / (x.shape[0] * max(1, x.shape[0] - 1))

    return 2 * torch.cdist(a, b).mean() - within(a) - within(b)


def _read(made: Tensor, x: Tensor, z: Tensor) -> Tensor:
    """What ridge regression says about z that has learnt to read x from what a surrogate made of it."""
    spread, mean = torch.std_mean(made.double(), dim=0, correction=0)
    spread = torch.where(spread > 1e-3 * spread.square().mean().sqrt(), spread, torch.inf)  # dead units say nothing
    a, middle = (made.double() - mean) / spread, x.double().mean(0)
    ridge = torch.eye(a.shape[1], dtype=torch.float64, device=a.device) * (_PENALTY * a.shape[0])
    weight: Tensor = torch.linalg.solve(a.mT @ a + ridge, a.mT @ (x.double() - middle)) / spread[:, None]
    return Line(weight, middle - mean @ weight)(z)
