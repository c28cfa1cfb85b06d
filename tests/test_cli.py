"""The command line, as a user meets it."""

import io
import json
import re
import subprocess
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

import tacit
from tacit.bench import Result
from tacit.bench import names as benchmarks
from tacit.cli import app, main
from tacit.cli._show import one_bar


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "tacit", *arguments], capture_output=True, text=True)


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"tacit {tacit.__version__}")


@pytest.mark.parametrize(
    "command", [[], ["demo"], ["bench"], ["init"], ["trust"], ["contract"], ["align"], ["train"], ["status"]]
)
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
    done = run("demo", "--compare", "--rows", "20000", "--epochs", "2", "--json", "--out", str(out))
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
    assert tried == set(attacks.names()) - {"duplicates"}  # no request is answered twice


def test_demo_prints_a_table_that_fits():
    done = run("demo", "--compare", "--rows", "4096", "--epochs", "1")
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


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            PermissionError(13, "Permission denied", "/x/party.toml"),
            "tacit: /x/party.toml: Permission denied: look at who owns",
        ),
        (
            IsADirectoryError(21, "Is a directory", "/x/contract.toml"),
            "tacit: /x/contract.toml: Is a directory: look at",
        ),
        (OSError("something else"), "tacit: something else: look at the disk"),
    ],
)
def test_what_the_system_refuses_is_one_line(monkeypatch, capsys, error, words):
    def fail():
        raise error

    monkeypatch.setattr("tacit.cli.app", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(words)
    assert said.count("\n") == 1


def test_progress_shows_words_as_they_are(monkeypatch):
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("rich.console.Console", lambda **_: shown)
    with one_bar(quiet=False, first="begin") as show:
        show("waiting for airport, 3 s ([/a] [red]x)", 0, 0)
    assert "([/a] [red]x)" in shown.file.getvalue()


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


# --- two folders -----------------------------------------------------------------------------------------------------


def digits(text: str) -> str:
    """The digest that was printed in groups over two lines."""
    lines = [line for line in text.splitlines() if re.fullmatch(r"  ([0-9a-f]{4} ){7}[0-9a-f]{4}", line)]
    assert len(lines) == 2, text
    return "".join(lines).replace(" ", "")


def test_two_parties_get_to_one_contract(tmp_path):
    airline, airport = tmp_path / "airline", tmp_path / "airport"
    made = run("init", "--role", "label", str(airline))
    assert made.returncode == 0, made.stderr
    assert "airline.crt" in made.stdout
    assert f"tacit trust PEER.crt --folder {airline}" in made.stdout
    assert run("init", "--role", "features", "--name", "airport", str(airport)).returncode == 0

    there = run("trust", str(airline / "airline.crt"), "--folder", str(airport))
    assert there.returncode == 0, there.stderr
    assert digits(there.stdout) == digits(made.stdout), "both sides read the same fingerprint"
    assert re.search(r"airline is trusted, until \d{4}-\d\d-\d\d\.", there.stdout)

    unready = run("contract", "--new", "--folder", str(airline))
    assert unready.returncode == 0, unready.stderr
    assert "Not ready yet: no certificate of airport is trusted" in unready.stdout
    assert run("trust", str(airport / "airport.crt"), "--folder", str(airline)).returncode == 0

    settings = airport / "party.toml"
    settings.write_text(settings.read_text().replace("numeric = []", 'numeric = ["temp"]'))
    (airport / "contract.toml").write_text("# our copy\n" + (airline / "contract.toml").read_text())
    shown = [run("contract", "--folder", str(folder)) for folder in (airline, airport)]
    assert [one.returncode for one in shown] == [0, 0]
    assert digits(shown[0].stdout) == digits(shown[1].stdout)
    assert "airline is ready" in shown[0].stdout
    assert "airport is ready" in shown[1].stdout
    assert "matched(leak_auc=0.6, visits=epochs)" in shown[1].stdout


@pytest.fixture(scope="module")
def party(tmp_path_factory):
    folder = tmp_path_factory.mktemp("party") / "airline"
    assert run("init", "--role", "label", str(folder)).returncode == 0
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init", "--role", "label", "{party}"], ["holds party.toml", "never overwritten"]),
        (["init", "--role", "both", "{party}/x"], ["--role"]),
        (["init", "--role", "label", "--name", "A B", "{party}/x"], ["can't be a party's name"]),
        (["trust", "{party}/airline.crt", "--folder", "{party}"], ["own certificate"]),
        (["trust", "{party}/keys/party.key", "--folder", "{party}"], ["private key"]),
        (["trust", "{party}/airline.crt", "--folder", "{party}/keys"], ["is no party's folder", "tacit init"]),
        (["contract", "--folder", "{party}"], ["contract.toml is missing", "tacit contract --new"]),
    ],
)
def test_a_mistake_with_a_folder(party, arguments, words):
    done = run(*(argument.format(party=party) for argument in arguments))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr
