"""`tacit figures` on the command line."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import UsageError
from tacit.lab.data import flights
from tacit.lab.figures import FIGURES


def run(*arguments):
    return CliRunner().invoke(app, ["figures", *arguments], terminal_width=120)


def test_help_reads_well():
    done = run("--help")
    assert done.exit_code == 0
    assert "--scale" in done.output
    assert "TODO" not in done.output


def test_the_list_names_every_figure():
    done = run("--list", "--json")
    assert done.exit_code == 0
    assert {one["figure"] for one in json.loads(done.stdout)} == set(FIGURES)
    shown = run("--list").output
    assert "004-figure-11" in shown
    assert "ICLR 2022" in shown


def test_wrong_names_are_refused_before_anything_is_loaded():
    done = run("004-figure-99", "--data", "no-such-data")
    assert isinstance(done.exception, UsageError)
    assert "004-figure-99" in str(done.exception)
    assert isinstance(run().exception, UsageError)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_table_of_the_paper_with_what_agrees(tmp_path, as_json):
    asked = ["002-efficiency", "004-table-1", "--data", "flights", "--rows", "1000", "--out", str(tmp_path)]
    done = run(*asked, *(["--json"] if as_json else []))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "004-table-1.png").is_file()
    if as_json:
        assert [one["figure"] for one in json.loads(done.stdout)] == ["002-efficiency", "004-table-1"]
    else:
        assert "differs" in done.output or "agrees" in done.output
        assert "2 figures drawn" in done.output
        assert str(tmp_path / "summary.md") in done.output


def test_options_reach_the_loader_and_skipped_rows_are_told(tmp_path, monkeypatch):
    seen = {}

    def load(name, **options):
        seen.update(options)
        return replace(flights.load(rows=1000), skipped=12)

    def draw(names, asked, out, **_):
        seen["asked"] = asked
        return []

    monkeypatch.setattr("tacit.lab.data.load", load)
    monkeypatch.setattr("tacit.lab.figures.make", draw)
    options = ["--bad", "skip", "--cache", str(tmp_path / "kept"), "--learning-rate", "0.01"]
    done = run("004-table-1", *options, "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert (seen["bad"], seen["cache"]) == ("skip", tmp_path / "kept")
    assert seen["asked"].as_dict()["learning_rate"] == 0.01
    assert "Note: 12 rows could not be read and were left out." in done.output


@pytest.mark.parametrize("wrong", [["--data", "nothing"], ["--learning-rate", "0"], ["--from", "nothing.parquet"]])
def test_a_mistake_leaves_no_folder(tmp_path, wrong):
    done = run("004-table-1", *wrong, "--out", str(tmp_path / "out"))
    assert isinstance(done.exception, UsageError)
    assert not (tmp_path / "out").exists()
