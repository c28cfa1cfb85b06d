"""The pace of a run: few lines, however long it takes, and no line lost after a crash."""

import json

from tacit.company.status import PACE, Pace, paces


def test_lines_lie_further_apart_as_a_run_grows_old(tmp_path):
    clock = [1000.0]
    pace = Pace(tmp_path, now=lambda: clock[0])
    for turn in range(30_000):
        clock[0] += 10
        pace.note("training", turn=turn, journal_bytes=5)
    seen = paces(tmp_path / PACE)
    assert 1000 < len(seen) < 6000
    assert seen[1]["time"] - seen[0]["time"] == 10
    assert seen[-1]["time"] - seen[-2]["time"] >= 300


def test_a_change_of_state_is_written_at_once(tmp_path):
    pace = Pace(tmp_path, now=lambda: 1000.0)
    for state in ("training", "training", "waiting", "training"):
        pace.note(state, turn=1, journal_bytes=0)
    assert [one["state"] for one in paces(tmp_path / PACE)] == ["training", "waiting", "training"]


def test_a_line_that_was_cut_short_costs_only_itself(tmp_path):
    path = tmp_path / PACE
    Pace(tmp_path, now=lambda: 1000.0).note("training", turn=1, journal_bytes=0)
    path.write_bytes(path.read_bytes() + b'{"time": 10')
    Pace(tmp_path, now=lambda: 2000.0).note("waiting", turn=2, journal_bytes=0)
    path.write_bytes(path.read_bytes() + json.dumps({"time": "now", "turn": 1}).encode())
    assert [one["turn"] for one in paces(path)] == [1, 2]


def test_a_clock_that_is_set_back_ends_no_notes(tmp_path):
    clock = [10_000.0]
    pace = Pace(tmp_path, now=lambda: clock[0])
    for now in (10_000.0, 6_400.0, 6_401.0, 6_403.0):
        clock[0] = now
        pace.note("training", turn=1, journal_bytes=0)
    assert [one["time"] for one in paces(tmp_path / PACE)] == [10_000.0, 6_400.0, 6_403.0]
