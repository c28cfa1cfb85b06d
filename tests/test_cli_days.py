"""`tacit days`: a stream of days from the command line."""

import json

import polars as pl
from typer.testing import CliRunner

from tacit.cli import app

QUICK = ["days", "--rows", "4000", "--period", "73", "--batch-size", "256", "--protect", "max_norm", "--seeds", "2"]


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_stream_is_trained_tested_and_drawn(tmp_path):
    done = run(*QUICK, "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["setting"] for one in found] == ["no noise", "max_norm"]
    assert all(one["seeds"] == 2 for one in found)
    assert found[0]["norm@cut"] > found[1]["norm@cut"]
    table = pl.read_parquet(tmp_path / "results.parquet")
    assert table["day"].n_unique() == 5
    assert table.filter(pl.col("day") == 0)["test_auc"].null_count() == 4, "the first day has no model yet"
    assert (tmp_path / "days.png").stat().st_size > 10_000


def test_results_of_another_run_are_not_written_over(tmp_path):
    (tmp_path / "results.parquet").touch()
    done = run(*QUICK, "--out", tmp_path)
    assert done.exit_code != 0
    assert "is there already" in str(done.exception)
