"""All runs as Prometheus reads them: the text format 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tacit.views.web.shelf import Glance

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What the answer says it is."""

_STATES = ("preparing", "catching up", "waiting", "training", "paused", "finished", "unknown")

Labels = dict[str, str]
Samples = Iterable[tuple[Labels, float | None]]


@dataclass(frozen=True)
class _Metric:
    """A family of figures: its name, what it is, and how to get it from a run."""

    name: str
    kind: Literal["gauge", "counter"]
    about: str
    read: Callable[[Glance, float], Samples]


def exposition(glances: Sequence[Glance], now: float) -> str:
    """All figures of all runs."""
    whole = [glance for glance in glances if glance.card["kind"] == "run" and "turn" in glance.card]
    lines = []
    for metric in _METRICS:
        lines += [f"# HELP {metric.name} {_text(metric.about)}", f"# TYPE {metric.name} {metric.kind}"]
        for glance in whole:
            own = {name: str(glance.card.get(name) or "") for name in ("run", "party", "id")}
            for labels, value in metric.read(glance, now):
                if value is not None:
                    told = ",".join(f'{name}="{_text(word, quoted=True)}"' for name, word in (own | labels).items())
                    lines.append(f"{metric.name}{{{told}}} {_number(value)}")
    lines += ["# HELP tacit_runs Runs that were found.", "# TYPE tacit_runs gauge", f"tacit_runs {len(whole)}"]
    return "\n".join(lines) + "\n"


def _field(name: str) -> Callable[[Glance, float], Samples]:
    return lambda glance, now: [({}, glance.card.get(name))]


def _worst(glance: Glance, now: float) -> Samples:
    worst = glance.card["worst"]
    if worst is not None:
        labels = {"attack": str(worst["attack"]), "on": str(worst["on"]), "measure": str(glance.card["measure"])}
        yield labels, worst["value"]


def _utility(glance: Glance, now: float) -> Samples:
    utility: dict[str, Any] | None = glance.card["utility"]
    return [] if utility is None else [({"name": str(utility["name"])}, utility["value"])]


def _states(glance: Glance, now: float) -> Samples:
    state = str(glance.card["state"])
    return [({"state": name}, float(name == state)) for name in dict.fromkeys((*_STATES, state))]


_METRICS = (
    _Metric("tacit_run_turns_done", "gauge", "Turns of the training that are done.", _field("turn")),
    _Metric("tacit_run_turns_planned", "gauge", "Turns of the whole training.", _field("turns")),
    _Metric("tacit_run_turns_per_second", "gauge", "Turns in a second lately, waiting included.", _field("rate")),
    _Metric("tacit_run_seconds_left", "gauge", "Seconds until it is over, at its rate.", _field("seconds_left")),
    _Metric("tacit_run_alive", "gauge", "1 while the process that trains is there.", _field("alive")),
    _Metric("tacit_run_state", "gauge", "1 for the state that a run is in, 0 for others.", _states),
    _Metric("tacit_run_waiting_seconds", "gauge", "Seconds for which it has been waiting for its peer.",
            lambda glance, now: [({}, 0.0 if glance.waiting is None else max(0.0, now - glance.waiting))]),
    _Metric("tacit_run_leak", "gauge", "What each attack reached at the last look while training ran.",
            lambda glance, now: [({"attack": name, "measure": str(glance.card["measure"])}, value)
                                 for name, value in glance.leaks]),
    _Metric("tacit_run_worst_leak", "gauge", "The worst leak that is known, and where it was found.", _worst),
    _Metric("tacit_run_limit", "gauge", "The limit that the owner set.", _field("limit")),
    _Metric("tacit_run_level", "gauge", "Times that the protection was made stronger.", _field("level")),
    _Metric("tacit_run_utility", "gauge", "What the model is worth, after the last epoch.", _utility),
    _Metric("tacit_run_journal_bytes", "gauge", "Bytes of the journal on the disk.", _field("journal_bytes")),
    _Metric("tacit_run_alarms_total", "counter", "Times that a peer was refused.", _field("alarms")),
    _Metric("tacit_run_reconnects_total", "counter", "Times that the connection was made again.", _field("reconnects")),
    _Metric("tacit_run_problems", "gauge", "Files of the run that can't be read.",
            lambda glance, now: [({}, len(glance.card["problems"]))]),
)  # fmt: skip


def _text(text: str, *, quoted: bool = False) -> str:
    """Text on one line; what UTF-8 can't write is a "?"."""
    line = text.encode(errors="replace").decode().replace("\\", "\\\\").replace("\n", "\\n")
    return line.replace('"', '\\"') if quoted else line


def _number(value: float) -> str:
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return repr(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
