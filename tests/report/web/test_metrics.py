"""Figures for Prometheus, read back with a strict reader of the text format 0.0.4."""

import json
import os
import re
from pathlib import Path

import pytest

from tacit.report.web.metrics import CONTENT_TYPE, exposition
from tacit.report.web.shelf import Shelf

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
KINDS = {"counter", "gauge", "histogram", "summary", "untyped"}


def unescape(text):
    return re.sub(r"\\(.)", lambda found: {"n": "\n", '"': '"', "\\": "\\"}[found[1]], text)


def parse(text):
    """Every family as its kind and its samples, by labels; whatever the format does not allow fails."""
    assert text.endswith("\n")
    families, helped, current = {}, set(), None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert NAME.fullmatch(current)
            assert current not in helped, "one HELP for a name"
            helped.add(current)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current, "TYPE goes with its HELP"
            assert name not in families
            assert kind in KINDS
            assert kind != "counter" or name.endswith("_total")
            families[name] = (kind, {})
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] == current, "a family stands together"
            labels, rest = {}, found[2] or ""
            while rest:
                one = LABEL.match(rest)
                assert one, rest
                assert one[1] not in labels
                labels[one[1]] = unescape(one[2])
                rest = rest[one.end() :]
            key = frozenset(labels.items())
            assert key not in families[current][1], f"twice: {line}"
            families[current][1][key] = float(found[3].replace("Inf", "inf"))
    return families


def values(families, name, *labels):
    """A family's figures by some labels."""
    return {tuple(dict(key)[label] for label in labels): value for key, value in families[name][1].items()}


@pytest.mark.parametrize(
    "bad", ['a{b="\n"} 1\n', 'a{b="\\x"} 1\n', "a 1\na 2\n", "a 1", "a  1\n", "b 1\n", "a{b=1} 1\n"]
)
def test_the_reader_is_strict(bad):
    head = "# HELP a b\n# TYPE a gauge\n"
    assert parse(head + "a 1\n") == {"a": ("gauge", {frozenset(): 1.0})}
    with pytest.raises(AssertionError):
        parse(head + bad)


def test_a_runs_figures(tmp_path, make_run):
    folder = make_run(tmp_path / "a" / "runs" / "b", state="waiting", peer="x", why="y", waiting_seconds=5)
    lines = [{"time": 1000.0 + second, "turn": 10, "state": state, "journal_bytes": 5}
             for second, state in enumerate(["training", "waiting", "waiting"])]  # fmt: skip
    (folder / "pace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    events = [{"time": "2026-11-15T18:44:11+00:00", "event": event} for event in ("connected", "refused", "connected")]
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    found = parse(exposition(Shelf([tmp_path]).cards(), 1060.0).decode())
    assert values(found, "tacit_run_turns_done", "run", "party") == {("flights", "airline"): 10}
    assert values(found, "tacit_run_turns_planned") == {(): 100}
    assert values(found, "tacit_run_leak", "attack", "measure") == {
        ("norm", "leak_auc"): pytest.approx(0.55),
        ("cosine", "leak_auc"): pytest.approx(0.55),
    }
    assert values(found, "tacit_run_worst_leak", "on") == {("live",): pytest.approx(0.55)}
    states = values(found, "tacit_run_state", "state")
    assert [state for (state,), value in states.items() if value] == ["waiting"]
    assert values(found, "tacit_run_utility", "name") == {("test_auc",): 0.61}
    assert values(found, "tacit_run_alarms_total") == {(): 1}
    assert values(found, "tacit_run_reconnects_total") == {(): 1}
    assert values(found, "tacit_run_journal_bytes") == {(): 5}
    assert values(found, "tacit_run_waiting_seconds") == {(): 0}  # its process is not there
    assert found["tacit_run_limit"] == ("gauge", {})
    assert values(found, "tacit_runs") == {(): 1}


def test_how_long_a_living_run_waits(tmp_path, make_run):
    folder = make_run(tmp_path / "a" / "runs" / "b", state="waiting", pid=os.getpid())
    for second, state in enumerate(["waiting", "training", "waiting", "waiting"]):
        with (folder / "pace.jsonl").open("a") as file:
            file.write(json.dumps({"time": 1000.0 + second, "turn": 1, "state": state, "journal_bytes": 0}) + "\n")
    found = parse(exposition(Shelf([tmp_path]).cards(), 1060.0).decode())
    assert values(found, "tacit_run_waiting_seconds") == {(): 58.0}


HOSTILE = 'a"b\\c\nd{e="f"} 1\r\x85\u2028\ud800é\\n'


def test_hostile_names_stay_in_their_labels(tmp_path, make_run, look):
    folder = make_run(tmp_path / "a" / "runs" / "b", run=HOSTILE, party="\\", state='"')
    with (folder / "live.jsonl").open("a") as file:
        file.write(look(9, **{HOSTILE: 0.7}))
    found = parse(exposition(Shelf([tmp_path]).cards(), 0.0).decode())
    shown = HOSTILE.replace("\ud800", "?")
    assert (shown, "\\") in values(found, "tacit_run_turns_done", "run", "party")
    assert values(found, "tacit_run_leak", "attack")[(shown,)] == 0.7
    assert values(found, "tacit_run_state", "state")[('"',)] == 1


def test_figures_that_are_not_there_are_left_out_and_odd_ones_written_as_the_format_says():
    card = {"id": "1", "run": "r", "party": None, "turn": None, "measure": "leak_auc", "worst": None,
            "utility": None, "state": "unknown", "alive": False, "problems": ["x"], "limit": float("inf"),
            "leaks": [], "waits_since": None,
            "rate": float("nan"), "seconds_left": 2.5e300}  # fmt: skip
    found = parse(exposition([card, {"id": "2"}], 0.0).decode())
    assert found["tacit_run_turns_done"][1] == {}
    assert values(found, "tacit_run_limit") == {(): float("inf")}
    assert values(found, "tacit_run_seconds_left") == {(): 2.5e300}
    assert str(values(found, "tacit_run_turns_per_second")[()]) == "nan"
    assert values(found, "tacit_run_problems", "party") == {("",): 1}
    assert values(found, "tacit_runs") == {(): 1}


def test_nothing_found_is_no_error(shown):
    assert values(parse(exposition([], 0.0).decode()), "tacit_runs") == {(): 0}
    answer = shown.get("/metrics")
    assert answer.headers["Content-Type"] == CONTENT_TYPE
    assert values(parse(answer.content.decode()), "tacit_run_turns_done", "id") == {(shown.id,): 10}


def test_the_docs_name_every_figure():
    page = (Path(__file__).parents[3] / "docs" / "howto-watch-a-run.md").read_text()
    rows = re.findall(r"^\| `(tacit_\w+)` \| (\w+) \| (.*) \|$", page, flags=re.MULTILINE)
    lines = [line.split(" ", maxsplit=3) for line in exposition([], 0.0).decode().splitlines()]
    about = {line[2]: line[3] for line in lines if line[:2] == ["#", "HELP"]}
    kinds = {line[2]: line[3] for line in lines if line[:2] == ["#", "TYPE"]}
    assert rows == [(name, kinds[name], told) for name, told in about.items()]
