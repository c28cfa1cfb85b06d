"""A plain network between two parties, which the pace of a split step is measured with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BATCH, ROWS, WIDTH, COLUMNS = 1024, 16 * 1024, 128, 32


def halves() -> tuple[nn.Sequential, nn.Sequential]:
    """A bottom 32-128-128 and a top 128-128-1, with the same first weights each time."""
    torch.manual_seed(0)
    bottom = nn.Sequential(nn.Linear(COLUMNS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return bottom, nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))


def table(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """Features and labels, the same each time."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(rows, COLUMNS, generator=generator)
    return features, (torch.rand(rows, generator=generator) < 0.25).float()
