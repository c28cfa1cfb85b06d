"""A sweep's folder, read as a page shows it."""

import json
import os

import polars as pl
import pytest

from tacit.lab.sweeping.results import as_table, write
from tacit.report.reading import find, matrix, reader


def rows(replica, protection, strength, *, leak, auc):
    shared = {"replica": replica, "protection": protection, "knob": strength and "scale", "strength": strength,
              "options": "{}", "seed": 0, "train_loss": 0.3}  # fmt: skip
    ends = {"norm@cut": leak, "norm@cut low": leak - 0.02, "norm@cut high": leak + 0.02}
    stretches = [{**shared, **ends, "part": "stretch", "step": step, "test_auc": auc} for step in (10, 20)]
    worst = {"worst": leak, "worst low": leak - 0.02, "worst high": leak + 0.02, "worst attack": "norm@cut"}
    return [*stretches, {**shared, **ends, **worst, "part": "whole", "step": 20, "test_auc": auc}]


ALL = [*rows(0, "none", None, leak=0.9, auc=0.8), *rows(1, "marvell", 4.0, leak=0.6, auc=0.7)]
ABOUT = {"data": "flights", "settings": [["none", 0], ["marvell(scale=4)", 0]]}


@pytest.fixture(name="read")
def _read(tmp_path):
    def read():
        one = reader(find([tmp_path])[0])
        one.refresh()
        return one

    return read


def test_points_and_curves_of_a_finished_sweep(tmp_path, read):
    write(tmp_path / "s" / "results.parquet", as_table(ALL), ABOUT)
    one = read()
    told = one.detail()
    json.dumps(told, allow_nan=False)
    assert [point["label"] for point in told["points"]] == ["none", "marvell scale=4"]
    assert [point["leak"] for point in told["points"]] == [0.9, 0.6]
    assert (told["done"], told["settings"], told["utility"]) == (2, 2, {"name": "test_auc", "best": 0.8})
    replica = one.replica(1)
    leak = next(curve for curve in replica["curves"] if curve["name"] == "norm@cut")
    assert leak["x"] == [10, 20]
    assert leak["high"] == pytest.approx([0.62, 0.62])
    assert replica["matrix"]["columns"] == ["marvell scale=4"]
    assert matrix([one])["rows"] == [{"attack": "norm", "values": [0.9, 0.6]}]


def test_a_sweep_that_goes_on_shows_its_finished_waves(tmp_path, read):
    write(tmp_path / "s" / "waves" / "0.parquet", as_table(ALL[:3]), ABOUT)
    one = read()
    assert (one.card()["done"], one.card()["settings"]) == (1, 2)
    write(tmp_path / "s" / "waves" / "1.parquet", as_table(ALL[3:]), ABOUT)
    assert one.refresh()
    assert not one.refresh()
    assert one.card()["done"] == 2


def test_what_is_no_sweep_is_a_problem_and_no_crash(tmp_path, read):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "results.parquet").write_bytes(b"no table")
    one = read()
    assert "can't be read" in one.card()["problems"][0]
    assert one.detail()["points"] == []
    assert one.replica(7) is None


@pytest.mark.parametrize("said", ["[" * 99_999, "{", "[1]"])
def test_a_table_whose_words_about_itself_are_none_is_told(tmp_path, read, said):
    (tmp_path / "s").mkdir()
    as_table(ALL).write_parquet(tmp_path / "s" / "results.parquet", metadata={"tacit": said})
    assert "can't be read" in read().card()["problems"][0]


def test_a_training_that_ran_away_has_no_leak(tmp_path, read):
    gone = ALL[2] | {name: None for name in ALL[2] if name.startswith(("worst", "norm"))} | {"test_auc": float("nan")}
    write(tmp_path / "s" / "results.parquet", as_table([gone]), ABOUT)
    (point,) = read().detail()["points"]
    assert point["leak"] is point["utility"] is point["worst_attack"] is None


def test_a_pipe_and_another_programs_table_are_told_and_not_shown(tmp_path, read):
    path = tmp_path / "s" / "results.parquet"
    path.parent.mkdir()
    as_table(ALL).with_columns(part=pl.lit(1), seed=pl.lit("x")).write_parquet(path)
    one = read()
    assert one.table is None
    assert "part" in one.problems[0]
    assert "delete" not in one.problems[0]
    path.unlink()
    os.mkfifo(path)
    assert "not a regular file" in read().problems[0]
