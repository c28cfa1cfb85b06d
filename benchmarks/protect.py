"""Every protection's time over that of drawing its noise; on CUDA also absolute times in a captured graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks._measure import Result, captured, ratio
from tacit.contracts import Protection
from tacit.split.protect.gradient import protection
from tacit.split.protect.gradient.matched import REFRESH

SHAPES = ((1024, 128), (32768, 128), (128, 1600))
CASES: tuple[tuple[str, dict[str, Any], float | None], ...] = (
    ("iso", {"t": 1.0}, None),
    ("max_norm", {}, None),
    ("marvell", {"scale": 4.0}, 3.0),
    ("matched", {"leak_auc": 0.6}, 8.0),
    ("matched", {"leak_auc": 0.6, "visits": 10}, None),
)


def gradients(batch: int, width: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Gradients as a cut sees them: a few leading directions, positives rarer and longer."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(batch, generator=generator) < 0.1).float()
    labels[:2] = torch.tensor([0.0, 1.0])
    directions = torch.randn(12, width, generator=generator)
    grad = 0.1 * torch.randn(batch, 12, generator=generator) @ directions * (1 + labels[:, None])
    grad += (0.1 - labels)[:, None] * directions[0]
    return grad.to(device), labels.to(device)


def spelled(name: str, options: dict[str, Any]) -> str:
    """A protection as it would be written in code."""
    return f"{name}({', '.join(f'{key}={value}' for key, value in options.items())})"


def run() -> Iterator[Result]:
    """Ratios on the CPU, with the work between two decompositions and the decompositions averaged in."""
    for batch, width in SHAPES:
        grad, labels = gradients(batch, width)
        for name, options, goal in CASES:
            value = _over_draw(protection(name, **options), grad, labels)
            case = f"{spelled(name, options)} over drawing its noise, batch {batch} x {width}"
            yield Result("protect", case, value, "x", goal if (batch, width) == (1024, 128) else None)
    if torch.cuda.is_available():
        yield from _on_cuda()


def _over_draw(protect: Protection, grad: Tensor, labels: Tensor) -> float:
    """A run of several refreshes, over as many draws."""
    generator = torch.Generator().manual_seed(1)
    state = protect.init()
    for _ in range(2 + REFRESH):
        state = protect.update(grad, labels, state, generator).state

    def one_cycle() -> None:
        following = state
        for _ in range(REFRESH):
            following = protect.update(grad, labels, following, generator).state

    return ratio(
        one_cycle,
        lambda: [torch.randn_like(grad) for _ in range(REFRESH)],
        rounds=8 if grad.numel() > 1_000_000 else 20,
    )


def _on_cuda() -> Iterator[Result]:
    """Milliseconds for each batch of (1024, 128), in a captured graph."""
    grad, labels = gradients(1024, 128, "cuda")
    goals = {"marvell": 0.15, "matched": 0.4}
    for name, options, _ in CASES:
        protect = protection(name, **options)
        generator = torch.Generator("cuda").manual_seed(1)
        state = protect.init()
        for _ in range(3 + REFRESH):  # one step past a refresh: what follows is the hot path
            state = protect.update(grad, labels, state, generator).state
        each = captured(lambda p=protect, s=state, g=generator: p.update(grad, labels, s, g), generator)  # type: ignore[misc]
        if name == "matched":
            anew = captured(_at_refresh(protect, grad, labels, generator), generator)
            each = (each * (REFRESH - 1) + anew) / REFRESH
        device = torch.cuda.get_device_name()
        yield Result("protect", f"{spelled(name, options)} on {device}, captured", each * 1e3, "ms", goals.get(name))
    draw = captured(lambda: torch.randn(1024, 128, device="cuda"), torch.cuda.default_generators[0])
    yield Result("protect", "torch.randn (1024, 128), captured", draw * 1e3, "ms")


def _at_refresh(protect: Protection, grad: Tensor, labels: Tensor, generator: torch.Generator) -> Any:
    """An update whose step makes the factors anew."""
    state = protect.init()
    for _ in range(2 + REFRESH):
        state = protect.update(grad, labels, state, generator).state
    return lambda: protect.update(grad, labels, state, generator)
