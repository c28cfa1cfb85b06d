"""The report on embedding protection, repeated: its table 2 and its figures 2 to 8, from runs of our own.

`run` trains and judges every setting that was asked for, keeps one record of each in a folder, and draws and writes
what they say.
"""

from __future__ import annotations

import csv
import importlib.util
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from papers.embedding import drawing, summary
from papers.embedding.judging import ROWS, headline, judge, noise_by_batch_size
from papers.embedding.problems import CUT, DATA, Problem, problem
from papers.embedding.records import Reading, Records
from papers.embedding.settings import FIGURES, Point, chosen, points
from papers.embedding.training import train
from tacit.errors import UsageError
from tacit.progress import Progress

__all__ = ["DATA", "FIGURES", "Lab", "run"]


_TRAINING, _JUDGING = 60, 40  # parts of a setting's time, for the bar alone


@dataclass(frozen=True)
class Lab:
    """What was found.

    Attributes:
        title: of the data set.
        settings: what all records share.
        found: every setting, by name.
        drawn: the picture of each figure, by its name; empty without matplotlib.
        numbers: the CSV of all settings.
        summary: the page that says it in words.
        noise: figure 2's record, where it was asked for.
    """

    title: str
    settings: Mapping[str, Any]
    found: Mapping[str, Reading]
    drawn: Mapping[str, Path]
    numbers: Path
    summary: Path
    noise: Mapping[str, Any] | None = None


def run(  # each setting of a whole study by name
    *,
    data: str,
    out: Path,
    path: Path | None = None,
    only: Sequence[str] | None = None,
    epochs: int | None = None,
    rows: int | None = None,
    device: str = "cpu",
    seed: int = 0,
    progress: Progress = lambda *_: None,
) -> Lab:
    """Train, judge, draw and write; what has a record in the folder already is not done again.

    Args:
        data: the data set, one of `DATA`.
        out: the folder of records, figures and summary.
        path: where the data set's files are.
        only: tables and figures, as in `FIGURES`; all of them if not given.
        epochs: how often every row is visited; the data set's own number if not given.
        rows: how many rows to use; all of them if not given.
        device: where to train and attack, "cpu" or "cuda".
        seed: of test rows, weights, batches, noise and attacks.
        progress: called with what is being done, the parts done and all parts.
    """
    where, figures = _device(device), chosen(only)
    progress(f"loading {data}", 0, 0)
    asked = problem(data, path=path, rows=rows, seed=seed)
    asked = asked.to(where)
    epochs = asked.epochs if epochs is None else epochs
    count = len(asked.train.labels)
    shared = {"data": data, "training_rows": count, "test_rows": len(asked.test.labels), "epochs": epochs, "seed": seed}
    records = Records(out, shared)
    wanted = {name: point for name, point in points(asked.table_noise).items() if _drawn_in(name, figures)}
    noise = _noise(records, asked, seed) if "figure-2" in figures else None
    kept = {name: records.read(name) for name in wanted}  # all of them first: a wrong folder is said before the work
    todo = [name for name, record in kept.items() if record is None]
    for place, name in enumerate(todo):
        told = _Told(progress, f"{place + 1} of {len(todo)}, {wanted[name].label}", place, len(todo))
        kept[name] = records.write(name, _one(wanted[name], asked, epochs, seed, told))
    size = headline(len(asked.truth[:ROWS]))
    found = {name: Reading(record, size) for name, record in kept.items() if record is not None}
    return _written(out, asked, records.settings, figures, found, noise)


def _one(point: Point, asked: Problem, epochs: int, seed: int, told: _Told) -> dict[str, Any]:
    """One setting, trained and judged."""
    start = time.perf_counter()
    trained = train(point, asked, epochs=epochs, seed=seed, progress=told.training)
    middle = time.perf_counter()
    found = judge(trained, asked, seed=seed, progress=told.judging)
    seconds = {"training": middle - start, "judging": time.perf_counter() - middle}
    parts = [{"protection": name, **options} for name, options in point.parts]
    return {"label": point.label, "protect": parts, **found, "seconds": seconds}


def _written(
    out: Path,
    asked: Problem,
    settings: Mapping[str, Any],
    figures: Sequence[str],
    found: Mapping[str, Reading],
    noise: Mapping[str, Any] | None,
) -> Lab:
    """Figures and summary of everything that was asked for."""
    out.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Path] = {}
    if importlib.util.find_spec("matplotlib") is not None:
        for figure in figures:
            shown = {name: found[name] for name in FIGURES[figure]}
            drawn[figure] = drawing.draw(figure, shown, noise, title=asked.title, out=out)
        pictures = drawing.draw_pictures(found, title=asked.title, out=out)
        drawn |= {} if pictures is None else {"pictures": pictures}
    page, numbers = out / "summary.md", out / "settings.csv"
    summary.write(page, title=asked.title, settings=settings, found=found, figures=figures, drawn=drawn)
    with numbers.open("w", newline="") as file:
        csv.writer(file).writerows([summary.HEAD, *summary.table(found)])
    return Lab(asked.title, settings, found, drawn, numbers, page, noise)


def _noise(records: Records, asked: Problem, seed: int) -> Mapping[str, Any]:
    """Figure 2's record: inputs against noise, of the rows that are judged."""
    name = "figure-2"
    return records.read(name) or records.write(name, noise_by_batch_size(asked.truth[:ROWS], CUT, seed=seed))


def _drawn_in(point: str, figures: Sequence[str]) -> bool:
    return any(point in FIGURES[figure] for figure in figures)


def _device(name: str) -> torch.device:
    if name not in ("cpu", "cuda"):
        raise UsageError(f"there is no device {name!r} in the lab; there are: cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch sees no CUDA device here: leave --device out, or install a torch build for CUDA")
    return torch.device(name)


@dataclass(frozen=True)
class _Told:
    """Progress of one setting as progress of all of them."""

    progress: Progress
    what: str
    place: int
    count: int

    def training(self, done: int, total: int) -> None:
        self._tell("training", _TRAINING * done / total)

    def judging(self, done: int, total: int) -> None:
        self._tell("judging", _TRAINING + _JUDGING * done / total)

    def _tell(self, doing: str, part: float) -> None:
        whole = _TRAINING + _JUDGING
        self.progress(f"{self.what}: {doing}", round(self.place * whole + part), self.count * whole)
