"""Avazu's format: days in order, hours as a category, and a header that must be right."""

import pytest
import torch

from benchmarks import _official_files
from tacit.errors import DataError
from tacit.lab.data import avazu
from tests.lab.data.official import sides

ROWS = 1500


@pytest.fixture
def file(tmp_path):
    return _official_files.write("avazu", tmp_path, ROWS, seed=5)


def test_days_are_counted_and_in_order(file):
    data = avazu.load(file.parent)
    assert len(data.train) + len(data.test) == ROWS
    for rows in (data.train, data.test):
        assert rows.days.unique().tolist() == list(range(10))
        assert (rows.days.diff() >= 0).all()
        assert rows.features[1].shape == (len(rows), 0)
    assert len(data.inputs.cardinalities) == 22
    assert data.inputs.cardinalities[0] <= 26, "hours of the day, not hours of all days"
    assert 0.1 < data.share < 0.25


def test_rows_out_of_order_are_sorted_by_day_and_else_stay(file):
    head, *lines = file.read_text().splitlines()
    shuffled = [lines[place] for place in torch.randperm(ROWS, generator=torch.Generator().manual_seed(0))]
    file.write_text("\n".join([head, *shuffled]) + "\n")
    data = avazu.load(file, test_share=0.2)
    chosen = sides(ROWS, test_share=0.2)
    wanted = [line.split(",") for line, side in zip(shuffled, chosen, strict=True) if side == 1]
    wanted.sort(key=lambda cells: cells[2][:6])  # by day; sorting is stable
    assert data.train.labels.tolist() == [float(cells[1]) for cells in wanted]


def test_a_header_without_a_column_is_refused(file):
    file.write_text(file.read_text().replace("device_ip", "device_up", 1))
    with pytest.raises(DataError, match=r"train.csv has no column device_ip.*avazu-ctr-prediction"):
        avazu.load(file)


def test_columns_in_another_order_and_new_ones_do_no_harm(file):
    before = avazu.load(file)
    cells = [line.split(",") for line in file.read_text().splitlines()]
    file.write_text("\n".join(",".join([*reversed(line), "new"]) for line in cells))
    after = avazu.load(file)
    assert torch.equal(before.train.features[0], after.train.features[0])
    assert torch.equal(before.test.days, after.test.days)


def test_a_bad_hour_is_a_bad_row(file):
    lines = file.read_text().splitlines()
    cells = lines[40].split(",")
    lines[40] = ",".join([*cells[:2], "14109905", *cells[3:]])
    file.write_text("\n".join(lines))
    with pytest.raises(DataError, match="line 41: hour is '14109905'"):
        avazu.load(file)


def test_rare_categories_share_the_unknown_code(file):
    device_ip = avazu.CATEGORIES.index("device_ip")
    every, few = avazu.load(file), avazu.load(file, min_count=3)
    assert few.inputs.cardinalities[device_ip] < every.inputs.cardinalities[device_ip]
    assert (every.train.features[0][:, device_ip] == 0).sum() == 0
    assert (few.train.features[0][:, device_ip] == 0).any()
    counts = torch.bincount(few.train.features[0][:, device_ip])
    assert counts[2:].min() >= 3
    assert (counts[2:].diff() <= 0).all(), "the frequent ones come first"
