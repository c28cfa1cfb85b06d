"""A conjunction that cells reveal is found by a tree on known rows, and judged on rows that it knew nothing of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.align.encoder import Columns, Inputs
from tacit.exchange.release import attack_release

ROWS = 20_000
COLUMNS = Columns(("port", "day", "kind"), ("wind", "rain", "age"))


def table(seed=0):
    draw = np.random.default_rng(seed)
    codes = np.stack([draw.integers(0, size, ROWS) for size in (5, 7, 3)], axis=1)
    return Inputs(torch.from_numpy(codes), torch.from_numpy(draw.normal(size=(ROWS, 3)).astype(np.float32)), (5, 7, 3))


def segment(rows, attributes):
    """Rows that have all of so many attributes: of four about one in 23."""
    port, day, kind = rows.categorical.numpy().T
    wind = rows.numeric[:, 0].numpy()
    conditions = [np.isin(port, [1, 3]), wind > -0.3, kind != 1, np.isin(day, [0, 2, 4, 5])]
    return np.logical_and.reduce(conditions[:attributes])


@pytest.mark.parametrize("attributes", [2, 3, 4])
@pytest.mark.parametrize("cell", [0, 3])
def test_a_segment_with_a_cell_of_its_own_is_read_whole_and_no_column_is(attributes, cell):
    rows = table()
    codes = np.random.default_rng(1).integers(1, 8, ROWS)
    codes[codes == cell] = 1  # others never have it
    codes[segment(rows, attributes)] = cell
    found = attack_release(codes.astype(np.uint8)[:, None], rows, COLUMNS, train=ROWS, others=False)
    assert found.conjunction.read.high > 0.9
    names = set(found.conjunction.column.split(" & "))
    assert names == set(["port", "wind", "kind", "day"][:attributes])
    assert found.worst >= found.conjunction.read.high
    alone = max(one.read.high for one in found.findings if " & " not in one.column)
    assert alone < 0.8
    assert not found.holds(0.85)


def test_cells_that_say_nothing_reveal_no_segment():
    """Nothing is read of at most 23 segments: above 0.2 by chance alone less than once in a thousand tables."""
    codes = np.random.default_rng(2).integers(0, 8, ROWS).astype(np.uint8)[:, None]
    found = attack_release(codes, table(3), COLUMNS, train=ROWS, others=False)
    assert found.conjunction is None or found.conjunction.read.high < 0.2


def test_of_one_column_there_is_no_conjunction():
    rows = Inputs(torch.zeros(ROWS, 0, dtype=torch.int64), table().numeric[:, :1], ())
    codes = (rows.numeric[:, 0].numpy() > 0).astype(np.uint8)[:, None]
    assert attack_release(codes, rows, Columns((), ("wind",)), train=ROWS, others=False).conjunction is None
