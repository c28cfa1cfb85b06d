"""The lab on the command line."""

import json
import sys

import pytest
from typer.testing import CliRunner

from tacit.cli import app, main
from tacit.errors import UsageError
from tacit.lab.data import fashion
from tacit.lab.embedding import FIGURES


@pytest.fixture(name="run")
def _run(monkeypatch, capsys):
    """Run a verb of the lab to its end: the exit code, the output, the error stream."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["tacit", "lab", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


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


def test_a_small_lab_prints_a_table_and_where_things_are(run, folder, tmp_path):
    asked = ["embedding", "--path", str(folder), "--only", "table-2", "--epochs", "1", "--out", str(tmp_path)]
    code, out, err = run(*asked)
    assert code == 0, err
    assert "adversarial 1" in out
    assert "table-2 " in out
    assert str(tmp_path / "summary.md") in out
    assert (tmp_path / "table-2.png").is_file()

    code, out, err = run(*asked, "--json")  # from the records, without training
    assert code == 0, err
    told = json.loads(out)
    assert set(told) == {"title", "settings", "statements", "records", "figures", "summary"}
    assert set(told["records"]) == set(FIGURES["table-2"])
    assert told["settings"]["epochs"] == 1
    assert "pictures" not in told["records"]["none"]

    code, _, err = run(*asked, "--seed", "5")
    assert code == 2
    assert "seed = 0, and now it is 5" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "figure-9"], ["figure-9", "figure-8"]),
        (["--data", "nothing"], ["nothing"]),
        (["--data", "adult"], ["--folder"]),
        (["--data", "fashion", "--path", "/nowhere"], ["/nowhere", "apt-get install dataset-fashion-mnist"]),
        (["--rows", "10"], ["rows"]),
        (["--epochs", "0"], ["epochs"]),
    ],
)
def test_a_mistake_is_one_clear_message_and_exit_code_2(run, arguments, words, tmp_path):
    code, _, err = run("embedding", "--out", tmp_path, *arguments)
    assert code == 2
    assert "Traceback" not in err
    assert all(word in err for word in words), err


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
    assert json.loads(told.stdout)["trainings"][0]["worst"]["value"] > 0.95


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--data", "nothing"], ["nothing", "flights"]), (["--data", "generated:fashion", "--rows", "200"], ["pictures"])],
)
def test_data_that_no_table_can_be_made_of(arguments, words, tmp_path):
    done = CliRunner().invoke(app, ["lab", "attacks", "--out", str(tmp_path), *arguments])
    assert isinstance(done.exception, UsageError)
    assert all(word in str(done.exception) for word in words)
