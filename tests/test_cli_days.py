"""`tacit days`: a stream of days from the command line."""

import json
from dataclasses import replace

import polars as pl
import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import UsageError
from tacit.lab.data import flights
from tacit.lab.days import by_day

QUICK = ["days", "--rows", "4000", "--period", "73", "--batch-size", "256", "--protect", "max_norm", "--seeds", "2"]


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_stream_is_trained_tested_and_drawn(tmp_path):
    done = run(*QUICK, "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["setting"] for one in found] == ["none", "max_norm"]
    assert all((one["seeds"], one["skipped"]) == (2, 0) for one in found)
    assert found[0]["norm@cut"] > found[1]["norm@cut"]
    table = pl.read_parquet(tmp_path / "results.parquet")
    assert table["day"].n_unique() == 5
    assert table.filter(pl.col("day") == 0)["test_auc"].null_count() == 4, "the first day has no model yet"
    picture = (tmp_path / "days.svg").read_text()
    assert all(name in picture for name in ("none", "max_norm", "hint leak at the cut", "test AUC"))
    assert all(f'class="{kind} s{place}"' in picture for kind in ("series", "band") for place in (1, 2))


def test_results_of_another_run_are_not_written_over(tmp_path):
    (tmp_path / "results.parquet").touch()
    done = run(*QUICK, "--out", tmp_path)
    assert done.exit_code != 0
    assert "is there already" in str(done.exception)


def test_options_reach_the_loader_and_skipped_rows_are_told(tmp_path, monkeypatch):
    seen = {}

    def load(name, **options):
        options.pop("progress")(1, 2)
        seen.update(options)
        return replace(flights.load(rows=2000), skipped=1)

    def stream(data, settings, **options):
        seen.update(options)
        return by_day(data, settings, **options)

    monkeypatch.setattr("tacit.lab.data.load", load)
    monkeypatch.setattr("tacit.lab.days.by_day", stream)
    done = run(
        *QUICK[:-1],
        1,
        "--bad",
        "skip",
        "--cache",
        tmp_path / "kept",
        "--learning-rate",
        0.01,
        "--out",
        tmp_path / "out",
    )
    assert done.exit_code == 0, done.output
    assert (seen["bad"], seen["cache"], seen["learning_rate"]) == ("skip", tmp_path / "kept", 0.01)
    assert "Note: 1 row could not be read and was left out." in done.output
    refused = run("choose", "--from", tmp_path / "out")
    assert isinstance(refused.exception, UsageError)
    assert "is by day" in str(refused.exception)


@pytest.mark.parametrize("wrong", [["--protect", ""], ["--data", "nothing"], ["--learning-rate", "-1"]])
def test_a_mistake_leaves_no_folder(tmp_path, wrong):
    done = run(*QUICK, *wrong, "--out", tmp_path / "out")
    assert isinstance(done.exception, UsageError)
    assert not (tmp_path / "out").exists()
