"""New York flights 2013, shipped with the package: an airport with schedule and weather, an airline with who came late.

The tables and what they hold: `tacit.lab.flights`. Rows know their day, counted from 0 on 1 January, and are sorted by
it, so that a model can be trained day by day.
"""

from __future__ import annotations

import polars as pl

from tacit.lab import flights
from tacit.lab.data.faults import Faults
from tacit.lab.data.joined import DAY, KEY, LABEL, of_table
from tacit.lab.data.rows import Data

__all__ = ["load"]


def load(*, rows: int | None = None, seed: int = 0, test_share: float = 0.2) -> Data:
    """The flights that both parties know, joined in the clear.

    Test flights are drawn at random, as the papers do, so a test flight has training flights of the same day.

    Args:
        rows: use this many flights at most, training and test together, drawn at random; None for all.
        seed: draws the test flights.
        test_share: the chance of a flight to be for testing.
    """
    shipped = flights.load()
    table = shipped.airport.join(shipped.airline, on="flight_id", how="inner", maintain_order="left")
    day = (pl.date(2013, "month", "day").dt.ordinal_day() - 1).cast(pl.Int64)
    return of_table(
        "flights",
        flights.with_inputs(table).with_columns(day.alias(DAY)).rename({"flight_id": KEY, "late": LABEL}),
        flights.AIRPORT_INPUTS,
        flights.AIRLINE_INPUTS,
        read=(
            f"{len(table):,} flights of 2013 that both the airport and the airline know were read from the tables "
            "shipped with tacit.",
            "The label says which flights came an hour late or more.",
            "Where gust, pressure or the age of the aircraft is missing, a column of its own says so.",
        ),
        faults=Faults("raise"),
        rows=rows,
        seed=seed,
        test_share=test_share,
    )  # fmt: skip
