"""Fashion-MNIST as a problem of two classes."""

import pytest
import torch

from tacit.errors import DataError, UsageError
from tacit.lab.data import fashion
from tacit.lab.data.rows import Pictures
from tests.lab.data.official import save_fashion


@pytest.fixture
def folder(tmp_path):
    save_fashion(fashion.generated(180, 0, test_rows=30), tmp_path)
    return tmp_path


def test_one_class_against_the_others(folder):
    data, real = fashion.load(folder), fashion.pictures(folder)
    assert (len(data.train), len(data.test)) == (180, 30)
    assert data.inputs == Pictures(1, 28)
    assert data.train.features[0].dtype == torch.uint8
    assert torch.equal(data.train.features[0].float() / 255, real.train.squares)
    assert torch.equal(data.test.labels, (real.test.labels == 9).float())


def test_fewer_rows_and_wrong_options(folder):
    data = fashion.load(folder, rows=70)
    assert (len(data.train), len(data.test)) == (60, 10)
    with pytest.raises(UsageError, match="rows is 3"):
        fashion.load(folder, rows=3)
    with pytest.raises(UsageError, match="rows is 3"):
        fashion.made_up(3, 0)
    with pytest.raises(DataError, match="apt-get install dataset-fashion-mnist"):
        fashion.load(folder / "nowhere")
