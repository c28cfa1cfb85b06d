"""Budgets after a feature party's folder came back from a backup: what left since is counted apart from it."""

import json
import shutil

import numpy as np
import polars as pl
import pytest

from tacit.company.aligned import facts_of
from tacit.company.departures import go_on_predicting, predictions
from tacit.company.facts import PREDICTION
from tacit.company.folder import create
from tacit.company.overrides import overrides
from tacit.errors import StorageError
from tacit.serve.conversation import Telling
from tacit.serve.predict import predict
from tacit.serve.record import Account, Marks
from tacit.serve.serve import serve
from tacit.split.train import train
from tests.serve.files import OverError, copied, together
from tests.torture.workers import state_of


@pytest.fixture(name="folder")
def _folder(tmp_path):
    folder = create(tmp_path / "airport", role="features")
    settings = folder.path / "party.toml"
    settings.write_text(settings.read_text().replace("numeric = []", 'numeric = ["wind"]'))
    return folder


def run_of(folder, name="small"):
    where = folder.path / "runs" / name
    where.mkdir(exist_ok=True)
    return where


def account(folder, where):
    return Account(folder, where, "embeddings", "airline")


def older(folder, tmp_path):
    """A copy of the folder as it is now, and what brings it back."""
    shutil.copytree(folder.path, tmp_path / "backup")

    def restore():
        shutil.rmtree(folder.path)
        shutil.copytree(tmp_path / "backup", folder.path)

    return restore


def test_rows_that_left_count_though_the_folder_has_forgotten_them(folder, tmp_path):
    restore = older(folder, tmp_path)
    account(folder, run_of(folder)).take(4)  # and is killed
    restore()
    with pytest.raises(StorageError, match=r"has 0 lines about predictions, and 1 were written.*facts\.sqlite in it"):
        account(folder, run_of(folder)).take(1)
    assert not facts_of(folder).records(PREDICTION), "nothing is added to it"


def test_what_another_run_sent_counts_though_its_folder_is_gone(folder):
    """What is asked for by key counts over all runs."""
    account(folder, run_of(folder, "old")).take(4)
    shutil.rmtree(run_of(folder, "old"))
    assert predictions(folder).read()[0]["run"] == "old", "a run whose folder is gone still counts"
    (folder.path / "facts.sqlite").unlink()
    with pytest.raises(StorageError, match="older copy"):
        predictions(folder).read()


def marked(folder, where, row):
    marks = Marks(folder, where)
    keys, values = np.full((1, 16), row, np.uint8), np.zeros((1, 2), np.uint8)
    try:
        marks.add(marks.fresh(keys, values)[1])
    finally:
        marks.close()


def test_different_rows_that_left_are_not_forgotten(folder, tmp_path):
    where = run_of(folder)
    marked(folder, where, 1)
    restore = older(folder, tmp_path)
    marked(folder, where, 2)
    restore()
    with pytest.raises(StorageError, match=r"its served\.bin knows of 1 rows, and 2 have left.*bring back the newest"):
        Marks(folder, where)
    told = []
    go_on_predicting(folder, where, None)
    with pytest.raises(StorageError, match="older copy"):
        Marks(folder, where)
    go_on_predicting(folder, where, told.append)
    go_on_predicting(folder, where, told.append)
    assert told == ["this folder is an older copy: its served.bin knows of 1 rows, and 2 have left"]
    marked(folder, where, 3)


def test_a_count_that_is_gone_is_missed(folder):
    where = run_of(folder)
    marked(folder, where, 1)
    account(folder, where).take(1)
    for book in ("served-small", "predicted"):
        folder.tally_path_of(book).unlink()
    with pytest.raises(StorageError, match=r"is gone or another one's.*TACIT_STATE"):
        Marks(folder, where)
    with pytest.raises(StorageError, match="is gone or another one's"):
        predictions(folder).read()


def test_an_older_copy_neither_predicts_nor_serves_until_somebody_answers_for_it(split, tmp_path, monkeypatch):
    world = copied(next(iter(split.values())).path.parent, tmp_path)
    monkeypatch.setenv("TACIT_STATE", state_of(world / "airport"))
    airport = world / "airport"
    shutil.copytree(airport, tmp_path / "backup")
    pl.DataFrame({"id": [3, 59]}).write_parquet(world / "new.parquet")
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed")
    assert done["airline"].joint == 2, done
    shutil.rmtree(airport)
    shutil.copytree(tmp_path / "backup", airport)
    nobody = Telling(waiting=lambda *_: pytest.fail("it waits for a peer"))
    for act in (lambda: predict(airport, match="keyed", telling=nobody), lambda: serve(airport)):
        with pytest.raises(
            StorageError, match=r"has 0 lines about predictions, and 2 were.*tacit train --after-restore"
        ):
            act()
    train(airport, after_restore=("Ada", "disk lost"))
    said, *more = overrides(airport / "runs" / "small")
    assert not more, more
    assert (said.who, said.reason) == ("Ada", "disk lost")
    assert "its file of facts has 0 lines about predictions, and 2 were written" in said.what

    def met(*_):
        raise OverError

    with pytest.raises(OverError):
        predict(airport, match="keyed", telling=Telling(waiting=met))
    log = [json.loads(line) for line in (airport / "runs" / "small" / "log.jsonl").read_text().splitlines()]
    assert [line["who"] for line in log if line["event"] == "restored"] == ["Ada"]
