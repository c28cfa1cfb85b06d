"""A sweep that is interrupted keeps its finished waves, and one replica that runs away costs nobody else."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from tacit.cli import app
from tacit.lab.data import generated
from tacit.lab.sweeping import results
from tacit.lab.sweeping.recipe import Plan, recipe_for
from tacit.lab.sweeping.settings import Setting
from tacit.lab.sweeping.wave import Wave

SETTINGS = (
    Setting("none"),
    Setting("marvell", "scale", 4.0, seed=1),
    Setting("matched", "leak_auc", 0.55),
    Setting("marvell", "scale", 1.0, seed=1),
)
QUICK = {
    "settings": SETTINGS, "attacks": ("norm", "hint"), "epochs": 2, "batch_size": 64,
    "network": {"width": 8, "layers": 4}, "points": 6, "thorough": False,
}  # fmt: skip
ARGUMENTS = [
    "sweep", "--data", "generated:credit", "--rows", "1000", "--protect", "iso(t=2000),matched(leak_auc=0.6)",
    "--batch-size", "16", "--epochs", "4", "--quick", "--out",
]  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return generated.table(720, (6, 9), 3, 0.35, 0)


def same(left, right):
    assert_frame_equal(left.table.drop("seconds"), right.table.drop("seconds"), check_exact=True)


@pytest.mark.usefixtures("seeds_stay")
def test_ctrl_c_and_then_kill_9_and_then_to_the_end(tmp_path):
    out = tmp_path / "stopped"
    for how, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process = subprocess.Popen(
            [sys.executable, "-m", "tacit", *ARGUMENTS, str(out)], env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while not out.exists():  # it is made when training begins
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(how)
        _, said = process.communicate(timeout=300)
        assert process.returncode == code
        if how == signal.SIGINT:
            assert f"0 finished waves are kept in {out / 'waves'}: the same command goes on" in said
        assert not (out / "results.parquet").exists()
    for folder in ("stopped", "through"):
        done = CliRunner().invoke(app, [*ARGUMENTS, str(tmp_path / folder)])
        assert done.exit_code == 0, done.output
    same(results.read(out), results.read(tmp_path / "through"))


def test_a_replica_that_runs_away_is_null_with_a_note(data):
    options = {key: value for key, value in QUICK.items() if key != "settings"}
    recipe = recipe_for(data, Plan(device="cpu", layers=("cut", "layer1"), **options))
    right = Wave(recipe, data, dict(enumerate(SETTINGS))).run()
    wave = Wave(recipe, data, dict(enumerate(SETTINGS)))

    def poison(*_):
        if wave.done == 10:
            with torch.no_grad():
                wave.stack.top.weights["logit.weight"][2] = torch.inf

    rows = wave.run(poison)
    others = [[{**row, "seconds": 0} for row in found if row["replica"] != 2] for found in (rows, right)]
    assert others[0] == others[1]
    *parts, last = (row for row in rows if row["replica"] == 2)
    assert last["notes"] == "ran away at update 11: take a lower learning rate"
    assert [row.get("train_loss") is None for row in parts] == [False] * 3 + [True] * 3
    for row in (*parts[3:], last):
        assert {key for key, value in row.items() if value is not None} <= {
            *results.IDENTITY, *results.PLACE, "seconds", "notes"
        }  # fmt: skip
    assert results.as_table(rows).height == len(right)
