"""Two small companies whose gradients and embeddings tell something, ready to train under a limit."""

import json
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from safetensors.torch import load_file

from benchmarks._companies import align_rows, contract, two_companies
from tacit.company.folder import Folder
from tacit.errors import TacitError
from tacit.split.gate import decisions
from tacit.split.train import train
from tests.torture.world import free_port

RUN = "gated"
SETTINGS = """\
model = { name = "wide_deep", layers = 1 }
training = { threads = 1, seed = 7, checkpoint_every = 4, learning_rate = 0.02 }
record = { last = 8, follow = 400 }
live = { every = 3, fitted = 8 }
"""
ROWS = 800  # 640 to train on: 8 steps and 2 evaluations in an epoch


class KilledError(Exception):
    """A party ends in the middle of a turn."""


class LeftAloneError(Exception):
    """A party waits for a peer that has ended."""


class Companies:
    """The airline, which has the labels, and the airport."""

    def __init__(self, path):
        self.path = path
        self.airline, self.airport = path / "airline", path / "airport"

    def set(self, airline="", airport="", contract=""):
        """Add lines to party.toml and contract.toml, in the place of those that set the same."""
        for folder, file, lines in (
            (self.airline, "party.toml", airline), (self.airport, "party.toml", airport),
            *((folder, "contract.toml", contract) for folder in (self.airline, self.airport)),
        ):  # fmt: skip
            text = (folder / file).read_text()
            for line in filter(None, lines.split("\n")):
                key = re.escape(line.partition("=")[0])
                text = re.sub(rf"(?m)^{key}.*\n", "", text) + line + "\n"
            (folder / file).write_text(text)
        return self

    def unset(self, key, folder=None):
        path = (folder or self.airline) / "party.toml"
        path.write_text(re.sub(rf"(?m)^{key} =.*\n", "", path.read_text()))
        return self

    def copy(self, path):
        """The same two companies elsewhere, with the same secrets, on machines of their own."""
        shutil.copytree(self.path, path)
        if self.state.exists():
            shutil.copytree(self.state, Companies(path).state)
        return Companies(path)

    @property
    def state(self):
        """Where what left is counted."""
        return self.path.with_name(f"{self.path.name}-state")

    def run(self, folder):
        return folder / "runs" / RUN

    def another_run(self, name):
        """Agree on another training over the same rows."""
        return self.set(contract=f'run = "{name}"').align(name)

    def align(self, name=RUN):
        for path in (self.airline, self.airport):
            folder = Folder(path)
            own = np.arange(ROWS) if folder.config.role == "label" else ROWS - 1 - np.arange(ROWS)
            align_rows(folder, own, id=name.encode().hex(), seed=1, digest="00")
        return self

    def train(self, airline=lambda point: None, airport=lambda point: None, patience=60, *, alone=True):
        """Both train at the same time; each is started again when it is killed. What they return or raise.

        Who waits for a peer that has ended is ended as well, and has raised `LeftAloneError`, unless it hears that by
        itself.
        """
        over = threading.Event()

        def waiting(peer, seconds, why):
            if alone and over.is_set():
                raise LeftAloneError(why)

        def one(folder, trace):
            try:
                return restarted(folder, trace)
            except (TacitError, LeftAloneError) as error:
                return error
            finally:
                over.set()

        def restarted(folder, trace):
            while True:
                try:
                    return train(folder, trace=trace, waiting=waiting)
                except KilledError:
                    continue

        with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(2) as pool:
            patched.setenv("TACIT_STATE", str(self.state))
            futures = [pool.submit(one, self.airline, airline), pool.submit(one, self.airport, airport)]
            return [future.result(timeout=patience) for future in futures]

    def told(self, folder=None):
        """What a gate decided."""
        return decisions(self.run(folder or self.airline))

    def lines(self, folder, name):
        return [json.loads(line) for line in (self.run(folder) / name).read_text().splitlines()]

    def weights(self, folder):
        return {
            name: value.numpy().tobytes() for name, value in load_file(self.run(folder) / "model.safetensors").items()
        }


class Kills:
    """A trace that kills after so many points, and after so many more, and so on."""

    def __init__(self, *counts):
        self.left = list(counts)
        self.done = 0

    def __call__(self, point):
        if self.left:
            self.left[0] -= 1
            if self.left[0] < 0:
                self.left.pop(0)
                self.done += 1
                raise KilledError(point)


@pytest.fixture(name="kills", scope="session")
def _kills():
    return Kills


@pytest.fixture(name="killed", scope="session")
def _killed():
    return KilledError


@pytest.fixture(name="companies", scope="session")
def _companies(tmp_path_factory):
    path = tmp_path_factory.mktemp("gated")
    draw = np.random.default_rng(3)
    x = draw.standard_normal((ROWS, 3))
    y = (x[:, 0] + 0.7 * x[:, 1] + 0.5 * draw.standard_normal(ROWS) > 0.5).astype(np.int64)
    table = pl.DataFrame({"id": np.arange(ROWS), "y": y, "a": x[:, 0], "b": x[:, 1], "c": x[:, 2]})
    agreed = contract(RUN, epochs=3, batch_size=80)
    for company in two_companies(
        path,
        (table, table.reverse()),
        port=1,
        text=agreed,
        protect='protect.gradient = { name = "none" }\nbudget = 1',
        numeric='["a", "b", "c"]',
        settings=SETTINGS,
    ):
        (company.path / "keys" / "secret").write_bytes(b"7" * 32)  # the same noise each time: decisions depend on it
    return Companies(path)


@pytest.fixture(name="prepared", scope="session")
def _prepared(companies):
    """Copies of the two, aligned, each at an address of its own."""

    def copy(path):
        port = free_port()  # none that the system gives to connections meanwhile
        made = companies.copy(path)
        made.set(f'network.listen = "127.0.0.1:{port}"', f'network.connect = "127.0.0.1:{port}"')
        return made.align()

    return copy


@pytest.fixture(name="gated")
def _gated(prepared, tmp_path):
    return prepared(tmp_path / "companies")
