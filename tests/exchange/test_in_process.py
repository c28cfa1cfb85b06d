"""One-shot training in one process: whatever holds the rows, whatever learns, and what comes of it."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn

import tacit
from tacit.align.encoder import Inputs
from tacit.errors import DataError, LabelsError, LimitError, TensorError, UsageError
from tacit.exchange.in_process import one_shot

from .companies import table

ROWS = table(rows=1200)
FEATURES, OWN, LATE = ROWS.select("wind", "rain", "port"), ROWS.select("plane"), ROWS["late"]
QUICK = {"limit": 0.8, "audit": False, "learner": "linear", "head": LogisticRegression()}


def trained(**options):
    return one_shot(**({"features": FEATURES, "labels": LATE, "own": OWN} | QUICK | options))


@pytest.fixture(scope="module", name="whole")
def _whole():
    told = []
    return trained(audit=True, numbers=2, learner="trees", head="trees", progress=lambda *of: told.append(of)), told


def test_the_features_help_and_both_sides_know_what_they_told(whole):
    result, told = whole
    assert result.figures["test_auc"] > result.alone["test_auc"] + 0.05
    assert result.label_bound.auc == pytest.approx(0.8)
    assert result.label_bound.rows == 960
    assert 0 < result.audit.worst <= 1
    assert {finding.column for finding in result.audit.findings} == {"wind", "rain", "port"}
    assert result.codes.shape == (1200, 2)
    parts = {part for part, _, _ in told}
    assert {"preparing", "growing trees", "decoders", "fitting the model"} <= parts


def test_rows_come_back_in_the_order_they_were_given(whole):
    result, _ = whole
    assert len(result.test) == 240
    assert set(np.flatnonzero(result.sent < 0)) == set(result.test)
    assert np.array_equal(result.embed(FEATURES), result.codes)
    assert result.predict(features=FEATURES, own=OWN).to_numpy() == pytest.approx(result.scores, abs=1e-9)
    some = np.array([5, 900, 7])
    assert result.predict(features=FEATURES[some], own=OWN[some]).to_numpy() == pytest.approx(
        result.scores[some], abs=1e-9
    )


def test_it_fits_on_one_screen(whole):
    text = str(whole[0])
    assert len(text.splitlines()) <= 24
    assert max(map(len, text.splitlines())) <= 110
    assert "at most 0.800" in text
    assert "test auc" in text


def test_the_same_seed_and_secret_give_the_same_and_flips_are_flips():
    first, again, other = trained(secret=bytes(32)), trained(secret=bytes(32)), trained(secret=bytes(31) + b"1")
    assert np.array_equal(first.scores, again.scores)
    assert np.array_equal(first.codes, again.codes)
    assert not np.array_equal(first.sent, other.sent)
    train = first.sent >= 0
    kept = (first.sent == LATE.to_numpy())[train].mean()
    assert abs(kept - 0.8) < 0.05  # four standard deviations


def test_without_a_secret_a_fresh_one_is_drawn_and_can_be_passed_on():
    first, other = trained(), trained()
    assert first.secret != other.secret
    assert len(first.secret) == 32
    assert not np.array_equal(first.sent, other.sent)
    assert np.array_equal(first.sent, trained(secret=first.secret).sent)


def _pandas():
    """As much of a pandas table as is looked at; pandas need not be installed."""

    class Series:
        def __init__(self, values):
            self.values = values

        def to_numpy(self):
            return self.values

        def isna(self):
            return np.array([value is None for value in self.values])

    class Frame(dict):
        dtypes = ()
        columns = property(lambda self: list(self.keys()))

        def __len__(self):
            return len(LATE)

    return Frame({name: Series(FEATURES[name].to_numpy()) for name in FEATURES.columns})


def test_tables_of_pandas_and_of_polars_are_one():
    one, other = trained(features=_pandas(), secret=bytes(32)), trained(secret=bytes(32))
    assert np.array_equal(one.scores, other.scores)


NUMBERS = FEATURES.select("wind", "rain").to_numpy()


@pytest.mark.parametrize(
    "features",
    [
        NUMBERS,
        torch.from_numpy(NUMBERS),
        Inputs(torch.zeros(1200, 1, dtype=torch.int64), torch.from_numpy(NUMBERS).float(), (1,)),
        np.where(np.arange(1200)[:, None] % 10, NUMBERS, np.nan),
    ],
    ids=["array", "tensor", "inputs", "with gaps"],
)
def test_arrays_tensors_and_inputs(features):
    result = trained(features=features)
    assert result.figures["test_auc"] > result.alone["test_auc"]
    assert np.isfinite(result.scores).all()


@pytest.fixture(autouse=True)
def _same_weights():
    torch.manual_seed(0)


class Units(nn.Module):
    """Numbers alone, or codes and numbers."""

    def __init__(self, inputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 16), nn.ReLU())

    def forward(self, *tensors):
        return self.layers(torch.cat([each.float() for each in tensors], dim=1))


def test_modules_on_either_side():
    numbers = trained(features=NUMBERS, learner=Units(2), head=Units(2))  # a number of its own and a cell
    assert numbers.figures["test_auc"] > numbers.alone["test_auc"]
    assert numbers.predict(features=NUMBERS, own=OWN) == pytest.approx(numbers.scores, abs=1e-6)
    codes = trained(learner=Units(3), own=FEATURES.select("port"), head=Units(2))
    assert codes.codes.shape == (1200, 1)
    with pytest.raises(TensorError, match="hidden units"):
        trained(features=NUMBERS, learner=nn.Flatten(0))


def test_estimators_on_either_side_are_copied():
    mine = LogisticRegression()
    result = trained(learner=mine, head=mine)
    assert result.figures["test_auc"] > result.alone["test_auc"]
    assert not hasattr(mine, "coef_")


def test_three_classes_and_numbers():
    three = trained(labels=ROWS["how"], classes=3, odds=6.0)
    assert three.scores.shape == (1200, 3)
    assert three.figures["test_auc"] > three.alone["test_auc"]
    number = trained(labels=ROWS["delay"], classes=None, low=-6, high=6, odds=20.0, limit=0.9, head=LinearRegression())
    assert number.figures["test_r2"] > number.alone["test_r2"]


def test_columns_that_are_withheld_never_reach_the_learner():
    result = trained(withheld=["wind", "port"])
    assert result.bottom.cardinalities == ()
    changed = FEATURES.with_columns(wind=pl.lit(0.0))
    assert np.array_equal(result.embed(changed), result.codes)


def test_a_limit_that_nothing_holds_sends_nothing():
    with pytest.raises(LimitError, match="nothing was sent") as told:
        trained(feature_limit=0.01, audit=True)
    assert "neither fewer bits nor columns hold" in str(told.value)
    assert re.search(r"decoders recovered up to [01]\.\d+ of '(wind|rain|port)", str(told.value))


def test_without_labels_the_embedding_is_the_same_whatever_they_are():
    result = trained(send_labels=False, numbers=2, learner="trees")
    other = trained(send_labels=False, numbers=2, learner="trees", labels=1 - LATE)
    assert np.array_equal(result.codes, other.codes)
    assert (result.sent == -1).all()
    assert (result.label_bound.auc, result.label_bound.odds) == (0.5, 1.0)
    assert result.figures["test_auc"] > result.alone["test_auc"] + 0.02
    assert np.array_equal(result.embed(FEATURES), result.codes)
    assert "no label, and nothing that depends on one" in str(result)
    mine = trained(send_labels=False, numbers=2, learner=PCA(2), features=NUMBERS)
    assert mine.codes.shape == (1200, 2)
    with pytest.raises(UsageError, match="fit and transform"):
        trained(send_labels=False, learner=LogisticRegression())


@pytest.mark.parametrize(
    ("options", "kind", "match"),
    [
        ({"bits": 0}, UsageError, "bits"),
        ({"numbers": 0}, UsageError, "numbers"),
        ({"smallest": 0.2}, UsageError, "smallest"),
        ({"limit": 0.5}, UsageError, "limit"),
        ({"odds": 1.0}, UsageError, "odds"),
        ({"odds": 21.0}, UsageError, "odds"),
        ({"classes": 3, "labels": ROWS["how"]}, UsageError, "odds must be set"),
        ({"labels": ROWS["how"]}, LabelsError, "from 0 to 1"),
        ({"rare": "negative"}, LabelsError, "rare"),
        ({"rare": "both"}, UsageError, "rare"),
        ({"classes": None}, UsageError, "low and high"),
        ({"labels": LATE[:9]}, TensorError, "one label for each"),
        ({"labels": np.zeros((1200, 2))}, DataError, "one for each row"),
        ({"withheld": ["mind"]}, UsageError, "mind"),
        ({"secret": b"short"}, UsageError, "32"),
        ({"feature_limit": 0.3}, UsageError, "audit"),
        ({"features": [["a"]] * 1200}, TensorError, "DataFrame"),
        ({"features": np.zeros((1200, 1, 8, 8))}, TensorError, "one row of numbers"),
        ({"test_share": 1.0}, UsageError, "test_share"),
        ({"learner": "forest"}, UsageError, "forest"),
        ({"head": "forest"}, UsageError, "forest"),
    ],
)
def test_bad_input_is_one_clear_error(options, kind, match):
    with pytest.raises(kind, match=match):
        trained(**options)


def test_the_package_is_the_function():
    result = tacit.one_shot(**({"features": FEATURES, "labels": LATE} | QUICK))
    assert result.alone == {"test_auc": 0.5}  # there are no own columns
    assert result.figures["test_auc"] > 0.6
