"""The decoder: an independent network that learns to read inputs out of embeddings, after the fact."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.audit import fitting, views
from tacit.audit.facts import Facts
from tacit.audit.input_attacks import _common
from tacit.audit.input_attacks._ridge import ridge
from tacit.contracts import InputAttack, KnownInputs, Noise, NoiseSource, Reconstruction, View, noise_source

_LINEAR = 4096  # up to this many directions the network starts from the best linear map
_FROM_A_LINE, _FROM_NOTHING = 2e-3, 5e-3  # learning rates: what starts well should not be thrown off
_OWN = 1 << 16  # numbers that a network that was handed over takes for each row, more or less

FACTS = Facts(order=20)


def decoder(
    share: float = 0.5, network: nn.Module | None = None, hidden: Sequence[int] = (512, 512), updates: int = 3000
) -> InputAttack:
    """Guesses inputs by a network trained from scratch on a share of pairs, which it never saw in training.

    Hidden ReLU layers beside a linear way, which starts as the ridge regression of the same pairs (embeddings of up to
    4096 directions): the network has to learn only what a line misses. A fifth of its own examples chooses when to
    stop, and the line itself answers unless the network beats it on them by three standard errors: where pairs are few,
    the best of many looks at a handful of examples is luck. The error it makes small is the squared distance in the
    units of the inputs, so columns of large numbers count more: hand standardized inputs to an attacker who should care
    for all columns alike.

    With `network` it is that one, with first weights of its own: an attacker who knows how the bottom is built can take
    its mirror image.

    Args:
        share: of all examples of the view, how many pairs it learns from; where fewer are granted, all of those.
        network: from flat embeddings to flat inputs; a copy of it is trained, from scratch.
        hidden: the units of each hidden layer, where no network is given.
        updates: how many the network gets.

    Knows: the embeddings; known.inputs.
    Costs: `updates` updates of the network at 256 rows, and one linear_decoder.
    """
    _common.check_share("decoder", share)
    views.check_count("decoder", "updates", updates, "update")
    for units in hidden:
        views.check_count("decoder", "hidden", units, "unit in each hidden layer")

    def guess(view: View, known: KnownInputs, noise: Noise) -> Reconstruction:
        source = noise_source(noise)
        pairs = _common.pairs(view, known, "inputs", share, source, "decoder")
        x, fit = pairs.known[pairs.rows], pairs.split()[0]
        mean = x[fit].mean(0)
        scale = (x[fit] - mean).square().mean().sqrt()  # one number, such that inputs are about 1 in size
        scale = torch.where(scale > 0, scale, 1.0)
        x = (x - mean) / scale
        if network is None:
            value = _straight(x, pairs, tuple(hidden), updates, source)
        else:
            z, mse = pairs.z, functional.mse_loss
            own = fitting.drawn(copy.deepcopy(network), source, z.device)
            fitting.trained(own, z, x, *pairs.split(), source, updates=updates, loss=mse, rate=_FROM_NOTHING)
            value = fitting.answer(own, z, _OWN)
        return Reconstruction(pairs.rows, pairs.believed(value * scale + mean), pairs.hidden)

    shown = None if network is None else type(network).__name__
    return views.named(decoder, guess, share=share, network=shown)


def _straight(x: Tensor, pairs: _common.Pairs, hidden: Sequence[int], updates: int, source: NoiseSource) -> Tensor:
    """The answers of a network that starts as the best line: of the line itself where it is not surely better."""
    z, (fit, held) = pairs.z, pairs.split()
    network = fitting.Straight(z.shape[1], hidden, x.shape[1])
    fitting.drawn(network, source, z.device)
    small = min(z.shape[1], fit.numel()) <= _LINEAR
    line = ridge(z, x, fit, held, refit=False) if small else None
    network.start(line)
    mse = functional.mse_loss
    fitting.trained(network, z, x, fit, held, source, updates=updates, loss=mse, rate=_FROM_A_LINE)
    value = fitting.answer(network, z, sum(hidden) + z.shape[1] + x.shape[1])
    if line is None:
        return value
    missed = [(answer - x[held]).square() for answer in (line(z[held]), value[held])]
    gain = (missed[0] - missed[1]).mean(1).double()  # (rows,)
    if gain.numel() > 1 and bool(gain.mean() > 3 * gain.std() / gain.numel() ** 0.5):  # by three standard errors
        return value
    return ridge(z, x, fit, held)(z)
