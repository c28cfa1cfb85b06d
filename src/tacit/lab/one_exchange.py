"""An airport and an airline that train in one exchange: two folders, two processes, the same commands as anybody's."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.lab.data.flights import MINUTES
from tacit.lab.two_companies import Company, align, set_up, together
from tacit.progress import Progress
from tacit.report.status import read_run
from tacit.serve.halves import load_embedder, load_scorer

Label = Literal["late", "when", "minutes"]

_CONTRACT = """\
mode = "one_shot"
run = "flights"
label_party = "airline"
feature_parties = ["airport"]
[exchange]
bits = {bits}
smallest = {smallest}
numbers = {numbers}
{target}
"""
_TARGETS = {
    "late": 'rare = "positive"',
    "when": "classes = 3",
    "minutes": 'target = "number"\nlow = {:.1f}\nhigh = {:.1f}'.format(*MINUTES),
}


def prepare(
    out: Path, *, rows: int | None = None, seed: int, bits: int = 3, smallest: float = 0.02, limit: float = 0.6,
    odds: float | None = 3.0, label: Label = "late", numbers: int = 1, feature_limit: float | None = None,
) -> tuple[Company, Company]:  # fmt: skip
    """Both folders, set up as two companies would: tables, keys, certificates exchanged, one contract.

    Returns the airline, which has the labels, and the airport, which may hold a limit on what is read of its columns.
    """
    limits = {"label": f"limit = {limit}\n" + ("" if odds is None else f"odds = {odds}\n")}
    if feature_limit is not None:
        limits["features"] = f"limit = {feature_limit}\n"
    threads = os.cpu_count() or 1  # they work one after the other
    contract = _CONTRACT.format(bits=bits, smallest=smallest, numbers=numbers, target=_TARGETS[label])
    return set_up(out, contract, rows=rows, seed=seed, threads=threads, limits=limits, label=label)


def run(out: Path, *, seed: int = 0, progress: Progress, **chosen: Any) -> dict[str, Any]:
    """Set both up as `prepare` does, align and train in one exchange; what came of it, as plain values."""
    companies = prepare(out, seed=seed, **chosen)
    told = meet(*companies, progress=progress)
    progress("scoring three flights", 0, 0)
    return {**told, "scored": three_flights(*companies, seed=seed)}


def meet(airline: Company, airport: Company, *, progress: Progress) -> dict[str, Any]:
    """Let two companies that are set up align and train; what came of it, as plain values."""
    return {**align(airline, airport, progress), **learn(airline, airport, progress=progress)}


def learn(airline: Company, airport: Company, *, progress: Progress) -> dict[str, Any]:
    """Let two companies that are aligned train in one exchange; what came of it, as plain values."""

    def show() -> None:
        for status in (airport.status, airline.status):
            if status.get("state") == "training":
                progress(f"{status['party']}: {status['part']}", status["done"], status["total"])
                return

    begun = time.perf_counter()
    outcome = together([airline, airport], "train", show)
    took = time.perf_counter() - begun
    release = airport.read("release/release.json")
    (told_labels,) = (one for one in read_run(airline.run_folder)["left"] if one["what"] == "randomized labels")
    return {
        "train_seconds": took,
        **{name: outcome[name] for name in ("figures", "alone", "label_bound")},
        "form": Folder(airport.folder).one_shot.exchange.form,
        "audit": release["audit"],
        "bytes": {"labels": told_labels["bytes"], "embedding": outcome["received_bytes"]},
    }


def three_flights(airline: Company, airport: Company, *, seed: int) -> list[dict[str, Any]]:
    """Score three flights that nobody was trained on, two of them in time and one an hour late, through both halves."""
    sides = [Folder(company.folder) for company in (airline, airport)]
    rows = [np.asarray(aligned(folder).rows) for folder in sides]
    tables = [pl.scan_parquet(folder.data) for folder in sides]
    test = sides[0].terms.train_count(len(rows[0]))  # the first of those that were kept aside
    late = tables[0].select("late").collect()["late"].to_numpy()[rows[0][test:]]
    order = np.random.default_rng(seed).permutation(len(late))
    places = test + np.concatenate([order[~late[order]][:2], order[late[order]][:1]])
    own, theirs = (table.collect()[found[places]] for table, found in zip(tables, rows, strict=True))
    scorer, embedder = load_scorer(sides[0], "demo"), load_embedder(sides[1], "demo")
    joint = scorer.score(own, {sides[1].config.name: embedder.embed(theirs)})
    alone = scorer.score(own, None)
    truth = own[str(sides[0].table.label)].to_list()
    return [
        {**flight, "score": joint[k].tolist(), "alone": alone[k].tolist(), "truth": truth[k]}
        for k, flight in enumerate(own.select("flight_id", "carrier", "dest").iter_rows(named=True))
    ]
