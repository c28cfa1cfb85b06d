"""The command line, as a user meets it: the demo, and two folders that get to one contract."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.audit import attacks, standard
from tacit.cli import app
from tacit.cli.demo import _print_one_exchange


def run(*words, **options):
    return CliRunner().invoke(app, [str(word) for word in words], **options)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The comparison with the attacks that make its point, on a narrow screen, and the document that it leaves."""
    out = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(standard, "ATTACKS", ("norm", "cosine", "residual", "likelihood", "spectral"))
        patched.setattr(standard, "JOINED", ())
        done = run("demo", "--compare", "--rows", "12000", "--epochs", "2", "--out", out, env={"COLUMNS": "60"})
    assert done.exit_code == 0, done.output
    return done, json.loads((out / "demo.json").read_text())


def test_demo_makes_its_point(compared):
    none, max_norm, marvell, matched = compared[1]["rows"]
    assert none["worst"]["value"] > 0.95
    assert marvell["leak_auc"]["norm"]["value"] < 0.7
    assert marvell["leak_auc"]["cosine"]["value"] < 0.72
    assert marvell["leak_auc"]["residual"]["value"] > 0.9
    for attack in ("norm", "cosine", "residual", "likelihood", "accumulated(residual)"):
        assert matched["leak_auc"][attack]["value"] < 0.65, attack
    assert max_norm["protection"] == "max_norm()"


def test_demo_runs_every_attack():
    tried = {one if isinstance(one, str) else one[0] for one in standard.ATTACKS}
    assert tried | {"accumulated"} == set(attacks.names())


def test_demo_prints_a_table_that_fits_and_loses_no_figure(compared):
    done, document = compared
    assert max(len(line) for line in done.stdout.splitlines()) <= 60
    for row in document["rows"]:
        for attack, leak in row["leak_auc"].items():
            assert f"{leak['value']:.3f}" in done.stdout, (row["protection"], attack)
        assert f"{row['test_auc']:.3f}" in done.stdout


EXCHANGED = {
    "airport_rows": 330_000, "airline_rows": 310_000, "common": 304_982, "align_seconds": 9.0, "train_seconds": 50.0,
    "certificate": {"total_auc": 0.6, "total_odds": 3.0, "posterior": "8.7% of the labels are 1."},
    "audit": {"numbers": 0.097, "codes": 0.051, "worst": 0.887}, "form": {"width": 1, "ranks": 256, "noise": 0.0},
    "figures": {"test_auc": 0.794}, "alone": {"test_auc": 0.637}, "bytes": {"labels": 30_499, "embedding": 304_982},
    "scored": [
        {"flight_id": 96762, "carrier": "DL", "dest": "MCO", "score": [0.0483], "alone": [0.0642], "truth": False},
        {"flight_id": 144343, "carrier": "UA", "dest": "IAH", "score": [0.134], "alone": [0.0854], "truth": True},
    ],
}  # fmt: skip


@pytest.mark.parametrize("out", [None, "runs/my demo"])
def test_the_end_of_the_demo_is_one_screen(capsys, monkeypatch, out):
    """Of 80 columns and 40 lines: what each side told, what the partner brought, and what to do with the model."""
    monkeypatch.setenv("COLUMNS", "80")
    _print_one_exchange(EXCHANGED, out and Path(out), quiet=False)
    told = capsys.readouterr().out.splitlines()
    commands = [line for line in told if any(f"tacit {verb}" in line for verb in ("predict", "serve", "ledger"))]
    assert len(told) <= 40
    assert max(len(line) for line in told if line not in commands) <= 80
    assert len(commands) == 4
    assert all("'runs/my demo/air" in line for line in commands) or out is None
    whole = "\n".join(told)
    for words in (
        "0.600",
        "3.00",
        "9.7%",
        "5.1%",
        "88.7%",
        "0.794",
        "0.637",
        "30,499 + 304,982",
        "0.134",
        "an hour late",
    ):
        assert words in whole


def test_an_out_that_can_be_no_folder_is_refused_before_the_work(tmp_path):
    (tmp_path / "taken").write_text("")
    done = run("demo", "--out", tmp_path / "taken")
    assert "can't be made a folder" in str(done.exception)


# --- two folders -----------------------------------------------------------------------------------------------------


def digits(text: str) -> str:
    """The digest that was printed in groups over two lines."""
    lines = [line for line in text.splitlines() if re.fullmatch(r"  ([0-9a-f]{4} ){7}[0-9a-f]{4}", line)]
    assert len(lines) == 2, text
    return "".join(lines).replace(" ", "")


@pytest.fixture(name="two")
def _two(tmp_path):
    """An airline and an airport that trust each other, with one contract."""
    airline, airport = tmp_path / "airline", tmp_path / "airport"
    assert run("init", "--role", "label", airline, "--quiet").exit_code == 0
    assert run("init", "--role", "features", airport, "--quiet").exit_code == 0
    assert run("trust", airport / "airport.crt", "--folder", airline).exit_code == 0
    assert run("trust", airline / "airline.crt", "--folder", airport).exit_code == 0
    assert run("contract", "--new", "--split", airline, "--quiet").exit_code == 0
    settings = airport / "party.toml"
    settings.write_text(settings.read_text().replace("numeric = []", 'numeric = ["temp"]'))
    (airport / "contract.toml").write_text("# our copy\n" + (airline / "contract.toml").read_text())
    return airline, airport


def test_two_parties_get_to_one_contract(tmp_path):
    airline, airport = tmp_path / "airline", tmp_path / "airport"
    made = run("init", "--role", "label", airline)
    assert made.exit_code == 0, made.output
    assert "airline.crt" in made.stdout
    assert f"tacit trust PEER.crt --folder {airline}" in made.stdout
    assert f"tacit doctor --folder {airline}" in made.stdout
    assert run("init", "--role", "features", "--name", "airport", airport).exit_code == 0
    there = run("trust", airline / "airline.crt", "--folder", airport)
    assert digits(there.stdout) == digits(made.stdout), "both sides read the same fingerprint"
    assert re.search(r"airline is trusted, until \d{4}-\d\d-\d\d\.", there.stdout)
    unready = run("contract", "--new", "--folder", airline)
    assert unready.exit_code == 0, unready.output
    assert "Not ready yet: no certificate of airport is trusted" in unready.stdout


def test_a_contract_of_one_exchange_is_shown(two):
    airline, _ = two
    terms = 'mode = "one_shot"\nrun = "flights"\nlabel_party = "airline"\nfeature_parties = ["airport"]\n'
    (airline / "contract.toml").write_text(terms + "[exchange]\nwidth = 8\n")
    shown = run("contract", "--folder", airline)
    assert shown.exit_code == 0, shown.output
    assert "one-shot: labels are flipped once" in shown.stdout
    assert "8 numbers a row" in shown.stdout
    assert "Digest, which must be equal on all sides" in shown.stdout


def test_the_contract_is_shown_alike_on_both_sides(two):
    shown = [run("contract", "--folder", folder) for folder in two]
    assert [one.exit_code for one in shown] == [0, 0]
    assert digits(shown[0].stdout) == digits(shown[1].stdout)
    assert "airline is ready" in shown[0].stdout
    assert "airport is ready" in shown[1].stdout
    assert "matched(leak_auc=0.6, visits=epochs)" in shown[1].stdout


def test_the_same_for_programs(two, tmp_path):
    airline, airport = two
    agreed = json.loads(run("contract", airline, "--json").stdout)
    assert agreed["lacks"] is None
    assert agreed["contract"]["label_party"] == "airline"
    assert run("contract", airport, "-q").stdout.strip() == agreed["digest"]
    made = json.loads(run("init", "--role", "label", tmp_path / "third", "--json").stdout)
    assert (made["name"], made["role"]) == ("third", "label")
    pinned = json.loads(run("trust", made["certificate"], "--folder", airport, "--json").stdout)
    assert (pinned["name"], pinned["fingerprint"]) == ("third", made["fingerprint"])
    assert run("trust", made["certificate"], "--folder", airline, "-q").stdout.strip() == made["fingerprint"]


def test_status_of_a_folder_in_all_ways(two):
    airline, _ = two
    assert "no run has begun" in run("status", "--folder", airline).stdout
    assert run("status", airline, "-q").stdout == ""
    assert json.loads(run("status", airline, "--json").stdout) == []
    now = {"run": "r", "party": "airline", "role": "label", "state": "finished", "time": "2026-01-01", "pid": 1}
    where = airline / "runs" / "r"
    where.mkdir()
    (where / "status.json").write_text(json.dumps(now))
    assert run("status", where, "-q").stdout == "r (airline, label): finished\n"
    assert json.loads(run("status", where, "--json").stdout)[0]["run"] == "r"
    both = run("status", where, "--folder", airline)
    assert "say the same" in str(both.exception)


def test_the_doctor_in_words_and_for_programs(two):
    airline, _ = two
    done = run("doctor", airline, env={"COLUMNS": "60"})
    assert done.exit_code == 1, "there is no data yet"
    assert "problem  data" in done.stdout
    assert "To do: check the path, or put it there" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 60
    found = json.loads(run("doctor", "--folder", airline, "--json").stdout)
    assert found["verdict"] == "problem"
    assert {"name", "verdict", "seen", "do"} == set(found["checks"][0])
    assert "ok " not in run("doctor", airline, "--quiet").stdout


def test_a_rotated_certificate_for_programs(two):
    airline, _ = two
    found = json.loads(run("rotate", airline, "--json").stdout)
    assert (found["name"], found["in_use"]) == ("airline", False)
    assert json.loads(run("rotate", airline, "--now", "--json").stdout)["in_use"] is True
