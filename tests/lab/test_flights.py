"""The shipped tables of flights and the tensors that are made of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder

from tacit.errors import DataError, UsageError
from tacit.lab.data import flights
from tacit.lab.data.rows import Data, Rows

# Everything that is known before a flight leaves, and the label. A new column needs a new line here, with a reason.
SCHEDULE = {"flight_id", "origin", "month", "day", "weekday", "hour", "minute", "departures"}
WEATHER = {"temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"}
ROUTE = {"flight_id", "carrier", "dest", "distance", "block"}
AIRCRAFT = {"built", "maker", "kind", "engine", "seats"}


class Tables(NamedTuple):
    airport: pl.DataFrame
    airline: pl.DataFrame


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables(flights.airport(), flights.airline())


@pytest.fixture(scope="module")
def data() -> Data:
    return flights.load(by_day=False)


def ids(limit: int | None = None, seed: int = 0) -> list[np.ndarray]:
    """Of the training rows and of the test rows, in their order."""
    table, *parts = flights.joint(flights.common()).divided(limit, seed)
    return [table["flight_id"].to_numpy()[part] for part in parts]


def parties(data: Data) -> list[tuple[tuple[torch.Tensor, ...], tuple[int, ...]]]:
    """Codes and numbers of each party in each part, and how many codes its columns have."""
    inputs = data.inputs
    sides = (data.train, data.test)
    return [
        *((rows.features, inputs.cardinalities) for rows in sides),
        *((rows.own, inputs.own_cardinalities) for rows in sides),
    ]


# --- the shipped files -----------------------------------------------------------------------------------------------


def test_columns_are_those_known_before_departure(tables):
    assert set(tables.airport.columns) == SCHEDULE | WEATHER
    assert set(tables.airline.columns) == ROUTE | AIRCRAFT | {"late"}


def test_files_are_small_and_tables_large(tables):
    size = sum(path.stat().st_size for path in flights.FOLDER.glob("*.parquet"))
    assert size < 2_900_000
    assert tables.airport.height == 317_697
    assert tables.airline.height == 314_233


def test_ids_are_unique_sorted_and_partly_one_sided(tables):
    ids = [set(table["flight_id"]) for table in (tables.airport, tables.airline)]
    for table, known in zip((tables.airport, tables.airline), ids, strict=True):
        assert len(known) == table.height
        assert table["flight_id"].is_sorted()
    both = ids[0] & ids[1]
    assert 0.03 < 1 - len(both) / len(ids[0]) < 0.05  # 4% of the airport's flights
    assert 0.02 < 1 - len(both) / len(ids[1]) < 0.04  # 3% of the airline's


def test_being_on_one_side_only_tells_nothing_of_the_label(tables):
    """Both shares of late flights agree within four standard errors (a false alarm in 16,000 for a fair hash)."""
    alone = tables.airline.join(tables.airport, on="flight_id", how="anti")["late"]
    shared = tables.airline.join(tables.airport, on="flight_id", how="semi")["late"]
    share = shared.sum() / len(shared)
    assert abs(alone.sum() / len(alone) - share) < 4 * (share * (1 - share) / len(alone)) ** 0.5


def test_ids_follow_the_schedule_within_the_year(tables):
    when = tables.airport.select(
        pl.col("month").cast(pl.Int32) * 10_000 + pl.col("day").cast(pl.Int32) * 100 + pl.col("hour")
    )
    assert when.to_series().is_sorted()


def test_share_of_late_flights(tables):
    assert 0.085 < tables.airline["late"].mean() < 0.0875


def test_scheduled_block_times_are_plausible(tables):
    """A zone mistaken by an hour would make short flights negative (so a day long) or faster than sound."""
    speed = tables.airline.select(
        pl.col("distance") / (pl.col("block") / 60)
    ).to_series()  # miles an hour, gate to gate
    assert tables.airline["block"].is_between(20, 720).all()
    assert speed.max() < 600


# --- tensors ---------------------------------------------------------------------------------------------------------


def test_shapes_and_types(data):
    assert len(data.train) + len(data.test) == 304_982
    assert abs(len(data.test) / 304_982 - 0.2) < 0.004
    for part in (data.train, data.test):
        assert part.labels.dtype == torch.float32
        assert set(part.labels.unique().tolist()) == {0.0, 1.0}
        assert part.labels.shape == (len(part),)
        assert [x.shape for x in part.features] == [(len(part), 5), (len(part), 18)]
        assert [x.shape for x in part.own] == [(len(part), 5), (len(part), 5)]
    for (codes, numbers), _ in parties(data):
        assert codes.dtype == torch.int64
        assert numbers.dtype == torch.float32


def test_rows_of_both_parties_and_labels_belong_to_one_flight(tables, data):
    """Rebuilds some columns from the shipped tables by id, each on its own side."""
    known = pl.DataFrame({"flight_id": ids()[1].astype(np.uint32)})
    here = known.join(tables.airport, on="flight_id", how="left", maintain_order="left")
    there = known.join(tables.airline, on="flight_id", how="left", maintain_order="left")
    assert np.array_equal(there["late"].to_numpy(), data.test.labels.numpy() == 1)
    assert np.array_equal(here["month"].to_numpy(), data.test.features[0][:, 1].numpy())
    assert there["carrier"].rank("dense").to_list() == data.test.own[0][:, 0].tolist()
    assert np.corrcoef(there["distance"].to_numpy(), data.test.own[1][:, 0].numpy())[0, 1] > 0.999999


def test_numbers_are_finite_and_codes_within_their_cardinality(data):
    for (codes, numbers), cardinalities in parties(data):
        assert torch.isfinite(numbers).all()
        assert (codes >= 0).all()
        assert (codes.amax(dim=0) < torch.tensor(cardinalities)).all()


def test_numbers_are_standardised_by_the_training_rows_alone(data):
    for _, numbers in (data.train.features, data.train.own):
        assert numbers.double().mean(dim=0).abs().max() < 1e-6  # a missing value is the mean, so it stays
        present = [column[column != 0].double() for column in numbers.T]
        assert all(abs(column.square().mean() - 1) < 1e-5 for column in present)
    assert data.test.features[1].double().mean(dim=0).abs().max() > 1e-4


def test_test_rows_have_no_influence_on_training_tensors(tables):
    """The test flights get absurd weather, a new origin and a new carrier; nothing in training may move."""
    before = flights.load(rows=20_000, by_day=False)
    for_test = pl.col("flight_id").is_in(ids(20_000)[1].tolist())
    airport = tables.airport.with_columns(
        temp=pl.when(for_test).then(pl.lit(1e6, pl.Float32)).otherwise("temp"),
        origin=pl.when(for_test).then(pl.lit("AAA")).otherwise("origin"),
    )
    airline = tables.airline.with_columns(carrier=pl.when(for_test).then(pl.lit("00")).otherwise("carrier"))
    changed = flights.with_inputs(airport.join(airline, on="flight_id", maintain_order="left"))
    after = flights.joint(changed).data("flights", 20_000, 0)
    trained = [(*data.train.features, *data.train.own) for data in (before, after)]
    for old, new in zip(*trained, strict=True):
        assert torch.equal(old, new)
    assert before.inputs == after.inputs
    assert not torch.equal(before.test.features[1], after.test.features[1])
    assert (after.test.features[0][:, 0] == 0).all(), "an origin that training never saw is code 0"
    assert (after.test.own[0][:, 0] == 0).all(), "a carrier that training never saw is code 0"


def test_the_same_seed_gives_the_same_rows_and_another_one_gives_others():
    first, again = (flights.load(rows=3000, seed=5, by_day=False) for _ in range(2))
    assert torch.equal(first.train.features[1], again.train.features[1])
    assert np.array_equal(ids(3000, 5)[0], ids(3000, 5)[0])
    assert set(ids(3000, 5)[1]) != set(ids(3000, 6)[1])


def test_a_limit_keeps_each_flight_on_its_side_of_the_split():
    small, whole = ids(10_000), ids()
    assert sum(map(len, small)) == 10_000
    for some, every in zip(small, whole, strict=True):
        assert set(some) <= set(every)


def test_rows_are_not_in_the_order_of_the_schedule():
    """Neighbours share a day and its weather, so an unshuffled run over the year would be a biased one."""
    place = torch.from_numpy(ids()[0].astype(np.float64))
    assert abs(torch.corrcoef(torch.stack([place[:-1], place[1:]]))[0, 1]) < 0.01


def test_inputs_of_a_partys_own_table_are_those_of_the_joined_one(tables):
    joined = flights.with_inputs(tables.airport.join(tables.airline, on="flight_id", maintain_order="left"))
    sides = ((tables.airport, flights.AIRPORT_INPUTS), (tables.airline, flights.AIRLINE_INPUTS))
    for table, columns in sides:
        alone = flights.with_inputs(table)
        assert set(columns.names) <= set(alone.columns)
        common = joined.select("flight_id").join(alone, on="flight_id", how="left", maintain_order="left")
        assert common.select(columns.names).equals(joined.select(columns.names))


# --- mistakes, and what can be learnt --------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, -5])
def test_impossible_wishes_are_refused(rows):
    with pytest.raises(UsageError, match=f"rows is {rows}"):
        flights.load(rows=rows)


def test_too_few_rows_for_two_parts():
    with pytest.raises(DataError, match="use more rows"):
        flights.load(rows=1)


@pytest.mark.parametrize("content", [None, b"", b"not a table", b"PAR1 cut short PAR1"])
def test_a_missing_or_broken_file_is_named_with_the_next_act(tmp_path, monkeypatch, content):
    monkeypatch.setattr(flights, "FOLDER", tmp_path)
    if content is not None:
        (tmp_path / "airport.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"airport\.parquet.*scripts/make_flights\.py"):
        flights.load()


def logistic_auc(data: Data, *sides: str) -> float:
    """Test AUC of a logistic regression on one-hot codes and numbers of the named parties."""

    def inputs(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        codes, numbers = zip(*(getattr(rows, side) for side in sides), strict=True)
        return np.hstack(codes), np.hstack(numbers)

    (codes, numbers), (test_codes, test_numbers) = inputs(data.train), inputs(data.test)
    encoder = OneHotEncoder(handle_unknown="ignore").fit(codes)
    model = LogisticRegression(C=0.1, tol=1e-3, max_iter=1000)
    model.fit(sparse.hstack([encoder.transform(codes), numbers]).tocsr(), data.train.labels.numpy())
    scores = model.decision_function(sparse.hstack([encoder.transform(test_codes), test_numbers]).tocsr())
    return float(roc_auc_score(data.test.labels.numpy(), scores))


def test_both_parties_together_know_more_than_each_alone(data):
    """Measured on 60,999 test flights: airport 0.769, airline 0.601, both 0.784, each give or take 0.004."""
    airport, airline = logistic_auc(data, "features"), logistic_auc(data, "own")
    both = logistic_auc(data, "features", "own")
    assert 0.75 < airport < 0.79
    assert 0.58 < airline < 0.63
    assert both > airport + 0.01
