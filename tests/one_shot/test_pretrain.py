"""Pretraining: units that hold what columns share, and pictures whose views lie together."""

import numpy as np
import pytest
import torch

from tacit.align.encoder import Inputs
from tacit.errors import UsageError
from tacit.one_shot.pretrain import pretrain


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


def test_views_of_one_picture_lie_closer_than_those_of_two():
    pictures = torch.randn(64, 1, 4, 4, generator=torch.Generator().manual_seed(1)).repeat_interleave(3, 2)
    pictures = pictures.repeat_interleave(3, 3)
    trunk = pretrain(pictures, epochs=20)
    with torch.no_grad():
        first, second = trunk(pictures), trunk(pictures * 1.1 + 0.1)
    gaps = torch.cdist(first, second)
    assert (gaps.argmin(dim=1) == torch.arange(64)).float().mean() > 0.5


def test_wrong_use_is_named():
    with pytest.raises(UsageError, match="two rows"):
        pretrain(torch.zeros(1, 1, 8, 8))
    with pytest.raises(UsageError, match="shape"):
        pretrain(torch.zeros(4, 8))
