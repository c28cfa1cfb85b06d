"""Two small companies with a training between them, in folders that can be copied, spoilt and put right."""

from __future__ import annotations

import random
import re
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import polars as pl
from safetensors import safe_open

from tacit.company.folder import create
from tacit.errors import TacitError
from tests.torture.processes import Process, Processes, read_events
from tests.torture.workers import FAILED, Start, state_of

__all__ = [
    "FEATURES", "LABEL", "PARTIES", "RUN", "Size", "Training", "TrialError", "check", "copy_party", "free_port",
    "prepare",
]  # fmt: skip

LABEL, FEATURES = "airline", "airport"
PARTIES = (LABEL, FEATURES)
RUN = "torture"

_BRIEF = 110  # characters of an error that a table has room for
_PORTS = (10_240, 32_000)  # below those that a system gives to connections by itself

_PARTY = """\
name = "{name}"
role = "{role}"
[network]
{network} = "127.0.0.1:1"
[data]
path = "data.parquet"
ids = ["id"]
{label}categorical = {categorical}
numeric = {numeric}
[model]
name = "wide_deep"
layers = 2
[training]
learning_rate = 0.002
threads = 1
checkpoint_every = {every}
seed = 7
{protect}"""

_PROTECT = {
    LABEL: '[protect]\ngradient = { name = "matched", leak_auc = 0.6 }\n',
    FEATURES: '[protect]\nembedding = [{ name = "adversarial", weight = 0.05 }, { name = "gaussian", snr = 10.0 }]\n',
}
"""Both sides draw noise, and the feature party learns something on the side: all of it must survive a kill."""

_CONTRACT = """\
run = "{run}"
label_party = "airline"
feature_parties = ["airport"]
loss = "binary"
epochs = {epochs}
batch_size = {batch_size}
[cut]
widths = {{ airport = 16 }}
[minimum]
gradient = {{ name = "matched", leak_auc = 0.62 }}
"""


class TrialError(TacitError):
    """A trial found that something is not as it should be."""


def check(holds: bool, what: str) -> None:
    """Fail the trial where this does not hold."""
    if not holds:
        raise TrialError(what)


@dataclass(frozen=True)
class Size:
    """How large the training is: rows of each side, passes over them, rows in a step, turns between checkpoints."""

    rows: int = 2400
    epochs: int = 8
    batch_size: int = 64
    every: int = 20

    @property
    def turns(self) -> int:
        """All turns of the training, when every row is common to both."""
        test = int(self.rows * 0.2)
        return self.epochs * ((self.rows - test) // self.batch_size + -(-test // self.batch_size)) + 1


def prepare(folder: Path, size: Size, *, seed: int) -> None:
    """Make both companies' folders, with tables, keys, each other's certificates and one contract; not aligned yet."""
    draw = np.random.default_rng(seed)
    ids = np.arange(size.rows)
    x = draw.standard_normal((size.rows, 4))
    kind = draw.integers(0, 12, size.rows)
    late = (x[:, 0] + 0.5 * x[:, 2] + 0.1 * kind + draw.standard_normal(size.rows) > 1.2).astype(np.int64)
    tables = {
        LABEL: pl.DataFrame({"id": ids, "late": late, "distance": x[:, 2]}),
        FEATURES: pl.DataFrame({"id": ids, "gate": kind, "wind": x[:, 0], "rain": x[:, 1], "cloud": x[:, 3]}).sample(
            fraction=1.0, shuffle=True, seed=seed
        ),
    }
    made = {}
    for name in PARTIES:
        role: Literal["label", "features"] = "label" if name == LABEL else "features"
        made[name] = create(folder / name, role=role, name=name)
        tables[name].write_parquet(folder / name / "data.parquet")
        (folder / name / "party.toml").write_text(
            _PARTY.format(
                name=name,
                role=role,
                network="listen" if name == LABEL else "connect",
                label='label = "late"\n' if name == LABEL else "",
                categorical='["gate"]' if name == FEATURES else "[]",
                numeric='["wind", "rain", "cloud"]' if name == FEATURES else '["distance"]',
                every=size.every,
                protect=_PROTECT[name],
            )
        )
        contract = _CONTRACT.format(run=RUN, epochs=size.epochs, batch_size=size.batch_size)
        (folder / name / "contract.toml").write_text(contract)
    made[LABEL].trust(folder / FEATURES / f"{FEATURES}.crt")
    made[FEATURES].trust(folder / LABEL / f"{LABEL}.crt")


class Training:
    """One training of the two: their folders, and the processes that were started in them.

    Args:
        processes: starts them.
        folder: where both folders are.
        port: where the label party listens; a free one if not given.
        connect: where the feature party looks for it; there if not given.
    """

    def __init__(self, processes: Processes, folder: Path, *, port: int = 0, connect: int = 0) -> None:
        self.processes = processes
        self.folder = folder
        self.port = port or free_port()
        self.running: dict[str, Process] = {}
        for name, where in ((LABEL, self.port), (FEATURES, connect or self.port)):
            self.edit(name, r"127\.0\.0\.1:\d+", f"127.0.0.1:{where}")

    @classmethod
    def copy(cls, processes: Processes, source: Path, folder: Path, *, connect: int = 0, port: int = 0) -> Self:
        """A training in a copy of the folders of another one."""
        for name in PARTIES:
            copy_party(source / name, folder / name)
        return cls(processes, folder, connect=connect, port=port)

    # --- the folders ---

    def party(self, name: str) -> Path:
        """A party's folder."""
        return self.folder / name

    def run_folder(self, name: str) -> Path:
        """Where a party keeps its run."""
        return self.party(name) / "runs" / RUN

    def edit(self, name: str, pattern: str, to: str, file: str = "party.toml") -> None:
        """Change a file of a party; what is to be changed must be there."""
        path = self.party(name) / file
        text, found = re.subn(pattern, to, path.read_text())
        check(found > 0, f"{path} has nothing like {pattern}")
        path.write_text(text)

    def state(self, name: str) -> dict[str, bytes]:
        """The files of a party's journal and checkpoints."""
        where = self.run_folder(name)
        files = [*where.glob("journal/journal-*"), *where.glob("checkpoints/checkpoint-*")]
        return {file.name: file.read_bytes() for file in sorted(files)}

    def kept(self, name: str, before: Mapping[str, bytes]) -> bool:
        """Whether a party's files still begin with all that they had; a request of its own may have been added."""
        now = self.state(name)
        return now.keys() == before.keys() and all(now[file].startswith(said) for file, said in before.items())

    def model(self, name: str) -> dict[str, bytes]:
        """The bytes of each tensor of a party's finished half."""
        with safe_open(self.run_folder(name) / "model.safetensors", "numpy") as file:
            return {key: file.get_tensor(key).tobytes() for key in sorted(file.keys())}

    # --- the processes ---

    def start(self, name: str, **how: Any) -> Process:
        """Start a party; options are those of `Start`."""
        self.running[name] = self.another(name, self.party(name), **how)
        return self.running[name]

    def another(self, name: str, folder: Path, **how: Any) -> Process:
        """Start a process in some folder, as that party."""
        return self.processes.start(replace(Start(str(folder), str(self.events(name))), **how))

    def finish(self, patience: float = 90.0, **how: Any) -> None:
        """Start whoever does not run, and let both come to their end."""
        for name in PARTIES:
            if name not in self.running or self.running[name].over:
                self.start(name, **how)
        until = time.monotonic() + patience
        for name in PARTIES:
            code = self.running[name].wait(max(0.0, until - time.monotonic()))
            check(code == 0, f"{name} ended with {code}: {self.complaint(self.running[name])}")

    def stop(self) -> None:
        """Kill whoever runs."""
        for process in self.running.values():
            process.kill()
            check(process.wait(30) is not None, "a process outlives SIGKILL")

    def refused(self, process: Process, *words: str, patience: float = 40.0) -> Mapping[str, str]:
        """Wait until a process gives up, with an error of ours that has all these words; the error."""
        code = process.wait(patience)
        check(code == FAILED, f"not refused, it ended with {code}; {', '.join(words)} was expected")
        error: dict[str, str] = process.events[-1]
        said = f"{error['error']} {error['field']} {error['message']}"
        missing = [word for word in words if word not in said]
        check(not missing, f"refused without a word of {', '.join(missing)}: {said}")
        return error

    def brief(self, error: Mapping[str, str]) -> str:
        """An error in a line: the field that it names, or its type, and how its words begin."""
        words = re.sub(r"[0-9a-f]{4}(:?[0-9a-f]{4}){8,}", "…", error["message"].replace(str(self.folder), ""))
        return f"{error['field'] or error['error']}: {words if len(words) <= _BRIEF else words[:_BRIEF] + '…'}"

    def wait_for(self, what: str, found: Callable[[], bool], patience: float = 40.0) -> None:
        """Wait until something is so; a party that ends with an error meanwhile is a failure."""
        until = time.monotonic() + patience
        while not found():
            for name, process in self.running.items():
                check(process.code in (None, 0, -9), f"waiting for {what}: {name} {self.complaint(process)}")
            check(time.monotonic() < until, f"waited {patience:.0f} s for {what}")
            time.sleep(0.02)

    # --- what was told ---

    def events(self, name: str) -> Path:
        """The file in which all starts of a party tell what happens."""
        return self.folder / f"{name}.jsonl"

    def answers(self) -> dict[str, set[str]]:
        """Every answer that the label party ever sent: fingerprints by peer, kind and step."""
        found: dict[str, set[str]] = {}
        for event in read_events(self.events(LABEL)):
            if event["event"] == "answer":
                found.setdefault(event["key"], set()).add(event["fingerprint"])
        return found

    def alarms(self, name: str = LABEL) -> list[dict[str, Any]]:
        """What a party refused, as its log has it."""
        return [event for event in read_events(self.run_folder(name) / "log.jsonl") if event["event"] == "refused"]

    def complaint(self, process: Process) -> str:
        """What a process said last."""
        events = process.events
        last = events[-1] if events else {"event": "nothing"}
        return str(last.get("message", f"said last: {last['event']}"))


def copy_party(source: Path, to: Path) -> None:
    """A party's folder and what its machine keeps apart from it."""
    shutil.copytree(source, to)
    if Path(state_of(source)).exists():
        shutil.copytree(state_of(source), state_of(to))


def free_port() -> int:
    """A port of this machine that nobody uses."""
    for _ in range(100):
        port = random.SystemRandom().randrange(*_PORTS)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise TrialError("no free port was found")
