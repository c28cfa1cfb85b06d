"""A random share of the rows: as many as it says, from everywhere, the same for one seed, and of every loader."""

import numpy as np
import pytest
import torch

from benchmarks import _official_files
from tacit.errors import UsageError
from tacit.lab.data import load
from tests.lab.data.official import write_adult, write_credit, write_isic

ROWS = 4000


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    """A file of Criteo's format whose second half is all clicks."""
    file = _official_files.write("criteo", tmp_path_factory.mktemp("clicks"), ROWS, seed=2)
    lines = file.read_text().splitlines()
    halves = [("0", lines[: ROWS // 2]), ("1", lines[ROWS // 2 :])]
    file.write_text("\n".join(label + line[1:] for label, some in halves for line in some) + "\n")
    return file.parent


def test_a_tenth_of_a_streamed_file_is_drawn_from_all_of_it(clicks):
    tenth = load("criteo", folder=clicks, sample=0.1)
    count = len(tenth.train) + len(tenth.test)
    assert abs(count - ROWS / 10) < 5 * (ROWS * 0.1 * 0.9) ** 0.5  # a fair draw is out of here once in two millions
    assert abs(tenth.share - 0.5) < 0.15, "from both halves"
    assert abs(len(tenth.test) / count - 0.1) < 5 * (0.1 * 0.9 / count) ** 0.5
    first = load("criteo", folder=clicks, rows=ROWS // 10)
    assert first.share == 0, "the first rows are of the first half alone"
    again, other = (load("criteo", folder=clicks, sample=0.1, seed=seed) for seed in (0, 1))
    assert torch.equal(tenth.train.features[0], again.train.features[0])
    assert len(other.train) != len(tenth.train) or not torch.equal(other.train.labels, tenth.train.labels)


def test_a_tenth_of_what_is_read_whole_has_a_tenth_of_the_rows(tmp_path):
    write_adult(tmp_path / "adult", 500, 0)
    write_credit(tmp_path / "credit", 500, 0)
    write_isic(tmp_path / "isic", 100, 0)
    for name, folder in (("flights", None), ("adult", tmp_path), ("credit", tmp_path), ("isic", tmp_path)):
        where = None if folder is None else folder / name
        everything, some = (load(name, folder=where, sample=share) for share in (None, 0.3))
        counts = [len(data.train) + len(data.test) for data in (everything, some)]
        assert counts[1] == round(0.3 * counts[0])
        assert 0 < some.share < 1


def test_a_sample_of_flights_is_drawn_from_the_whole_year():
    days = load("flights", sample=0.01).train.days
    assert len(np.unique(days.numpy() // 30)) == 13


@pytest.mark.parametrize("sample", [0.0, -0.1, 1.5])
@pytest.mark.parametrize("name", ["flights", "criteo"])
def test_a_share_that_is_none_is_refused(name, sample, clicks):
    with pytest.raises(UsageError, match="sample"):
        load(name, folder=clicks if name == "criteo" else None, sample=sample)


def test_data_without_a_sample_says_what_to_give_instead():
    with pytest.raises(UsageError, match="generated:criteo can be of any size: say how many rows"):
        load("generated:criteo", rows=100, sample=0.1)
    with pytest.raises(UsageError, match="fashion has no sample: take some of it with rows"):
        load("fashion", folder="/", sample=0.1)
