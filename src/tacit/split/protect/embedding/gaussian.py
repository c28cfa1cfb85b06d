"""Gaussian noise on the embedding (section 4.4 of Report 2020b)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.contracts import EmbeddingProtection, NoiseSource
from tacit.errors import TensorError
from tacit.split.protect.embedding._base import BaseProtection
from tacit.split.protect.facts import Facts, Option
from tacit.split.protect.gradient._base import largest, one_knob, positive_number

_NOTHING = 1e-12  # the size of a batch of zeros: it gets noise like any other, only very small
_STEPS = 2  # how many steps of the dtype the noise spans at least, so that rounding hides none of it
_TAIL = 40  # in standard deviations: no normal number is beyond


FACTS = Facts(
    strengths=(Option("std"), Option("snr", stronger="less")),
    others=(Option("clip", stronger="less"),),
    noise=True,
)


@dataclass(frozen=True)
class Gaussian(BaseProtection):
    """See `gaussian`."""

    std: float | None
    snr: float | None
    clip: float | None

    def transform(self, z: Tensor, noise: NoiseSource) -> Tensor:
        """Clipped rows with noise. Noise that the dtype can't hold raises on a CPU; elsewhere it comes out as NaN."""
        peak = largest("the embedding", z)
        kept = z if self.clip is None else _clipped(z, self.clip)
        std = self._deviation(z, peak)
        held = self._held(z, peak, std)
        scale = std if z.device.type == "cpu" else torch.where(held, std, torch.nan)
        return kept + scale * noise.normal(z.shape, dtype=z.dtype, device=z.device)

    def _deviation(self, z: Tensor, peak: Tensor) -> Tensor:
        """The noise's standard deviation, a scalar that holds no gradient."""
        if self.std is not None:
            return torch.full_like(peak, self.std)
        assert self.snr is not None  # `gaussian` takes one of them
        if self.clip is not None:
            return torch.full_like(peak, self.clip / math.sqrt(z[0].numel() * self.snr))
        scale = torch.where(peak > 0, peak, _NOTHING)
        ratio = (z.detach() / scale).square().mean().sqrt()  # of the batch's root mean square to its largest entry
        return scale * torch.where(peak > 0, ratio, 1.0) / math.sqrt(self.snr)

    def _held(self, z: Tensor, peak: Tensor, std: Tensor) -> Tensor:
        """Whether the dtype can hold embedding and noise together: neither lost in rounding nor beyond the range."""
        kept = peak if self.clip is None else peak.clamp(max=self.clip)
        info = torch.finfo(z.dtype)
        seen, fits = (std > 0) & (std >= _STEPS * info.eps * kept), kept + _TAIL * std < info.max
        if z.device.type == "cpu" and not bool(seen & fits):
            wrong = "does not fit beside" if bool(seen) else "is lost in rounding beside"
            raise TensorError(
                f"gaussian: noise of standard deviation {float(std):g} {wrong} an embedding with entries up to "
                f"{float(kept):g} in {z.dtype}: set clip, and a std that belongs to it"
            )
        return seen & fits


def _clipped(z: Tensor, norm: float) -> Tensor:
    """Rows that are longer than `norm`, scaled down to it; differentiable, also at zero rows."""
    rows = z.flatten(start_dim=1)
    size = rows.detach().abs().amax(-1, keepdim=True).clamp(min=norm)  # squares of large entries would overflow
    inside = (rows / size).square().sum(-1, keepdim=True)
    length = inside.clamp(min=1.0).sqrt()  # at least 1: a short row stays as it is
    return (rows * (norm / size / length)).reshape(z.shape)


def gaussian(std: float | None = None, snr: float | None = None, clip: float | None = None) -> EmbeddingProtection:
    """Independent noise N(0, std^2) on every coordinate of every embedding, in training, evaluation and serving alike.

    Without `clip` a bottom model can outgrow a fixed `std` while it learns: larger embeddings carry the same message
    through the same noise. With it, no two embeddings are more than 2 clip apart. Noise is fresh at every visit, so
    one who sees an example n times averages it down to std / sqrt(n). For what it costs it hid more than any of the
    losses where they were measured (see `adversarial`): with std=1 the better decoder's error rises from 0.01 to 0.31
    of the mean image's, and test accuracy falls from 0.83 to 0.82.

    One strength, in two spellings: `std` or `snr`.

    Args:
        std: the noise's standard deviation.
        snr: the power of the embedding over that of the noise, in each coordinate. With `clip` the power is the largest
            that there can be, clip^2 / width, and no data enters; without it, it is the mean square of the batch, so
            that a batch's noise tells how large its embeddings are.
        clip: rows that are longer than this are scaled down to it before the noise is added.

    >>> from tacit.contracts import noise_source
    >>> source = noise_source(torch.Generator().manual_seed(0))
    >>> gaussian(std=0.1, clip=1.0).transform(torch.full((1, 4), 9.0), source)
    tensor([[0.6541, 0.4707, 0.2821, 0.5568]])
    """
    one_knob("gaussian", std=std, snr=snr)
    return Gaussian(
        None if std is None else positive_number("std", std),
        None if snr is None else positive_number("snr", snr),
        None if clip is None else positive_number("clip", clip),
    )
