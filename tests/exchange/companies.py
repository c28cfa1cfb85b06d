"""Two or three small companies that train in one exchange, each in a folder of its own."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl

from tacit.company.align import align
from tacit.company.folder import Folder, create
from tacit.exchange.train import train_one_shot

CONTRACT = """
mode = "one_shot"
run = "{run}"
label_party = "airline"
feature_parties = {parties}
alignment.smallest_set = 10
[exchange]
bits = {bits}
numbers = {numbers}
{exchange}
"""
PARTY = """
name = "{name}"
role = "{role}"
{limits}
network.{where} = "127.0.0.1:{port}"
data = {{ path = "data.parquet", ids = ["id"], {columns} }}
training = {{ threads = 1, seed = 5 }}
"""


def table(rows=1500, seed=3):
    """Rows whose label hangs on what two companies know, with a number and three classes of it."""
    draw = np.random.default_rng(seed)
    wind, rain = draw.normal(size=rows), draw.normal(size=rows)
    port = draw.integers(0, 4, rows)
    plane = draw.normal(size=rows)
    delay = 2 * wind + (port == 2) + plane + 0.5 * draw.normal(size=rows)
    return pl.DataFrame(
        {
            "id": [f"f{row}" for row in range(rows)],
            "wind": wind,
            "rain": rain,
            "port": [f"p{one}" for one in port],
            "plane": plane,
            "late": (delay > 0.8).astype(np.int64),
            "how": np.digitize(delay, [-1.0, 1.0]),
            "delay": delay,
            "person": [f"u{row // 2}" for row in range(rows)],
        }
    )


class Companies:
    """An airline with labels and one or more feature parties."""

    def __init__(self, path, rows, parties=("airport",)):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.path, self.parties = path, parties
        for name in ("airline", *parties):
            folder = create(path / name, role="label" if name == "airline" else "features", name=name)
            rows.sample(fraction=1.0, shuffle=True, seed=len(name)).write_parquet(folder.path / "data.parquet")
        airline = Folder(path / "airline")
        for name in parties:
            airline.trust(path / name / f"{name}.crt")
            Folder(path / name).trust(path / "airline" / "airline.crt")
        self.agree()
        self.set("airline", limits="limit = 0.75", columns='label = "late", numeric = ["plane"]')
        for name in parties:
            self.set(name, columns='categorical = ["port"], numeric = ["wind", "rain"]')

    def agree(self, exchange="", run="small", bits=3, numbers=1):
        text = CONTRACT.format(
            run=run, parties=list(self.parties), bits=bits, numbers=numbers, exchange=exchange
        ).replace("'", '"')
        for name in ("airline", *self.parties):
            (self.path / name / "contract.toml").write_text(text)

    def set(self, name, limits="", columns="", more=""):
        label = name == "airline"
        text = PARTY.format(
            name=name,
            role="label" if label else "features",
            limits=limits,
            where="listen" if label else "connect",
            port=self.port,
            columns=columns,
        )
        (self.path / name / "party.toml").write_text(text + more)

    def folder(self, name):
        return Folder(self.path / name)

    def run(self, name, run="small"):
        return self.path / name / "runs" / run

    def together(self, act, patience=120):
        """All of them at once; what each has come to, errors included. Where one fails, those that wait for it end."""
        names = ("airline", *self.parties)
        failed = threading.Event()

        def waiting(*_):
            if failed.is_set():
                raise OverError

        def one(name):
            try:
                return act(name, waiting)
            except Exception as error:
                failed.set()
                return error

        with ThreadPoolExecutor(len(names)) as pool:
            futures = {name: pool.submit(one, name) for name in names}
            return {name: future.result(timeout=patience) for name, future in futures.items()}

    def align(self, *, again=False):
        found = self.together(lambda name, waiting: align(self.folder(name), again=again, waiting=waiting))
        assert not [one for one in found.values() if isinstance(one, Exception)], found

    def train(self):
        return self.together(lambda name, waiting: train_one_shot(self.folder(name), waiting=waiting))


class OverError(Exception):
    """Somebody else has failed, or the test has seen enough."""
