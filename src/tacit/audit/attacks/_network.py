"""What a patient attacker with half of the labels would do: a small network, all of its randomness from the caller."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tacit.audit import fitting, views
from tacit.audit.attacks import _gaussian
from tacit.audit.attacks.residual import log_residual
from tacit.contracts import Known, Noise, NoiseSource, View, noise_source
from tacit.errors import UsageError

_HIDDEN = (64, 32)
_UPDATES = 600  # a fixed number, so that the cost of a fit does not grow with the transcript
_DECAY = 0.5
_COMPONENTS = 256  # directions of each part that the network sees
_HELD = 0.2  # share of the known examples that only choose when to stop


def learned_score(parts: Sequence[Tensor], view: View, known: Known, noise: Noise, attack: str) -> Tensor:
    """Scores of a network that sees all parts of a row, fitted where the label is known.  -> (steps, batch)

    The Gaussian likelihood ratio is one of its inputs, so it starts from the best score for Gaussian rows; the ratio of
    a known row comes from a fit on the other half of the known rows, lest the network trust it too much.
    """
    source = noise_source(noise)
    label = views.labels(view, known, attack)  # (steps, batch)
    # One draw for each id, so that all visits of an example are on the same side of each split.
    ids = int(view.rows.max()) + 1
    ticket = source.uniform((ids, 2), dtype=torch.float32, device=label.device)[view.rows]
    first, held = ticket[..., 0] < 0.5, (ticket[..., 1] < _HELD).flatten()
    seen, white = _inputs(parts, noise)
    ratio = _crossed_ratio(white, label, first, attack)
    x = _standardized(torch.cat([seen, ratio.asinh().float()[..., None]], dim=-1)).flatten(0, 1)
    flat = label.flatten()
    fit_rows, held_rows = ((flat >= 0) & ~held).nonzero()[:, 0], ((flat >= 0) & held).nonzero()[:, 0]
    if not fit_rows.numel() or not held_rows.numel():
        raise UsageError(f"the attack {attack!r} knows too few labels to fit and to check: grant more")
    network = trained(x, flat, fit_rows, held_rows, source)
    return fitting.answer(network, x, sum(_HIDDEN) + x.shape[1]).reshape(label.shape)


def _inputs(parts: Sequence[Tensor], noise: Noise) -> tuple[Tensor, Tensor]:
    """What the network sees of each row, and the white coordinates alone.  (steps, batch, *)

    Places along the leading directions enter squared as well: a network this small finds a product late.
    """
    seen, whites = [], []
    for part in parts:
        x = views.scaled(part)
        white, leading = _gaussian.whitened(x, _COMPONENTS, noise)
        logs = [views.log_positive(views.row_norm(x)), views.log_positive(views.row_norm(white))]
        if min(x.shape[1:]) > 1:
            logs.append(log_residual(x))
        whites.append(white)
        seen += [part.float() for part in (white, leading, leading.square(), torch.stack(logs, dim=-1))]
    return torch.cat(seen, dim=-1), torch.cat(whites, dim=-1)


def _crossed_ratio(white: Tensor, label: Tensor, first: Tensor, attack: str) -> Tensor:
    """Likelihood ratios of which none was fitted on the row's own label; unknown rows get that of all known ones."""
    by_first = _gaussian.log_ratio(white, label.where(first, -1), attack)
    by_second = _gaussian.log_ratio(white, label.where(~first, -1), attack)
    known = torch.where(first, by_second, by_first)
    return torch.where(label < 0, _gaussian.log_ratio(white, label, attack), known)


def _standardized(x: Tensor) -> Tensor:
    """Each input with mean 0 and deviation 1 over all rows, far outliers pulled in.  (steps, batch, inputs)"""
    deviation, mean = torch.std_mean(x, dim=(0, 1))
    return ((x - mean) / torch.where(deviation > 0, deviation, 1.0)).clamp(-8.0, 8.0)


def trained(x: Tensor, label: Tensor, fit: Tensor, held: Tensor, source: NoiseSource) -> fitting.Straight:
    """A network fitted on some rows by log loss, in which both classes weigh the same.

    It starts as its own last input alone, so a caller puts its best single guess there. `x` is standardized, (rows,
    inputs) in float32; `fit` and `held` are numbers of rows.
    """
    target = label.clamp(0, 1).float()
    positive = target[fit].mean().clamp(1e-6, 1 - 1e-6)
    balance = 0.5 / torch.stack([1 - positive, positive])  # the weights with which both classes weigh the same

    def loss(logit: Tensor, wanted: Tensor) -> Tensor:
        each = balance[wanted.long()]
        return functional.binary_cross_entropy_with_logits(logit[:, 0], wanted, weight=each)

    network = fitting.Straight(x.shape[1], _HIDDEN, 1)
    fitting.drawn(network, source, x.device)
    network.start()
    with torch.no_grad():
        network.straight.weight[0, -1] = 1.0
    fitting.trained(network, x, target, fit, held, source, updates=_UPDATES, loss=loss, decay=_DECAY)
    return network
