"""One thread for all tests: small tensors run faster on one than on threads that wait for each other."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(name="seeded")
def _seeded():
    """A torch generator for a seed."""
    return lambda seed: torch.Generator().manual_seed(seed)
