"""Runs brought to a tracker: all of them, once, and what comes later."""

import json
import os
import shutil

import polars as pl
import pytest

from tacit.errors import UsageError
from tacit.views.finding import find
from tacit.views.reading import RunReader
from tacit.views.track import Export, Tables, TensorBoard
from tacit.views.track.following import facts_of

ROOM = 1e-6  # TensorBoard keeps figures as float32


@pytest.fixture(name="bring")
def _bring(tmp_path):
    """Bring everything under the runs of a test, once."""

    def bring():
        export = opened(tmp_path)
        many = export.update()
        export.close()
        return many

    return bring


def opened(folder):
    return Export([folder / "runs"], lambda place: TensorBoard(folder / "logs", run=place.name))


def steps(scalars):
    return {name: [step for step, _ in points] for name, points in scalars.items()}


def test_everything_a_run_has_found_is_there(tmp_path, make_run, bring, shown):
    run = make_run().train(5, 15, 60)
    scalars, texts, times = shown_of(tmp_path, bring, shown)
    looks = [json.loads(line) for line in (run.path / "live.jsonl").read_text().splitlines()]
    assert scalars["utility/loss"] == pairs((one["step"], one["figures"]["loss"]) for one in looks)
    folded = pairs((one["step"], max(one["found"]["norm"], 1 - one["found"]["norm"])) for one in looks)
    assert scalars["leak/norm"] == folded
    assert scalars["utility/test_auc"] == pairs([(50, 0.6), (100, 0.7)])
    assert scalars["gate/residual on visits"] == pairs([(50, 0.57)])
    assert scalars["gate/residual on visits.low"] == pairs([(50, 0.52)])
    assert scalars["gate/residual on visits.high"] == pairs([(50, 0.58)])
    assert scalars["gate/limit"] == pairs([(0, 0.6), (50, 0.6)])
    assert scalars["pace/turns_per_second"] == pairs([(55, 5.5), (110, 2.75)])
    assert scalars["pace/journal_bytes"] == pairs([(0, 0), (55, 550), (110, 1100)])
    assert scalars["report/accumulated(norm, precise) on visits"] == pairs([(100, 0.53)])
    assert scalars["report/accumulated(norm, precise) on visits.high"] == pairs([(100, 0.56)])
    assert texts["gate/decision/text_summary"] == [(0, "keep: it holds"), (50, "keep: it holds")]
    assert times["utility/test_auc"] == pytest.approx([1010.0, 1030.0]), "read off the pace"
    facts = texts["facts/text_summary"][0][1]
    assert "| batch_size | 256 |" in facts
    assert "| protect.gradient.name | matched |" in facts
    assert "127.0.0.1" not in facts, "addresses stay at home"


@pytest.mark.parametrize("deep", ["x = " + "[" * 9999, "x" + ".a" * 9999 + " = 1"])
def test_a_contract_that_no_parser_can_hold_tells_no_facts(make_run, deep):
    run = make_run().train(5)
    contract = run.path.parent.parent / "contract.toml"
    contract.write_text(f"{contract.read_text()}\n{deep}")
    reader = RunReader(find([run.path])[0])
    reader.refresh()
    assert facts_of(reader)["party"] == "airline"
    assert "batch_size" not in facts_of(reader)


def shown_of(folder, bring, shown):
    assert bring() > 0
    (log,) = (folder / "logs").iterdir()
    return shown(log)


def pairs(points):
    return [(step, pytest.approx(value, rel=ROOM)) for step, value in points]


def test_twice_is_as_once(tmp_path, make_run, bring, shown):
    make_run().train(5, 15, 60)
    first = shown_of(tmp_path, bring, shown)
    assert bring() == 0
    (log,) = (tmp_path / "logs").iterdir()
    assert len(list(log.glob("events*"))) == 1
    assert shown(log)[:2] == first[:2]


def test_what_is_added_is_brought_and_runs_that_begin_later(tmp_path, make_run, shown):
    run = make_run(pid=os.getpid())
    run.look(5)
    export = opened(tmp_path)
    assert export.update() == 3
    assert export.update() == 0
    run.look(15, 25)
    assert export.update() == 6
    make_run("airport").look(7)
    assert export.update() == 3
    assert not export.finished
    (log,) = (tmp_path / "logs").glob("airline*")
    assert steps(shown(log)[0])["leak/norm"] == [5, 15, 25], "seen before it is closed"
    export.close()
    brought = {place.name: many for place, many in export.brought.items()}
    assert brought == {"airline / flights": 9, "airport / flights": 3}


def test_steps_that_a_killed_run_repeats_are_there_once(tmp_path, make_run, shown):
    run = make_run()
    run.look(5, 15, 25)
    run.pace(1000.0, 0)
    run.pace(1010.0, 50)
    export = opened(tmp_path)
    export.update()
    kept = (run.path / "live.jsonl").read_text().splitlines(keepends=True)[:1]
    (run.path / "new").write_text("".join(kept))
    (run.path / "new").replace(run.path / "live.jsonl")  # as a run does that goes on from its checkpoint
    run.pace(1100.0, 10, "preparing")
    assert export.update() == 0
    run.look(15, 25, 35)
    run.pace(1110.0, 70)
    assert export.update() == 5
    export.close()
    (log,) = (tmp_path / "logs").iterdir()
    scalars = shown(log)[0]
    assert steps(scalars)["leak/norm"] == steps(scalars)["utility/loss"] == [5, 15, 25, 35]
    assert scalars["pace/turns_per_second"] == pairs([(50, 5.0), (70, 0.2)]), "the time it stood still counts"


@pytest.mark.parametrize(
    ("state", "alive", "report", "finished"),
    [("training", True, False, False), ("training", False, False, False), ("finished", True, False, False),
     ("finished", True, True, True), ("finished", False, False, True)],
    ids=["trains", "killed", "audits", "done-in-a-notebook", "done"],
)  # fmt: skip
def test_a_run_is_over_when_nothing_more_can_come(state, alive, report, finished, tmp_path, make_run, gone):
    run = make_run(pid=os.getpid() if alive else gone)
    run.status(state=state)
    if report:
        run.report()
    export = opened(tmp_path)
    export.update()
    assert export.finished is finished
    export.close()


def test_what_is_over_holds_no_file_open(tmp_path, make_run):
    make_run().train(5, 15, 60)
    export = opened(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    assert export.update() > 0
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_there_is_no_run_it_is_said(tmp_path):
    (tmp_path / "runs" / "s").mkdir(parents=True)
    (tmp_path / "runs" / "s" / "results.parquet").touch()
    with pytest.raises(UsageError, match=r"no run under .*runs: name a party's folder.*of a sweep is a table already"):
        opened(tmp_path)


def test_trackers_are_imported_when_they_are_opened(alone):
    code = "import sys, tacit, tacit.cli, tacit.views.track\nprint({'mlflow', 'tensorboard'} & set(sys.modules))"
    assert alone(code).strip() == "set()"


def test_a_run_that_can_not_be_read_stops_no_other(tmp_path, make_run):
    make_run().train(5, 15)
    hurt = make_run("airport")
    os.mkfifo(hurt.path / "live.jsonl")
    export = opened(tmp_path)
    assert export.update() > 0
    (problem,) = export.problems.values()
    assert "live.jsonl is a pipe" in problem
    assert [place.name for place in export.brought] == ["airline / flights"]
    (hurt.path / "live.jsonl").unlink()
    hurt.look(7)
    assert export.update() == 3
    assert export.problems == {}
    export.close()


@pytest.mark.parametrize("kind", [Export, Tables])
def test_a_run_that_is_deleted_is_not_awaited_and_what_was_brought_stays(tmp_path, make_run, kind):
    make_run().train(5, 15)
    run = make_run("airport", pid=os.getpid())
    run.look(5)
    export = opened(tmp_path) if kind is Export else Tables([tmp_path / "runs"], tmp_path / "tables")
    export.update()
    assert not export.finished
    shutil.rmtree(run.path)
    export.update()
    assert export.finished
    export.close()
    if kind is Tables:
        assert pl.read_parquet(tmp_path / "tables" / "figures.parquet")["party"].unique().len() == 2
