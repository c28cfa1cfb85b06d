"""A row gets the same bits alone and in any table: a cell may hang on the last of them."""

import numpy as np
import pytest
import torch

from tacit.align.encoder import Inputs
from tacit.exchange.head import fit_head
from tacit.exchange.learn import learner, pca
from tacit.labels.flips import flips
from tacit.same_bits import in_blocks, mixed

ROWS = 200


@pytest.fixture(name="inputs")
def _inputs(seeded):
    codes = torch.randint(0, 5, (ROWS, 2), generator=seeded(1))
    return Inputs(codes, torch.randn(ROWS, 3, generator=seeded(2)), (5, 5))


def alike(embed, inputs):
    whole = embed(inputs)
    assert whole.dtype == np.float32
    some = torch.tensor([7, 199, 64])
    assert np.array_equal(embed(inputs[some]), whole[some.numpy()])
    assert all(np.array_equal(embed(inputs[row : row + 1])[0], whole[row]) for row in (0, 63, 130))


@pytest.mark.parametrize("name", ["trees", "network", "linear"])
def test_of_what_is_learnt(inputs, name):
    sent = (inputs.numeric[:, 0].numpy() > 0).astype(np.uint8)
    alike(learner(name).fit(inputs, sent, flips(0.75), 3, seed=1).embed, inputs)


def test_of_what_no_label_had_a_part_in(inputs):
    alike(pca.fit(inputs, 2, seed=1).embed, inputs)


@pytest.mark.parametrize("kind", ["trees", "network"])
def test_of_heads(inputs, kind):
    codes = np.random.default_rng(3).integers(0, 256, (ROWS, 2)).astype(np.uint8)
    head = fit_head(kind, codes, inputs, (codes[:, 0] > 99).astype(np.int64), seed=1)
    whole = head.predict(codes, inputs)
    assert all(head.predict(codes[at : at + 1], inputs[at : at + 1])[0] == whole[at] for at in (0, 63, 64, 199))


def test_plain_products_are_what_they_were(seeded):
    values, mix = np.random.default_rng(0).normal(size=(ROWS, 40)), np.random.default_rng(1).normal(size=(40, 3))
    assert np.allclose(mixed(values, mix), values @ mix, atol=1e-5)
    assert mixed(values[:0], mix).shape == (0, 3)
    linear = torch.nn.Linear(4, 2)
    rows = torch.randn(ROWS, 4, generator=seeded(4))
    assert torch.allclose(in_blocks(linear, [rows]), linear(rows))
    assert in_blocks(linear, [rows[:0]]).shape == (0, 2)
