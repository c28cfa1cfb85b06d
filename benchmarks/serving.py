"""A service beside an echo: single rows from one client, then 64 clients at once.

Both are two processes with the same HTTP server in front, the same TLS between them and messages of the same sizes; the
echo has no model, no tokens, no record and no limits. Every request asks for one flight, which the partner is asked for
each time, for nothing is cached. Set TACIT_BENCH_SECONDS for how long 64 clients ask; 10 if not set.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import polars as pl

from benchmarks._measure import Result, free_port
from tacit.company.folder import Folder
from tacit.lab import one_exchange

FLIGHTS = 2000
REQUESTS = 600
CLIENTS = 64
_HEADERS = {"Content-Type": "application/json"}

Ask = Callable[[str], bytes]


def run() -> Iterator[Result]:
    """One client by turns, then many, each of both for so long."""
    long = float(os.environ.get("TACIT_BENCH_SECONDS", "10"))
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        bodies, ours, echo = _set_up(Path(scratch), stack)
        mine, other = _client(ours), _client(echo)
        fresh = [_timed(mine, body) for body in bodies[: REQUESTS // 3]]
        yield Result("serving", "a row that never left before, median", 1000 * statistics.median(fresh), "ms")
        times = [(_timed(mine, body), _timed(other, body)) for body in (bodies[:200] * REQUESTS)[:REQUESTS]]
        for name, share, goal in (("median", 0.5, None), ("99 of 100", 0.99, 3.0)):
            took, reference = (sorted(each)[int(share * REQUESTS)] for each in zip(*times, strict=True))
            yield Result("serving", f"a row that left before, {name}", 1000 * took, "ms")
            yield Result("serving", f"{name} over the echo's", took / reference, "x", goal=goal)
        rates = {port: _many(port, bodies, long) for port in (echo, ours)}
        yield Result("serving", f"{CLIENTS} clients: rows a second", rates[ours][0], "rows/s")
        yield Result(
            "serving", f"{CLIENTS} clients: rows a second over the echo's", rates[ours][0] / rates[echo][0], "x"
        )
        yield Result("serving", f"{CLIENTS} clients: errors in {long:g} s", rates[ours][1], "errors", goal=0)


def _set_up(scratch: Path, stack: ExitStack) -> tuple[list[str], int, int]:
    """Two companies that have trained, their services and the echo's; requests, and the ports of both."""
    airline, airport = one_exchange.prepare(scratch, rows=FLIGHTS, seed=0)
    one_exchange.meet(airline, airport, progress=lambda *_: None)
    settings = {airline: "deadline_ms = 5000\ncache_seconds = 0", airport: "rows_a_minute = 10000000"}
    for company, more in settings.items():
        path = company.folder / "party.toml"
        path.write_text(f"{path.read_text()}\n[serve]\n{more}\n")
    data = Folder(airline.folder).table
    asked = [name for name in (*data.ids, *data.columns) if name != data.label]
    flights = pl.read_parquet(airline.folder / "flights.parquet").select(asked)
    bodies = [json.dumps({"rows": [row]}) for row in flights.to_dicts()]
    ours, echo, link = (free_port() for _ in range(3))
    for company, words in ((airline, ["--http", f"127.0.0.1:{ours}"]), (airport, [])):
        stack.enter_context(_process("tacit", "serve", "--quiet", "--folder", str(company.folder), *words))
    _until_joint(ours, bodies[0])
    size = len(_client(ours)(bodies[0]))
    label = stack.enter_context(
        _process("benchmarks._echo", "label", str(airline.folder), str(link), str(echo), str(size))
    )
    time.sleep(5.0)  # the partner of the echo tries to connect once
    stack.enter_context(_process("benchmarks._echo", "features", str(airport.folder), str(link), "2"))
    assert label.stdout is not None
    label.stdout.readline()
    return bodies, ours, echo


@contextmanager
def _process(module: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-m", module, *words], stdout=subprocess.PIPE)
    try:
        yield started
    finally:
        started.terminate()
        started.communicate()


def _client(port: int) -> Ask:
    """Asks over one connection that stays open."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(body: str) -> bytes:
        link.request("POST", "/score", body, _HEADERS)
        answer = link.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {said!r}")
        return said

    return ask


def _timed(ask: Ask, body: str) -> float:
    began = time.perf_counter()
    ask(body)
    return time.perf_counter() - began


def _until_joint(port: int, body: str) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            if json.loads(_client(port)(body))["basis"] == ["joint"]:
                return
        except OSError:  # it does not listen yet
            pass
        time.sleep(0.2)
    raise RuntimeError("the two services do not find each other")


def _many(port: int, bodies: list[str], seconds: float) -> tuple[float, int]:
    """Rows a second that many clients get, and how many of their requests failed."""
    end = time.monotonic() + seconds

    def one(number: int) -> tuple[int, int]:
        ask, done, failed = _client(port), 0, 0
        while time.monotonic() < end:
            try:
                ask(bodies[(number + CLIENTS * done) % 200])
            except (OSError, RuntimeError, http.client.HTTPException):
                ask, failed = _client(port), failed + 1
            done += 1
        return done, failed

    with ThreadPoolExecutor(CLIENTS) as clients:
        found = list(clients.map(one, range(CLIENTS)))
    return sum(done for done, _ in found) / seconds, sum(failed for _, failed in found)
