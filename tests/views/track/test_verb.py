"""`tacit track`: from the command line, followed, killed and given again."""

import json
import os
import signal
import subprocess
import sys
import time

import polars as pl
import pytest
from typer.testing import CliRunner

from tacit.cli import app

WAIT = 60  # seconds: far more than anything here takes


def run(*words):
    return CliRunner().invoke(app, ["track", *(str(word) for word in words)])


@pytest.fixture(name="start")
def _start(tmp_path):
    """Follow the runs of a test in a process of its own."""
    started = []

    def start():
        command = [sys.executable, "-m", "tacit", "track", "runs", "--to", "tensorboard", "--out", "logs", "--follow"]
        started.append(
            subprocess.Popen([*command, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=WAIT)


def until(true, process):
    end = time.monotonic() + WAIT
    while not true():
        assert process.poll() is None, process.communicate(timeout=WAIT)
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def test_figures_go_where_they_are_wanted(tmp_path, make_run):
    make_run().train(5, 15, 60)
    done = run(tmp_path / "runs", "--to", "tensorboard", "--out", tmp_path / "logs", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [one["name"] for one in told["runs"]] == ["airline / flights"]
    assert told["runs"][0]["new"] > 20
    again = run(tmp_path / "runs", "--to", "tensorboard", "--out", tmp_path / "logs", "--follow")
    assert "airline / flights: 0 new figures" in again.stdout
    assert "tensorboard --logdir" in again.stdout
    done = run(tmp_path / "runs", "--to", "parquet", "--out", tmp_path / "tables")
    many = len(pl.read_parquet(tmp_path / "tables" / "figures.parquet"))
    assert f"figures.parquet: {many:,} rows" in done.stdout
    assert run(tmp_path / "runs", "--to", "parquet", "--out", tmp_path / "t", "--quiet").stdout.strip().endswith("t")


def test_a_follower_that_is_killed_goes_on_without_doubles(tmp_path, make_run, start, shown):
    training = make_run(pid=os.getpid())
    training.look(5)
    first = start()
    until(lambda: any(path.stat().st_size > 100 for path in (tmp_path / "logs").glob("*/events*")), first)
    first.send_signal(signal.SIGKILL)
    first.wait(timeout=WAIT)
    (log,) = (tmp_path / "logs").iterdir()
    (events,) = log.glob("events*")
    events.write_bytes(events.read_bytes()[:-7])  # as if the kill had met it while it wrote
    training.look(15)
    second = start()
    until(lambda: len(list(log.glob("events*"))) == 2, second)
    training.look(25)  # while it runs
    training.train(60)
    out, err = second.communicate(timeout=WAIT)
    assert second.returncode == 0, err
    assert json.loads(out)["runs"][0]["new"] > 0
    scalars, *_ = shown(log)
    found = {name: [step for step, _ in points] for name, points in scalars.items()}
    assert found["leak/norm"] == found["utility/loss"] == [5, 15, 25, 60]
    assert all(steps == sorted(set(steps)) for steps in found.values()), "nothing twice"
    assert found["report/accumulated(norm, precise) on visits"] == [100], "the last thing that comes"


def test_ctrl_c_is_how_following_ends(tmp_path, make_run, monkeypatch):
    make_run(pid=os.getpid()).look(5)

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    done = run(tmp_path / "runs", "--to", "tensorboard", "--out", tmp_path / "logs", "--follow")
    assert done.exit_code == 0
    assert "Following 1 run; Ctrl-C ends it" in done.stderr
    assert "airline / flights: 3 new figures" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "--to", "parquet", "--out", "t"], "nowhere does not exist: name the folder"),
        ([".", "--to", "parquet", "--out", "t"], "no run under ."),
        ([".", "--to", "tensorboard", "--out", "s3://bucket/logs"], "is an address: --to tensorboard writes to a fol"),
        ([".", "--to", "csv", "--out", "t"], "'csv' is not one of 'tensorboard', 'mlflow', 'parquet'"),
    ],
    ids=["no-folder", "no-run", "address", "kind"],
)
def test_mistakes_are_said_with_the_next_act(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert done.exit_code != 0
    assert said in " ".join(f"{done.stderr} {done.exception}".replace("│", "").split())
