"""What a party holds in memory depends on its model and batch, not on how many rows or steps there are."""

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from benchmarks._companies import align_rows
from tacit.company.folder import create
from tests.torture.world import free_port

CONTRACT = """
run = "memory"
label_party = "label"
feature_parties = ["features"]
loss = "binary"
epochs = 1
batch_size = {batch}
cut.widths.features = 64
minimum.gradient.name = "none"
"""
BATCH = 512
COLUMNS = 96  # of float32: 384 bytes a row, so 100,000 rows more would be 38 MB more for each copy of them

# Trains as `tacit train` does, and tells the party's own memory (without mapped files) early on and at the end.
PROGRAM = """
import re, sys
from pathlib import Path
from tacit.split.train import train

def memory():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

def note(turn, turns, figures):
    if turn in (30, turns):
        print(memory(), flush=True)

train(sys.argv[1], progress=note)
"""


def prepared(folder, rows):
    """Two folders as an alignment leaves them; the parties' tables are in different orders."""
    port, draw = free_port(), np.random.default_rng(0)
    made = {}
    for name, role in (("label", "label"), ("features", "features")):
        made[name] = create(folder / name, role=role, name=name)
        label = role == "label"
        columns = [] if label else [f"x{i}" for i in range(COLUMNS)]
        order = draw.permutation(rows)
        table = {"id": order, **{column: draw.normal(size=rows).astype(np.float32) for column in columns}}
        if label:
            table["y"] = draw.random(rows) < 0.3
        pl.DataFrame(table).write_parquet(folder / name / "data.parquet", row_group_size=12_500)
        (folder / name / "contract.toml").write_text(CONTRACT.format(batch=BATCH))
        where = f'listen = "127.0.0.1:{port}"' if label else f'connect = "127.0.0.1:{port}"'
        (folder / name / "party.toml").write_text(
            f'name = "{name}"\nrole = "{role}"\nnetwork.{where}\ndata.path = "data.parquet"\ndata.ids = ["id"]\n'
            + (
                'data.label = "y"\nprotect.gradient.name = "none"\nbudget = 1\n'
                if label
                else f"data.numeric = {columns}\n"
            )
            + ("" if label else "protect.embedding = []\n")
            + "training = { threads = 1, checkpoint_every = 50 }\nmodel = { name = 'wide_deep', layers = 1 }\n"
        )
        align_rows(made[name], np.argsort(order))
    made["label"].trust(folder / "features" / "features.crt")
    made["features"].trust(folder / "label" / "label.crt")


def measured(folder, rows):
    prepared(folder, rows)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder / name)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MALLOC_ARENA_MAX": "1"},  # else threads that happen to meet make heaps of their own
        )
        for name in ("label", "features")
    ]
    said = [process.communicate(timeout=200)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return np.array(said, dtype=float)  # (party, early and late)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_grows_neither_with_rows_nor_with_steps(tmp_path):
    few, many = measured(tmp_path / "few", 25_000), measured(tmp_path / "many", 125_000)
    assert (many[:, 1] - few[:, 1] < 25).all(), (few, many)  # MB; the rows themselves are 38 MB more at one party
    assert (many[:, 1] - many[:, 0] < 25).all(), many  # 214 steps later, of 256 KiB of messages each: 54 MB
