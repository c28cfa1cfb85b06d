"""Runs as Parquet files: what the folders hold, column by column."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from tacit.errors import StorageError
from tacit.views.track import Tables
from tacit.views.track.parquet import SCHEMAS
from tacit.views.web.metrics import exposition

DOCS = Path(__file__).parents[3] / "docs" / "ref-tracking.md"


def read(folder):
    return {name: pl.read_parquet(folder / f"{name}.parquet") for name in SCHEMAS}


def test_everything_is_in_four_tables(tmp_path, make_run):
    run = make_run().train(5, 15, 60)
    make_run("airport").look(5)
    tables = Tables([tmp_path / "runs"], tmp_path / "out")
    assert tables.update() == len(pl.read_parquet(tmp_path / "out" / "figures.parquet")) > 0
    found = read(tmp_path / "out")
    assert {name: dict(table.schema) for name, table in found.items()} == SCHEMAS
    assert found["figures"]["party"].unique().sort().to_list() == ["airline", "airport"]
    mine = found["figures"].filter(party="airline")
    looks = [json.loads(line) for line in (run.path / "live.jsonl").read_text().splitlines()]
    loss = mine.filter(group="utility", name="loss").select("step", "value").rows()
    assert loss == [(one["step"], one["figures"]["loss"]) for one in looks]
    gate = mine.filter(group="gate", name="residual on visits").select("step", "value", "low", "high", "measure")
    assert gate.rows() == [(50, 0.57, 0.52, 0.58, "leak_auc")]
    pace = mine.filter(group="pace", name="turns_per_second").select("step", "time", "value")
    assert pace.rows() == [(55, 1010.0, 5.5), (110, 1030.0, 2.75)]
    assert mine.filter(group="gate", name="limit")["time"].to_list() == pytest.approx([1000.0, 1010.0]), "off the pace"
    assert mine.filter(group="report").select("step", "value", "high").rows() == [(100, 0.53, 0.56)]
    decisions = found["decisions"].select("epoch", "step", "decision", "limit", "broken").rows()
    assert decisions == [(1, 0, "keep", 0.6, False), (2, 50, "keep", 0.6, False)]
    assert found["leaks"].select("attack", "on", "value", "baseline").rows() == [
        ("accumulated(norm, precise)", "visits", 0.53, None)
    ]
    assert json.loads(found["events"]["details"][0]) == {"peer": "airport", "turn": 0}
    assert found["events"]["place"].to_list() == found["leaks"]["place"].to_list()


def test_files_follow_and_are_the_same_when_written_again(tmp_path, make_run):
    run = make_run()
    run.look(5)
    tables = Tables([tmp_path / "runs"], tmp_path / "out")
    tables.update()
    run.look(15)
    tables.update()
    tables.close()
    first = read(tmp_path / "out")
    assert first["figures"].filter(name="norm")["step"].to_list() == [5, 15]
    again = Tables([tmp_path / "runs"], tmp_path / "out")
    again.update()
    assert all(first[name].equals(table) for name, table in read(tmp_path / "out").items())
    assert not list((tmp_path / "out").glob("*.part"))


def test_writing_takes_a_small_part_of_the_time(tmp_path, make_run):
    ticks = iter([0.0, 0.0, 1.0, 5.0, 11.0, 11.0, 11.0])  # the first writing takes a second: ten pass before the next
    run = make_run()
    run.look(5)
    tables = Tables([tmp_path / "runs"], tmp_path / "out", now=lambda: next(ticks))
    tables.update()
    run.look(15)
    assert tables.update() == 0
    assert tables.update() == 3


def test_what_waits_is_written_at_the_end(tmp_path, make_run):
    run = make_run()
    run.look(5)
    tables = Tables([tmp_path / "runs"], tmp_path / "out", now=lambda: 0.0)
    tables.update()
    tables._due = 1.0
    run.look(15)
    assert tables.update() == 0
    tables.close()
    assert read(tmp_path / "out")["figures"].filter(name="loss")["step"].to_list() == [5, 15]


def test_a_folder_that_cannot_be_one_is_said(tmp_path, make_run):
    make_run()
    (tmp_path / "out").touch()
    with pytest.raises(StorageError, match="out can't be written"):
        Tables([tmp_path / "runs"], tmp_path / "out")


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_the_docs_name_every_column(name):
    section = DOCS.read_text().split(f"### {name}.parquet\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (\w+) \|", section, flags=re.MULTILINE)
    named = [(name, kind) for names, kind in rows for name in re.findall(r"\w+", names)]
    assert named == [(column, str(kind)) for column, kind in SCHEMAS[name].items()]


def test_the_docs_name_every_figure_for_prometheus():
    rows = re.findall(r"^\| `(tacit_\w+)` \| (\w+) \| (.*) \|$", DOCS.read_text(), flags=re.MULTILINE)
    lines = [line.split(" ", maxsplit=3) for line in exposition([], 0.0).splitlines()]
    about = {line[2]: line[3] for line in lines if line[:2] == ["#", "HELP"]}
    kinds = {line[2]: line[3] for line in lines if line[:2] == ["#", "TYPE"]}
    assert rows == [(name, kinds[name], told) for name, told in about.items()]
