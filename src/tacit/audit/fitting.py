"""Networks with first weights from the caller's noise, and their training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from tacit.audit import views
from tacit.audit.input_attacks._ridge import Line
from tacit.contracts import NoiseSource

Loss = Callable[[Tensor, Tensor], Tensor]

_BATCH = 256
_CHECKS = 40  # how often the rows held out are asked
_ASKED = 4096  # of them at most
_WARM = 50  # updates on which the rate rises


class Straight(nn.Module):
    """Hidden layers beside a linear way from input to output; at first the hidden layers do not reach the output."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise([inputs, *hidden]):
            layers += [nn.Linear(before, after, device="meta"), nn.ReLU()]
        self.hidden = nn.Sequential(*layers)
        self.out = nn.Linear([inputs, *hidden][-1], outputs, device="meta")
        self.straight = nn.Linear(inputs, outputs, bias=False, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        """(rows, inputs) -> (rows, outputs)"""
        out: Tensor = self.out(self.hidden(x)) + self.straight(x)
        return out

    def start(self, line: Line | None = None) -> None:
        """Begin as a linear map, or as zero."""
        with torch.no_grad():
            self.out.weight.zero_()
            self.straight.weight.zero_()
            if line is not None:
                self.straight.weight.copy_(line.weight.mT)
                self.out.bias.copy_(line.bias)


def drawn(network: nn.Module, source: NoiseSource, device: torch.device) -> nn.Module:
    """The same network on a device with first weights from this source: He normal, biases 0, scales 1."""
    if any(parameter.is_meta for parameter in network.parameters()):
        network = network.to_empty(device=device)
    network = network.to(device)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim > 1:
                first = source.normal(parameter.shape, dtype=torch.float32, device=device)
                parameter.copy_(first * (2 / parameter[0].numel()) ** 0.5)
            else:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
    for layer in network.modules():  # running statistics are learnt like weights, and tell as much
        reset = getattr(layer, "reset_running_stats", None)
        if callable(reset):
            reset()
    return network


def trained(  # each setting of a training by name; callers differ in most of them
    network: nn.Module,
    z: Tensor,
    target: Tensor,
    fit: Tensor,
    held: Tensor,
    source: NoiseSource,
    *,
    updates: int,
    loss: Loss,
    rate: float = 5e-3,
    decay: float = 1e-4,
    batch: int = _BATCH,
) -> None:
    """Fit a network in place by AdamW: of all checks it keeps the weights that were best on the rows held out.

    `fit` and `held` are numbers of rows of `z` (rows, width) and `target` (rows, *); `source` draws the batches.
    """
    parameters = list(network.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)
    asked = held[:_ASKED]
    least = _error(network, z[asked], target[asked], loss)
    best = [p.detach().clone() for p in parameters]
    every = max(1, updates // _CHECKS)
    with torch.enable_grad():
        for start in range(0, updates, every):
            steps = min(every, updates - start)
            draw = source.uniform((steps, min(batch, fit.numel())), dtype=torch.float64, device=z.device)
            picked = fit[(draw * fit.numel()).long().clamp_max(fit.numel() - 1)]  # (steps, batch)
            for step, some in enumerate(picked, start):
                falling = (1 + math.cos(math.pi * step / updates)) / 2  # like a cosine, after a short rise
                optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / _WARM) * falling
                optimizer.zero_grad()
                loss(network(z[some]), target[some]).backward()
                optimizer.step()
            now = _error(network, z[asked], target[asked], loss)
            if now < least:
                best, least = [p.detach().clone() for p in parameters], now
    with torch.no_grad():
        for parameter, kept in zip(parameters, best, strict=True):
            parameter.copy_(kept)


def answer(network: nn.Module, z: Tensor, each: int) -> Tensor:
    """What the network says about every row, in slices whose intermediate takes about `each` numbers a row."""
    with torch.no_grad():
        return torch.cat([network(z[part]) for part in views.slices(z.shape[0], each)])


def _error(network: nn.Module, z: Tensor, target: Tensor, loss: Loss) -> float:
    with torch.no_grad():
        return float(loss(network(z), target))
