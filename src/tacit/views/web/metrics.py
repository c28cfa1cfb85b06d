"""All runs as Prometheus reads them: the text format 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tacit.views.web.shelf import Glance

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What the answer says it is."""

_STATES = ("preparing", "catching up", "waiting", "training", "paused", "finished", "unknown")
_ABOUT = {
    "turns_done": "Turns of the training that are done.",
    "turns_planned": "Turns of the whole training.",
    "turns_per_second": "Turns in a second lately, waiting included.",
    "seconds_left": "Seconds until it is over, at its rate.",
    "alive": "1 while the process that trains is there.",
    "state": "1 for the state that a run is in, 0 for others.",
    "waiting_seconds": "Seconds for which it has been waiting for its peer.",
    "leak": "What each attack reached at the last look while training ran.",
    "worst_leak": "The worst leak that is known, and where it was found.",
    "limit": "The limit that the owner set.",
    "utility": "What the model is worth, after the last epoch.",
    "journal_bytes": "Bytes of the journal on the disk.",
    "alarms_total": "Times that a peer was refused.",
    "reconnects_total": "Times that the connection was made again.",
    "problems": "Files of the run that can't be read.",
}
_FIELDS = {  # of a card, where the name is another
    "turns_done": "turn", "turns_planned": "turns", "turns_per_second": "rate", "alarms_total": "alarms",
    "reconnects_total": "reconnects",
}  # fmt: skip


def exposition(glances: Sequence[Glance], now: float) -> str:
    """All figures of all runs."""
    whole = [glance for glance in glances if glance.card["kind"] == "run" and "turn" in glance.card]
    lines = []
    for name, about in _ABOUT.items():
        full, kind = f"tacit_run_{name}", "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}"]
        for glance in whole:
            own = {label: str(glance.card.get(label) or "") for label in ("run", "party", "id")}
            for labels, value in _samples(name, glance, now):
                if value is not None:
                    told = ",".join(f'{label}="{_text(word)}"' for label, word in (own | labels).items())
                    lines.append(f"{full}{{{told}}} {_number(value)}")
    lines += ["# HELP tacit_runs Runs that were found.", "# TYPE tacit_runs gauge", f"tacit_runs {len(whole)}"]
    return "\n".join(lines) + "\n"


def _samples(name: str, glance: Glance, now: float) -> Iterator[tuple[dict[str, str], float | None]]:
    """What there is of a figure in a run, with the labels that it has beside the run's own."""
    card = glance.card
    worst, utility, measure = card["worst"], card["utility"], str(card["measure"])
    if name == "state":
        state = str(card["state"])
        yield from (({"state": other}, other == state) for other in dict.fromkeys((*_STATES, state)))
    elif name == "waiting_seconds":
        yield {}, 0.0 if glance.waiting is None else max(0.0, now - glance.waiting)
    elif name == "leak":
        yield from (({"attack": attack, "measure": measure}, value) for attack, value in glance.leaks)
    elif name == "worst_leak":
        if worst is not None:
            yield {"attack": str(worst["attack"]), "on": str(worst["on"]), "measure": measure}, worst["value"]
    elif name == "utility":
        if utility is not None:
            yield {"name": str(utility["name"])}, utility["value"]
    else:
        yield {}, len(card["problems"]) if name == "problems" else card.get(_FIELDS.get(name, name))


def _text(text: str) -> str:
    """Text on one line between quotes; what UTF-8 can't write is a "?"."""
    return text.encode(errors="replace").decode().replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return repr(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
