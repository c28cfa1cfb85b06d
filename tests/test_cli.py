"""The command line, as a user meets it."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import tacit
from tacit.bench import Result
from tacit.bench import names as benchmarks
from tacit.cli import app


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "tacit", *arguments], capture_output=True, text=True)


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"tacit {tacit.__version__}")


@pytest.mark.parametrize("command", [[], ["demo"], ["bench"]])
def test_help_reads_well(command):
    done = CliRunner().invoke(app, [*command, "--help"], terminal_width=100)
    assert done.exit_code == 0
    assert "Usage: " in done.output
    assert "TODO" not in done.output


def test_no_arguments_shows_the_help():
    assert "Commands" in run().stdout


def test_an_out_that_can_be_no_folder_is_refused_before_the_work(tmp_path):
    (tmp_path / "taken").write_text("")
    done = run("demo", "--out", str(tmp_path / "taken"))
    assert done.returncode == 2
    assert done.stderr.startswith("tacit: --out ")
    assert "can't be made a folder" in done.stderr


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    done = run("demo", "--rows", "20000", "--epochs", "2", "--json", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "demo.json").read_text()) == json.loads(done.stdout)
    return json.loads(done.stdout)


def test_demo_makes_its_point(document):
    none, max_norm, marvell, matched = document["rows"]
    assert none["worst"]["value"] > 0.95
    assert marvell["leak_auc"]["norm"]["value"] < 0.7
    assert marvell["leak_auc"]["cosine"]["value"] < 0.72
    assert marvell["leak_auc"]["residual"]["value"] > 0.9
    for attack in ("norm", "cosine", "residual", "likelihood", "learned", "accumulated(residual)"):
        assert matched["leak_auc"][attack]["value"] < 0.65, attack
    assert max_norm["protection"] == "max_norm()"


def test_demo_runs_every_attack(document):
    from tacit.audit import attacks

    tried = {name.partition("(")[0] for name in document["rows"][0]["leak_auc"]}
    assert tried == set(attacks.names())


def test_demo_prints_a_table_that_fits():
    done = run("demo", "--rows", "4096", "--epochs", "1")
    assert done.returncode == 0, done.stderr
    assert "worst attack" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "nope"], ["nope", "solver"]),
        (["demo", "--rows", "5"], ["rows"]),
        (["demo", "--epochs", "0"], ["epochs"]),
        (["nope"], ["nope"]),
    ],
)
def test_a_mistake_is_one_clear_message_and_exit_code_2(arguments, words):
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_bench_solver_gives_the_promised_json():
    done = run("bench", "solver", "--json")
    assert done.returncode in (0, 1), done.stderr
    results = json.loads(done.stdout)
    assert results
    for result in results:
        assert set(result) == {"bench", "case", "value", "unit", "goal", "holds"}
        assert result["value"] > 0
        assert (result["goal"] is None) == (result["holds"] is None)


def test_there_are_the_promised_benchmarks():
    assert {"attack", "protect", "solver", "step"} <= set(benchmarks())


def test_a_goal_holds_or_not():
    assert Result("b", "c", 1.0, "x", 1.05).holds is True
    assert Result("b", "c", 1.1, "x", 1.05).holds is False
    assert Result("b", "c", 1.1, "x").holds is None
