"""One side of a timed alignment: `python -m benchmarks._aligning FOLDER`; what it took is a line of JSON."""

from __future__ import annotations

import json
import re
import resource
import sys
import threading
import time
from pathlib import Path

from tacit.company.align import align

__all__ = ["main"]

_MARKS = ("read", "begun", "exchanged", "ended")


def _memory(name: str) -> float:
    """A line of what the system knows about this process, in MB."""
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def main(folder: str) -> None:
    """Align, and tell the seconds of each part, the processor time with all workers, and the most memory."""
    began, most, over = time.perf_counter(), 0.0, threading.Event()
    marks: dict[str, float] = {}

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, _memory("RssAnon"))

    def progress(what: str, done: int, total: int) -> None:
        if what.startswith("aligning"):
            marks.setdefault("begun", time.perf_counter())
            marks["exchanged"] = time.perf_counter()

    def read(said: str) -> None:
        marks["read"] = time.perf_counter()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        found = align(folder, progress=progress, report=read)
    finally:
        over.set()
        watching.join()
    marks["ended"] = time.perf_counter()
    times = [began, *(marks[name] for name in _MARKS)]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    told = {
        **{name: after - before for name, before, after in zip(_MARKS, times[:-1], times[1:], strict=True)},
        "whole": times[-1] - began,
        "cpu": sum(each.ru_utime + each.ru_stime for each in used),
        "anonymous": most,
        "peak": _memory("VmHWM"),
        "common": found.count,
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
