"""Run times: what Marvell's noise and one update take here, beside what the papers' machines took."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import polars as pl
import torch

from papers.kinds import Kind, needs
from papers.sheet import Sheet
from tacit.lab.data.rows import Rows
from tacit.lab.stack.network import Network
from tacit.lab.stack.training import Stack
from tacit.lab.sweeping.settings import Setting
from tacit.split.protect.gradient import protection
from tacit.split.protect.gradient.marvell import solve

__all__ = ["PAPER", "run_times", "time_updates"]

PAPER = (
    ("ISIC", 128, 1600, 1.79e-2, 7.03e-5, 3.94e-1, 4.05e-3),
    ("Criteo", 1024, 128, 1.68e-2, 8.67e-5, 4.84, 3.28e-1),
    ("Avazu", 32768, 128, 1.75e-2, 1.47e-4, 6.22, 3.71e-1),
)
"""Table 1 of Li 2022: data, batch size, width of the cut, seconds of Marvell with s = 4 and half of their 95% interval,
and the same of an update.
"""

REPORT = 68.124e-3
"""Seconds that the solver of Report 2020a took for one batch."""

_Z95 = 1.959963984540054
UPDATES, CALLS, SOLUTIONS = 30, 30, 30


def time_updates(rows: Rows, network: Network, *, batch_size: int, seed: int = 0, device: str = "cpu") -> pl.DataFrame:
    """Time an update of one replica, Marvell's part of it, and the solution of its problem alone.

    Returns:
        One row for each: what ("update", "marvell", "solver"), batch, width, seconds (mean), around (half of its 95%
        interval), runs.
    """
    stack = Stack(
        rows, network, [Setting("marvell", "scale", 4.0, seed=seed)], batch_size=batch_size, device=device,
        attacks=("norm",), layers=("cut",), last=1,
    )  # fmt: skip
    plan = stack.plan(0)
    plan = plan.repeat(1, -(-(UPDATES + 3) // plan.shape[1]), 1)
    stack.advance(plan[:, :3])  # out of the warm-up, and with everything allocated
    batches = iter(plan[:, 3 : UPDATES + 3].unbind(1))
    clean = stack.transcript(0).batches()
    grad, labels = clean.clean[-1].to(device), rows.labels[clean.view.rows[-1]].to(device)
    protect = protection("marvell", scale=4.0)
    noise = torch.Generator(device=device).manual_seed(seed)
    state = protect.init()
    for _ in range(3):
        state = protect.update(grad, labels, state, noise).state
    width = grad.shape[1]
    share = float(labels.mean())
    timed: dict[str, tuple[Callable[[], object], int]] = {
        "update": (lambda: stack.advance(next(batches)[:, None]), UPDATES),
        "marvell": (lambda: protect.update(grad, labels, state, noise), CALLS),
        "solver": (partial(solve, 0.5, 1.0, width, 3.0, min(max(share, 0.01), 0.99), sum_kl=0.04), SOLUTIONS),
    }
    found = []
    taken: dict[str, list[float]] = {what: [] for what in timed}
    for turn in range(max(runs for _, runs in timed.values())):  # in turns, so that a busy machine slows all of them
        for what, (call, runs) in timed.items():
            if turn < runs:
                taken[what].append(_timed(call, device))
    for what, (_, runs) in timed.items():
        seconds = torch.tensor(taken[what], dtype=torch.float64)
        around = _Z95 * float(seconds.std()) / runs**0.5
        found.append(
            {"what": what, "batch": batch_size, "width": width, "seconds": float(seconds.mean()), "around": around,
             "runs": runs}
        )  # fmt: skip
    return pl.DataFrame(found)


def _timed(call: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def run_times(of: str) -> Kind:
    """A table: `of` is "update" (Marvell beside an update) or "solver" (Report 2020a's)."""
    return Kind(partial(_numbers, of), partial(_draw, of))


def _numbers(of: str, table: pl.DataFrame, data: str) -> pl.DataFrame:
    """Ours first, then the papers' lines."""
    needs(table, ["what", "batch", "width", "seconds", "around"], "a run time")
    measured = {row["what"]: row for row in table.iter_rows(named=True)}
    if of == "solver":
        own = measured["solver"]
        two = [("here", data, own["seconds"], own["around"]), ("report", "production", REPORT, None)]
        return pl.DataFrame(two, schema=["source", "data", "solver", "solver ±"], orient="row")
    ours, update = measured["marvell"], measured["update"]
    lines = [
        ("here", data, ours["batch"], ours["width"], ours["seconds"], ours["around"], update["seconds"],
         update["around"]),
        *(("paper", *line) for line in PAPER),
    ]  # fmt: skip
    columns = ["source", "data", "batch", "width", "marvell", "marvell ±", "update", "update ±"]
    return pl.DataFrame(lines, schema=columns, orient="row")


def _draw(of: str, numbers: pl.DataFrame, sheet: Sheet) -> None:
    from matplotlib.transforms import Bbox

    axis = sheet.panels(1, 1, each=(8.5, 0.29 * numbers.height), left=0.2)[0][0]
    axis.set_axis_off()
    heads = {
        "source": "", "data": "data", "batch": "batch B", "width": "width d", "marvell": "Marvell, s = 4",
        "update": "one update", "solver": "solver, sumKL = 0.04",
    }  # fmt: skip
    columns = [name for name in numbers.columns if not name.endswith("±")]
    cells = [[_cell(row, name) for name in columns] for row in numbers.iter_rows(named=True)]
    drawn = axis.table(cells, colLabels=[heads[name] for name in columns], cellLoc="center", bbox=Bbox.unit())
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(9)
    for (row, _), cell in drawn.get_celld().items():
        cell.set_edgecolor("#dddddd")
        cell.get_text().set_fontweight("bold" if row == 0 else "normal")
        if row == 1:
            cell.set_facecolor("#eef4fa")


def _cell(row: dict[str, object], name: str) -> str:
    value, around = row[name], row.get(f"{name} ±")
    if not isinstance(value, float):
        return str(value)
    more = f" ± {around * 1e3:.2g}" if isinstance(around, float) else ""
    return f"{value * 1e3:,.4g}{more} ms"
