"""Made-up transcripts with and without a leak, and the yardstick for chance."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tacit.audit.metrics.leak_auc import auc
from tacit.audit.run import grant
from tacit.contracts import Guess, Known, View


@dataclass(frozen=True)
class Scene:
    """A transcript, its truth, what attackers are granted, and the gradients before noise."""

    view: View
    truth: Tensor
    known: Known
    clean: Tensor

    @property
    def label(self) -> Tensor:
        return self.truth[self.view.rows]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scene(
    seed: int = 0,
    steps: int = 6,
    batch: int = 256,
    width: int = 24,
    *,
    examples: int | None = None,
    leak: bool = True,
    share: float = 0.25,
    noise: Callable[[Tensor, Callable[..., Tensor]], Tensor] | None = None,
) -> Scene:
    """Gradients (p - y) * (a direction + a small spread in four others), as the papers find them, plus noise.

    With `leak=False` the gradients are made with labels that have nothing to do with the truth. With `examples` every
    id keeps its gradient and comes once for each pass over the data. `noise` gets the labels (steps, batch) and a
    normal sampler, and returns what to add.
    """
    g = generator(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g)

    total = examples or steps * batch
    truth = (torch.rand(total, generator=g) < share).long()
    used = truth if leak else truth[torch.randperm(total, generator=g)]
    axes = torch.linalg.qr(normal(width, width)).Q
    p = torch.sigmoid(normal(total) - 1.3)
    each = (p - used)[:, None] * (axes[0] + 0.1 * normal(total, 4) @ axes[1:5])  # (examples, width)
    passes = -(-steps * batch // total)
    order = torch.cat([torch.randperm(total, generator=g) for _ in range(passes)])
    rows = order[: steps * batch].reshape(steps, batch)
    clean = each[rows]
    gradient = clean + 1e-3 * normal(steps, batch, width)
    if noise is not None:
        gradient = gradient + noise(used[rows], normal)
    normal(width, width // 2)  # what is drawn after it stays the same
    embedding = normal(steps, batch, 5) + (1.5 * used[rows])[..., None] * torch.ones(5) + 3.0
    view = View.of(gradient, rows=rows, embedding=embedding)
    return Scene(view, truth, grant(view, truth, clean, noise=generator(seed + 1)), clean)


def one_class_noise(label: Tensor, normal: Callable[..., Tensor]) -> Tensor:
    """Isotropic noise on negatives alone, under loud noise along one direction for all: what Marvell does."""
    loud = 3.0 * normal(*label.shape, 1) * torch.ones(24) / 24**0.5
    return loud + (label == 0)[..., None] * 0.05 * normal(*label.shape, 24)


def far_from_chance(guess: Guess, truth: Tensor) -> float:
    """The mean AUC's distance from 1/2 in its standard errors under "scores know nothing": normal, so 4 is 6e-5."""
    label = truth[guess.rows]
    counted = torch.ones_like(label, dtype=torch.bool) if guess.counted is None else guess.counted
    n1, n0 = ((label == c) & counted for c in (1, 0))
    n1, n0 = n1.sum(-1).double(), n0.sum(-1).double()
    a = auc(guess.score, label, counted)
    whole = ~a.isnan()
    assert whole.any(), "nothing was judged"
    variance = ((n1 + n0 + 1) / (12 * n1 * n0))[whole]
    return abs((a[whole].mean() - 0.5) / (variance.sum().sqrt() / whole.sum())).item()


@pytest.fixture(name="scene")
def _scene():
    return scene


@pytest.fixture(name="one_class_noise")
def _one_class_noise():
    return one_class_noise


@pytest.fixture(name="far_from_chance")
def _far_from_chance():
    return far_from_chance


@pytest.fixture(name="noise")
def _noise():
    return generator(99)


@pytest.fixture
def quick_network(monkeypatch):
    """Fewer updates, where a test asks for the shape of an answer and not for its strength."""
    monkeypatch.setattr("tacit.audit.attacks._network._UPDATES", 40)
    monkeypatch.setattr("tacit.audit.attacks._surrogate._UPDATES", 40)
