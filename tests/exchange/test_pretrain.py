"""Pretraining: units that hold what columns share."""

import numpy as np
import pytest
import torch

from tacit.align.encoder import Inputs
from tacit.errors import UsageError
from tacit.exchange.pretrain import pretrain


def test_a_table_is_learnt_without_labels_and_the_same_again():
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(600, 1, generator=draw)
    noise = torch.randn(600, 6, generator=draw)
    rows = Inputs((hidden > 0).long(), hidden + 0.5 * noise, (2,))
    trunk = pretrain(rows, epochs=8, seed=2)
    with torch.no_grad():
        units = trunk(*rows.tensors).numpy()
    again = pretrain(rows, epochs=8, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(trunk.state_dict().values(), again.state_dict().values(), strict=True))
    fit = np.linalg.lstsq(np.c_[units[:300], np.ones(300)], hidden[:300, 0].numpy(), rcond=None)[0]
    gap = np.c_[units[300:], np.ones(300)] @ fit - hidden[300:, 0].numpy()
    assert gap.var() < 0.3 * hidden.var().item()


def test_wrong_use_is_named():
    with pytest.raises(UsageError, match="two rows"):
        pretrain(Inputs(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1), (2,)))
