"""How a service is doing, in a file of its run's folder: what the live page shows of it."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from tacit.company.run_files import SERVING
from tacit.company.verdict import now
from tacit.disk import write_json
from tacit.errors import StorageError
from tacit.serve.online import Metrics

_EVERY = 2.0  # seconds
_MINUTE = 60.0  # seconds
_MINUTES = 30  # that are told one by one

Facts = Callable[[], dict[str, Any]]
"""What the party tells beside its times: whom it is connected to, what it may still send."""


class Traffic:
    """Answers and their times, minute by minute, and rows by what became of them."""

    def __init__(self, role: str, metrics: Metrics, facts: Facts) -> None:
        self._role, self._metrics, self._facts, self._began = role, metrics, facts, now()
        self._minutes: deque[dict[str, Any]] = deque(maxlen=_MINUTES)
        self._answers: deque[tuple[float, int]] = deque([(0.0, 0)])  # when there were how many in all

    def told(self, state: str) -> dict[str, Any]:
        """For the file."""
        at, answers = time.monotonic(), self._metrics.answers
        while len(self._answers) > 1 and self._answers[1][0] <= at - _MINUTE:
            self._answers.popleft()
        self._answers.append((at, answers))
        lately = {"answers": answers - self._answers[0][1], **_quantiles(self._metrics.lately(_MINUTE))}
        minute = now()[:16]
        if self._minutes and self._minutes[-1]["minute"] == minute:
            self._minutes.pop()
        self._minutes.append({"minute": minute, **lately})
        rows = self._metrics.by("tacit_serve_rows_total")
        return {
            "state": state, "pid": os.getpid(), "role": self._role, "since": self._began, "time": now(),
            "lately": lately, "rows": rows, "minutes": list(self._minutes), **self._facts(),
        }  # fmt: skip


def _quantiles(times: Sequence[float]) -> dict[str, float | None]:
    if not times:
        return {"median_ms": None, "p99_ms": None}
    median, high = np.quantile(times, [0.5, 0.99], method="higher")
    return {"median_ms": round(1000 * float(median), 2), "p99_ms": round(1000 * float(high), 2)}


@contextmanager
def reported(folder: Path, traffic: Traffic) -> Iterator[None]:
    """While a service goes on, write down every two seconds how it is doing, and once more when it ends.

    A disk that takes nothing does not stop a service: then the file is old, and says since when.
    """
    over = threading.Event()

    def write(state: str) -> None:
        with suppress(StorageError):
            write_json(folder / SERVING, traffic.told(state), durable=False)

    def run() -> None:
        while not over.wait(_EVERY):
            write("serving")

    write("serving")
    thread = threading.Thread(target=run, name="tacit-traffic", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        write("stopped")
