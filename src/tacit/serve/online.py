"""What both sides of a service share: what may come, what they say first, what they count and what they log.

::

    feature party                                      label party
    hello, with the version of the model        <-->   hello, with the version of the model
    hello 1, with the digest of its half        -->
                                                <--    tokens n
    embedding n, or refusal n                   -->

Requests are numbered from 1 on over each link, and several may be on their way. A refusal with the number of a request
is about that alone; one with the number 0 ends the link. Of each row an answer has a byte that says whether the feature
party knows it, and its embedding; that of an unknown row is zeros.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import torch

from tacit.company.meeting import Purpose
from tacit.serve.tokens import SIZE
from tacit.wire.codec import CONTROL, AtMost, Limit

ROWS = 4096
"""Rows of a message, at most."""

Log = Callable[..., None]
"""Told what happened, in a word, and more about it by name; never an id."""

_LATEST = 20_000  # answers whose times are known one by one
_CONTROLS = dict.fromkeys(("hello", "refusal"), CONTROL)


def feature_limits() -> dict[str, Limit]:
    """What may come to a feature party."""
    return {**_CONTROLS, "tokens": Limit(torch.uint8, (AtMost(ROWS), SIZE))}


def label_limits(widths: Mapping[str, int]) -> dict[str, Limit]:
    """What may come to a label party; the exact width is seen when it is taken."""
    return {**_CONTROLS, "embedding": Limit(torch.uint8, (AtMost(ROWS), AtMost(1 + max(widths.values()))))}


def purpose(versions: Mapping[str, str]) -> Purpose:
    """What both sides say first, and what must be equal: before that nothing is sent. Versions are by peer."""
    return lambda peer: {"purpose": "serve", "model": versions[peer]}


def log_to_stderr(event: str, **details: object) -> None:
    """A line of JSON on the error stream."""
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **details}
    sys.stderr.write(json.dumps(line, default=str) + "\n")
    sys.stderr.flush()


class Seldom:
    """A log that no peer can flood: of each event so many lines a minute; the next one says how many had no place."""

    MOST = 60

    def __init__(self, log: Log, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        self._lines: dict[str, tuple[float, int]] = {}  # of each event: since when, how often
        self._lock = threading.Lock()

    def __call__(self, event: str, **details: object) -> None:
        """Log an event, or count it."""
        now = self._now()
        with self._lock:
            began, count = self._lines.get(event, (now, 0))
            left_out = 0
            if now - began >= 60:
                began, count, left_out = now, 0, max(0, count - self.MOST)
            self._lines[event] = began, count + 1
        if count < self.MOST:
            self._log(event, **details, **({"left_out": left_out} if left_out else {}))


class Metrics:
    """Counters and gauges, as Prometheus reads them. Any thread may count.

    `about` says of each name what it is; gauges are asked when somebody looks: a number by name, and labels as they are
    written.
    """

    BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds

    def __init__(self, about: Mapping[str, str], gauges: Callable[[], Mapping[tuple[str, str], float]]) -> None:
        self._about, self._gauges = about, gauges
        self._counts: Counter[tuple[str, str]] = Counter()
        self._latest: deque[tuple[float, float]] = deque(maxlen=_LATEST)  # when an answer was given, and its seconds
        self._lock = threading.Lock()
        self._began = time.time()

    def count(self, name: str, more: float = 1, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name, _labels(labels)] += more  # type: ignore[assignment]

    def took(self, name: str, seconds: float) -> None:
        """Add to a histogram of seconds."""
        with self._lock:
            self._latest.append((time.monotonic(), seconds))
            for bucket in self.BUCKETS:
                self._counts[f"{name}_bucket", _labels({"le": f"{bucket:g}"})] += seconds <= bucket
            self._counts[f"{name}_bucket", _labels({"le": "+Inf"})] += 1
            self._counts[f"{name}_count", ""] += 1
            self._counts[f"{name}_sum", ""] += seconds  # type: ignore[assignment]

    @property
    def answers(self) -> int:
        """That were given in all."""
        with self._lock:
            return int(sum(value for (name, _), value in self._counts.items() if name.endswith("_seconds_count")))

    def lately(self, seconds: float) -> list[float]:
        """How long answers of the last so many seconds took, the latest of them where there were very many."""
        since = time.monotonic() - seconds
        with self._lock:
            return [took for when, took in self._latest if when >= since]

    def by(self, name: str) -> dict[str, int]:
        """A counter by its one label."""
        with self._lock:
            found = [(labels, value) for (key, labels), value in self._counts.items() if key == name]
        return {labels.split('"')[1]: int(value) for labels, value in found}

    def text(self) -> str:
        """All of them, in the form that Prometheus reads."""
        with self._lock:
            counts = dict(self._counts)
        gauges = {("tacit_serve_start_time_seconds", ""): self._began, **self._gauges()}
        lines = []
        for name, about in {"tacit_serve_start_time_seconds": "When the service began.", **self._about}.items():
            mine = [(key, value) for key, value in (gauges | counts).items() if _family(key[0]) == name]
            if mine:
                histogram = mine[0][0][0] != name
                kind = "histogram" if histogram else "gauge" if mine[0][0] in gauges else "counter"
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
                lines += [f"{key}{labels} {value:.10g}" for (key, labels), value in mine]
        return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    """As they are written; all values are words of ours, names of parties or numbers, which need no escape."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""


def _family(name: str) -> str:
    for ending in ("_bucket", "_count", "_sum"):
        if name.endswith(f"_seconds{ending}"):
            return name.removesuffix(ending)
    return name
