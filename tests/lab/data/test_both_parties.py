"""Criteo and Avazu as in the papers: both parties see all columns, and the label party runs the wide part on them."""

import pytest
import torch

from benchmarks import _official_files
from tacit.errors import DataError
from tacit.lab.data import load
from tacit.lab.data.rows import Data, Rows, Table
from tacit.lab.exchanges import world_of
from tacit.lab.stack.network import network_for
from tacit.lab.stack.training import Stack
from tacit.lab.sweeping.settings import Setting

COLUMNS = {"criteo": (26, 13), "avazu": (22, 0)}


@pytest.fixture(params=["criteo", "avazu", "generated:criteo", "generated:avazu"])
def data(request, tmp_path):
    name = request.param
    if name.startswith("generated"):
        return load(name, rows=600)
    return load(name, folder=_official_files.write(name, tmp_path, 600, seed=1).parent)


def test_the_wide_part_is_linear_in_all_input_features(data):
    """Against one weight for each code and each number, added up by hand."""
    categories, numeric = COLUMNS[data.name.removeprefix("generated:")]
    assert len(data.inputs.own_cardinalities) == categories
    assert data.inputs.own_numeric == numeric
    bottom, top = network_for(data.inputs, width=16).build(0)
    rows = data.test[:20]
    z = bottom(*rows.features)
    state = top.state_dict()
    weights = state["wide.weight"][0]
    wanted = top.logit(top.run(z)).squeeze(1) + state["wide.bias"]
    start = 0
    for column, cardinality in enumerate(data.inputs.cardinalities):
        values = state["own.table.weight"][start : start + cardinality, 0]
        wanted = wanted + weights[column] * values[rows.features[0][:, column].long()]
        start += cardinality
    wanted = wanted + rows.features[1] @ weights[categories:]
    torch.testing.assert_close(top(z, *rows.own), wanted)


def test_what_both_see_is_there_once(data):
    for rows in (data.train, data.test, data.train[torch.arange(7)], data.to("cpu").train):
        assert rows.shared
        assert all(a is b for a, b in zip(rows.own, rows.features, strict=True))


def test_a_stack_trains_the_wide_part(data):
    """Without noise the wide part's weights move at every layer of the label party, its table's rows too."""
    stack = Stack(data.train, network_for(data.inputs, width=8), [Setting("none")], batch_size=64)
    before = stack.top.table.weight.clone()
    stack.advance(stack.plan(0))
    seen = (data.train.features[0] + stack.top.columns.offsets).unique()
    assert bool((stack.top.table.weight != before).any(-1).squeeze(1)[seen].any())
    unseen = torch.ones(len(before), dtype=torch.bool)
    unseen[seen] = False
    assert torch.equal(stack.top.table.weight[unseen], before[unseen])


def test_in_one_exchange_the_label_party_keeps_its_labels_alone(data):
    assert world_of(data).own.numeric.shape[1] + world_of(data).own.categorical.shape[1] == 0


def test_pictures_have_no_columns_to_share():
    with pytest.raises(DataError, match="pictures"):
        load("generated:isic", rows=20).shared()


def test_other_columns_of_the_label_party_are_not_shared():
    codes, numbers = torch.zeros(4, 1, dtype=torch.int64), torch.zeros(4, 2)
    rows = Rows((codes, numbers), (codes, numbers.clone()), torch.tensor([0.0, 1.0, 0.0, 1.0]))
    assert not rows.shared
    assert not Rows((codes, numbers), (), rows.labels).shared
    assert Data("own", rows, rows, Table((3,), 2, (3,), 2)).shared().train.shared
