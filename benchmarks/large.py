"""One-shot training of many rows with Criteo's 39 columns: two processes over mutual TLS, from files to a model.

Set TACIT_BENCH_ROWS for another number of rows than 200,000, and TACIT_BENCH_FOLDER for a folder that stays: what was
made there is not made again, so that a run that broke off goes on.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks._measure import Result, free_port
from tacit.company.folder import Folder, create
from tacit.lab.data.generated import CRITEO, Drawing

ROWS = 200_000
_SAMPLE = 2_000_000  # rows that trees learn from, of either side
_CODES, _NUMBERS, _OWN = len(CRITEO), 10, 3  # columns of the feature party, and numbers of the label party
_CONTRACT = """
mode = "one_shot"
run = "large"
label_party = "shop"
feature_parties = ["paper"]
alignment.largest_set = {rows}
[exchange]
width = 1
"""
_PARTY = """
name = "{name}"
role = "{role}"
{limits}
network.{where} = "127.0.0.1:{port}"
training.seed = 0
{learn} = {sample}
[data]
path = "data.parquet"
ids = ["id"]
{columns}
"""


def run() -> Iterator[Result]:
    """Seconds and memory of each part, then processor time, memory, and what came of it."""
    rows, kept = int(os.environ.get("TACIT_BENCH_ROWS", ROWS)), os.environ.get("TACIT_BENCH_FOLDER")
    with nullcontext(kept) if kept else tempfile.TemporaryDirectory() as scratch:
        case, sides = f"{rows:,} rows", _set_up(Path(scratch), rows)
        for verb in ("align", "train"):
            if (sides[0] / "runs/large" / f"{verb}.json").exists():
                continue
            for name, told in zip(("label party", "feature party"), _together(sides, verb), strict=True):
                for part, (seconds, memory) in told["parts"].items():
                    yield Result("large", f"{case}, {name}, {part}", seconds, "s")
                    yield Result("large", f"{case}, {name}, {part}: memory, without mapped files", memory, "MB")
                for what, (value, unit) in told["used"].items():
                    yield Result("large", f"{case}, {name}, {verb}: {what}", value, unit)
        found = json.loads((sides[0] / "runs/large/figures.json").read_text())
        yield Result("large", f"{case}: test AUC", found["figures"]["test_auc"], "")
        yield Result("large", f"{case}: test AUC without the feature party", found["alone"]["test_auc"], "")


# --- two companies ---------------------------------------------------------------------------------------------------


def _set_up(root: Path, rows: int) -> tuple[Path, Path]:
    sides, port = (root / "shop", root / "paper"), free_port()
    if not (root / "made").exists():
        _write(root, rows)
        codes = [f"c{place}" for place in range(_CODES)]
        numbers = [f"n{place}" for place in range(_NUMBERS + _OWN)]
        own = f'label = "y"\nnumeric = {json.dumps(numbers[_NUMBERS:])}'
        theirs = f"categorical = {json.dumps(codes)}\nnumeric = {json.dumps(numbers[:_NUMBERS])}"
        each = (
            ("shop", "label", "listen", "limit = 0.6\nodds = 3.0", "head.sample", own),
            ("paper", "features", "connect", "", "learn.sample", theirs),
        )
        for path, (name, role, where, limits, learn, columns) in zip(sides, each, strict=True):
            create(path, role="label" if role == "label" else "features", name=name)
            (path / "contract.toml").write_text(_CONTRACT.format(rows=rows))
            settings = {"name": name, "role": role, "limits": limits, "where": where, "port": port}
            settings |= {"learn": learn, "sample": _SAMPLE, "columns": columns}
            (path / "party.toml").write_text(_PARTY.format(**settings))
            (root / f"{name}.parquet").rename(path / "data.parquet")
        Folder(sides[0]).trust(sides[1] / "paper.crt")
        Folder(sides[1]).trust(sides[0] / "shop.crt")
        (root / "made").touch()
    return sides


def _write(root: Path, rows: int) -> None:
    """Both tables, one in another order than the other, some rows at a time."""
    drawing, draw, start = Drawing(CRITEO, _NUMBERS + _OWN, 0.256, 0), np.random.default_rng(0), 0
    for number, drawn in enumerate(drawing.chunks(rows)):
        ids = np.arange(start, start := start + len(drawn.labels)) * 7 + 1_000_000_007
        codes, numbers = drawn.codes.numpy(), drawn.numbers.numpy()
        mixed = draw.permutation(len(ids))
        tables = {
            "shop": {"id": ids, "y": drawn.labels.numpy().astype(np.int8)}
            | {f"n{place}": numbers[:, place] for place in range(_NUMBERS, _NUMBERS + _OWN)},
            "paper": {"id": ids[mixed]}
            | {f"c{place}": codes[mixed, place] for place in range(_CODES)}
            | {f"n{place}": numbers[mixed, place] for place in range(_NUMBERS)},
        }
        for name, columns in tables.items():
            (root / "parts" / name).mkdir(parents=True, exist_ok=True)
            pl.DataFrame(columns).write_parquet(root / "parts" / name / f"{number:06}.parquet")
    for name in ("shop", "paper"):
        pl.scan_parquet(root / "parts" / name / "*.parquet").sink_parquet(root / f"{name}.parquet")
    shutil.rmtree(root / "parts")


def _together(sides: tuple[Path, Path], verb: str) -> list[dict[str, Any]]:
    """Give both the command; of each the seconds of its parts, and what it used."""
    running = [
        subprocess.Popen([sys.executable, "-m", "tacit", verb, "--quiet", "--folder", str(side)]) for side in sides
    ]
    watched = [_Watched(side, process, verb) for side, process in zip(sides, running, strict=True)]
    while sum(one.look() for one in watched):
        time.sleep(0.2)
    if any(process.returncode for process in running):
        raise RuntimeError(f"a side ended `tacit {verb}` with an error, see above")
    for side, one in zip(sides, watched, strict=True):
        (side / "runs/large" / f"{verb}.json").write_text(json.dumps(one.told()))
    return [one.told() for one in watched]


class _Watched:
    """A side while it works: how long each part took, and the most memory of it and its workers.

    Memory is looked at five times a second: what is gone sooner than that may be missed.
    """

    def __init__(self, side: Path, process: subprocess.Popen[bytes], verb: str) -> None:
        self._status, self._process, self._verb = side / "runs/large/status.json", process, verb
        self._began = self._last = time.monotonic()
        self._parts: dict[str, tuple[float, float]] = {}  # seconds, and megabytes without mapped files
        self._own = self._mapped = self._cpu = 0.0

    def look(self) -> bool:
        """Whether it is still at it."""
        if self._process.poll() is not None:
            return False
        own = 0.0
        with suppress(OSError, AttributeError, ValueError):  # a process that ends meanwhile
            processes = list(_tree(self._process.pid))
            own = sum(_memory(one, "RssAnon") for one in processes)
            self._own = max(self._own, own)
            self._mapped = max(self._mapped, sum(_memory(one, "VmRSS") for one in processes))
            self._cpu = max(self._cpu, sum(map(_seconds, processes)))
        self._count(own)
        return True

    def _count(self, memory: float) -> None:
        part = self._verb
        if part == "train":
            with suppress(OSError, ValueError):
                status = json.loads(self._status.read_text())
                part = "waiting" if status["state"] == "waiting" else status.get("part", "starting")
        now = time.monotonic()
        seconds, most = self._parts.get(part, (0.0, 0.0))
        self._parts[part] = seconds + now - self._last, max(most, memory)
        self._last = now

    def told(self) -> dict[str, Any]:
        """As plain values."""
        used = {
            "in all": (sum(seconds for seconds, _ in self._parts.values()), "s"),
            "processor time": (self._cpu, "s"),
            "most memory, without mapped files": (self._own, "MB"),
            "most memory, with them": (self._mapped, "MB"),
        }
        return {"parts": self._parts, "used": used}


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from _tree(int(child))


def _memory(pid: int, name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return 0.0 if found is None else int(found[1]) / 1024


def _seconds(pid: int) -> float:
    """Of the processor, with children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
