"""A small table and small pictures with labels that can be learnt."""

import pytest
import torch

from tacit.lab.data.rows import Pictures, Rows, Table
from tacit.lab.stack.network import network_for


@pytest.fixture(scope="session")
def table():
    """Rows of both parties."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(20, (1024, 3), generator=generator)
    numbers = torch.randn(1024, 5, generator=generator)
    own = torch.randint(7, (1024, 2), generator=generator), torch.randn(1024, 2, generator=generator)
    labels = (torch.rand(1024, generator=generator) < torch.sigmoid(2 * numbers[:, 0] - 1)).float()
    return Rows((codes, numbers), own, labels)


@pytest.fixture(scope="session")
def network():
    """A narrow Wide&Deep for the table."""
    return network_for(Table((20,) * 3, 5, (7, 7), 2), width=16)


@pytest.fixture(scope="session")
def pictures():
    """Small pictures in bytes."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(255, (128, 3, 16, 16), generator=generator, dtype=torch.uint8)
    return Rows((images,), (), (torch.rand(128, generator=generator) < 0.3).float())


@pytest.fixture(scope="session")
def small_conv():
    """A convolutional network for the pictures."""
    return network_for(Pictures(3, 16), width=4, cut=2, layers=3)
