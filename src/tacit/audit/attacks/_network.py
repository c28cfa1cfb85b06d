"""A small network and its training, all of its randomness from the caller."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional

from tacit.contracts import NoiseSource

Weights = list[Tensor]

_HIDDEN = (64, 32)
_UPDATES = 600  # a fixed number, so that the cost of a fit does not grow with the transcript
_EVERY = 20  # how often the held-out rows are asked
_BATCH = 512
_RATE = 5e-3
_DECAY = 0.5


def logit(x: Tensor, weights: Weights) -> Tensor:
    """Two hidden layers beside a linear way from input to output.  (rows, inputs) -> (rows,)"""
    w1, b1, w2, b2, w3, b3, straight = weights
    hidden = functional.silu(torch.addmm(b2, functional.silu(torch.addmm(b1, x, w1)), w2))
    return hidden @ w3 + x @ straight + b3


def trained(x: Tensor, label: Tensor, fit: Tensor, held: Tensor, source: NoiseSource) -> Weights:
    """Weights fitted on some rows by AdamW on balanced log loss: of all checks the best on the held-out rows.

    The network starts as its own last input alone, so a caller puts its best single guess there.

    Args:
        x: standardized inputs.  (rows, inputs), float32
        label: 0 or 1 on the rows that are fitted or held out.  (rows,)
        fit: numbers of the rows to fit.
        held: numbers of the rows to check with.
        source: where first weights and the order of the rows come from.
    """
    target = label.clamp(0, 1).float()
    balance = _balance(target[fit])
    weights = _initial(x.shape[-1], source, x.device)
    optimizer = torch.optim.AdamW(weights, lr=_RATE, weight_decay=_DECAY)
    draw = source.uniform((_UPDATES, min(_BATCH, fit.numel())), dtype=torch.float64, device=x.device)
    picked = fit[(draw * fit.numel()).long().clamp_max(fit.numel() - 1)]  # (updates, batch)
    best, least = weights, torch.full((), torch.inf, device=x.device)
    for update, some in enumerate(picked):
        if update % _EVERY == 0 or update == _UPDATES - 1:
            best, least = _better(best, least, weights, _loss(x[held], target[held], weights, balance).detach())
        for group in optimizer.param_groups:
            group["lr"] = _RATE * (1 + math.cos(math.pi * update / _UPDATES)) / 2
        slopes = torch.autograd.grad(_loss(x[some], target[some], weights, balance), weights)
        for weight, slope in zip(weights, slopes, strict=True):
            weight.grad = slope
        optimizer.step()
    return best


def _initial(inputs: int, source: NoiseSource, device: torch.device) -> Weights:
    """First weights: random hidden layers that do not reach the output yet, and the last input passed through."""
    sizes = (inputs, *_HIDDEN)
    weights = []
    for before, after in itertools.pairwise(sizes):
        weights += [
            source.normal((before, after), dtype=torch.float32, device=device) / before**0.5,
            torch.zeros(after, device=device),
        ]
    straight = torch.zeros(inputs, device=device)
    straight[-1] = 1.0
    weights += [torch.zeros(sizes[-1], device=device), torch.zeros((), device=device), straight]
    return [w.requires_grad_() for w in weights]


def _balance(target: Tensor) -> Tensor:
    """The weight of a negative and of a positive row, such that both classes weigh the same."""
    positive = target.mean().clamp(1e-6, 1 - 1e-6)
    return 0.5 / torch.stack([1 - positive, positive])


def _loss(x: Tensor, target: Tensor, weights: Weights, balance: Tensor) -> Tensor:
    """Mean log loss with both classes weighing the same."""
    return functional.binary_cross_entropy_with_logits(logit(x, weights), target, weight=balance[target.long()])


def _better(best: Weights, least: Tensor, weights: Weights, now: Tensor) -> tuple[Weights, Tensor]:
    """The better of two sets of weights, chosen on the device."""
    chosen = now < least
    kept = [torch.where(chosen, w.detach(), b.detach()) for w, b in zip(weights, best, strict=True)]
    return kept, torch.where(chosen, now, least)
