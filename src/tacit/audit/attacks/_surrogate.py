"""A top network that an attacker makes up, and soft labels, fitted together to gradients that were received."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tacit.audit import views
from tacit.contracts import NoiseSource

_HIDDEN = 32
_UPDATES = 400  # a fixed number, so that the cost does not grow with the transcript
_BATCH = 512
_RATE = 1e-2
_LABEL_RATE = 0.2
_PRIOR = 1.0  # weight of the labels' mean against the known share
_STEEP = 0.5  # deviation of the first surrogate's logits
_LEAST = 0.05  # so far from 0 and 1 the first soft labels stay
_SURE = 0.02  # weight of the labels' entropy


@dataclass(frozen=True)
class Surrogate:
    """One hidden layer beside a linear way, and what lies between its input and the layer that was looked at."""

    inside: Tensor  # (width, hidden)
    bias: Tensor  # (hidden,)
    outside: Tensor  # (hidden,)
    straight: Tensor  # (width,)
    offset: Tensor  # ()
    size: Tensor  # logarithm of the gradients' unit, ()
    way: Tensor | None  # (width, layer); None at the cut itself

    @property
    def weights(self) -> list[Tensor]:
        """All that is fitted."""
        fixed = [self.inside, self.bias, self.outside, self.straight, self.offset, self.size]
        return fixed if self.way is None else [*fixed, self.way]

    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Logit of each row, and its slope at the layer, in the gradients' units.  (rows,), (rows, layer)"""
        before = torch.addmm(self.bias, z, self.inside)
        open_ = before.sigmoid()
        logit = (before * open_) @ self.outside + z @ self.straight + self.offset
        slope = (open_ * (1 + before * (1 - open_)) * self.outside) @ self.inside.mT + self.straight
        slope = slope if self.way is None else slope @ self.way
        return logit, slope * self.size.exp()

    @torch.no_grad()
    def explained(self, z: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """For each row the label that explains its gradient best, and the logit.  (rows,), (rows,)

        A gradient is (prediction - label) times the slope; the label follows by projecting it on the slope.
        """
        labels, logits = [], []
        for part in views.slices(len(z), z.shape[1] + gradient.shape[1]):
            logit, slope = self.at(z[part])
            along = (gradient[part] * slope).sum(-1) / slope.square().sum(-1).clamp_min(1e-12)
            labels.append(logit.sigmoid() - along)
            logits.append(logit)
        return torch.cat(labels).double(), torch.cat(logits).double()


def fitted(z: Tensor, gradient: Tensor, slot: Tensor, examples: int, share: float, source: NoiseSource) -> Surrogate:
    """The surrogate whose gradients match best, with soft labels of its own choice.

    Embeddings `z`, centred and of unit size, and what was received for them, each batch of unit size, are (rows, *) in
    float32; `slot` is the example of each row.
    """
    top = _initial(z, gradient, share, source)
    label = _first_labels(top.explained(z, gradient)[0], slot, examples).requires_grad_()
    rows = min(_BATCH, len(z))
    draw = source.uniform((_UPDATES, rows), dtype=torch.float64, device=z.device)
    picked = (draw * len(z)).long().clamp_max(len(z) - 1)  # (updates, batch)
    optimizers = [torch.optim.Adam(top.weights, lr=_RATE), torch.optim.SparseAdam([label], lr=_LABEL_RATE)]
    for update, some in enumerate(picked):
        ease = (1 + math.cos(math.pi * update / _UPDATES)) / 2
        optimizers[0].param_groups[0]["lr"] = _RATE * ease
        soft = functional.embedding(slot[some], label, sparse=True)[:, 0].sigmoid()
        loss = _loss(top, z[some], gradient[some], soft, share)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    return top


def _first_labels(explained: Tensor, slot: Tensor, examples: int) -> Tensor:
    """Logits of soft labels that go with a surrogate: all the same, and fitting would turn the surrogate to them."""
    total = torch.zeros(examples, dtype=explained.dtype, device=explained.device).index_add_(0, slot, explained)
    count = torch.zeros_like(total).index_add_(0, slot, torch.ones_like(explained))
    return (total / count.clamp_min(1)).clamp(_LEAST, 1 - _LEAST).logit().float()[:, None]


def _loss(top: Surrogate, z: Tensor, gradient: Tensor, soft: Tensor, share: float) -> Tensor:
    """Squared distance of the gradients over their own size, and what pulls the soft labels."""
    logit, slope = top.at(z)
    missed = (gradient - (logit.sigmoid() - soft)[:, None] * slope).square().mean()
    mean = soft.mean().clamp(1e-4, 1 - 1e-4)
    prior = share * (share / mean).log() + (1 - share) * ((1 - share) / (1 - mean)).log()
    unsure = functional.binary_cross_entropy(soft, soft)
    return missed + _PRIOR * prior + _SURE * unsure


def _initial(z: Tensor, gradient: Tensor, share: float, source: NoiseSource) -> Surrogate:
    """A surrogate that is the leading direction of the gradients and little else."""
    width, layer = z.shape[1], gradient.shape[1]
    line = views.leading(views.unit(gradient.double())[None])[0].float()
    below = float((gradient @ line < 0).double().mean())  # the gradient of a positive points against the slope
    line = line if abs(below - share) <= abs(1 - below - share) else -line
    straight, way = line, None
    if width != layer:
        straight = functional.normalize(source.normal((width,), dtype=torch.float32, device=z.device), dim=0)
        way = straight[:, None] * line
    steep = _STEEP / float((z @ straight).std(correction=0).clamp_min(1e-6))
    spread = max((share * (1 - share)) ** 0.5, 0.05)
    top = Surrogate(
        inside=source.normal((width, _HIDDEN), dtype=torch.float32, device=z.device) / width**0.5,
        bias=torch.zeros(_HIDDEN, device=z.device),
        outside=torch.zeros(_HIDDEN, device=z.device),
        straight=straight * steep,
        offset=torch.full((), math.log(share / (1 - share)), device=z.device),
        size=torch.full((), math.log(layer**0.5 / (spread * steep)), device=z.device),
        way=way,
    )
    for weight in top.weights:
        weight.requires_grad_()
    return top
