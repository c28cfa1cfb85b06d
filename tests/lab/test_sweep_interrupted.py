"""A sweep that is killed inside a wave goes on where it was, and one replica that runs away costs nobody else."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import StorageError
from tacit.lab import sweep
from tacit.lab.data import generated
from tacit.lab.sweeping import checkpoints, results
from tacit.lab.sweeping.memory import estimate
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
THOROUGH = {**QUICK, "thorough": True}


@pytest.fixture(scope="module")
def data():
    return generated.table(720, (6, 9), 3, 0.35, 0)


@pytest.fixture(scope="module")
def whole(data):
    """The thorough sweep without an interruption."""
    return sweep(data, **THOROUGH)


@pytest.fixture(scope="module")
def quick(data):
    """The quick one."""
    return sweep(data, **QUICK)


class StopHereError(Exception):
    """Raised where a test wants the sweep to stop."""


def interrupted(data, out, *, at=0.45, **options):
    """A sweep that stops in the middle of its first wave, at a part of it, before that is written down."""

    def progress(what, done, total):
        if what.endswith("training") and done / 100 >= at:
            raise StopHereError

    with pytest.raises(StopHereError):
        sweep(data, out=out, progress=progress, checkpoint_every=0, **options)


def resumed(data, out, **options):
    told = []
    return sweep(data, out=out, progress=lambda what, *_: told.append(what), **options), told


def same(left, right):
    assert_frame_equal(left.table.drop("seconds"), right.table.drop("seconds"), check_exact=True)


@pytest.fixture
def at_once(monkeypatch):
    """Every stretch is written down, however long it takes."""
    monkeypatch.setattr(checkpoints, "_SPARE", 0)


@pytest.mark.usefixtures("at_once")
def test_a_wave_goes_on_where_it_was_and_ends_the_same(data, quick, tmp_path):
    interrupted(data, tmp_path, **QUICK)
    (kept,) = (tmp_path / "waves").iterdir()
    assert kept.suffix == ".checkpoint"
    found, told = resumed(data, tmp_path, **QUICK)
    assert "4 replicas: going on after update 7 of 20" in told
    same(found, quick)
    assert found.metadata["notes"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["results.parquet"]


@pytest.mark.usefixtures("at_once")
def test_it_may_be_interrupted_again_and_after_the_last_update(data, whole, tmp_path, monkeypatch):
    interrupted(data, tmp_path, at=0.2, **THOROUGH)
    interrupted(data, tmp_path, at=0.6, **THOROUGH)

    def stop(*_, **__):
        raise StopHereError

    with monkeypatch.context() as patch:
        patch.setattr("tacit.lab.sweeping.wave.recorded_leaks", stop)
        with pytest.raises(StopHereError):
            resumed(data, tmp_path, checkpoint_every=0, **THOROUGH)
    found, told = resumed(data, tmp_path, **THOROUGH)
    assert "4 replicas: going on after update 20 of 20" in told
    assert "4 replicas: training" not in told
    same(found, whole)


@pytest.mark.usefixtures("at_once")
def test_a_damaged_checkpoint_is_left_out_with_a_note(data, quick, tmp_path):
    interrupted(data, tmp_path, **QUICK)
    (kept,) = (tmp_path / "waves").iterdir()
    raw = bytearray(kept.read_bytes())
    raw[len(raw) // 2] ^= 1
    kept.write_bytes(raw)
    found, told = resumed(data, tmp_path, **QUICK)
    assert not any("going on" in what for what in told)
    (note,) = found.metadata["notes"]
    assert "began anew" in note
    assert "damaged" in note
    same(found, quick)


@pytest.mark.usefixtures("at_once")
def test_another_sweeps_checkpoint_is_left_out_whatever_its_name(data, quick, tmp_path):
    interrupted(data, tmp_path / "mine", **QUICK)
    interrupted(data, tmp_path / "other", **{**QUICK, "epochs": 3})
    (mine,), (other,) = ((tmp_path / name / "waves").iterdir() for name in ("mine", "other"))
    assert mine.name != other.name
    other.replace(mine)
    found, told = resumed(data, tmp_path / "mine", **QUICK)
    assert not any("going on" in what for what in told)
    assert "is of another sweep" in found.metadata["notes"][0]
    same(found, quick)


@pytest.mark.usefixtures("at_once")
def test_a_begun_wave_keeps_its_replicas_though_memory_now_asks_for_others(data, quick, tmp_path):
    options = {key: value for key, value in QUICK.items() if key != "settings"}
    recipe = recipe_for(data, Plan(device="cpu", layers=("cut", "layer1"), **options))
    memory = [estimate(recipe, data, replicas) for replicas in range(5)]
    interrupted(data, tmp_path / "more", memory=memory[2], **QUICK)
    shutil.copytree(tmp_path / "more", tmp_path / "less")
    found, told = resumed(data, tmp_path / "more", memory=memory[4], **QUICK)
    assert found.metadata["waves"] == [2, 2]
    assert "wave 1 of 2, 2 replicas: going on after update 7 of 20" in told
    assert_frame_equal(found.table.drop("seconds"), quick.table.drop("seconds"), rel_tol=1e-3, abs_tol=1e-3)
    found, _ = resumed(data, tmp_path / "less", memory=memory[1], **QUICK)
    assert found.metadata["waves"] == [1] * 4
    assert "do not fit" in found.metadata["notes"][0]


def test_checkpoints_are_written_now_and_then_and_a_disk_that_refuses_is_a_note(data, tmp_path, monkeypatch):
    wave = Wave(
        recipe_for(data, Plan(epochs=1, attacks=("norm",), layers=("cut",), device="cpu")), data, {0: SETTINGS[0]}
    )
    clock = iter([0.0, 59.0, 60.0, 64.0, 124.0, 143.0])
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: next(clock))
    written, notes = [], []
    monkeypatch.setattr(checkpoints, "save", lambda path, state, meta: written.append(meta["done"]))
    keeping = checkpoints.Keeping(tmp_path / "one.checkpoint", {}, 60.0, notes)
    for _ in range(4):  # at 59 too early, at 60 it takes 4 seconds, so that at 124 and 143 it is too early again
        keeping(wave)
    assert written == [0]

    def refuse(*_):
        raise StorageError("the disk is full")

    monkeypatch.setattr(checkpoints, "save", refuse)
    clock = iter([0.0, *range(100, 1000, 100)])
    keeping = checkpoints.Keeping(tmp_path / "one.checkpoint", {}, 60.0, notes)
    for _ in range(4):
        keeping(wave)
    assert notes == ["no more checkpoints were written: the disk is full"]


CODE = """
from functools import partial
from tacit.lab.sweeping import checkpoints, running
from tacit.cli import main
checkpoints._SPARE = 0
running.sweep = partial(running.sweep, checkpoint_every=0)
main()
"""
ARGUMENTS = [
    "sweep", "--data", "generated:credit", "--rows", "1000", "--protect", "iso(t=2000),matched(leak_auc=0.6)",
    "--batch-size", "16", "--epochs", "4", "--quick", "--out",
]  # fmt: skip


def stopped(out, how):
    """The command in a process of its own, that gets a signal after some checkpoints; its exit code and last words."""
    command = [sys.executable, "-c", CODE, *ARGUMENTS, str(out)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline, seen = time.monotonic() + 60, set()
    while len(seen) < 4:
        seen |= {path.stat().st_mtime_ns for path in out.glob("waves/*.checkpoint")}
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.usefixtures("seeds_stay")
def test_ctrl_c_and_then_kill_9_in_the_middle_of_the_only_wave(tmp_path):
    out = tmp_path / "stopped"
    code, said = stopped(out, signal.SIGINT)
    assert code == 130
    assert re.search(
        r"tacit: interrupted; 0 finished waves and the one in training, as it was \d+ s ago, are kept", said
    )
    assert f"kept in {out / 'waves'}: the same command goes on" in said
    code, said = stopped(out, signal.SIGKILL)
    assert code == -signal.SIGKILL
    before = re.search(r"tacit: 3 replicas: going on after update (\d+) of 196", said)
    assert before, said
    assert not (out / "results.parquet").exists()
    again = CliRunner().invoke(app, [*ARGUMENTS, str(out)])
    assert again.exit_code == 0, again.output
    found = re.search(r"tacit: 3 replicas: going on after update (\d+) of 196", again.output)
    assert int(found[1]) > int(before[1])
    through = CliRunner().invoke(app, [*ARGUMENTS, str(tmp_path / "through")])
    assert "going on" not in through.output
    same(results.read(out), results.read(tmp_path / "through"))


def test_a_replica_that_runs_away_is_null_with_a_note(data):
    options = {key: value for key, value in QUICK.items() if key != "settings"}
    recipe = recipe_for(data, Plan(device="cpu", layers=("cut", "layer1"), **options))
    right = Wave(recipe, data, dict(enumerate(SETTINGS))).run()
    wave = Wave(recipe, data, dict(enumerate(SETTINGS)))

    def poison(wave):
        if wave.done == 10:
            with torch.no_grad():
                wave.stack.top.weights["logit.weight"][2] = torch.inf

    rows = wave.run(keep=poison)
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
