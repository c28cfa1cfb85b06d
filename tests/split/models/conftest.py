"""What every model must do."""

import pytest
import torch


@pytest.fixture(name="assert_learns", scope="session")
def _assert_learns():
    """A step of Adam brings the loss down."""

    def assert_learns(net, labels, *inputs):
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        losses = []
        for _ in range(2):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(net(*inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[1] < losses[0]

    return assert_learns
