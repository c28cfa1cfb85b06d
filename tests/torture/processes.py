"""Starting parties as processes, and knowing at once when one has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tacit.errors import TacitError
from tests.torture.workers import Start

__all__ = ["ROOT", "WORKER", "Process", "Processes", "read_events"]

ROOT = Path(__file__).parents[2]
"""Where Python finds the module of a worker."""

WORKER = ("-m", "tests.torture.workers")

_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
"""The parent of all processes keeps to one thread, for a fork takes along no other."""


class Process:
    """One start of a party.

    Attributes:
        start: what it was told to do.
        began: when, by the clock of `time.monotonic`.
        code: how it ended: 0 done, -9 killed, 4 one of our errors; None while it runs.
    """

    def __init__(self, start: Start, end: Callable[[], None]) -> None:
        self.start = start
        self.began = time.monotonic()
        self.code: int | None = None
        self._end = end
        self._pid = 0
        self._born = threading.Event()
        self._over = threading.Event()

    @property
    def pid(self) -> int:
        """Of the process; waits until there is one."""
        if not self._born.wait(30):
            raise TacitError("the parent of all processes does not fork: look at its log")
        return self._pid

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    def wait(self, seconds: float) -> int | None:
        """Wait for its end; the exit code, None where it still runs after so many seconds."""
        self._over.wait(seconds)
        return self.code

    def kill(self) -> None:
        """Have it ended with SIGKILL, if it still runs."""
        self._end()

    @property
    def events(self) -> list[dict[str, Any]]:
        """What this start has told so far."""
        return [event for event in read_events(self.start.events) if event["pid"] == self.pid]

    def hear(self, told: dict[str, int]) -> None:
        """Take note of what the parent says about this process."""
        if "pid" in told:
            self._pid = told["pid"]
            self._born.set()
        if "code" in told:
            self.code = told["code"]
            self._over.set()


class Processes:
    """All parties of a trial are children of one process that has imported everything already.

    Args:
        log: the file that gets all that they say.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._numbers = count()
        self._known: dict[int, Process] = {}
        self._lock = threading.Lock()
        with log.open("ab") as said:
            self._parent = subprocess.Popen(
                [sys.executable, *WORKER, "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, **_ONE_THREAD},
                cwd=ROOT,
            )
        self._listener = threading.Thread(target=self._listen, name="tacit-torture", daemon=True)
        self._listener.start()

    def start(self, start: Start) -> Process:
        """Start a party."""
        number = next(self._numbers)
        process = self._known[number] = Process(start, lambda: self._order(number=number, kill=True))
        self._order(number=number, log=str(self._log), **asdict(start))
        return process

    def close(self) -> None:
        """End every process that still runs, and the parent."""
        for process in list(self._known.values()):
            if not process.over:
                process.kill()
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(30)
        self._listener.join(30)

    def _order(self, **what: Any) -> None:
        assert self._parent.stdin is not None
        with self._lock:
            self._parent.stdin.write(json.dumps(what).encode() + b"\n")
            self._parent.stdin.flush()

    def _listen(self) -> None:
        assert self._parent.stdout is not None
        with self._parent.stdout as told:
            for line in told:
                what = json.loads(line)
                self._known[what["number"]].hear(what)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_events(path: str | Path) -> list[dict[str, Any]]:
    """What the starts of one party have told; a last line that is not whole yet is left out."""
    if not Path(path).exists():
        return []
    lines = Path(path).read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]
