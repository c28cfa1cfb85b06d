"""An airport and an airline that train in one exchange: two folders, two processes, the same commands as anybody's."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from tacit.lab import flights
from tacit.lab.two_companies import Company, free_address, height, new_folder, some, together

__all__ = ["meet", "prepare", "run"]

Progress = Callable[[str, int, int], None]

_PARTY = """\
name = "{name}"
role = "{role}"
{limits}[network]
{network}
[data]
path = "flights.parquet"
ids = ["flight_id"]
{label}categorical = {categorical}
numeric = {numeric}
flagged = {flagged}
[training]
threads = {threads}
seed = {seed}
"""

_CONTRACT = """\
mode = "one_shot"
run = "flights"
label_party = "airline"
feature_parties = ["airport"]
[exchange]
width = {width}
rare = "positive"
"""


def prepare(
    out: Path, *, rows: int | None, seed: int, width: int = 1, limit: float = 0.6, odds: float | None = 3.0
) -> tuple[Company, Company]:
    """Both folders, set up as two companies would: tables, keys, certificates exchanged, one contract.

    Returns the airline, which has the labels, and the airport.
    """
    data = flights.load()
    network = free_address()
    folders = {}
    for name, table, columns in (
        ("airline", data.airline, flights.AIRLINE_INPUTS),
        ("airport", data.airport, flights.AIRPORT_INPUTS),
    ):
        label = name == "airline"
        role: Literal["label", "features"] = "label" if label else "features"
        folder = folders[name] = new_folder(out / name, role)
        flights.with_inputs(some(table, rows)).write_parquet(folder.path / "flights.parquet")
        limits = f"limit = {limit}\n" + (f"odds = {odds}\n" if odds is not None else "")
        (folder.path / "party.toml").write_text(
            _PARTY.format(
                name=name,
                role=role,
                limits=limits if label else "",
                network=f'{"listen" if label else "connect"} = "{network}"',
                label='label = "late"\n' if label else "",
                categorical=json.dumps(columns.categorical),
                numeric=json.dumps(columns.numeric),
                flagged=json.dumps(columns.flagged),
                threads=os.cpu_count() or 1,  # they work one after the other
                seed=seed,
            )
        )
        (folder.path / "contract.toml").write_text(_CONTRACT.format(width=width))
    folders["airline"].trust(out / "airport" / "airport.crt")
    folders["airport"].trust(out / "airline" / "airline.crt")
    return Company(out / "airline"), Company(out / "airport")


def run(
    out: Path,
    *,
    rows: int | None = None,
    seed: int = 0,
    width: int = 1,
    limit: float = 0.6,
    odds: float | None = 3.0,
    progress: Progress,
) -> dict[str, Any]:
    """Set both up, align and train in one exchange; what came of it, as plain values.

    Args:
        out: where the folders are made.
        rows: how many flights to use; all of them if not given.
        seed: of everything that is drawn at home.
        width: numbers that the airport sends of a flight.
        limit: leak AUC of a label.
        odds: the factor by which a label's odds change at most.
        progress: told what is being done.
    """
    return meet(*prepare(out, rows=rows, seed=seed, width=width, limit=limit, odds=odds), progress=progress)


def meet(airline: Company, airport: Company, *, progress: Progress) -> dict[str, Any]:
    """Let two companies that are set up align and train; what came of it, as plain values.

    Args:
        airline: has the labels.
        airport: has the features.
        progress: told what is being done.
    """
    started = time.perf_counter()
    told = together([airline, airport], "align", lambda: progress("aligning ids", 0, 0))
    aligned = time.perf_counter()

    def show() -> None:
        for company in (airport, airline):
            try:
                status = company.read("status.json")
            except (OSError, ValueError):
                continue
            if status["state"] == "training":
                progress(f"{status['party']}: {status['part']}", status["done"], status["total"])
                return

    outcome = together([airline, airport], "train", show)
    trained = time.perf_counter()
    release = airport.read("release/release.json")
    return {
        "airline_rows": height(airline),
        "airport_rows": height(airport),
        "common": told["rows"],
        "align_seconds": aligned - started,
        "train_seconds": trained - aligned,
        "figures": outcome["figures"],
        "alone": outcome["alone"],
        "certificate": outcome["certificate"],
        "form": release["form"],
        "audit": release["audit"],
        "bytes": {"labels": -(-outcome["certificate"]["rows"] // 8), "embedding": outcome["received_bytes"]},
    }
