"""Folders that commit cfcd690b wrote: secret, book of coins and its counter open, and are charged on."""

import json
import shutil
import sqlite3
import tarfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from tacit.company.folder import Folder
from tacit.company.overrides import overrides
from tacit.company.shipments import Shipments
from tacit.errors import StorageError, UsageError
from tacit.exchange.train import train_one_shot
from tacit.labels.book import open_book
from tests.exchange.companies import Companies, table
from tests.torture.world import free_port

ARCHIVES = Path(__file__).parent
ROWS, TRAINED = 860, 688  # common rows, and those of them whose labels left


class Written(Companies):
    """The two companies of an archive, with settings of today where what a setting is called matters."""

    def __init__(self, name, path, monkeypatch):
        with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
            archive.extractall(path, filter="tar")
        monkeypatch.setenv("TACIT_STATE", str(path / "state"))
        self.path, self.parties, self.port = path, ("airport",), free_port()
        self.book = path / "airline" / "coins" / "book.sqlite"
        for party in ("airline", "airport"):  # refused by name until its owner has removed it
            (path / party / "runs" / "alignments.jsonl").unlink()

    def open(self):
        """The book, opened with the secret beside it."""
        return closing(open_book(self.book.parent, (self.path / "airline" / "keys" / "secret").read_bytes()))

    def counted(self):
        """What the counter of the book outside the folder says."""
        (counter,) = (self.path / "state").glob("coins-airline-*")
        return int(counter.read_bytes())

    def released(self):
        """What left in each release, by the key of its row, as it stands in the file."""
        releases = {}
        with closing(sqlite3.connect(self.book)) as db:
            stored = db.execute("SELECT release, keys, sent FROM released ORDER BY release, chunk").fetchall()
        for release, keys, sent in stored:
            size = len(sent) // (len(keys) // 16)
            each = ((keys[16 * i : 16 * i + 16], sent[size * i : size * i + size]) for i in range(len(keys) // 16))
            releases.setdefault(release, {}).update(each)
        return list(releases.values())

    def runs(self):
        """What each release is called in the file."""
        with closing(sqlite3.connect(self.book)) as db:
            return [run for (run,) in db.execute("SELECT run_id FROM releases ORDER BY id")]


@dataclass(frozen=True)
class Case:
    """An archive whose book is charged on."""

    archive: str
    label: str  # the column
    exchange: str  # in the contract
    limits: str  # those of a release of it, whose coins are drawn again
    auc: float  # what its releases had come to for a unit when they were written
    odds: float
    releases: int = 1
    again: int = -1  # which of its releases that is


CASES = [
    Case("two_classes", "late", 'unit = "person"', "limit = 0.7\nbudget = 0.9", 0.784, 49 / 9, releases=2),
    Case("three_classes", "how", "classes = 3", "limit = 0.7\nodds = 4.0", 0.7, 2.4555334217802516),
    Case(
        "number", "delay", 'target = "number"\nlow = -4.0\nhigh = 6.0',
        "limit = 0.75\nodds = 8.0\nbudget = 1.0\nodds_budget = 1000.0", 0.970557, 159.952, releases=2, again=0,
    ),
]  # fmt: skip


@pytest.fixture(name="case", params=CASES, ids=lambda case: case.archive)
def _case(request):
    return request.param


@pytest.fixture(name="written")
def _written(case, tmp_path, monkeypatch):
    return Written(case.archive, tmp_path, monkeypatch)


def test_every_bit_that_left_is_drawn_again_and_comes_to_what_it_did(case, written):
    with written.open() as book:
        assert book.check().releases == case.releases
        assert book.check().bits == case.releases * TRAINED
        summary = book.summary()
        assert summary.auc == pytest.approx(case.auc, abs=1e-4)
        assert summary.odds == pytest.approx(case.odds, rel=1e-4)
        assert summary.labels == TRAINED * (case.releases if case.archive == "number" else 1)
    assert written.counted() == case.releases


def corrected(case, written):
    """The airline's table today: every label is another one, and there are new rows; the airport has them, too."""
    old = table(ROWS)
    new = table(200, seed=4).with_columns(
        pl.Series("id", [f"n{row}" for row in range(200)]), pl.Series("person", [f"v{row}" for row in range(200)])
    )
    for name in ("airline", "airport"):
        rows = pl.concat([old, new]).with_columns(
            late=1 - pl.col("late"), how=(pl.col("how") + 1) % 3, delay=2 - pl.col("delay")
        )
        rows.sample(fraction=1.0, shuffle=True, seed=len(name) + 7).write_parquet(written.path / name / "data.parquet")
    written.agree(case.exchange, run="today")
    written.set("airport", columns='categorical = ["port"], numeric = ["wind", "rain"]', more=QUICK)
    written.set("airline", limits=case.limits, columns=f'label = "{case.label}", numeric = ["plane"]', more=EDITS)


EDITS = "align.allow_edits = true\n"
QUICK = 'learn = { learner = "linear" }\n' + EDITS


def test_the_book_is_charged_on(case, written):
    before, older = written.released(), written.path / "older"
    shutil.copytree(written.book.parent, older)
    corrected(case, written)
    written.align()
    outcomes = written.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes

    *known, today = written.released()
    assert known == before
    assert written.counted() == case.releases + 1
    first = before[case.again]
    again = today.keys() & first.keys()
    assert len(again) > TRAINED / 2
    assert len(today.keys() - first.keys()) > 100
    assert all(today[key] == first[key] for key in again), "frozen labels under permanent coins, no correction"
    with written.open() as book:
        assert book.check().releases == case.releases + 1
        summary = book.summary()
        charges = [(charge.auc, charge.odds) for charge in summary.charges]
        assert (summary.auc, summary.odds) == charges[0]
        assert summary.auc == pytest.approx(case.auc, abs=1e-4), "no unit that was told about was charged again"
        assert len(charges) > 1 or case.archive == "three_classes"

    shutil.rmtree(written.book.parent)
    shutil.copytree(older, written.book.parent)
    written.agree(case.exchange, run="tomorrow")
    written.align()
    refused = written.train()["airline"]
    assert isinstance(refused, StorageError)
    assert "older copy" in str(refused)


def test_what_was_told_counts_in_todays_budget(written, case):
    corrected(case, written)
    spent = case.limits.replace("budget = 0.9\n", "").split("\nbudget")[0]
    budget = f"\nbudget = {case.auc - 0.02}" + ("\nodds_budget = 1000.0" if case.archive == "number" else "")
    written.set("airline", limits=spent + budget, columns=f'label = "{case.label}", numeric = ["plane"]', more=EDITS)
    written.align()
    with written.open() as book:
        before = book.summary()
    outcomes = written.train()
    if case.archive == "three_classes":  # less than one release takes
        assert "budget = " in str(outcomes["airline"])
        assert isinstance(outcomes["airline"], UsageError)
        assert written.counted() == case.releases
        return
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    assert written.counted() == case.releases + 1
    first, today = written.released()[case.again], written.released()[-1]
    assert all(today[key] == first[key] for key in today.keys() & first.keys()), "as it was paid for"
    with written.open() as book:
        after = book.summary()
        assert book.check().releases == case.releases + 1
    assert (after.auc, after.odds) == (before.auc, before.odds), "what there is no room for is not charged"


def test_another_secret_is_refused(written):
    with pytest.raises(StorageError, match="bring that secret back"):
        open_book(written.book.parent, bytes(32))


def test_the_folders_secret_is_the_one_that_was_written(written):
    written.agree(run="today")
    written.set("airline", limits="limit = 0.6", columns='label = "late"')
    folder = Folder(written.path / "airline")
    assert folder.secret == (written.path / "airline" / "keys" / "secret").read_bytes()
    (counter,) = (written.path / "state").glob("coins-*")
    assert folder.tally_path_of("coins") == counter


@pytest.mark.parametrize("archive", ["open_sums", "hidden_sums"])
def test_a_book_of_sums_is_refused_by_name(archive, tmp_path, monkeypatch):
    written, named = Written(archive, tmp_path, monkeypatch), "open or hidden sums, which commit cfcd690b"
    with pytest.raises(StorageError, match=named):
        written.open()
    with pytest.raises(StorageError, match=named):  # groups, or what is known of hidden ones, are among what left
        Shipments(tmp_path / "airport" / "embeddings")


def test_where_an_older_version_has_trained_step_by_step_somebody_must_vouch_for_a_bound(tmp_path, monkeypatch):
    """Its ledger is read no more, and which rows and labels went out is not known."""
    written = Written("split", tmp_path, monkeypatch)
    written.agree(run="today")
    for name, columns, more in (
        ("airline", 'label = "late", numeric = ["plane"]', EDITS),
        ("airport", 'categorical = ["port"], numeric = ["wind", "rain"]', QUICK),
    ):
        table(ROWS).write_parquet(written.path / name / "data.parquet")
        written.set(name, limits="limit = 0.6" if name == "airline" else "", columns=columns, more=more)
    written.align()
    outcomes = written.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    assert "No bound is stated for these labels: they may have gone out" in outcomes["airline"].label_bound.sentence
    airline = written.folder("airline")
    with pytest.raises(UsageError, match="a name and a reason"):
        train_one_shot(airline, no_split_run=("Ada", " "))
    for vouched in (("Ada", "that run had other customers"), None):
        outcome = train_one_shot(airline, no_split_run=vouched)
        assert outcome.label_bound.sentence.startswith("Take two rows with different labels")
        assert not outcome.label_bound.beside
    (said,) = overrides(written.run("airline", "today"))
    assert (said.who, said.reason) == ("Ada", "that run had other customers")


def test_the_book_of_numbers_has_a_table_of_two_outputs_and_one_of_twelve(tmp_path, monkeypatch):
    written = Written("number", tmp_path, monkeypatch)
    with closing(sqlite3.connect(written.book)) as db:
        stored = db.execute("SELECT parameters FROM mechanisms ORDER BY id").fetchall()
    assert [len(json.loads(parameters)["outputs"]) for (parameters,) in stored] == [2, 12]


@pytest.mark.parametrize(("odds_budget", "room"), [(1000, False), (4000, True)])
def test_a_table_of_twelve_outputs_is_not_made_again_and_still_counts(odds_budget, room, tmp_path, monkeypatch):
    """At the limits at which it was made a table has two outputs today: what the twelve told is added to that."""
    case, written = CASES[-1], Written("number", tmp_path, monkeypatch)
    corrected(case, written)
    columns = f'label = "{case.label}", numeric = ["plane"]'
    written.agree(case.exchange, run="today")
    limits = f"limit = 0.95\nodds = 20.0\nbudget = 1.0\nodds_budget = {odds_budget}.0"
    written.set("airline", limits=limits, columns=columns, more=EDITS)
    written.align()
    outcomes = written.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    with written.open() as book:
        assert book.check().releases == case.releases + 1
        assert (book.unpaid(written.runs()[-1]) == 0) is room
        assert book.summary().odds == pytest.approx(20 * case.odds if room else case.odds, rel=1e-3)
        assert (book.summary().auc > case.auc + 1e-4) is room
