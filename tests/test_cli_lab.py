"""The lab on the command line."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import UsageError
from tacit.lab import fashion
from tacit.lab.embedding import FIGURES


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "tacit", "lab", *arguments], capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fashion")
    fashion.save(fashion.generated(200, 0, test_rows=64), path)
    return path


@pytest.mark.parametrize("command", [["lab"], ["lab", "embedding"], ["lab", "attacks"]])
def test_help_reads_well(command):
    done = CliRunner().invoke(app, [*command, "--help"], terminal_width=100)
    assert done.exit_code == 0
    assert "Usage: " in done.output
    assert "TODO" not in done.output


def test_a_small_lab_prints_a_table_and_where_things_are(folder, tmp_path):
    asked = ["embedding", "--path", str(folder), "--only", "table-2", "--epochs", "1", "--out", str(tmp_path)]
    done = run(*asked)
    assert done.returncode == 0, done.stderr
    assert "adversarial 1" in done.stdout
    assert "table-2 " in done.stdout
    assert str(tmp_path / "summary.md") in done.stdout
    assert (tmp_path / "table-2.png").is_file()

    again = run(*asked, "--json")  # from the records, without training
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert set(told) == {"title", "settings", "statements", "records", "figures", "summary"}
    assert set(told["records"]) == set(FIGURES["table-2"])
    assert told["settings"]["epochs"] == 1
    assert "pictures" not in told["records"]["none"]

    other = run(*asked, "--seed", "5")
    assert other.returncode == 2
    assert "seed = 0, and now it is 5" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "figure-9"], ["figure-9", "figure-8"]),
        (["--data", "nothing"], ["nothing"]),
        (["--data", "adult"], ["--path"]),
        (["--data", "fashion", "--path", "/nowhere"], ["/nowhere", "apt-get install dataset-fashion-mnist"]),
        (["--rows", "10"], ["rows"]),
        (["--epochs", "0"], ["epochs"]),
    ],
)
def test_a_mistake_is_one_clear_message_and_exit_code_2(arguments, words, tmp_path):
    done = run("embedding", "--out", str(tmp_path), *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_the_table_of_attacks_is_printed_and_written(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.audit.attacks._network._UPDATES", 4)
    monkeypatch.setattr("tacit.audit.attacks._surrogate._UPDATES", 4)
    from tacit.lab import attack_table

    monkeypatch.setattr(attack_table, "settings", lambda epochs: [attack_table.Setting("none")])
    asked = ["lab", "attacks", "--data", "generated:credit", "--rows", "600", "--batch-size", "64", "--epochs", "2"]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path)], terminal_width=120)
    assert done.exit_code == 0, done.output
    assert "accumulated(direct_label)" in done.output
    assert {"attacks.md", "attacks.json", "attacks.parquet"} == {path.name for path in tmp_path.iterdir()}
    told = CliRunner().invoke(app, [*asked, "--out", str(tmp_path), "--json"])
    assert json.loads(told.output)["trainings"][0]["worst"]["value"] > 0.95


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--data", "nothing"], ["nothing", "flights"]), (["--data", "generated:fashion", "--rows", "200"], ["pictures"])],
)
def test_data_that_no_table_can_be_made_of(arguments, words, tmp_path):
    done = CliRunner().invoke(app, ["lab", "attacks", "--out", str(tmp_path), *arguments])
    assert isinstance(done.exception, UsageError)
    assert all(word in str(done.exception) for word in words)
