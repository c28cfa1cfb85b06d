"""Hidden sums between two processes over TLS, one of which is killed at every state in turn: the same bytes leave.

Each kill is `kill -9` from within, when a state is on the disk and before anything that follows from it. The party is
started again, goes on from there, and is killed at the next state, until it has passed them all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys

import pytest

from tacit.company.departures import book_of
from tacit.company.folder import Folder
from tacit.one_shot.book import open_book

from .companies import Companies, table

pytest.importorskip("coincurve", reason="libsecp256k1 comes with the extra [sums]")

_TRAIN = """
import os, signal, sys
from pathlib import Path
from tacit.company.folder import Folder
from tacit.company.train import train_one_shot

def trace(passed):
    if passed == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    if passed == "flips written":  # the sums are here, and what follows is as after flips
        os._exit(0)

train_one_shot(Folder(Path(sys.argv[1])), trace=trace)
"""

STATES = {
    "airline": [
        "labels sealed", "labels written", "ciphertexts sent", "partition 0 asked", "partition 0 checked",
        "partition 0 charged", "partition 0 answered", "sums logged", "sums sent", "partition 1 checked",
    ],
    "airport": [
        "labels taken", "hidden groups made", "hidden groups written", "partition 0 asked", "sums entered",
        "partition 1 asked", "flips made",
    ],
}  # fmt: skip
PATIENCE = 600


@pytest.fixture(name="companies", scope="module")
def _companies(tmp_path_factory):
    """Two companies that are about to train; each run is of a copy of their folders, secrets included."""
    companies = Companies(tmp_path_factory.mktemp("killed"), table(800))
    companies.agree('labels = "hidden_sums"\ngroup_size = 16\npartitions = 2')
    companies.set("airline", limits="limit = 0.75\nodds = 12.0", columns='label = "late", numeric = ["plane"]')
    companies.align()
    return companies


class Run:
    """A copy of the companies, and whatever is started of it."""

    def __init__(self, companies, path):
        self.path, self.started = path, []
        for name in ("airline", "airport"):
            shutil.copytree(companies.path / name, path / name)

    def start(self, name, point=""):
        command = [sys.executable, "-c", _TRAIN, str(self.path / name), point]
        log = (self.path / f"{name}.log").open("ab")
        process = subprocess.Popen(
            command, env={**os.environ, "TACIT_STATE": str(self.path / "state")}, stdout=log, stderr=log
        )
        log.close()
        self.started.append(process)
        return process

    def end(self):
        for process in self.started:
            process.kill()
            process.wait()

    def sent(self):
        """All that left either of them on the way to the sums, and what the sums say."""
        hidden = self.path / "airline" / "runs" / "small" / "hidden" / "airport"
        files = [hidden / "labels", *sorted(hidden.glob("partition-*.json"))]
        files.append(self.path / "airport" / "runs" / "small" / "flips" / "sent.npy")
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def passed(companies, path, victim=None):
    """A run in which one of them is killed at each of its states; what left."""
    run = Run(companies, path)
    other = {"airline": "airport", "airport": "airline", None: "airline"}[victim]
    try:
        steady = run.start(other)
        for point in STATES.get(victim, ()):
            assert run.start(victim, point).wait(PATIENCE) == -signal.SIGKILL, (point, _said(path))
        last = run.start(victim or "airport")
        airport = steady if other == "airport" else last
        assert airport.wait(PATIENCE) == 0, _said(path)
    finally:
        run.end()
    return run.sent()


def _said(path):
    return {file.name: file.read_text()[-2000:] for file in path.glob("*.log")}


@pytest.fixture(name="undisturbed", scope="module")
def _undisturbed(companies, tmp_path_factory):
    sent = passed(companies, tmp_path_factory.mktemp("undisturbed"))
    assert set(sent) == {"labels", "partition-0.json", "partition-1.json", "sent.npy"}
    return sent


@pytest.mark.parametrize("victim", STATES)
def test_killed_at_every_state_the_same_bytes_leave_and_are_paid_for_once(companies, undisturbed, tmp_path, victim):
    assert passed(companies, tmp_path, victim) == undisturbed
    airline = Folder(tmp_path / "airline")
    book = open_book(airline.path / "coins", airline.secret)
    assert (book.releases, book.counted) == (1, 3), "one release, and two partitions answered"
    book.close()
    assert [one.kind for one in book_of(Folder(tmp_path / "airport")).all()] == ["hidden sums"]
