"""Training by day: each day is tested before it is trained on."""

import pytest
import torch

from papers.daily import daily
from tacit.errors import DataError, UsageError
from tacit.lab.data.rows import Data, Rows, Table
from tacit.lab.days import by_day
from tacit.lab.stack.network import network_for
from tacit.lab.sweeping.settings import Setting

SIZES = {"cut": 1, "layers": 2, "width": 8}
NONE = (Setting("none"),)


def stream(days=4, each=96, *, flip_last=False, with_days=True):
    """Rows whose label can be read from a number; on the last day it may be the other way round."""
    draw = torch.Generator().manual_seed(3)
    rows = days * each
    numbers = torch.randn(rows, 2, generator=draw)
    of = torch.arange(rows) // each
    labels = (numbers[:, 0] + 0.3 * torch.randn(rows, generator=draw) > 0.5).float()
    if flip_last:
        labels = torch.where(of == days - 1, 1 - labels, labels)
    codes = torch.randint(5, (rows, 1), generator=draw, dtype=torch.int32)
    made = Rows((codes, numbers), (), labels, of if with_days else None)
    return Data("stream", made, made[:8], Table((5,), 2))


def trained(data, settings=NONE, **options):
    network = network_for(data.inputs, **SIZES)
    return by_day(data, settings, network=network, **{"batch_size": 16, "learning_rate": 0.02, **options})


def test_a_row_for_each_replica_and_day_and_no_model_on_the_first():
    table = trained(stream(), [Setting("none"), Setting("marvell", "scale", 4.0), Setting("none", seed=1)])
    assert table.height == 3 * 4
    assert table["day"].to_list() == [0, 1, 2, 3] * 3
    assert table["step"].to_list() == [6, 12, 18, 24] * 3
    first = table.filter(table["day"] == 0)
    assert first["test_auc"].null_count() == 3
    assert table.filter(table["day"] > 0)["test_auc"].null_count() == 0
    assert {"norm@cut", "norm@cut low", "hint@cut", "norm@layer1 q95"} <= set(table.columns)
    assert table.filter(table["protection"] == "none")["power"].max() == 0


def test_a_day_is_tested_with_what_the_days_before_it_taught():
    usual, turned = (trained(stream(flip_last=flip)) for flip in (False, True))
    assert usual["test_auc"][3] > 0.85
    assert turned["test_auc"][3] < 0.15  # a model that had seen the day would know that it is the other way round
    assert usual["test_auc"][:3].to_list() == turned["test_auc"][:3].to_list()


def test_a_setting_planned_for_visits_has_a_line_of_its_own():
    settings = [
        Setting("matched", "leak_auc", 0.6, others, seed) for seed in (0, 1) for others in ((), (("visits", 5),))
    ]
    numbers = daily([("matched", "leak_auc", 0.6)], ("norm",)).numbers(trained(stream(), settings), "stream")
    names = numbers["setting"].unique(maintain_order=True).to_list()
    assert names == ["matched AUC=0.6", "matched AUC=0.6, visits=5"]
    assert numbers["seeds"].to_list() == [2] * 8


def test_days_can_be_taken_together():
    table = trained(stream(days=5), period=2)
    assert table["day"].to_list() == [0, 2, 4]


def test_the_same_seed_gives_the_same_stream_and_another_one_another():
    one, same, other = (trained(stream(), [Setting("iso", "t", 1.0, seed=seed)]) for seed in (5, 5, 6))
    assert one["norm@cut"].to_list() == same["norm@cut"].to_list()
    assert one["norm@cut"].to_list() != other["norm@cut"].to_list()


def test_data_without_days_and_days_without_a_batch_are_refused():
    with pytest.raises(DataError, match="has no days"):
        trained(stream(with_days=False))
    with pytest.raises(UsageError, match="4 of 4 days have fewer than 128 rows"):
        trained(stream(), batch_size=128)
    with pytest.raises(UsageError, match="period = 0"):
        trained(stream(), period=0)
