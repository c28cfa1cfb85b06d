"""How far a long command is, on the error stream: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WINDOW = 64  # calls that the rate is taken over
_PAUSE = 30.0  # seconds between two lines where there is no terminal; more as time goes by


Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is; 0 where nobody knows."""

Count = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""

Trace = Callable[[str], None]
"""Called at each point that a step passes, by name: for logs, and for trials that end a process just there."""


class Pace:
    """How fast the work goes and how long it will take, from when which part of it was done."""

    def __init__(self, unit: str, now: Callable[[], float] = time.monotonic) -> None:
        self._unit = unit
        self._now = now
        self._seen: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self._phase = ("", 0)

    def at(self, what: str, done: int, total: int) -> str:
        """Rate and time left in words; empty where nothing can be said yet. A new kind of work is measured anew."""
        phase = (what.partition(" ")[0], total)
        if phase != self._phase or (self._seen and done < self._seen[-1][1]):
            self._seen.clear()
            self._phase = phase
        self._seen.append((self._now(), done))
        (since, before), (here, _) = self._seen[0], self._seen[-1]
        if not total or done <= before or here <= since:
            return ""
        rate = (done - before) / (here - since)
        figure = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        speed = "" if phase[0] == "loading" else f"{figure} {self._counted(what)}/s, "
        return f"{speed}{_clock((total - done) / rate)} left"

    def counted(self, what: str, done: int, total: int) -> str:
        """How much is done, in words."""
        share = f"{done / total:.0%}"
        if what.startswith("loading"):
            return share
        return f"{done:,} of {total:,} {self._counted(what)} ({share})"

    def _counted(self, what: str) -> str:
        return "attacks" if what.startswith("attack") else self._unit


@contextmanager
def one_bar(
    *, quiet: bool, first: str, unit: str = "steps", now: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """What to call while a long command runs; it shows a bar, or lines where the error stream is no terminal."""
    if quiet:
        yield lambda *_: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    pace = Pace(unit, now)
    if console.is_terminal:
        with _bar(console, pace, first) as show:
            yield show
    else:
        yield _lines(pace, now)


def on_terminal(*, quiet: bool, first: str) -> AbstractContextManager[Progress]:
    """A bar for what is called from Python: on a terminal, and nothing anywhere else."""
    return one_bar(quiet=quiet or not sys.stderr.isatty(), first=first)


@contextmanager
def _bar(console: Console, pace: Pace, first: str) -> Iterator[Progress]:
    from rich import progress as rich_progress
    from rich.progress import BarColumn, TextColumn
    from rich.table import Column

    whole = TextColumn(  # it may hold a peer's words
        "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
    )
    percent, speed = TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.fields[pace]}", markup=False)
    with rich_progress.Progress(
        whole, BarColumn(bar_width=min(24, console.width // 6)), percent, speed,
        console=console, transient=True, expand=True,
    ) as bar:  # fmt: skip
        task = bar.add_task(first, total=None, pace="")

        def show(what: str, done: int, total: int, /) -> None:
            bar.update(task, description=what, completed=done, total=total or None, pace=pace.at(what, done, total))

        yield show


def _lines(pace: Pace, now: Callable[[], float]) -> Progress:
    """Lines that become rarer the longer it takes, so that a log stays short and a short command says nothing."""
    begun = now()
    told = [begun]

    def show(what: str, done: int, total: int, /) -> None:
        speed = pace.at(what, done, total)
        if now() - told[0] < max(_PAUSE, (now() - begun) / 10):
            return
        told[0] = now()
        said = [what, *([pace.counted(what, done, total)] if total else []), *([speed] if speed else [])]
        print(f"tacit: {', '.join(said)}", file=sys.stderr, flush=True)

    return show


def _clock(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
