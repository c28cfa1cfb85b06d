"""New York flights 2013, shipped with the package: an airport with schedule and weather, an airline with who came late.

The tables and what they hold: `tacit.lab.flights`. Rows know their day, counted from 0 on 1 January, and are sorted by
it, so that a model can be trained day by day. `generated` makes up as many such flights as asked.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.lab import flights
from tacit.lab.data.faults import Faults
from tacit.lab.data.joined import DAY, KEY, LABEL, of_table
from tacit.lab.data.rows import Data

__all__ = ["generated", "load"]

_SHARE = 0.086  # of flights that are late, as in the shipped ones
_MISSING = "Where gust, pressure or the age of the aircraft is missing, a column of its own says so."


def load(*, rows: int | None = None, seed: int = 0, test_share: float = 0.2) -> Data:
    """The flights that both parties know, joined in the clear.

    Test flights are drawn at random, as the papers do, so a test flight has training flights of the same day.

    Args:
        rows: use this many flights at most, training and test together, drawn at random; None for all.
        seed: draws the test flights.
        test_share: the chance of a flight to be for testing.
    """
    table = _known()
    read = (
        f"{len(table):,} flights of 2013 that both the airport and the airline know were read from the tables shipped "
        "with tacit.",
        "The label says which flights came an hour late or more.",
        _MISSING,
    )
    return _data(table, read, rows, seed, test_share)


def generated(rows: int, seed: int, *, test_share: float = 0.2) -> Data:
    """Made-up flights with the columns and values of the shipped ones, spread evenly over the days of the year.

    Each column is drawn by itself, so columns tell nothing about each other. Who is late comes from a logistic model
    over the hour, the visibility, the carrier and the origin, with about the shipped share.

    Args:
        rows: training and test together.
        seed: of everything.
        test_share: the chance of a flight to be for testing.
    """
    draw, known = np.random.default_rng(seed), _known()
    date = pl.Series(np.datetime64("2013-01-01", "D") + np.arange(rows) * 365 // rows)
    own = ("flight_id", "month", "day", "weekday", "late")
    table = pl.DataFrame(
        [known[name].gather(draw.integers(len(known), size=rows)) for name in known.columns if name not in own]
    ).with_columns(
        pl.Series("flight_id", np.arange(rows)), month=date.dt.month(), day=date.dt.day(), weekday=date.dt.weekday()
    )  # fmt: skip
    chances = _logits(table, draw) + draw.logistic(size=rows)
    table = table.with_columns(pl.Series("late", chances > np.quantile(chances, 1 - _SHARE)))
    read = (
        f"{rows:,} flights were made up, each column drawn by itself from the values of those shipped with tacit.",
        "Which ones are late was drawn from a logistic model over hour, visibility, carrier and origin.",
        _MISSING,
    )
    return _data(table, read, None, seed, test_share)


def _known() -> pl.DataFrame:
    shipped = flights.load()
    return shipped.airport.join(shipped.airline, on="flight_id", how="inner", maintain_order="left")


def _logits(table: pl.DataFrame, draw: np.random.Generator) -> NDArray[np.float64]:
    """Late in the day, in poor sight, and with some carriers and origins more than with others."""
    logits = (table["hour"].to_numpy() - 13.0) / 4 + (10.0 - table["visib"].fill_null(10.0).to_numpy()) / 3
    for name in ("carrier", "origin"):
        found, place = np.unique(table[name].to_numpy(), return_inverse=True)
        logits += draw.normal(0.0, 0.7, len(found))[place]
    return logits


def _data(table: pl.DataFrame, read: tuple[str, ...], rows: int | None, seed: int, test_share: float) -> Data:
    day = (pl.date(2013, "month", "day").dt.ordinal_day() - 1).cast(pl.Int64)
    return of_table(
        "flights",
        flights.with_inputs(table).with_columns(day.alias(DAY)).rename({"flight_id": KEY, "late": LABEL}),
        flights.AIRPORT_INPUTS,
        flights.AIRLINE_INPUTS,
        read=read,
        faults=Faults("raise"),
        rows=rows,
        seed=seed,
        test_share=test_share,
    )
