"""Folders of runs as a party writes them, that a test adds to, and a reader of what TensorBoard would show."""

import json
import subprocess

import pytest

from tacit.company import seals
from tacit.company.seals import write_report
from tacit.disk import append_line, replaced
from tacit.views.report.document import Leak, Report, Subject

WHEN = "2026-11-15T10:00:00+00:00"
CONTRACT = 'run = "flights"\nepochs = 2\nbatch_size = 256\n[cut]\nwidths = { airport = 8 }\n'
PARTY = 'name = "airline"\nlimit = 0.6\n[network]\nlisten = "127.0.0.1:1"\n[protect]\ngradient = { name = "matched" }\n'
NORMS = {"low": 0.1, "high": 10.0, "counts": [[3, 1, 0, 2], [0, 2, 5, 0]]}


class Run:
    """A run's folder: 2 epochs of 50 steps, 110 turns."""

    def __init__(self, party, pid, run="flights"):
        self.path = party / "runs" / run
        self.path.mkdir(parents=True)
        (party / "contract.toml").write_text(CONTRACT)
        (party / "party.toml").write_text(PARTY)
        (party / "keys").mkdir(exist_ok=True)
        (party / "keys" / "secret").write_bytes(b"s" * 32)
        self.told = {"run": run, "party": party.name, "role": "label", "turns": 110, "steps": 50, "epochs": 2,
                     "pid": pid, "time": WHEN}  # fmt: skip
        self.status(state="training", turn=10, epoch=0, journal_bytes=100)

    def status(self, **changes):
        self.told |= changes
        replaced(self.path / "status.json", lambda file: file.write(json.dumps(self.told).encode()), durable=False)

    def look(self, *steps):
        for step in steps:
            found = {"norm": 0.4 + step / 1000, "cosine": 0.6}
            line = {"step": step, "turn": step, "epoch": 0, "found": found, "figures": {"loss": 1 / (1 + step)}}
            append_line(self.path / "live.jsonl", line | {"norms": {"sent": NORMS, "clean": NORMS}})

    def decide(self, epoch, *, value=0.55):
        measured = [{"attack": "residual", "on": "visits", "value": value, "low": 0.52, "upper": 0.58, "limit": None}]
        line = {"time": WHEN, "epoch": epoch, "turn": 0, "decision": "keep", "strength": "matched()",
                "limit": 0.6, "reason": "it holds", "broken": False, "measured": measured if epoch > 1 else [],
                "worst": None, "foreseen": None}  # fmt: skip
        seals.append(self.path / "gate.jsonl", line)

    def pace(self, time, turn, state="training"):
        append_line(self.path / "pace.jsonl", {"time": time, "turn": turn, "state": state, "journal_bytes": 10 * turn})

    def report(self, value=0.53):
        leaks = (Leak(attack="accumulated(norm, precise)", on="visits", value=value, low=0.5, high=0.56),)
        subject = Subject(kind="run", side="features", run="flights", versions={"torch": "2"})
        write_report(Report(made=WHEN, subject=subject, verdict="no limit", leaks=leaks), self.path)

    def train(self, *looks):
        """What a training leaves that is over."""
        self.look(*looks)
        self.decide(1)
        self.decide(2, value=0.57)
        self.pace(1000.0, 0)
        self.pace(1010.0, 55)
        self.pace(1030.0, 110)
        append_line(self.path / "log.jsonl", {"time": WHEN, "event": "connected", "peer": "airport", "turn": 0})
        history = [{"epoch": 0, "test_auc": 0.6}, {"epoch": 1, "test_auc": 0.7}]
        self.status(state="finished", turn=110, epoch=2, history=history)
        self.report()
        return self


@pytest.fixture(name="gone", scope="session")
def _gone():
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait(timeout=20)
    return process.pid


@pytest.fixture(name="make_run")
def _make_run(tmp_path, gone):
    return lambda party="airline", pid=gone, **options: Run(tmp_path / "runs" / party, pid, **options)


@pytest.fixture(name="shown", scope="session")
def _shown():
    """All that TensorBoard finds in the folder of a run: scalars and texts by name, and the times of scalars."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    def shown(folder):
        read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
        read.Reload()
        tags = read.Tags()
        scalars = {tag: [(one.step, one.value) for one in read.Scalars(tag)] for tag in tags["scalars"]}
        texts = {
            tag: [(one.step, tensor_util.make_ndarray(one.tensor_proto)[0].decode()) for one in read.Tensors(tag)]
            for tag in tags["tensors"]
        }
        times = {tag: [one.wall_time for one in read.Scalars(tag)] for tag in tags["scalars"]}
        return scalars, texts, times

    return shown
