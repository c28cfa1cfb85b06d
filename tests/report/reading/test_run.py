"""A run, read while it is written."""

import json
import os
import re
from pathlib import Path

import pytest

from tacit.errors import DataError
from tacit.report.document import Leak, Report, Subject
from tacit.report.pacing import pace_of
from tacit.report.reading import RunReader, find, frame
from tacit.report.seals import write_report

FIGURE = {"attack": "cosine", "on": "visits", "value": 0.55, "low": 0.52, "upper": 0.58, "limit": None}


@pytest.fixture(name="read")
def _read(tmp_path):
    """A reader of the one run that there is."""
    return lambda: RunReader(find([tmp_path])[0])


def curve(told, name):
    return next(one for one in told["curves"] if one["name"] == name)


def test_a_run_that_has_just_begun(written, read):
    written()
    one = read()
    assert one.refresh()
    told = one.detail()
    assert json.loads(json.dumps(told, allow_nan=False)) == told | {"problems": []}
    assert told["worst"] is None is told["matrix"]
    assert (told["curves"], told["spark"], told["state"]) == ([], {"x": [], "y": []}, "training")


def test_only_what_is_new_is_read(written, read):
    run, one = written(), read()
    run.look(1, norm=0.7)
    assert one.refresh()
    assert not one.refresh()
    run.look(2, norm=0.2)
    assert one.refresh()
    told = one.detail()
    assert curve(told, "norm")["x"] == [1, 2]
    assert curve(told, "norm")["y"] == pytest.approx([0.7, 0.8])
    assert curve(told, "loss")["group"] == "utility"


def test_a_line_that_is_being_written_is_read_when_it_is_whole(written, read):
    run, one = written(), read()
    run.look(1, norm=0.7)
    path = run.path / "live.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 2, "found"')
    one.refresh()
    assert curve(one.detail(), "norm")["x"] == [1]
    with path.open("ab") as file:
        file.write(b': {"norm": 0.6}}\n')
    one.refresh()
    assert curve(one.detail(), "norm")["x"] == [1, 2]


def test_a_run_that_was_set_back_shows_no_look_twice(written, read):
    run, one = written(), read()
    for step in range(4):
        run.look(step, norm=0.7)
    one.refresh()
    path = run.path / "live.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    part = path.with_suffix(".part")
    part.write_bytes(b"".join(lines[:2]))
    part.replace(path)
    run.look(2, norm=0.6)
    one.refresh()
    assert curve(one.detail(), "norm")["x"] == [0, 1, 2]
    assert curve(one.detail(), "loss")["x"] == [0, 1, 2]


def test_the_gate_is_shown_with_its_limit_and_what_it_measured(written, read):
    run, one = written(), read()
    run.decide(1, "resume")
    run.decide(2, measured=[FIGURE], worst=FIGURE)
    one.refresh()
    told = one.detail()
    assert told["worst"] == {"attack": "cosine", "value": 0.55, "low": 0.52, "high": 0.58, "on": "visits"}
    assert curve(told, "cosine on visits") == {
        "name": "cosine on visits", "group": "gate", "measure": "leak_auc", "x": [50], "y": [0.55], "low": [0.52],
        "high": [0.58],
    }  # fmt: skip
    assert told["limits"] == {"x": [0, 50, 100], "y": [0.6, 0.6, 0.6]}
    assert told["matrix"]["columns"] == ["before epoch 2"]
    assert told["matrix"]["rows"][0]["values"] == [0.55]
    assert "measured" not in told["decisions"][0]


def test_without_a_gate_the_worst_is_the_mean_of_the_latest_looks(written, read):
    run, one = written(), read()
    for step in range(100):
        run.look(step, norm=0.9 if step < 50 else 0.3, cosine=0.4 if step % 2 else 0.6)
    one.refresh()
    assert one.card()["worst"] == {
        "attack": "norm",
        "value": pytest.approx(0.7),
        "low": None,
        "high": None,
        "on": "live",
    }
    assert len(one.card()["spark"]["x"]) == 40


def test_rates_stalls_and_reconnections(written, read, me):
    run, one = written(), read()
    run.status(pid=me)
    for time, turn, state in ((0, 0, "preparing"), (10, 20, "training"), (20, 40, "waiting"), (30, 40, "waiting"),
                              (40, 40, "training"), (50, 60, "training"), (90, 60, "preparing"),
                              (100, 80, "training"), (110, 110, "training")):  # fmt: skip
        run.pace(time, turn, state)
    run.event("connected", time="1970-01-01T00:00:05+00:00")
    run.event("connected", time="1970-01-01T00:00:40+00:00")
    one.refresh()
    pace = one.detail()["pace"]
    assert pace["rate"] == [None, 2.0, 2.0, None, None, 2.0, None, 2.0, 3.0]
    assert pace["stalls"] == [(20, 40, "waiting"), (50, 90, "stopped")]
    assert pace["connected"] == [5.0, 40.0]
    card = one.card()
    assert (card["rate"], card["seconds_left"], card["reconnects"]) == (3.0, pytest.approx(100 / 3), 1)


def test_a_long_pace_is_thinned_to_its_end():
    lines = [(float(second), second, "training", 0) for second in range(10_000)]
    told = pace_of(lines, [], 100)
    assert len(told["time"]) <= 101
    assert told["time"][-1] == 9999


@pytest.mark.parametrize("name", ["status.json", "live.jsonl", "gate.jsonl", "pace.jsonl", "report.json", "log.jsonl"])
@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"[]\n", b'{"a": 1}\n', b'{"step": "x", "found": 7}\n', b"[" * 9000]
)
def test_no_damaged_file_stops_a_page(written, read, name, content):
    run, one = written(), read()
    run.look(1, norm=0.7)
    run.decide(1)
    (run.path / name).write_bytes(content)
    one.refresh()
    json.dumps(one.detail(), allow_nan=False)
    if name in ("status.json", "report.json"):
        assert any(name in problem for problem in one.problems)
    assert frame(one).height >= 0


def test_every_figure_stands_in_one_long_table(written, read):
    run, one = written(), read()
    run.look(3, norm=0.2)
    run.decide(2, measured=[FIGURE])
    run.pace(1000.0, 7)
    run.status(history=[{"epoch": 0, "test_auc": 0.7}])
    one.refresh()
    rows = {(row["group"], row["name"]): row for row in frame(one).iter_rows(named=True)}
    assert rows["leak", "norm"]["value"] == pytest.approx(0.8)
    assert (rows["gate", "cosine on visits"]["low"], rows["gate", "cosine on visits"]["step"]) == (0.52, 50)
    assert (rows["pace", "journal_bytes"]["time"], rows["pace", "journal_bytes"]["step"]) == (1000, 7)
    assert rows["utility", "test_auc"]["step"] == 50
    assert {row["party"] for row in rows.values()} == {"airline"}


def test_figures_have_the_times_of_the_pace(written, read):
    run, one = written(), read()
    for step in (5, 15, 60):
        run.look(step, loss=1 / (1 + step), norm=0.4 + step / 1000)
    run.decide(1)
    run.decide(2)
    for time, turn in ((1000.0, 0), (1010.0, 55), (1030.0, 110)):
        run.pace(time, turn)
    history = [{"epoch": 0, "test_auc": 0.6}, {"epoch": 1, "test_auc": 0.7}]
    run.status(state="finished", turn=110, epoch=2, history=history)
    leak = Leak(attack="norm", on="visits", value=0.53, low=0.5, high=0.56)
    subject = Subject(kind="run", side="features", run="flights")
    write_report(Report(made=run.told["time"], subject=subject, verdict="no limit", leaks=(leak,)), run.path)
    one.refresh()

    def rows(group, name):
        return [(row["step"], row["time"], row["value"], row["high"]) for row in frame(one).iter_rows(named=True)
                if (row["group"], row["name"]) == (group, name)]  # fmt: skip

    assert [(step, value) for step, _, value, _ in rows("utility", "loss")] == [(5, 1 / 6), (15, 1 / 16), (60, 1 / 61)]
    assert rows("utility", "test_auc") == [(50, 1010.0, 0.6, None), (100, 1030.0, 0.7, None)]
    assert rows("pace", "turns_per_second") == [(55, 1010.0, 5.5, None), (110, 1030.0, 2.75, None)]
    assert rows("pace", "journal_bytes") == [(0, 1000.0, 0, None), (55, 1010.0, 550, None), (110, 1030.0, 1100, None)]
    assert rows("gate", "limit") == [(0, 1000.0, 0.6, None), (50, 1010.0, 0.6, None)]
    assert rows("report", "norm on visits") == [(100, 1030.0, 0.53, 0.56)]


def test_turns_that_a_killed_run_does_again_count_once_and_the_time_it_stood_still_counts(written, read):
    run, one = written(), read()
    run.pace(1000.0, 0)
    run.pace(1010.0, 50)
    run.pace(1100.0, 10, "preparing")
    run.pace(1110.0, 70)
    one.refresh()
    rates = frame(one).filter(group="pace", name="turns_per_second")
    assert rates.select("step", "value").rows() == [(50, 5.0), (70, 0.2)]


def test_the_docs_name_every_column_of_the_long_table(written, read):
    written()
    one = read()
    one.refresh()
    page = (Path(__file__).parents[3] / "docs" / "howto-watch-a-run.md").read_text()
    named = re.findall(r"^\| `(\w+)` \| (String|Float64) \|", page, flags=re.MULTILINE)
    assert named == [(column, str(kind)) for column, kind in frame(one).schema.items()]


@pytest.mark.parametrize("name", ["status.json", "live.jsonl", "log.older.jsonl"])
def test_a_pipe_in_the_place_of_a_file_holds_nobody(written, read, name):
    run = written()
    (run.path / name).unlink(missing_ok=True)
    os.mkfifo(run.path / name)
    with pytest.raises(DataError, match="pipe"):
        read().refresh()


def test_a_look_that_is_no_number_hides_no_leak(written, read):
    run, one = written(), read()
    for step in range(20):
        run.look(step, norm=float("nan") if step == 19 else 0.5, cosine=float("inf") if step == 10 else 0.9)
    one.refresh()
    card = one.card()
    assert (card["worst"]["attack"], card["worst"]["value"]) == ("cosine", pytest.approx(0.9))
    assert card["spark"]["y"] == pytest.approx([0.9] * 10 + [0.5] + [0.9] * 9)
    assert curve(one.detail(), "cosine")["mean"] == pytest.approx([0.9] * 20)


def test_a_number_beyond_all_counts_costs_only_itself(written, read):
    run, one = written(), read()
    run.look(1, norm=10**400, cosine=0.6)
    run.look(10**400, norm=0.6)
    run.look(2, norm=0.7)
    one.refresh()
    assert curve(one.detail(), "norm")["x"] == [2]
    assert curve(one.detail(), "cosine")["y"] == [0.6]
