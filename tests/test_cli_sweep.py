"""tacit sweep and tacit choose, as a user meets them."""

import json
import subprocess
import sys

import polars as pl
import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import UsageError
from tacit.lab.data import generated
from tacit.lab.sweeping import results

ARGUMENTS = ["--data", "generated:credit", "--rows", "600", "--protect", "iso(t=2000),max_norm", "--epochs", "1"]


def invoke(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments], terminal_width=100)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("swept")
    command = [sys.executable, "-m", "tacit", "sweep", *ARGUMENTS, "--batch-size", "64", "--quick", "--out", str(out)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def test_the_json_is_a_list_of_settings(swept):
    _, found = swept
    assert [one["spelled"] for one in found] == ["none", "iso(t=2000)", "max_norm"]
    for one in found:
        assert set(one["worst"]) == {"attack", "value", "low", "high"}
        assert one["worst"]["low"] <= one["worst"]["value"] <= one["worst"]["high"]
        assert 0 < one["test_auc"] < 1
    assert found[0]["worst"]["value"] > 0.9


def test_there_is_one_parquet_and_a_picture(swept):
    out, _ = swept
    assert sorted(path.name for path in out.iterdir()) == ["results.parquet", "tradeoff.png"]
    assert set(results.read(out).whole["protection"]) == {"none", "iso", "max_norm"}


def test_the_same_command_again_shows_the_table_at_once(swept):
    out, found = swept
    done = invoke("sweep", *ARGUMENTS, "--batch-size", "64", "--quick", "--out", out)
    assert done.exit_code == 0, done.output
    for words in ("iso(t=2000)", f"{found[0]['test_auc']:.3f}", "by attack", str(out / "results.parquet")):
        assert words in done.output.replace("\n", "")
    with pytest.raises(UsageError, match="epochs = 1, now it is 2"):
        CliRunner().invoke(
            app, ["sweep", *ARGUMENTS[:-1], "2", "--batch-size", "64", "--quick", "--out", str(out)],
            catch_exceptions=False,
        )  # fmt: skip


def test_choosing_from_a_sweep(swept, tmp_path):
    out, found = swept
    limit = (found[1]["worst"]["high"] + 0.8) / 2
    done = invoke("choose", "--limit", limit, "--from", out / "results.parquet", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "Take iso(t=2000): test AUC" in done.output
    assert "against no protection" in done.output
    assert (tmp_path / "choose.png").exists()
    asked = json.loads(invoke("choose", "--limit", limit, "--from", out, "--out", tmp_path, "--json").output)
    assert asked["holds"]
    assert asked["chosen"]["spelled"] == "iso(t=2000)"
    assert asked["cost"] == pytest.approx(asked["baseline"]["test_auc"] - asked["chosen"]["test_auc"])


def test_no_setting_under_the_limit_is_a_finding(swept, tmp_path):
    done = invoke("choose", "--limit", "0.501", "--from", swept[0], "--out", tmp_path)
    assert done.exit_code == 1
    assert "No setting keeps every attack under 0.501. The nearest is iso(t=2000)" in done.output


def test_choosing_sweeps_where_there_is_no_sweep(swept, tmp_path):
    done = invoke("choose", "--limit", "0.99", *ARGUMENTS, "--batch-size", "64", "--quick", "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "results.parquet").exists()
    assert json.loads(done.output)["holds"]


def test_waves_notes_and_the_papers_are_told(swept, tmp_path):
    whole = results.read(swept[0])
    noted = whole.table.with_columns(notes=pl.when(pl.col("part") == "whole").then(pl.lit("learned: too few rows")))
    results.write(
        tmp_path / "results.parquet", noted,
        {**whole.metadata, "waves": [2, 1], "papers": "the papers train longer", "notes": ["a checkpoint was damaged"]},
    )  # fmt: skip
    said = invoke("choose", "--from", tmp_path, "--limit", "0.9").output
    assert "Trained in 2 waves of 2 replicas or fewer" in said
    assert "Note: the papers train longer." in said
    assert said.count("Note: learned: too few rows.") == 1
    assert "Note: a checkpoint was damaged." in said


def test_an_interruption_says_what_is_kept(monkeypatch, tmp_path):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.lab.data.load", lambda *_, **__: generated.table(200, (5,), 1, 0.5, 0))
    monkeypatch.setattr("tacit.lab.sweeping.running.sweep", stop)
    done = invoke("sweep", "--out", tmp_path)
    assert done.exit_code == 2
    assert "interrupted; 0 finished waves are kept" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sweep", "--protect", "marvel", "--data", "nothing"], ["no protection 'marvel'", "marvell"]),
        (["sweep", "--data", "nothing"], ["nothing", "flights"]),
        (["choose", "--limit", "0.4"], ["between 0.5"]),
        (["choose", "--from", "nothing.parquet"], ["there is no nothing.parquet"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, words, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tacit", *arguments, "--out", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 2
    said = done.stderr.strip()  # a bar that was begun leaves an empty line
    assert said.startswith("tacit: ")
    assert "\n" not in said
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize("command", ["sweep", "choose"])
def test_help_reads_well(command):
    done = invoke(command, "--help")
    assert done.exit_code == 0
    assert "--protect" in done.output
