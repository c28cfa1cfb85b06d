"""Run folders as a run writes them, line by line, through the very code that writes them."""

import json
import os

import pytest

from tacit.disk import append_line, replaced
from tacit.report import seals

FIGURE = {"attack": "cosine", "on": "batches", "value": 0.55, "low": 0.52, "upper": 0.58, "limit": None}


class Written:
    """A run's folder that a test adds to."""

    def __init__(self, party, run="flights", role="label"):
        self.path = party / "runs" / run
        self.path.mkdir(parents=True)
        (party / "party.toml").write_text("")
        (party / "keys").mkdir(exist_ok=True)
        (party / "keys" / "secret").write_bytes(b"s" * 32)
        self.told = {"run": run, "party": party.name, "role": role, "turns": 110, "steps": 50, "epochs": 2, "pid": 0}
        self.status(state="training", turn=10, epoch=0, journal_bytes=1000)

    def status(self, **changes):
        self.told |= {"time": "2026-11-15T10:00:00+00:00", **changes}
        replaced(self.path / "status.json", lambda file: file.write(json.dumps(self.told).encode()), durable=False)

    def look(self, step, *, loss=0.5, **found):
        line = {"step": step, "turn": step, "epoch": step // 50, "found": found, "figures": {"loss": loss}}
        append_line(self.path / "live.jsonl", line)

    def pace(self, time, turn, state="training"):
        append_line(self.path / "pace.jsonl", {"time": time, "turn": turn, "state": state, "journal_bytes": 10 * turn})

    def decide(self, epoch, decision="keep", measured=(), worst=None, limit=0.6):
        seals.append(
            self.path / "gate.jsonl",
            {"time": "2026-11-15T10:00:00+00:00", "epoch": epoch, "turn": 0, "decision": decision,
             "strength": "matched()", "limit": limit, "reason": "as it is", "broken": False,
             "measured": list(measured), "worst": worst, "foreseen": None},
        )  # fmt: skip

    def event(self, event, time="2026-11-15T10:00:00+00:00", **details):
        append_line(self.path / "log.jsonl", {"time": time, "event": event, **details})


@pytest.fixture(name="written")
def _written(tmp_path):
    def make(party="airline", **options):
        return Written(tmp_path / party, **options)

    return make


@pytest.fixture(name="me")
def _me():
    """A process that is alive."""
    return os.getpid()
