"""The mistakes that users of one-shot training and of predictions are likely to make, each through the real command.

Each ends in one line on the error stream, or a few where several things are wrong: what happened, to what, and what to
do next. `tests/test_mistakes.py` has those of both ways to train, `test_predict.py` what a file to be scored lacks.
"""

import shutil
import socket
import sys

import numpy as np
import polars as pl
import pytest

from benchmarks._companies import align_rows
from tacit.cli import main
from tacit.company.agreed import agree
from tacit.company.folder import Folder
from tests.exchange.companies import Companies, table
from tests.serve.files import copied
from tests.torture.workers import state_of

ROWS = 900
OWN = 'label = "late", numeric = ["plane"]'
NUMBER = 'target = "number"\nlow = {}\nhigh = {}'


@pytest.fixture(name="tacit")
def _tacit(monkeypatch, capsys):
    """Run a command line in this process: the exit code, and the error stream."""
    monkeypatch.delenv("TACIT_DEBUG", raising=False)

    def run(line):
        monkeypatch.setattr(sys, "argv", ["tacit", *line.split(" ")])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().err

    return run


def holds(told, words):
    assert "Traceback" not in told
    assert "tacit: " in told
    assert all(word in told for word in words), told


# --- before the exchange ---------------------------------------------------------------------------------------------


class Place:
    """An airline and an airport that are aligned, and have not met yet to train."""

    def __init__(self, path):
        self.path, self.companies = path, Companies(path, table(ROWS))
        for name in ("airline", "airport"):
            align_rows(Folder(path / name), np.arange(ROWS), id="a" * 32, seed=3, digest="b" * 64)

    def yes(self, command):
        """The same command, after the party's owner has agreed to the contract."""
        agree(Folder(command.split()[1]))
        return command

    def own(self, limits="limit = 0.75", columns=OWN, more="", exchange="", numbers=2):
        """The airline trains, with these settings and this contract."""
        self.companies.set("airline", limits, columns, more)
        self.companies.agree(exchange, numbers=numbers)
        return f"train {self.path}/airline"

    def theirs(self, limits="", columns='categorical = ["port"], numeric = ["wind", "rain"]', more=""):
        """The airport trains."""
        self.companies.set("airport", limits, columns, more)
        return f"train {self.path}/airport"

    def agreed(self, old, new):
        """The airline trains under a contract in which something else is written."""
        edit(self.path / "airline" / "contract.toml", old, new)
        return f"train {self.path}/airline"

    def labelled(self, values, **settings):
        """The airline trains with other labels."""
        path = self.path / "airline" / "data.parquet"
        pl.read_parquet(path).with_columns(late=pl.Series(values)).write_parquet(path)
        return self.own(**settings)


def edit(path, old, new):
    text = path.read_text()
    assert old in text, f"{old} is not in {path}"
    path.write_text(text.replace(old, new))


BEFORE = {
    # settings
    "a key misspelt": (lambda p: p.own(more='head = { kid = "trees" }'), ["[head] kid", "did you mean kind?"]),
    "a head misspelt": (lambda p: p.own(more='head = { kind = "forest" }'), ["[head] kind", "'trees' or 'network'"]),
    "a learner misspelt": (lambda p: p.theirs(more='learn = { learner = "tree" }'), ["[learn] learner", "not 'tree'"]),
    "a limit of a coin flip": (lambda p: p.own("limit = 0.5"), ["limit: 0.5 is not between 0.5 and 1", "choose"]),
    "no limit": (lambda p: p.own(""), ["party.toml", "takes a limit", "write limit = 0.6"]),
    "odds of 1": (lambda p: p.own("limit = 0.6\nodds = 1.0"), ["odds: 1 is not above 1", "such as 3.0"]),
    "odds of 100": (lambda p: p.own("limit = 0.6\nodds = 100.0"), ["odds: 100", "at most 20", "such as 3.0"]),
    "odds at the feature party": (lambda p: p.theirs("odds = 3.0"), ["odds: is not for", "'features'", "remove it"]),
    "three classes without odds": (
        lambda p: p.own(columns='label = "how"', exchange="classes = 3"),
        ["party.toml", "3 classes", "write odds = 3.0"],
    ),
    "more than the budget": (lambda p: p.own("limit = 0.8"), ["budget = 0.75", "lower limit or odds", "party.toml"]),
    "two label parties": (
        lambda p: edit(p.path / "airport/party.toml", '"features"', '"label"') or f"train {p.path}/airport",
        ['role: this file was written for the role "features"', "tacit init"],
    ),
    "a label at the feature party": (
        lambda p: p.theirs(columns='numeric = ["wind"], label = "late"'),
        ["is not for a party with the role 'features'", "remove"],
    ),
    "the label among the columns": (
        lambda p: p.own(columns='label = "late", numeric = ["late"]'),
        ["[data] numeric", "'late' is the label", "remove"],
    ),
    "a withheld column that is none": (
        lambda p: p.yes(p.theirs(more='learn = { withheld = ["wnd"] }')),
        ["[learn] withheld", "wnd is none of the columns", "correct the name"],
    ),
    # the contract
    "0 bits": (
        lambda p: p.agreed("bits = 3", "bits = 0"),
        ["contract.toml", "[exchange] bits", "or equal to 1", "bits = 3"],
    ),
    "6 bits": (lambda p: p.agreed("bits = 3", "bits = 6"), ["[exchange] bits", "or equal to 5", "bits = 3"]),
    "500 numbers": (lambda p: p.own(numbers=500), ["[exchange] numbers", "or equal to 128"]),
    "no bits": (lambda p: p.agreed("bits = 3", ""), ["[exchange] bits: is missing", "bits = 3"]),
    "a width": (
        lambda p: p.agreed("bits = 3", "width = 8"),
        ["exchange.width", "cells of a score", "bits = 3", "`run`"],
    ),
    "cells too large": (
        lambda p: p.agreed("bits = 3", "bits = 3\nsmallest = 0.2"),
        ["smallest", "8 cells", "lower it"],
    ),
    "a mode misspelt": (lambda p: p.agreed("one_shot", "oneshot"), ["no 'oneshot'", 'write "one_shot"', '"split"']),
    "rare of three classes": (
        lambda p: p.own("limit = 0.75\nodds = 3.0", 'label = "how"', exchange='classes = 3\nrare = "positive"'),
        ["[exchange] rare", 'write rare = "neither"'],
    ),
    "numbers without a range": (
        lambda p: p.own(columns='label = "delay"', exchange='target = "number"'),
        ["write low and high"],
    ),
    "a range upside down": (
        lambda p: p.own(columns='label = "delay"', exchange=NUMBER.format(5.0, -5.0)),
        ["low below high"],
    ),
    "a unit that is no column": (
        lambda p: p.own(exchange='unit = "persn"'),
        ["no column 'persn'", "person", "correct"],
    ),
    "epochs in an exchange": (
        lambda p: p.own(exchange="epochs = 3"),
        ["[exchange] epochs", "no such key", "remove it"],
    ),
    # labels
    "a label outside the classes": (
        lambda p: p.labelled([2, *(k % 2 for k in range(ROWS - 1))]),
        ["row 0", "label 2", "'late'", "from 0 to 1"],
    ),
    "one kind of labels": (lambda p: p.labelled([0] * ROWS), ["all labels", "are 0", "'late'", "name another column"]),
    "the common class called rare": (
        lambda p: p.labelled([0, 0, 1] * (ROWS // 3), exchange='rare = "negative"'),
        ['rare = "negative"', "66.7% of the labels", "agree on the other one"],
    ),
    "a coin_id that is not unique": (
        lambda p: p.own(columns=OWN + ', coin_id = ["person"]'),
        ["coin_id = ['person']", "have the same", "party.toml"],
    ),
    "a coin_id that is no column": (
        lambda p: p.own(columns=OWN + ', coin_id = ["flight"]'),
        ["no column 'flight'", "correct the names"],
    ),
    # what learns at home, before anything is paid for
    "a head of one's own that is not there": (
        lambda p: p.own(more='head = { factory = "mine.py:make" }'),
        ["[head] factory", "mine.py"],
    ),
    "a learner without its function": (
        lambda p: p.theirs(more='learn = { factory = "mine.py" }'),
        ["[learn] factory", "'mine.py' is not allowed"],
    ),
    # too early
    "a prediction before the training": (
        lambda p: f"predict {p.path}/x.csv --out {p.path}/o.csv --folder {p.path}/airline",
        ["the training is not over", "`tacit train`"],
    ),
    "an audit before the training": (lambda p: f"audit {p.path}/airline", ["training is not over", "`tacit train`"]),
    "an export before the training": (
        lambda p: f"export {p.path}/airline --out {p.path}/o",
        ["training is not over", "`tacit train`"],
    ),
    # trying it out
    "odds alone": (lambda _: "choose --odds 3", ["--odds is for one exchange", "give --label-limit too"]),
    "a label limit below a coin flip": (
        lambda p: f"choose --label-limit 0.4 --out {p.path}/o",
        ["limit = 0.4", "above 0.5", "as 0.6"],
    ),
    "bits in words": (lambda p: f"choose --label-limit 0.6 --bits one --out {p.path}/o", ["--bits one", "as 1"]),
}


@pytest.fixture(scope="module", name="ready")
def _ready(tmp_path_factory):
    """Made once, and copied for each mistake."""
    return Place(tmp_path_factory.mktemp("ready"))


@pytest.fixture(name="place")
def _place(ready, tmp_path):
    place = Place.__new__(Place)
    for name in ("airline", "airport"):
        shutil.copytree(ready.path / name, tmp_path / name)
    place.path, place.companies = tmp_path, Companies.__new__(Companies)
    vars(place.companies).update(vars(ready.companies), path=tmp_path)
    return place


@pytest.mark.parametrize(("make", "words"), BEFORE.values(), ids=BEFORE)
def test_a_mistake_before_the_exchange(place, tacit, make, words):
    code, told = tacit(make(place))
    assert code == 2, told
    assert len(told.splitlines()) <= 4, told
    holds(told, words)
    assert not (place.path / "o").exists(), "nothing is left behind"


def test_the_port_is_taken(place, tacit):
    with socket.create_server(("127.0.0.1", place.companies.port)):
        code, told = tacit(place.yes(place.own(more='head = { kind = "network" }')))
    assert code == 3, told
    holds(told, [f"can't listen on 127.0.0.1:{place.companies.port}", "Address already in use"])


# --- after the training ----------------------------------------------------------------------------------------------


def scored(world, text="id,plane\nf1,0.5\n", name="new.csv", out="o.csv", more=""):
    """The airline scores a file with this content."""
    (world / name).write_text(text)
    return f"predict {world}/{name} --out {world}/{out} --folder {world}/airline{more}"


def changed(path, old, new, line=None):
    """Something is written there that was not trained with, and the airline's owner has agreed to it."""

    def make(world):
        edit(world / path, old, new)
        agree(Folder(world / "airline"))
        return line.format(world) if line else scored(world, "id,plane,delay\nf1,0.5,1\n")

    return make


def removed(path):
    return lambda world: (
        (shutil.rmtree if (world / path).is_dir() else type(world).unlink)(world / path) or scored(world)
    )


def another_secret(line):
    return lambda world: (world / "airline/keys/secret").write_bytes(bytes(32)) and line.format(world)


TRAIN = "train {}/airline"
AFTER = {
    "a folder for a file": (lambda w: f"predict {w}/airline --out {w}/o.csv --folder {w}/airline", ["is a folder"]),
    "a spreadsheet": (lambda w: scored(w, name="new.xlsx"), ["new.xlsx is neither", "convert it"]),
    "not what its name says": (
        lambda w: scored(w, name="n.parquet"),
        ["n.parquet can't be read", "what its name says"],
    ),
    "semicolons": (
        lambda w: scored(w, "id;plane\nf1;0.5\n"),
        ["new.csv has no column", "id;plane", "by commas (.csv)"],
    ),
    "an empty file": (lambda w: scored(w, ""), ["new.csv can't be read", "empty CSV", "write it anew"]),
    "no rows": (lambda w: scored(w, "id,plane\n"), ["no row has an id", "check the file"]),
    "another name for the ids": (lambda w: scored(w, "flight,plane\nf1,0.5\n"), ["no column 'id'", "flight, plane"]),
    "no place for the scores": (lambda w: f"predict {w}/new.csv --folder {w}/airline", ["which file", "with --out"]),
    "a match misspelt": (lambda w: scored(w, more=" --match key"), ["--match", "'private', 'keyed'"]),
    "an override without a reason": (lambda w: scored(w, more=" --override Ada"), ["give both", "--reason"]),
    "the wrong folder": (lambda w: f"predict x.csv --out o.csv --folder {w}", ["no party's folder", "--folder"]),
    "the contract of another run": (
        changed("airline/contract.toml", '"small"', '"other"'),
        ["no run 'other'", "there is small", "put the contract"],
    ),
    "another limit under a run": (
        changed("airline/party.toml", "limit = 0.75", "limit = 0.6", TRAIN),
        ["began with another limit or odds", "new `run`"],
    ),
    "another contract under a run": (
        changed("airline/contract.toml", "bits = 3", "bits = 2", TRAIN),
        ["began with another contract", "new `run`"],
    ),
    "columns that were not trained on": (
        changed("airline/party.toml", 'numeric = ["plane"]', 'numeric = ["plane", "delay"]'),
        ["party.toml names other columns", "put categorical, numeric, flagged, dates and times back"],
    ),
    "another secret": (another_secret(TRAIN), ["facts.sqlite", "another keys/secret", "bring that secret back"]),
    "a check under another secret": (
        another_secret("ledger {}/airline --check"),
        ["another keys/secret", "bring that secret back"],
    ),
    "a peer that is not trusted": (removed("airline/trusted/airport.crt"), ["airport is trusted yet", "tacit trust"]),
    "a model that is gone": (removed("airline/runs/small/head"), ["runs/small/head", "give the same command again"]),
    "a report that is gone": (
        removed("airline/runs/small/report.json"),
        ["no report", "run `tacit audit", "--override"],
    ),
    "a limit for what is bounded": (
        lambda w: f"audit {w}/airline --limit 0.7",
        ["is a bound", "leave --limit out"],
    ),
    "an export on something": (lambda w: f"export {w}/airline --out {w}/airport", ["is there already", "another name"]),
}


@pytest.mark.parametrize(("make", "words"), AFTER.values(), ids=AFTER)
def test_a_mistake_after_the_training(exchanged, tmp_path, monkeypatch, tacit, make, words):
    world = copied(exchanged.path, tmp_path)
    monkeypatch.setenv("TACIT_STATE", str(state_of(world / "airline")))
    code, told = tacit(make(world))
    assert code == (1 if "--override" in words else 2), told
    holds(told, words)
    assert not (world / "o.csv").exists(), "nothing is left behind"


def test_there_are_mistakes_enough():
    assert len(BEFORE) + len(AFTER) >= 60
