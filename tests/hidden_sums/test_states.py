"""Whoever is killed goes on to the same bytes, and pays once: at every state, in both processes, by kill -9."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import StorageError
from tests.hidden_sums.sides import Pair, some_groups

# One run of both sides in one folder, which ends itself at a state; what it sends it prints, as a hash.
_RUN = """
import hashlib, os, signal, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[3])
from tests.hidden_sums.sides import FEATURE_SECRET, Pair, some_groups
from tacit.hidden_sums.feature_side import FeatureSide

folder, point = Path(sys.argv[1]), sys.argv[2]

def trace(state):
    if state == point:
        os.kill(os.getpid(), signal.SIGKILL)

def charge(partition, batch):
    with open(folder / "charges", "a") as file:
        file.write(f"{partition}\\n")
    trace(f"partition {partition} charged")

def noise(partition, digest, count):
    return np.frombuffer(hashlib.shake_256(digest).digest(count), np.uint8).astype(np.int64) % 9 - 4

folder.mkdir(exist_ok=True)
pair = Pair(folder, noise=noise, charge=charge, trace=trace)
pair.features = FeatureSide(folder / "features", FEATURE_SECRET, pair.agreement, trace=trace)
sent = [pair.label.commitment()]
pair.features.accept(sent[0])
for partition in (0, 1):
    batch = pair.features.batch(partition, some_groups(seed=partition))
    sent += [batch, pair.label.answer(partition, batch)]
print([hashlib.sha256(part).hexdigest() for part in sent])
"""

POINTS = [
    "labels sealed", "labels written", "labels taken", "partition 0 asked", "partition 0 checked",
    "partition 0 charged", "partition 0 answered", "partition 1 checked",
]  # fmt: skip


def run(folder, point=""):
    root = str(Path(__file__).parents[2])
    return subprocess.run([sys.executable, "-c", _RUN, str(folder), point, root], capture_output=True, text=True)


@pytest.fixture(name="undisturbed", scope="module")
def _undisturbed(tmp_path_factory):
    done = run(tmp_path_factory.mktemp("undisturbed") / "run")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_state_gives_the_same_bytes(tmp_path, undisturbed, point):
    folder = tmp_path / "run"
    assert run(folder, point).returncode == -signal.SIGKILL
    again = run(folder)
    assert again.returncode == 0, again.stderr
    assert again.stdout == undisturbed
    charged = (folder / "charges").read_text().split()
    assert set(charged) == {"0", "1"}
    # A book enters a partition once, however often it is told; it is told again where the kill was after that alone.
    assert len(charged) == (3 if point == "partition 0 charged" else 2)


def states(folder):
    return {path.stem: json.loads(path.read_bytes())["name"] for path in (folder / "label").glob("partition-*.json")}


def test_the_states_are_on_the_disk_in_their_order(tmp_path):
    seen = []

    def charge(partition, batch):
        seen.append(("charged", states(tmp_path)))

    def noise(partition, digest, count):
        seen.append(("noise", states(tmp_path)))
        return np.zeros(count, np.int64)

    pair = Pair(tmp_path, charge=charge, noise=noise, trace=lambda state: seen.append((state, states(tmp_path))))
    pair.meet()
    assert [state for state, _ in seen] == ["labels sealed", "labels written"]
    pair.label.answer(2, pair.features.batch(2, some_groups()))
    assert seen[2:] == [
        ("partition 2 asked", {"partition-2": "asked"}),
        ("partition 2 checked", {"partition-2": "checked"}),
        ("charged", {"partition-2": "checked"}),
        ("noise", {"partition-2": "checked"}),
        ("partition 2 answered", {"partition-2": "answered"}),
    ]


def test_a_state_that_was_damaged_is_not_begun_anew(pair, tmp_path):
    batch = pair.features.batch(0, some_groups())
    pair.label.answer(0, batch)
    (tmp_path / "label" / "partition-0.json").write_text("{")
    with pytest.raises(StorageError, match="bring it back"):
        pair.label.answer(0, batch)


def test_labels_and_sums_are_in_no_file_that_others_may_read(pair, tmp_path):
    pair.label.answer(0, pair.features.batch(0, some_groups()))
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.rglob("*") if path.is_file())


def test_one_at_a_time_answers_from_a_folder(tmp_path):
    pair = Pair(tmp_path, noise=lambda *_: pair.label.answer(0, b"another"))  # while the first one is being answered
    pair.meet()
    batch = pair.features.batch(0, some_groups())
    with pytest.raises(StorageError, match="another process"):
        pair.label.answer(0, batch)
    assert states(tmp_path) == {"partition-0": "checked"}
