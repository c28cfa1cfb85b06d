"""The residual attack: true gradients live in a few directions, noise that one class alone got lives in all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.audit import views
from tacit.audit.facts import Facts
from tacit.contracts import Attack, Guess, Known, Noise, View
from tacit.errors import UsageError

FACTS = Facts(order=70, joined=("mean",), steers=True, live=True, sweep="some batches")
_SMALL = 256  # rows of a matrix


def residual(directions: int | None = None) -> Attack:
    """Scores a row by its energy outside the leading directions of what its own batch brought.

    Isotropic noise on one class shows in the directions where true gradients have nothing; no label is needed to find
    them. By default a quarter of min(batch, width) directions is taken away. That is a compromise: gradients whose
    spectrum falls slowly want more taken away, those of few directions less. Of the shares from 1/32 to 1/2, tried once
    on eleven made-up sets of gradients under one-class noise (mostly Marvell's), a quarter was never more
    than 0.09 of AUC behind the best share; every other share, and a cut at the Marchenko-Pastur edge, fell behind
    further somewhere.

    Knows: the gradients, nothing else.
    Costs: one eigendecomposition of a matrix of size min(batch, width) for each step, in float64.
    """
    if directions is not None:
        views.check_count("residual", "directions", directions, "direction to take away")

    def guess(view: View, known: Known, noise: Noise) -> Guess:
        return Guess(view.rows, log_residual(views.gradient(view), directions))

    return views.named(residual, guess, directions=directions)


def log_residual(x: Tensor, directions: int | None = None) -> Tensor:
    """Log energy of each row outside the leading directions of its batch.  (steps, batch, width) -> (steps, batch)"""
    steps, batch, width = x.shape
    rank = min(batch, width)
    if directions is None:
        directions = max(1, rank // 4)
    elif directions >= rank:
        raise UsageError(f"a batch of {batch} rows of width {width} has {rank} directions; {directions} leave nothing")
    parts = [_outside(x[part], directions) for part in views.slices(steps, batch * (width + rank) + rank * rank)]
    return views.log_positive(torch.cat(parts))


def _outside(x: Tensor, directions: int) -> Tensor:
    """Energy of each row outside the leading directions, as a sum of squares, so that nothing cancels."""
    x = x.double()
    x = x / views.batch_rms(x)
    _, batch, width = x.shape
    basis: Tensor
    if width <= batch:
        basis = _eigh(x.mT @ x)[1]  # columns by rising energy  (steps, width, width)
        return (x @ basis[..., : width - directions]).square().sum(-1)
    energy: Tensor
    energy, basis = _eigh(x @ x.mT)  # row i has energy * basis[i]^2 along each  (steps, batch, batch)
    return (basis.square() * energy.clamp_min(0.0)[..., None, :])[..., : batch - directions].sum(-1)


def _eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Rising eigenvalues, and eigenvectors as columns.

    A GPU's library takes small matrices one by one, in hundreds of kernels each that hold up whatever trains beside
    them: the processor is as fast.
    """
    small = matrices.is_cuda and matrices.shape[-1] <= _SMALL
    values, vectors = torch.linalg.eigh(matrices.cpu() if small else matrices)
    return values.to(matrices.device), vectors.to(matrices.device)
