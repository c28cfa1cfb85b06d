"""New York flights 2013: an airport knows schedule and weather, an airline knows its aircraft and who came late.

The tables lie beside this file (CC0, see the README there). A flight counts as late when it arrives an hour or
more behind its schedule. Every feature is known before the flight leaves. Rows of the data set know their day, counted
from 0 on 1 January, and are sorted by it, so that a model can be trained day by day. Where gust, pressure or the age of
the aircraft is missing, a column of its own says so.

>>> data = load(rows=1000)
>>> codes, numbers = data.train.features
>>> numbers.dtype, len(data.train) + len(data.test)
(torch.float32, 1000)
"""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl

from tacit.align.tables import Columns
from tacit.errors import DataError
from tacit.lab.data.joined import Joint
from tacit.lab.data.reading import DAY
from tacit.lab.data.rows import Data

FOLDER = Path(__file__).parent
"""Where the shipped tables lie."""

MINUTES = (-30, 180)
"""What delays in minutes are clipped to."""

AIRPORT_INPUTS = Columns(
    categorical=("origin", "month", "day", "weekday", "hour"),
    numeric=(
        *("hour", "clock", "year_sine", "year_cosine", "departures"),
        *("temp", "dewp", "humid", "wind_east", "wind_north", "wind_speed", "wind_gust"),
        *("precip", "wet", "pressure", "visib"),
    ),
    flagged=("wind_gust", "pressure"),
)
"""What the airport's half of the model sees of a table that `with_inputs` made."""

AIRLINE_INPUTS = Columns(
    categorical=("carrier", "dest", "maker", "kind", "engine"),
    numeric=("distance", "block", "age", "seats"),
    flagged=("age",),
)
"""What the airline's half of the model sees of a table that `with_inputs` made."""


def load(*, rows: int | None = None, sample: float = 1.0, seed: int = 0, by_day: bool = True) -> Data:
    """The flights that both parties know, joined in the clear.

    Test flights are drawn at random, as the papers do, so a test flight has training flights of the same day, whose
    delays tell of that day: the test AUC compares protections, it is no forecast for a day that nobody has seen.

    Args:
        by_day: whether rows know their day and are sorted by it; else they come in an order drawn from the seed.
    """
    table = common()
    if by_day:
        table = table.with_columns((pl.date(2013, "month", "day").dt.ordinal_day() - 1).cast(pl.Int64).alias(DAY))
    return joint(table).data("flights", rows, seed, sample=sample)


def common() -> pl.DataFrame:
    """The flights that both parties know, joined in the clear, with all inputs."""
    return with_inputs(airport().join(airline(), on="flight_id", how="inner", maintain_order="left"))


def joint(table: pl.DataFrame) -> Joint:
    """Such a table as both parties' columns."""
    return Joint(table, AIRPORT_INPUTS, AIRLINE_INPUTS, key="flight_id", label="late")


def with_inputs(table: pl.DataFrame) -> pl.DataFrame:
    """The table of either party, or both joined, with the inputs that are worked out from a flight's own columns."""
    turn = 2 * math.pi
    season = pl.date(2013, "month", "day").dt.ordinal_day() * (turn / 365)
    wind = pl.col("wind_dir") * (turn / 360)
    airport = {
        "clock": pl.col("hour").cast(pl.Int16) * 60 + pl.col("minute"),
        "year_sine": season.sin(),
        "year_cosine": season.cos(),
        "wind_east": pl.col("wind_speed") * wind.sin(),
        "wind_north": pl.col("wind_speed") * wind.cos(),
        "wet": pl.col("precip") > 0,
    }
    airline = {"age": 2013 - pl.col("built").cast(pl.Int16)}
    wanted = (airport if "wind_dir" in table.columns else {}) | (airline if "built" in table.columns else {})
    return table.with_columns(**wanted)


def with_delays(table: pl.DataFrame) -> pl.DataFrame:
    """The airline's table, or some rows of it, with two more labels: how late a flight came.

    `minutes` are those behind the scheduled arrival, from half an hour early to three hours late, to which they are
    clipped. `when` is 0 up to a quarter of an hour behind it, 1 up to three quarters, 2 after that.
    """
    known = airline().select("flight_id").with_columns(_read("delays.parquet")["delay"])
    delay = pl.col("delay")
    return (
        table.join(known, on="flight_id", how="left", maintain_order="left")
        .with_columns(minutes=delay.clip(*MINUTES), when=(delay > 15).cast(pl.Int8) + (delay > 45).cast(pl.Int8))
        .drop("delay")
    )


def airport() -> pl.DataFrame:
    """The feature party's table as shipped: flight ids, schedule, and weather at the origin."""
    return _read("airport.parquet")


def airline() -> pl.DataFrame:
    """The label party's table as shipped: flight ids, carrier, route, aircraft, and the label `late`."""
    return _read("airline.parquet")


def _read(name: str) -> pl.DataFrame:
    """A shipped table."""
    try:
        return pl.read_parquet(FOLDER / name)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(
            f"{FOLDER / name} can't be read as Parquet ({error}): reinstall tacit, or make the file again with "
            "scripts/make_flights.py"
        ) from error
