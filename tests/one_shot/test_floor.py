from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tacit.align.encoder import Inputs
from tacit.errors import DataError, LabelsError, UsageError
from tacit.one_shot.floor import FLOORS, Floor, clusters, pca, waist, worth

COIN = SimpleNamespace(classes=2)
MAKERS = {"pca": pca, "waist": waist, "clusters": clusters}


def rows(count=6000, seed=0):
    """Three numbers of which the first two go together, and two columns of codes."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal((count, 3)).astype(np.float32)
    numbers[:, 1] = 0.9 * numbers[:, 0] + 0.4 * numbers[:, 1]
    codes = np.stack([rng.integers(5, size=count), rng.integers(200, size=count)], axis=1)
    return Inputs(torch.from_numpy(codes), torch.from_numpy(numbers), (5, 200))


def flipped(inputs, a=0.8, seed=1):
    label = inputs.numeric[:, 0].numpy() > 0
    rng = np.random.default_rng(seed)
    return (rng.random(len(inputs)) < np.where(label, a, 1 - a)).astype(np.uint8)


@pytest.mark.parametrize("name", FLOORS)
def test_embeddings_are_the_same_again_and_after_a_file(name, tmp_path):
    inputs = rows(2000)
    floor = MAKERS[name](inputs, 2)
    z = floor.embed(inputs)
    assert z.shape == (2000, 2)
    assert z.dtype == np.float32
    assert MAKERS[name](inputs, 2).digest == floor.digest != MAKERS[name](inputs, 2, seed=1).digest
    np.testing.assert_allclose(floor.embed(inputs[slice(10, 20)]), z[10:20], atol=1e-5)  # row by row
    floor.save(tmp_path)
    loaded = Floor.load(tmp_path)
    assert (loaded.name, loaded.width, loaded.digest) == (name, 2, floor.digest)
    assert np.array_equal(loaded.embed(inputs), z)


def test_the_first_component_is_what_columns_have_in_common():
    inputs = rows()
    z = pca(inputs, 3).embed(inputs)
    assert abs(np.corrcoef(z[:, 0], inputs.numeric[:, 0])[0, 1]) > 0.9
    assert np.all(np.diff(z.std(0)) < 0)


def test_components_that_there_are_not_are_zero():
    few = Inputs(torch.zeros(100, 0, dtype=torch.int64), torch.arange(100.0)[:, None], ())
    assert not pca(few, 3).embed(few)[:, 1:].any()


def test_clusters_are_numbered_from_0_to_63():
    inputs = rows()
    z = clusters(inputs, 2).embed(inputs)
    assert set(np.unique(z)) <= set(range(64))
    assert len(np.unique(z[:, 0])) > 40
    assert (z[:, 0] != z[:, 1]).mean() > 0.5


def test_worth_is_what_the_coin_leaves_of_it():
    inputs = rows(20_000)
    label = inputs.numeric[:, 0].numpy() > 0
    told = worth(label[:, None].astype(np.float32), flipped(inputs), COIN)
    assert abs(told.value - 0.6) < 0.06  # 2 * 0.8 - 1, and more than four standard errors
    assert told.high - told.low < 0.1
    nothing = worth(np.random.default_rng(2).random((20_000, 1)), flipped(inputs), COIN)
    assert abs(nothing.value) < 0.06


def test_worth_of_classes_and_of_numbers():
    inputs = rows(20_000)
    codes = inputs.categorical[:, 0].numpy()
    assert worth(codes[:, None].astype(np.uint8), codes, SimpleNamespace(classes=5)).value > 0.99
    number = SimpleNamespace(value_of=lambda sent: sent / 10)
    cells = np.round(inputs.numeric[:, 0].numpy() * 10)
    assert worth(inputs.numeric[:, :1].numpy(), cells, number).value > 0.9


def test_what_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(UsageError, match="1 to 128"):
        pca(rows(), 129)
    with pytest.raises(LabelsError, match="one label for each row"):
        worth(np.zeros((20, 1)), np.zeros(19), COIN)
    with pytest.raises(DataError, match="no label-free embedding"):
        Floor.load(tmp_path)
