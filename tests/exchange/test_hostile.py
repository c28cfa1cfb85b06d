"""What is on the wire, byte by byte; folders that come back from a backup; ends that one side did not hear of."""

from __future__ import annotations

import shutil
import socket

import numpy as np
import polars as pl
import pytest

from tacit.company import departures
from tacit.company.aligned import aligned
from tacit.company.overrides import overrides
from tacit.company.shipments import Shipment
from tacit.errors import LabelsError, StorageError, UsageError
from tacit.exchange import label_party as one_shot_label
from tacit.exchange.train import train_one_shot
from tacit.labels.book import open_book
from tacit.labels.records import Rows, Terms
from tacit.wire import network
from tacit.wire.network_link import NetworkLink

from .companies import Companies, OverError, table

ROWS, TRAIN = 1000, 800
LABEL = 'label = "late", numeric = ["plane"]'
QUICK = 'learn = { learner = "linear" }\n'


@pytest.fixture(name="state", autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(name="companies")
def _companies(tmp_path):
    companies = Companies(tmp_path / "here", table(ROWS))
    companies.set("airport", columns='categorical = ["port"], numeric = ["wind", "rain"]', more=QUICK)
    companies.align()
    return companies


@pytest.fixture(name="wire")
def _wire(monkeypatch):
    """Every frame that is handed to the network, by whom it is for."""
    said = {"airline": [], "airport": []}
    inner = NetworkLink.write_frame

    def write_frame(link, head, content=b""):
        if head != network.WELCOME:
            said[link.peer].append(bytes(head) + bytes(content))
        inner(link, head, content)

    monkeypatch.setattr(NetworkLink, "write_frame", write_frame)
    return said


def sound(outcomes):
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return outcomes


class EnoughError(Exception):
    """The test has seen enough; to the process it is as if it were killed here."""


def until(point):
    def trace(passed):
        if passed == point:
            raise EnoughError

    return trace


# --- bytes on the wire -----------------------------------------------------------------------------------------------


def redrawn(companies, tmp_path):
    """Which of the airline's training rows are sent as they are whatever their label is: their coin redraws."""
    folder = companies.folder("airline")
    sent = []
    for label in (0, 1):
        book = open_book(tmp_path / f"scratch {label}", folder.secret)
        keys, _ = one_shot_label._keys(folder, folder.one_shot, aligned(folder), book)
        rows = Rows(keys[:TRAIN], keys[:TRAIN], np.full(TRAIN, label))
        mechanism = one_shot_label.mechanism_of(folder, folder.one_shot)
        terms = Terms(run="", partners=(), label="late", definition="2 classes")
        sent.append(book.release("x", rows, mechanism, terms))
        book.close()
    return sent[0] == sent[1]


def with_other_labels(companies, other, free):
    """A copy of both folders in which every label is changed that nothing that is sent depends on."""
    shutil.copytree(companies.path, other)
    data = pl.read_parquet(other / "airline" / "data.parquet")
    late, rows = data["late"].to_numpy().copy().astype(object), np.asarray(aligned(companies.folder("airline")).rows)
    changed = np.concatenate([rows[:TRAIN][free], rows[TRAIN:]])
    late[changed] = 1 - late[changed]
    late[changed[::7]] = None  # some have none any more
    data.with_columns(pl.Series("late", late.tolist(), dtype=pl.Int64)).write_parquet(
        other / "airline" / "data.parquet"
    )
    companies.path = other
    return len(changed)


def test_the_label_partys_bytes_are_a_function_of_the_flips(companies, wire, tmp_path, monkeypatch):
    free = redrawn(companies, tmp_path)
    before = companies.path
    changed = with_other_labels(companies, tmp_path / "other", free)
    assert changed > 500
    companies.path, said, outcomes = before, [], []
    for place in (before, tmp_path / "other"):
        monkeypatch.setenv("TACIT_STATE", str(tmp_path / f"state of {place.name}"))
        companies.path = place
        outcomes.append(sound(companies.train())["airline"])
        said.append({name: list(frames) for name, frames in wire.items()})
        for frames in wire.values():
            frames.clear()
    assert outcomes[0].figures != outcomes[1].figures, "other labels, another private model"
    assert said[0]["airport"] == said[1]["airport"], "and the same bytes, in the same order and sizes"
    assert said[0]["airline"] == said[1]["airline"]
    assert len(said[0]["airport"]) == 4, "hello, flips, acknowledgement, done"
    print("label party's bytes:", sum(map(len, said[0]["airport"])), "labels changed:", changed)


def test_the_door_is_shut_before_the_private_model_is_fitted(companies, wire):
    seen = []

    def trace(point):
        if point == "head made":
            seen.append(len(wire["airport"]))
            with socket.socket() as tried, pytest.raises(ConnectionRefusedError):
                tried.connect(("127.0.0.1", companies.port))

    sound(
        companies.together(lambda name, waiting: train_one_shot(companies.folder(name), waiting=waiting, trace=trace))
    )
    assert seen == [len(wire["airport"])], "nothing was said after it"


def test_errors_about_labels_leave_nothing_on_the_wire(companies, wire, monkeypatch):
    companies.set("airline", limits="limit = 0.75", columns='label = "how"')
    monkeypatch.setattr(one_shot_label, "server", lambda *_: pytest.fail("it listens"))
    outcomes = companies.train()
    assert isinstance(outcomes["airline"], LabelsError)
    assert isinstance(outcomes["airport"], OverError), "it waits for somebody who never came"
    assert wire == {"airline": [], "airport": []}


# --- folders that come back, names that change -----------------------------------------------------------------------


def enter(companies, **how):
    """The airline up to the point at which its flips may leave."""
    with pytest.raises(EnoughError):
        alone(companies, trace=until("flips entered"), **how)


def alone(companies, **how):
    train_one_shot(companies.folder("airline"), waiting=lambda *_: pytest.fail("it waits for a peer"), **how)


def test_an_older_copy_of_the_folder_is_refused_once_labels_have_left(companies, tmp_path):
    airline = companies.path / "airline"
    shutil.copytree(airline, tmp_path / "backup")
    enter(companies)
    enter(companies)  # a kill, and on
    shutil.rmtree(airline)
    shutil.copytree(tmp_path / "backup", airline)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"older copy: its book has 0 releases, and 1 were made.*coins/ in it"):
            alone(companies)
    with pytest.raises(UsageError, match="a name and a reason"):
        alone(companies, after_restore=("Ada", ""))
    enter(companies, after_restore=("Ada", "the disk is gone"))
    assert [one.who for one in overrides(companies.run("airline"))] == ["Ada"]
    enter(companies)


def sent_before(companies, *runs):
    """Embeddings of other rows that the airport has sent in earlier runs, in its book."""
    keys, codes = np.arange(160, dtype=np.uint8).reshape(10, 16), np.zeros((10, 1), np.uint8)
    with departures.counted_book(companies.folder("airport")) as book:
        for run in runs:
            book.enter(run, keys, Shipment(run, "airline", run, "1 number", 10, 0.1), codes)
    return book.path


def test_a_book_of_embeddings_that_is_gone_or_older_is_refused_before_anybody_is_met(companies, tmp_path):
    """What it has forgotten would not be attacked together with what leaves next."""
    airport, book = companies.folder("airport"), sent_before(companies, "first")
    older = shutil.copy(book, tmp_path / "older")
    sent_before(companies, "second")
    for left in (0, 1):
        newest = book.read_bytes()
        book.unlink()
        if left:
            shutil.copy(older, book)
        for _ in range(2):
            with pytest.raises(StorageError, match=f"older copy.*has {left} entries, and 2 were.*embeddings/book.sqli"):
                train_one_shot(airport, waiting=lambda *_: pytest.fail("it waits for a peer"))
        book.write_bytes(newest)
    book.unlink()
    for answered in ({"after_restore": ("Ada", "disk lost")}, {}):
        with pytest.raises(EnoughError):  # it goes on, and waits for the airline
            train_one_shot(airport, waiting=enough, **answered)
    assert [(one.who, one.reason) for one in overrides(companies.run("airport"))] == [("Ada", "disk lost")]


def enough(*_):
    raise EnoughError


def test_a_book_of_embeddings_that_goes_while_a_release_is_attacked_keeps_it_at_home(companies):
    quick = 'learn = { learner = "linear" }\n'
    companies.set("airport", columns='categorical = ["port"], numeric = ["wind", "rain"]', more=quick)
    book = sent_before(companies, "first")

    def trace(point):
        if point == "release written":
            book.unlink()

    outcomes = companies.together(
        lambda name, waiting: train_one_shot(
            companies.folder(name), waiting=waiting, trace=trace if name == "airport" else lambda _: None
        )
    )
    assert isinstance(outcomes["airport"], StorageError), outcomes
    assert "has 0 entries, and 1 were made" in str(outcomes["airport"])
    assert not list(companies.run("airline").glob("received/*"))


def test_rows_are_known_by_one_coin_id_for_good(companies):
    enter(companies)
    companies.set("airline", limits="limit = 0.75", columns=LABEL + ', coin_id = ["id", "person"]')
    companies.agree(run="later")
    companies.align()
    with pytest.raises(UsageError, match=r"coin_id = \['id'\] before.*new coins"):
        alone(companies)


# --- ends that one side did not hear of ------------------------------------------------------------------------------


def test_a_feature_party_that_missed_the_last_answer_gets_it_when_both_start_again(companies, monkeypatch):
    monkeypatch.setattr(one_shot_label, "_FAREWELL", 0.5)

    def train(name, _):
        return train_one_shot(companies.folder(name), trace=until("acknowledged"))

    outcomes = companies.together(train)
    assert isinstance(outcomes["airport"], EnoughError)
    first = outcomes["airline"]
    monkeypatch.setattr(one_shot_label, "_FAREWELL", 20.0)

    def again(name, _):
        return train_one_shot(companies.folder(name), waiting=lambda _, seconds, why: _too_long(seconds))

    outcomes = sound(companies.together(again))
    assert outcomes["airport"].heard
    assert outcomes["airline"].figures == first.figures
    assert (companies.run("airline") / "closed").exists()


def _too_long(seconds):
    if seconds > 60:
        raise EnoughError


def test_too_few_rows_to_attack_are_told_before_labels_are_paid_for(tmp_path):
    companies = Companies(tmp_path / "few", table(300))
    companies.align()
    with pytest.raises(UsageError, match="too few to audit"):
        train_one_shot(companies.folder("airport"), waiting=lambda *_: pytest.fail("it asks for labels"))
