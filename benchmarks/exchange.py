"""What one exchange costs beside split training of the same flights: bytes, round trips, seconds over slow lines.

Both are two processes with TLS and journals, through a relay that counts and delays. Aligning, which is the same for
both, is left out. Set TACIT_BENCH_ROWS for another number of flights than 40,000.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks._measure import Result, seconds
from benchmarks._relay import Relay
from tacit.lab import one_exchange, two_companies
from tacit.lab.two_companies import Company, together

ROWS = 40_000
EPOCHS = 3
DELAYS = (0.0, 0.04, 0.1)

Prepare = Callable[[Path], tuple[Company, Company]]


@dataclass(frozen=True)
class _Cost:
    bytes: int
    round_trips: int
    seconds: float


def run() -> Iterator[Result]:
    """Bytes and round trips once, then the seconds of both over every line."""
    rows = int(os.environ.get("TACIT_BENCH_ROWS", ROWS))

    def exchanged(out: Path) -> tuple[Company, Company]:
        return one_exchange.prepare(out, rows=rows, seed=0)

    def split(out: Path) -> tuple[Company, Company]:
        return two_companies.prepare(out, epochs=EPOCHS, rows=rows, seed=0, limit=None)

    for delay in DELAYS:
        once, often = _cost(exchanged, delay), _cost(split, delay)
        if not delay:
            yield Result("exchange", f"{rows:,} flights: bytes", once.bytes, "bytes")
            yield Result("exchange", f"bytes of split training, {EPOCHS} epochs", often.bytes, "bytes")
            yield Result("exchange", "bytes over those of split training", once.bytes / often.bytes, "x", goal=0.1)
            yield Result("exchange", "round trips", once.round_trips, "round trips", goal=10)
            yield Result("exchange", "round trips of split training", often.round_trips, "round trips")
        line = f"{1000 * delay:.0f} ms each way"
        yield Result("exchange", f"{line}: seconds", once.seconds, "s")
        yield Result("exchange", f"{line}: seconds of split training", often.seconds, "s")


def _cost(prepare: Prepare, delay: float) -> _Cost:
    """Set two companies up, align them, and train over a line of this delay each way."""
    with tempfile.TemporaryDirectory() as scratch:
        airline, airport = prepare(Path(scratch))
        settings = airport.folder / "party.toml"
        port = settings.read_text().split('connect = "127.0.0.1:')[1].split('"')[0]
        with Relay(int(port), delay=delay) as relay:
            settings.write_text(settings.read_text().replace(f"127.0.0.1:{port}", f"127.0.0.1:{relay.port}"))
            together([airline, airport], "align", _silent)
            passed, trips = relay.passed, relay.round_trips
            took = seconds(lambda: together([airline, airport], "train", _silent, done=(0, 1)))
            return _Cost(relay.passed - passed, relay.round_trips - trips, took)


def _silent() -> None:
    """Nothing is shown."""
