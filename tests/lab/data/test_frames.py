"""One's own frames as a data set: who has what, encoded by the training rows alone, and what is refused."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
import torch

from tacit.errors import DataError, UsageError
from tacit.lab import sweep
from tacit.lab.data.rows import Data
from tacit.lab.sweeping.settings import Setting

ROWS = 600


@pytest.fixture
def frames():
    draw = np.random.default_rng(0)
    age = draw.normal(40, 10, ROWS)
    features = pl.DataFrame(
        {
            "place": np.arange(ROWS),
            "site": draw.choice(["a", "b", "c"], ROWS),
            "age": pl.Series(age).set(pl.Series(draw.random(ROWS) < 0.1), None),
            "member": draw.random(ROWS) < 0.5,
        }
    )
    own = pl.DataFrame({"basket": draw.integers(0, 100, ROWS), "site": draw.choice(["x", "y"], ROWS)})
    return features, own, pl.Series((age + draw.normal(0, 5, ROWS) > 45).astype(int))


def test_every_column_goes_to_its_party_encoded_by_the_training_rows(frames):
    features, own, labels = frames
    data = Data.from_frames("visits", features, labels, own=own, test_share=0.25, seed=3)
    assert data.inputs.cardinalities == (4, 3), "three sites and two truth values, and what is unknown"
    assert (data.inputs.numeric, data.inputs.own_cardinalities, data.inputs.own_numeric) == (2, (3,), 1)
    assert abs(len(data.test) / ROWS - 0.25) < 0.09  # five standard errors
    place = torch.cat([data.train.features[1][:, 0], data.test.features[1][:, 0]]).argsort().argsort().numpy()
    train, test = place[: len(data.train)], place[len(data.train) :]  # the rows' own numbers, in the order of the data
    for rows, part in ((train, data.train), (test, data.test)):
        assert part.labels.tolist() == labels[rows].to_list()
        for codes, column in (
            (part.features[0][:, 0], features["site"]),
            (part.features[0][:, 1], features["member"]),
            (part.own[0][:, 0], own["site"]),
        ):
            pairs = set(zip(codes.tolist(), column[rows].to_list(), strict=True))
            assert len(pairs) == len({code for code, _ in pairs}) == column.n_unique()
        for values, column in ((part.features[1][:, 1], features["age"]), (part.own[1][:, 0], own["basket"])):
            known = column[train].drop_nulls().cast(pl.Float64)
            wanted = ((column[rows] - known.mean()) / known.std(ddof=0)).fill_null(0.0)
            torch.testing.assert_close(values, torch.tensor(wanted.to_list()).float(), atol=1e-5, rtol=1e-5)


def test_days_are_counted_and_in_order(frames):
    features, _, labels = frames
    days = pl.Series([date(2024, 3, 1) + timedelta(days=place % 7) for place in range(ROWS)])
    for given in (days, days.cast(pl.Datetime), pl.Series(range(ROWS)) % 7 + 19_000):
        train = Data.from_frames("visits", features, labels, days=given).train
        assert train.days.unique().tolist() == list(range(7))
        assert bool((train.days.diff() >= 0).all())


def test_a_sweep_runs_over_it(frames):
    features, own, labels = frames
    data = Data.from_frames("visits", features.drop("place"), labels, own=own)
    found = sweep(data, settings=[Setting("none")], epochs=2, batch_size=64, thorough=False, network={"width": 8})
    assert found.whole["cosine@cut"][0] > 0.7, "without protection"
    assert found.metadata["recipe"]["data"] == "visits"


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"labels": [0, 2] * (ROWS // 2)}, DataError, "labels are 0 or 1"),
        ({"labels": [0, None] * (ROWS // 2)}, DataError, "labels are 0 or 1"),
        ({"labels": [0, 1]}, DataError, "features has 600 rows and there are 2 labels"),
        ({"own": pl.DataFrame({"x": [1.0]})}, DataError, "own has 1 rows"),
        ({"own": pl.DataFrame({"when": [date(2024, 1, 1)] * ROWS})}, DataError, "'when' of own is of Date: cast it"),
        ({"test_share": 1.0}, UsageError, "test_share is 1.0"),
    ],
)
def test_what_can_not_be_used_is_named(frames, change, error, said):
    features, own, labels = frames
    with pytest.raises(error, match=said):
        Data.from_frames("visits", features, **{"labels": labels, "own": own, **change})
