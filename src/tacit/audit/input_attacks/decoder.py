"""The decoder: an independent network that learns to read inputs out of embeddings, after the fact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.audit import fitting, views
from tacit.audit.facts import Facts
from tacit.audit.input_attacks import _common
from tacit.audit.input_attacks._mirror import mirrored
from tacit.audit.input_attacks._ridge import ridge
from tacit.contracts import InputAttack, KnownInputs, Noise, NoiseSource, Reconstruction, View, noise_source

_LINEAR = 4096  # up to this many directions the network starts from the best linear map
_FROM_A_LINE, _FROM_NOTHING = 2e-3, 5e-3  # learning rates: what starts well should not be thrown off
_MIRRORED = 1 << 16  # numbers that a mirrored network takes for each row, more or less

FACTS = Facts(order=20)


def decoder(
    share: float = 0.5, mirror: nn.Module | None = None, hidden: Sequence[int] = (512, 512), updates: int = 3000
) -> InputAttack:
    """Guesses inputs by a network trained from scratch on a share of pairs, which it never saw in training.

    Hidden ReLU layers beside a linear way, which starts as the ridge regression of the same pairs (embeddings of up to
    4096 directions): the network has to learn only what a line misses. A fifth of its own examples chooses when to
    stop, and the line itself answers unless the network beats it on them by three standard errors: where pairs are few,
    the best of many looks at a handful of examples is luck. The error it makes small is the squared distance in the
    units of the inputs, so columns of large numbers count more: hand standardized inputs to an attacker who should care
    for all columns alike.

    With `mirror` the worst case of "Technical report of embedding protection in federated learning": the attacker knows
    how the bottom is built, and builds its mirror image. Of the module only the sizes of its layers are read.

    Args:
        share: of all examples of the view, how many pairs it learns from; where fewer are granted, all of those.
        mirror: the bottom to mirror, of linear layers, convolutions that keep the size, max pools, activations and
            flattening; a table's embedding is passed over, because the input is what comes behind it.
        hidden: the units of each hidden layer, where no bottom is mirrored.
        updates: how many the network gets.

    Knows: the embeddings; known.inputs; with `mirror` the bottom's architecture, never its weights.
    Costs: `updates` updates of the network at 256 rows, and one linear_decoder.
    """
    _common.check_share("decoder", share)
    views.check_count("decoder", "updates", updates, "update")
    for units in hidden:
        views.check_count("decoder", "hidden", units, "unit in each hidden layer")
    return _Decoder(share, mirror, tuple(hidden), updates)


@dataclass(frozen=True)
class _Decoder:
    share: float
    mirror: nn.Module | None
    hidden: tuple[int, ...]
    updates: int

    @property
    def name(self) -> str:
        shown = None if self.mirror is None else type(self.mirror).__name__
        return views.spelled("decoder", share=None if self.share == 0.5 else self.share, mirror=shown)

    def __call__(self, view: View, known: KnownInputs, noise: Noise) -> Reconstruction:
        source = noise_source(noise)
        seen = _common.seen(view, known, "decoder")
        given = _common.inputs(known, "decoder", seen.z.device)
        granted = _common.known_rows(seen.rows, given.x, "decoder", "inputs")
        pairs = _common.pairs(seen.rows, granted, self.share, source, "decoder")
        x, mean, scale = _scaled(given.x[seen.rows], pairs.split()[0])
        if self.mirror is None:
            value = self._straight(seen.z, x, pairs, source)
        else:
            network = fitting.drawn(mirrored(self.mirror, given.shape, seen.z.shape[1]), source, seen.z.device)
            self._train(network, seen.z, x, pairs, source)
            value = fitting.answer(network, seen.z, _MIRRORED)
        believed = given.like(value * scale + mean, seen.rows[pairs.fold >= 0])
        return Reconstruction(seen.rows, believed, pairs.hidden)

    def _straight(self, z: Tensor, x: Tensor, pairs: _common.Pairs, source: NoiseSource) -> Tensor:
        """The answers of a network that starts as the best line: of the line itself where it is not surely better."""
        network = fitting.Straight(z.shape[1], self.hidden, x.shape[1])
        fitting.drawn(network, source, z.device)
        fit, held = pairs.split()
        small = min(z.shape[1], fit.numel()) <= _LINEAR
        line = ridge(z, x, fit, held, refit=False) if small else None
        network.start(line)
        self._train(network, z, x, pairs, source)
        value = fitting.answer(network, z, sum(self.hidden) + z.shape[1] + x.shape[1])
        if line is None or _surely_better(value[held], line(z[held]), x[held]):
            return value
        return ridge(z, x, fit, held)(z)

    def _train(self, network: nn.Module, z: Tensor, x: Tensor, pairs: _common.Pairs, source: NoiseSource) -> None:
        rate = _FROM_A_LINE if self.mirror is None else _FROM_NOTHING
        fit, held = pairs.split()
        mse = functional.mse_loss
        fitting.trained(network, z, x, fit, held, source, updates=self.updates, loss=mse, rate=rate)


def _surely_better(one: Tensor, other: Tensor, truth: Tensor) -> bool:
    """Whether answers lie nearer to the truth than others do, by three standard errors of the rows' differences."""
    gain = ((other - truth).square() - (one - truth).square()).mean(1).double()  # (rows,)
    return gain.numel() > 1 and bool(gain.mean() > 3 * gain.std() / gain.numel() ** 0.5)


def _scaled(x: Tensor, fit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs around the mean of some rows and divided by one number, such that they are about 1 in size."""
    mean = x[fit].mean(0)
    scale = (x[fit] - mean).square().mean().sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    return (x - mean) / scale, mean, scale
