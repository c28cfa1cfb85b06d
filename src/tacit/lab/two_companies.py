"""An airport and an airline as two companies: two folders, two processes, the same commands as anybody's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import polars as pl

from tacit.align.batches import scramble
from tacit.align.tables import Columns
from tacit.company.agreed import agree
from tacit.company.folder import Folder, create
from tacit.config import Protect
from tacit.errors import LimitError, TacitError, UsageError
from tacit.lab.data import flights
from tacit.progress import Progress

_MARK = "made-by-tacit-demo"
_BOTH = 304_982  # flights that both companies know

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
{more}"""

_MATCHED = '{ name = "matched", leak_auc = 0.55 }'  # with room below its limit
_NOISE = '[{ name = "gaussian", snr = 4.0, clip = 8.0 }]'

_CONTRACT = """\
run = "flights"
label_party = "airline"
feature_parties = ["airport"]
loss = "binary"
epochs = {epochs}
batch_size = {batch_size}
[cut]
widths = {{ airport = 128 }}
[minimum]
gradient = {minimum}
"""


class Company:
    """One of the two: its folder, and the commands that it gives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Give a command, as a process of its own."""
        command = [sys.executable, "-m", "tacit", *words, "--folder", str(self.folder)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @property
    def run_folder(self) -> Path:
        """Of the run."""
        return self.folder / "runs" / "flights"

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the run."""
        found: dict[str, Any] = json.loads((self.run_folder / name).read_text())
        return found

    @property
    def status(self) -> dict[str, Any]:
        """Where the run stands; empty where that can't be read."""
        try:
            return self.read("status.json")
        except (OSError, ValueError):
            return {}


def prepare(
    out: Path,
    *,
    epochs: int,
    rows: int | None,
    seed: int,
    limit: float | None = 0.6,
    gradient: str = _MATCHED,
    embedding: str = _NOISE,
) -> tuple[Company, Company]:
    """Both folders, set up for split training: tables, keys, certificates exchanged, one contract.

    Protections are given as settings spell them. Returns the airline, which has the labels and holds its leak under the
    limit, and the airport.
    """
    protect = {"label": f"gradient = {gradient}", "features": f"embedding = {embedding}"}
    more = {role: f'[model]\nname = "wide_deep"\n[protect]\n{words}\n' for role, words in protect.items()}
    matched = gradient == _MATCHED
    limits = ("" if limit is None else f"limit = {limit}\n") + ("" if matched else "budget = 1\n")
    minimum = _MATCHED.replace("0.55", "0.6") if matched else '{ name = "none" }'
    contract = _CONTRACT.format(epochs=epochs, batch_size=batch_size_of(rows), minimum=minimum)
    threads = max(1, (os.cpu_count() or 2) // 2)  # both share this machine
    return set_up(out, contract, rows=rows, seed=seed, threads=threads, limits={"label": limits}, more=more)


def batch_size_of(rows: int | None) -> int:
    """A batch of the papers' size; smaller where there are few rows."""
    return 1024 if rows is None else min(1024, max(64, rows // 16))


def set_up(
    out: Path,
    contract: str,
    *,
    rows: int | None,
    seed: int,
    threads: int,
    limits: Mapping[str, str],
    label: str = "late",
    more: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Company, Company]:
    """An airline and an airport: folders with tables and settings, certificates exchanged, one contract."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        network = f"127.0.0.1:{free.getsockname()[1]}"
    airline = flights.airline() if label == "late" else flights.with_delays(flights.airline())
    folders: dict[str, Folder] = {}
    each: tuple[tuple[str, Literal["label", "features"], pl.DataFrame, Columns], ...] = (
        ("airline", "label", airline, flights.AIRLINE_INPUTS),
        ("airport", "features", flights.airport(), flights.AIRPORT_INPUTS),
    )
    for name, role, table, columns in each:
        path, labelled = out / name, role == "label"
        folders[name] = _new_folder(path, role)
        flights.with_inputs(some(table, rows)).write_parquet(path / "flights.parquet")
        settings = _PARTY.format(
            name=name, role=role, limits=limits.get(role, ""), seed=seed, threads=threads,
            network=f'{"listen" if labelled else "connect"} = "{network}"', more=more.get(role, ""),
            label=f'label = "{label}"\n' if labelled else "",
            **{kind: json.dumps(names) for kind, names in asdict(columns).items()},
        )  # fmt: skip
        (path / "party.toml").write_text(settings)
        (path / "contract.toml").write_text(contract)
    folders["airline"].trust(out / "airport" / "airport.crt")
    folders["airport"].trust(out / "airline" / "airline.crt")
    for name in folders:
        agree(Folder(out / name))
    return Company(out / "airline"), Company(out / "airport")


def _new_folder(path: Path, role: Literal["label", "features"]) -> Folder:
    """A company's folder, called as the company is; one that a demo made before is made anew, any other is left."""
    if path.exists() and not (path / _MARK).exists():
        raise UsageError(f"{path} is there and is not the demo's: choose another --out")
    shutil.rmtree(path, ignore_errors=True)
    made = create(path, role=role, name=path.name)
    (path / _MARK).touch()
    return made


def meet(airline: Company, airport: Company, *, progress: Progress) -> dict[str, Any]:
    """Let two companies that are set up align, train and audit; what came of it, as plain values."""

    def show() -> None:
        status = airline.status
        done, turns = status.get("turn", 0), status.get("turns", 0)
        if turns and done == turns:
            progress("attacking what was sent", 0, 0)  # how many attacks are done, only the two processes know
        elif turns:
            progress("training over mutual TLS", done, turns)

    _, told = align_and_train(airline, airport, show, progress, done=(0, 1))  # 1: a broken limit, which the report says
    audit, inputs = airline.read("report.json"), airport.read("report.json")
    shutil.copy(airline.run_folder / "report.html", airline.folder.parent / "report.html")
    history = airline.read("status.json")["history"]
    return {
        **told, "protection": str(_protect(airline).gradient),
        "embedding_protection": ", ".join(map(str, _protect(airport).embedding or ())), "history": history,
        "test_auc": history[-1]["test_auc"], "limit": audit["limit"], "verdict": audit["verdict"],
        "worst": audit["worst"], "attacks": audit["leaks"],
        "inputs": {"worst": inputs["worst"], "attacks": inputs["leaks"]},
    }  # fmt: skip


def align_and_train(
    airline: Company, airport: Company, show: Callable[[], None], progress: Progress, done: tuple[int, ...] = (0,)
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the airline answers at the end, and how many rows there were and how long it took."""
    told = align(airline, airport, progress)
    begun = time.perf_counter()
    trained = together([airline, airport], "train", show, done)
    return trained, {**told, "train_seconds": time.perf_counter() - begun}


def align(airline: Company, airport: Company, progress: Progress) -> dict[str, Any]:
    """Let two companies find their common rows: how many each had and both have, and how long it took."""
    begun = time.perf_counter()
    aligned = together([airline, airport], "align", lambda: progress("aligning ids", 0, 0))
    took = time.perf_counter() - begun
    rows = {
        f"{company.folder.name}_rows": pl.scan_parquet(company.folder / "flights.parquet")
        .select(pl.len())
        .collect()
        .item()
        for company in (airline, airport)
    }
    return {**rows, "common": aligned["rows"], "align_seconds": took}


def _protect(company: Company) -> Protect:
    protect = Folder(company.folder).config.protect
    assert protect is not None  # we wrote it
    return protect


def together(
    companies: list[Company], verb: str, show: Callable[[], None], done: tuple[int, ...] = (0,)
) -> dict[str, Any]:
    """Give all companies the same command at the same time; what the first one answers."""
    processes = [company.start(verb, "--json") for company in companies]
    pool = ThreadPoolExecutor(len(processes))
    hearing = [pool.submit(process.communicate) for process in processes]  # a full pipe would hold its writer for ever
    paused = ""
    try:
        while any(process.poll() is None for process in processes):
            show()
            if any(process.poll() for process in processes):
                paused = _paused(companies)
            if paused or any(process.poll() not in (None, *done) for process in processes):
                break
            time.sleep(0.2)
    finally:
        for process in processes:
            if paused or any(other.poll() not in (None, *done) for other in processes):
                process.kill()
    said = [one.result() for one in hearing]
    pool.shutdown()
    if paused:
        raise LimitError(
            f"{paused}. With more flights (--rows) intervals are narrower, and the demo's limit can be shown to hold"
        )
    for company, process, (_, complaint) in zip(companies, processes, said, strict=True):
        if process.returncode not in done:
            raise TacitError(f"`tacit {verb}` in {company.folder} ended with {process.returncode}: {complaint.strip()}")
    answer: dict[str, Any] = json.loads(said[0][0])
    return answer


def _paused(companies: list[Company]) -> str:
    """Why a company's limit lets its training pause, while the others would wait for ever; nothing where none does."""
    for status in (company.status for company in companies):
        if status.get("state") == "paused":
            return str(status.get("reason", "")).partition(". The peers")[0]
    return ""


def some(table: pl.DataFrame, rows: int | None) -> pl.DataFrame:
    """As many flights as give about so many common ones; the choice is by id, so that both sides make the same."""
    if rows is None:
        return table
    return table.filter(pl.Series(scramble(table["flight_id"].to_numpy(), 1) < rows / _BOTH))
