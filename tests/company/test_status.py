"""What a run says about itself: whatever is in its files, a reader gets what can be read; a flood stays small."""

import json
import os
import resource
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.company import status
from tacit.company.folder import create
from tacit.company.status import PACE, Status, paces
from tacit.report.status import read

FIXED = {"run": "one", "party": "airline", "role": "label", "turns": 31}
TURN = {"state": "training", "turn": 31, "epoch": 3, "epochs": 3, "history": [{"epoch": 2, "test_auc": 0.7}]}


class Clock:
    def __init__(self):
        self.time = 1000.0

    def __call__(self):
        return self.time


@pytest.fixture(name="party")
def _party(tmp_path):
    return create(tmp_path / "airline", role="label").path


@pytest.fixture(name="run")
def _run(party):
    (party / "runs" / "one").mkdir()
    return party / "runs" / "one"


@pytest.fixture(name="clock")
def _clock():
    return Clock()


@pytest.fixture(name="said")
def _said(run, clock):
    return Status(run, now=clock, **FIXED)


def shown(party):
    done = CliRunner().invoke(app, ["status", "--folder", str(party)])
    assert done.exit_code == 0, done.output
    assert json.loads(CliRunner().invoke(app, ["status", "--json", "--folder", str(party)]).stdout) is not None
    return done.output


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- reading ---------------------------------------------------------------------------------------------------------


def test_the_last_turn_is_in_the_last_epoch(said, party):
    said.update(**{**TURN, "state": "finished"}, journal_bytes=2**20, at_once=True)
    text = shown(party)
    assert "one (airline, label): finished" in text
    assert "turn 31 of 31 (100%), epoch 3 of 3" in text
    assert "after epoch 3: test_auc 0.7000" in text
    assert read(party)[0]["problems"] == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"run": "one"',
        b"\xff\xfe{}",
        b"[1]",
        b"null",
        b"[" * 100_000,
        json.dumps({**FIXED, **TURN, "time": "", "turns": 0}).encode(),
        json.dumps({**FIXED, **TURN, "time": "", "epoch": None}).encode(),
        json.dumps({**FIXED, **TURN, "time": 7}).encode(),
        json.dumps({**FIXED, **TURN, "time": "", "history": [7]}).encode(),
        json.dumps({**FIXED, "state": "waiting", "why": "?", "time": ""}).encode(),
    ],
)
def test_a_damaged_status_is_said_and_the_others_are_shown(said, run, party, content):
    said.update(**TURN, at_once=True)
    (party / "runs" / "two").mkdir()
    (party / "runs" / "two" / "status.json").write_bytes(content)
    text = shown(party)
    assert "one (airline, label): training" in text
    assert "two: unknown" in text
    assert f"{party / 'runs' / 'two' / 'status.json'} can't be read" in text
    assert [one["run"] for one in read(party)] == ["one", "two"]


@pytest.mark.parametrize(
    "bad", [b'{"time": "now", "ev', b"\xff\xff", b"{}", b"7", b'{"time": 1, "event": []}', b"[" * 99_999]
)
def test_a_damaged_log_is_said_and_its_good_lines_are_shown(said, run, party, bad):
    said.update(**TURN, at_once=True)
    said.log("connected", peer="airport", turn=3)
    with (run / "log.jsonl").open("ab") as file:
        file.write(bad)
    said.log("refused", peer="airport", field="rows", reason="other rows")
    text = shown(party)
    assert f"{run / 'log.jsonl'}: 1 of 3 lines can't be read" in text
    assert "connected: peer airport, turn 3" in text
    assert "refused: peer airport, field rows" in text, "a torn line does not take the next one with it"
    assert read(party)[0]["alarms"] == 1


def test_a_peers_words_do_nothing_to_the_terminal(said, party):
    said.log("refused", peer="airport", field="\x1b[2J", reason="[/a]\n\x07")
    said.update(state="waiting", peer="airport", waiting_seconds=7, why="\x1b[31m[/a]", at_once=True)
    text = shown(party)
    assert "waiting for airport since 7 s (?[31m[/a])" in text
    assert all(line.isprintable() for line in text.splitlines())


# --- a system that refuses -------------------------------------------------------------------------------------------


@contextmanager
def no_file_to_open():
    """As in a process whose files are used up."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as lowest:  # all below are taken
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno() + 1, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_process_without_a_file_left_goes_on_and_writes_all_of_it_later(said, run, party):
    said.update(**TURN, at_once=True)
    with no_file_to_open():
        with pytest.raises(OSError, match="Too many open files"):
            (run / "status.json").open()
        said.log("connected", peer="airport", turn=3)
        said.log("refused", peer="airport", field="rows", reason="other rows")
        said.update(state="waiting", peer="airport", waiting_seconds=7, why="not connected", at_once=True)
    assert read(party)[0]["state"] == "training"
    said.update(turn=31)  # within the second in which the file need not be written, but it never was
    assert read(party)[0]["state"] == "waiting"
    assert [line["event"] for line in lines(run / "log.jsonl")] == ["connected", "refused"]
    assert [one["state"] for one in paces(run / PACE)] == ["training", "waiting"]


@pytest.mark.parametrize("name", ["log.jsonl", PACE, "status.json"])
def test_a_full_disk_does_not_end_a_run_by_what_is_only_told(said, run, name):
    if name == "status.json":
        (run / name).mkdir()  # what can't be replaced
    else:
        (run / name).symlink_to("/dev/full")
    said.log("connected", peer="airport", turn=3)
    said.update(**TURN, at_once=True)
    others = {"log.jsonl", PACE, "status.json"} - {name}
    assert all((run / one).stat().st_size for one in others)


def test_what_waits_for_a_disk_is_bounded(said, run):
    (run / "log.jsonl").symlink_to("/dev/full")
    for turn in range(1500):
        said.log("connected", peer="airport", turn=turn)
    (run / "log.jsonl").unlink()
    said.log("connected", peer="airport", turn=1500)
    assert [line["turn"] for line in lines(run / "log.jsonl")] == list(range(500, 1501)), "a thousand, and the new one"


# --- a flood ---------------------------------------------------------------------------------------------------------


def test_refusals_of_one_minute_become_one_line_that_counts_them(said, run, party, clock):
    said.update(**TURN, at_once=True)
    for number in range(1000):
        said.log("refused", peer="airport", field="rows", reason=f"number {number}")
        clock.time += 0.05
    said.log("refused", peer="harbour", field="rows", reason="another party")
    said.log("refused", peer="airport", field="contract", reason="another field")
    written = lines(run / "log.jsonl")
    assert len(written) == 12
    clock.time += 60
    said.update(turn=31)
    written = lines(run / "log.jsonl")
    assert len(written) == 13
    assert (written[-1]["times"], written[-1]["reason"]) == (990, "number 999")
    assert read(party)[0]["alarms"] == 1002
    said.log("refused", peer="airport", field="rows", reason="later")
    assert "times" not in lines(run / "log.jsonl")[-1], "a new minute begins with lines of its own"


def test_what_was_only_counted_is_written_at_the_end(said, run):
    for _ in range(11):
        said.log("refused", peer="airport", field="rows", reason="again")
    said.update(state="finished", at_once=True)
    assert lines(run / "log.jsonl")[-1]["times"] == 1
    said.update(state="finished", at_once=True)
    assert len(lines(run / "log.jsonl")) == 11


def test_every_connection_has_its_line(said, run):
    for turn in range(30):
        said.log("connected", peer="airport", turn=turn)
    assert [line["turn"] for line in lines(run / "log.jsonl")] == list(range(30))


def test_a_large_log_is_kept_once_and_then_let_go(said, run, party, monkeypatch):
    monkeypatch.setattr(status, "_LARGEST", 2000)
    for number in range(200):
        said.log("connected", peer="airport", turn=number)
        assert sum(path.stat().st_size for path in run.glob("log*")) <= 4000
    said.update(**TURN, at_once=True)
    assert sorted(path.name for path in run.glob("log*")) == ["log.jsonl", "log.older.jsonl"]
    numbers = [line["turn"] for name in ("log.older.jsonl", "log.jsonl") for line in lines(run / name)]
    assert numbers == list(range(200 - len(numbers), 200))
    assert [event["turn"] for event in read(party)[0]["events"]] == list(range(195, 200))


def test_a_run_that_is_finished_stays_so_whatever_becomes_of_starting_it_again(tmp_path):
    Status(tmp_path, run="small").update(state="finished", history=[{"epoch": 0}], at_once=True)
    again = Status(tmp_path, run="small")
    again.update(state="preparing", at_once=True)
    again.update(state="stopped", reason="another learn", at_once=True)
    found = json.loads((tmp_path / "status.json").read_bytes())
    assert (found["state"], found["history"]) == ("finished", [{"epoch": 0}])
    assert "reason" not in found
