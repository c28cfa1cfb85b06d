"""Batches of two Gaussian classes, and runs over them."""

from functools import cache

import torch
from torch import Tensor

from tacit.audit.run import attack_all
from tacit.contracts import Protection, View


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


# --- classes, populations, runs --------------------------------------------------------------------------------------


@cache
def gaussian_classes(width: int, ratio: float = 3.0, gap: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Two covariances with axes of their own and spectra over two decades, and a gap.  C0, C1, w"""

    def covariance(seed: int, size: float) -> Tensor:
        axes = torch.linalg.qr(normal(seed, width, width)).Q
        return (axes * (size * torch.logspace(0, -2, width, dtype=torch.float64))) @ axes.mT

    w = normal(3, width)
    return covariance(1, 1.0), covariance(2, ratio), gap * w / w.norm()


def sample(seed: int, size: int, width: int, share: float = 0.25) -> tuple[Tensor, Tensor]:
    """Gradients of the Gaussian classes, and labels."""
    c0, c1, w = gaussian_classes(width)
    labels = (torch.rand(size, generator=generator(seed)) < share).long()
    z = normal(seed + 1000, size, width)
    positive = z @ torch.linalg.cholesky(c1).mT + w
    return torch.where(labels[:, None] == 1, positive, z @ torch.linalg.cholesky(c0).mT), labels


def leaks(view: View, truth: Tensor, attacks, clean: Tensor | None = None) -> dict[str, float]:
    return {f.attack: f.leak.value for f in attack_all(view, truth, attacks, noise=generator(11), clean=clean)}


def stream(protection: Protection, make, steps: int):
    """What is received of batches that differ from step to step; each example comes once."""
    state, g, sent, truth, clean = protection.init(), generator(6), [], [], []
    for step in range(steps):
        grad, labels = make(step)
        done = protection.update(grad, labels, state, g)
        state = done.state
        sent.append(done.value)
        truth.append(labels)
        clean.append(grad)
    return View.of(torch.stack(sent)), torch.cat(truth), torch.stack(clean)


# --- (6) in the course of a run --------------------------------------------------------------------------------------


def small(step: int, factor: float = 1.0, width: int = 6) -> tuple[Tensor, Tensor]:
    grad, labels = sample(step, 64, width)
    return (factor * grad).float(), labels


def run(protection: Protection, batches) -> list:
    state, out = protection.init(), []
    for i, (grad, labels) in enumerate(batches):
        out.append(protection.update(grad, labels, state, generator(i)))
        state = out[-1].state
    return out
