"""Two Gaussians, one for each class: coordinates that know no class, and the ratio of the likelihoods in them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tacit.audit import views
from tacit.contracts import Noise, noise_source
from tacit.errors import UsageError

_EXACT = 1024  # up to this width the covariance is decomposed whole; above, its leading part is found by iteration
_FLAT = 1e-12  # directions with less than this share of the largest variance are rounding and are left out
_FEW = 8  # leading directions that are handed out apart


def whitened(x: Tensor, components: int, noise: Noise) -> tuple[Tensor, Tensor]:
    """Rows in coordinates with covariance one over all rows, whatever their class; and those along the leading
    directions.

    Both are (steps, batch, *) in float64. Up to `components` wide, the coordinates keep their own axes (the symmetric
    root of the inverse covariance). Wider rows are seen along their `components` leading directions, and the energy
    outside them is one more coordinate: its logarithm, which needs no count of effective dimensions as a chi-square
    would.
    """
    steps, batch, width = x.shape
    mean = x.mean((0, 1), dtype=torch.float64)
    variance, basis = _spectrum(x, mean, components, noise)
    root = basis / variance.sqrt()
    turned = root @ basis.mT if width <= components else root
    seen, first, outside = [], [], []
    for part in _centred(x, mean):
        seen.append(part @ turned)
        first.append(part @ root[:, :_FEW])
        if width > components:
            outside.append((part - (part @ basis) @ basis.mT).square().sum(-1))
    white, leading = torch.cat(seen), torch.cat(first)
    if outside:
        rest = views.log_positive(torch.cat(outside))
        rest = (rest - rest.mean()) / rest.std().clamp_min(1e-6)
        white = torch.cat([white, rest[:, None]], dim=-1)
    return white.reshape(steps, batch, -1), leading.reshape(steps, batch, -1)


def log_ratio(z: Tensor, label: Tensor, attack: str) -> Tensor:
    """Log likelihood ratio of positive to negative, for every row, of full Gaussians fitted where the label is not -1.

    `z` is roughly white, (steps, batch, width) in float64; `label` and the answer are (steps, batch).
    """
    few = min(int((label == 0).sum()), int((label == 1).sum()))
    if few < 2:
        raise UsageError(f"the attack {attack!r} needs two known rows of each class, but has {few}: grant more labels")
    negative, positive = _fitted(z[label == 0]), _fitted(z[label == 1])
    parts = [
        _log_density(z[part], *positive) - _log_density(z[part], *negative)
        for part in views.slices(z.shape[0], z.shape[1] * z.shape[2])
    ]
    return torch.cat(parts)


def _fitted(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, inverse root and log volume of a class.  (rows, width) -> (width,), (width, width), ()

    The covariance is shrunk towards a multiple of the identity by the rule of Ledoit and Wolf, "A well-conditioned
    estimator for large-dimensional covariance matrices" (2004).
    """
    rows, width = z.shape
    mean = z.mean(0)
    z = z - mean
    covariance = z.mT @ z / rows
    level = covariance.diagonal().mean()
    eye = torch.eye(width, dtype=z.dtype, device=z.device)
    far = (covariance - level * eye).square().sum()
    error = (z.square().sum(-1).square().mean() - covariance.square().sum()) / rows
    weight = torch.where(far > 0, error / far, 1.0).clamp(0.0, 1.0)
    ridge = weight * level + 1e-9 * level + 1e-12  # the last two keep a class of identical rows decomposable
    factor = torch.linalg.cholesky((1 - weight) * covariance + ridge * eye)
    return mean, torch.linalg.solve_triangular(factor, eye, upper=False), factor.diagonal().log().sum()


def _log_density(z: Tensor, mean: Tensor, root: Tensor, volume: Tensor) -> Tensor:
    """Log density of each row, up to a constant that all classes share.  (steps, batch, width) -> (steps, batch)"""
    return -0.5 * ((z - mean) @ root.mT).square().sum(-1) - volume


def _spectrum(x: Tensor, mean: Tensor, components: int, noise: Noise) -> tuple[Tensor, Tensor]:
    """The leading variances that are more than rounding, falling, and their directions.  (kept,), (width, kept)"""
    width = mean.numel()
    basis = torch.eye(width, dtype=torch.float64, device=x.device)
    if width > _EXACT:
        basis = _leading(x, mean, components, noise)
    small = torch.zeros(basis.shape[1], basis.shape[1], dtype=torch.float64, device=x.device)
    for part in _centred(x, mean):
        seen = part if width <= _EXACT else part @ basis
        small += seen.mT @ seen
    variance, turn = torch.linalg.eigh(small / x.shape[:2].numel())
    variance, basis = variance.flip(-1), (basis @ turn).flip(-1)
    kept = max(1, min(components, int((variance > _FLAT * variance[0]).sum())))
    return variance[:kept].clamp_min(1e-300), basis[:, :kept]


def _leading(x: Tensor, mean: Tensor, components: int, noise: Noise) -> Tensor:
    """An orthonormal basis that holds the leading directions of wide rows, by randomized subspace iteration.

    Halko, Martinsson and Tropp, "Finding structure with randomness" (2011).  -> (width, components and a few)
    """
    width = mean.numel()
    shape = (width, min(components + 16, width))
    basis: Tensor = torch.linalg.qr(noise_source(noise).normal(shape, dtype=torch.float64, device=x.device)).Q
    for _ in range(4):
        product = torch.zeros_like(basis)
        for part in _centred(x, mean):
            product += part.mT @ (part @ basis)
        basis = torch.linalg.qr(product).Q
    return basis


def _centred(x: Tensor, mean: Tensor) -> Iterator[Tensor]:
    """All rows, centred and in float64, some steps at a time.  (rows, width)"""
    for part in views.slices(x.shape[0], x.shape[1] * x.shape[2]):
        yield x[part].double().flatten(0, 1) - mean
