"""The command line, as a user meets it: the demo, and two folders that get to one contract."""

import json
import re

import polars as pl
import pytest
from typer.testing import CliRunner

from tacit.audit import attacks, standard
from tacit.cli import app
from tacit.company.agreed import check_agreed
from tacit.errors import TacitError, UsageError
from tacit.lab import demo


def run(*words, **options):
    return CliRunner().invoke(app, [str(word) for word in words], **options)


def test_demo_runs_every_attack():
    tried = {one if isinstance(one, str) else one[0] for one in standard.ATTACKS}
    assert tried | {"accumulated"} == set(attacks.names())


def line(protection, norm, cosine, attack, worst):
    leaks = {"norm": {"value": norm}, "cosine": {"value": cosine}}
    return {
        "protection": protection, "test_auc": 0.766, "leak_auc": leaks, "worst": {"attack": attack, "value": worst},
    }  # fmt: skip


ACTS = {
    "match": {"airport_rows": 330_000, "airline_rows": 310_000, "common": 304_982, "align_seconds": 9.0},
    "split": {
        "flights": 59_900,
        "rows": [
            line("none()", 0.994, 1.0, "cosine", 1.0),
            line("marvell(scale=4)", 0.541, 0.637, "accumulated(likelihood, spread)", 0.999),
            line("matched(leak_auc=0.6, visits=3)", 0.502, 0.52, "contextual", 0.571),
        ],
        "embedding": {
            "bare": {"read": 0.83, "test_auc": 0.752}, "noised": {"read": 0.48, "test_auc": 0.744},
        },
    },
    "exchange": {
        "common": 304_982, "limit": 0.9, "groups": 4, "smallest": 0.15,
        "label_bound": {"total_auc": 0.6, "total_odds": 3.0},
        "audit": {"numbers": 0.097, "codes": 0.051, "worst": 0.837},
        "figures": {"test_auc": 0.794}, "alone": {"test_auc": 0.637}, "bytes": {"labels": 30_499, "embedding": 304_982},
        "scored": [
            {"flight_id": 96762, "carrier": "DL", "dest": "MCO", "score": [0.0483], "alone": [0.0642], "truth": False},
            {"flight_id": 14433, "carrier": "UA", "dest": "IAH", "score": [0.134], "alone": [0.0854], "truth": True},
            {"flight_id": 14434, "carrier": "UA", "dest": "IAH", "score": [0.111], "alone": [0.0855], "truth": False},
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize("out", [None, "runs/my demo"])
def test_the_demo_prints_one_screen_in_three_acts(capsys, monkeypatch, tmp_path, out):
    """Of 80 columns and fewer than 45 lines with all five protections; every figure is of the run."""
    monkeypatch.setenv("COLUMNS", "80")

    def acted(where, *, show, **asked):
        for act, told in ACTS.items():
            show(act, told)
        return ACTS

    monkeypatch.setattr(demo, "run", acted)
    monkeypatch.chdir(tmp_path)
    done = run("demo", *(() if out is None else ("--out", out)))
    assert done.exit_code == 0, done.output
    told = done.stdout.splitlines()
    commands = [
        said for said in told if said.startswith(("Report", "Every label", "Act 2 between", "The papers'", "Both"))
    ]
    assert len(told) + 2 < 45
    assert max(len(said) for said in told if said not in commands) <= 80
    assert sum("'runs/my demo/" in said for said in commands) == (0 if out is None else 3)
    whole = " ".join(" ".join(told).split())
    for words in (
        "Act 1. Match", "304,982", "Act 2. Split learning, as in the papers", "0.541 0.637 0.999 0.766",
        "Marvell holds the papers' attacks at 0.54 and 0.64", "(accumulated(likelihood, spread)) reads 0.999",
        "83%", "48%",
        "Act 3. One exchange", "0.600", "1.10", "0.84", "limit 0.9", "30,499 + 304,982", "0.794 0.637",
        "0.134", "an hour late",
        "--apart", "python -m papers --list",
    ):  # fmt: skip
        assert words in whole, words
    assert out is None or json.loads((tmp_path / out / "demo.json").read_text())["match"] == ACTS["match"]


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
    """An airline and an airport with tables of their own that trust each other, with one contract."""
    airline, airport = tmp_path / "airline", tmp_path / "airport"
    table = pl.DataFrame({"id": range(1200), "late": ["yes", "no"] * 600, "temp": [one / 7 for one in range(1200)]})
    table.write_parquet(tmp_path / "table.parquet")
    data = ("--data", tmp_path / "table.parquet", "--ids", "id", "--split", "--quiet")
    assert run("init", "--role", "label", "--label", "late", *data, airline).exit_code == 0
    assert run("init", "--role", "features", "--exclude", "late", *data, airport).exit_code == 0
    assert run("trust", airport / "airport.crt", "--folder", airline).exit_code == 0
    assert run("trust", airline / "airline.crt", "--folder", airport).exit_code == 0
    assert run("contract", "--new", "--split", airline, "--quiet").exit_code == 0
    (airport / "contract.toml").write_text("# our copy\n" + (airline / "contract.toml").read_text())
    return airline, airport


def test_two_parties_get_to_one_contract(tmp_path):
    airline, airport = tmp_path / "airline", tmp_path / "airport"
    made = run("init", "--role", "label", airline)
    assert made.exit_code == 0, made.output
    assert "airline.crt" in made.stdout
    assert f"tacit trust PEER.crt --folder {airline}" in made.stdout
    assert f"Fill in {airline / 'party.toml'}" in made.stdout
    assert run("init", "--role", "features", "--name", "airport", airport).exit_code == 0
    there = run("trust", airline / "airline.crt", "--folder", airport)
    assert digits(there.stdout) == digits(made.stdout), "both sides read the same fingerprint"
    assert re.search(r"airline is trusted, until \d{4}-\d\d-\d\d\.", there.stdout)
    unready = run("contract", "--new", "--folder", airline)
    assert unready.exit_code == 0, unready.output
    assert "Not ready yet:\n  no certificate of airport is trusted" in unready.stdout
    assert run("contract", "--folder", airline).exit_code == 1


def test_a_contract_of_one_exchange_is_shown(two):
    airline, _ = two
    terms = 'mode = "one_shot"\nrun = "flights"\nlabel_party = "airline"\nfeature_parties = ["airport"]\n'
    (airline / "contract.toml").write_text(terms + "[exchange]\nbits = 3\n")
    shown = run("contract", "--folder", airline)
    assert shown.exit_code == 0, shown.output
    assert "one-shot: randomized labels are sent once" in shown.stdout
    assert "of each row one of 8 groups" in shown.stdout
    assert "Digest, which must be equal on all sides" in shown.stdout


def test_the_contract_is_shown_alike_on_both_sides(two):
    shown = [run("contract", "--folder", folder) for folder in two]
    assert [one.exit_code for one in shown] == [0, 0]
    assert digits(shown[0].stdout) == digits(shown[1].stdout)
    assert "matched(leak_auc=0.6, visits=epochs)" in shown[1].stdout
    for name, folder, one in zip(("airline", "airport"), two, shown, strict=True):
        assert f"{name} has not agreed yet: tacit contract --yes --folder {folder}" in one.stdout
    assert "Gradients of 3 visits of 80% of the common rows, 1,200 at most" in shown[0].stdout
    assert "Embeddings of 128 numbers, 3 visits of 80% of the common rows" in shown[1].stdout


def test_nothing_begins_before_the_owner_has_agreed(two, monkeypatch):
    airline, _ = two
    for verb in ("align", "train"):
        refused = run(verb, "--folder", airline)
        assert "nobody has agreed yet to what airline sends: tacit contract --folder" in str(refused.exception)
    assert run("train", "--plan", "--folder", airline).exit_code == 0, "to look is no yes"
    monkeypatch.setattr("tacit.cli.setup._on_terminal", lambda: True)
    assert "has not agreed yet" in run("contract", "--folder", airline, input="n\n").stdout
    said = run("contract", "--folder", airline, input="y\n").stdout
    assert "Does airline agree to that? [y/N]" in said
    assert re.search(r"airline is ready, and agreed on \d{4}-", said)
    again = run("contract", "--folder", airline).stdout
    assert "Does airline agree" not in again, "it is asked once"
    check_agreed(airline)


def test_a_yes_is_to_what_is_sent_and_not_to_the_name_of_the_run(two):
    airline, airport = two
    for folder in two:
        assert run("contract", "--yes", "--folder", folder).exit_code == 0
        edited(folder / "contract.toml", 'run = "run-1"', 'run = "run-2"')
        check_agreed(folder)
    edited(airport / "party.toml", "limit = 0.9", "limit = 0.95")
    check_agreed(airport)  # to raise it is a yes by itself
    edited(airline / "party.toml", 'label = "late"', 'label = "temp"')
    with pytest.raises(TacitError, match="'temp' is the label: remove it"):
        check_agreed(airline)  # a mistake is told before
    edited(airline / "party.toml", 'label = "temp"', 'label = "late"')
    edited(airline / "party.toml", "leak_auc = 0.55", "leak_auc = 0.51")
    with pytest.raises(UsageError, match="has changed since somebody agreed to what airline sends"):
        check_agreed(airline)
    edited(airline / "party.toml", "leak_auc = 0.51", "leak_auc = 0.55")
    for folder in two:
        edited(folder / "contract.toml", "epochs = 3", "epochs = 2")
        with pytest.raises(UsageError, match="has changed since somebody agreed"):
            check_agreed(folder)


def edited(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_same_for_programs(two, tmp_path):
    airline, airport = two
    agreed = json.loads(run("contract", airline, "--json").stdout)
    assert (agreed["lacks"], agreed["agreed"]) == (None, None)
    assert agreed["plan"]["figures"]["visits"] == 3
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


def test_a_check_in_words_and_for_programs(two):
    airline, _ = two
    (airline.parent / "table.parquet").unlink()
    done = run("check", airline, env={"COLUMNS": "60"})
    assert done.exit_code == 1, "there is no data yet"
    assert "problem  data" in done.stdout
    assert "check the path, or put it there" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 60
    found = json.loads(run("check", "--folder", airline, "--json").stdout)
    assert found["verdict"] == "problem"
    assert {"name", "verdict", "words"} == set(found["checks"][0])
    assert "ok " not in run("check", airline, "--quiet").stdout


def test_a_rotated_certificate_for_programs(two):
    airline, _ = two
    found = json.loads(run("rotate", airline, "--json").stdout)
    assert (found["name"], found["in_use"]) == ("airline", False)
    assert json.loads(run("rotate", airline, "--now", "--json").stdout)["in_use"] is True
