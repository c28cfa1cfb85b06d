"""A file is scored by two companies: real folders, real TLS."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
import torch

from tacit.align.ids import Ids, read_ids
from tacit.company.audit import audit_run
from tacit.company.departures import predictions
from tacit.company.folder import Folder
from tacit.company.shipments import Shipments
from tacit.contracts import Message
from tacit.errors import DataError, RefusedError, StorageError, UsageError
from tacit.exchange.checked import Checked, check_sent
from tacit.serve import conversation, predict_features, predict_label
from tacit.serve.conversation import Telling
from tacit.serve.predict import predict
from tacit.serve.scores import Written
from tacit.wire.codec import control
from tests.serve.files import OverError, copied, expected, to_score, together
from tests.torture.workers import state_of


@pytest.fixture(name="world")
def _world(exchanged, tmp_path, monkeypatch):
    world = copied(exchanged.path, tmp_path)
    monkeypatch.setenv("TACIT_STATE", state_of(world / "airport"))
    return world


ASKED = "asked for by key"


def sealed(world, name):
    lines = predictions(Folder(world / name)).read()
    return [line for line in lines if line["run"] == "small" and line["what"] != ASKED]


def asked_for(world):
    """How many rows the airline has asked for by key, as the airport has it."""
    return [line["rows"] for line in predictions(Folder(world / "airport")).read() if line["what"] == ASKED]


def test_scores_are_those_of_both_halves_in_one_place_bit_for_bit(world):
    table = to_score(world, world / "new.parquet")
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed")
    assert done["airline"] == Written(world / "scores.parquet", 703, 700, 3, 0), done
    delivered = done["airport"]
    assert (delivered.rows, delivered.known) == (702, 700)
    written = pl.read_parquet(world / "scores.parquet")
    scores, joint = expected(world, table)
    assert written["id"].equals(table["id"], null_equal=True)
    assert np.array_equal(written["score"].to_numpy(), scores)
    assert written["basis"].to_list() == np.where(joint, "joint", "fallback").tolist()
    reasons = dict(written.filter(pl.col("basis") == "fallback").select("id", "reason").iter_rows())
    assert reasons == {
        "x1": "not every party has this id", "x2": "not every party has this id", None: "this row has no id",
    }  # fmt: skip
    assert not list((world / "airline" / "runs" / "small" / "predictions").glob("*/*")), "nothing is kept"
    assert [(one["what"], one["to"], one["rows"]) for one in sealed(world, "airline")] == [("tokens", "airport", 702)]
    (line,) = sealed(world, "airport")
    assert (line["what"], line["to"], line["rows"], line["known"]) == ("embeddings", "airline", 702, 700)
    book = Shipments(world / "airport" / "embeddings")
    assert [one.rows for one in book.all()] == [900, 700]
    assert book.versions() == {1: 900}, "what had left in training leaves again as it was, and tells nothing new"
    assert check_sent(Folder(world / "airport"), book) == Checked(900, 0, 0, 0)


def test_privately_matched_and_without_a_fallback_as_csv(world):
    table = to_score(world, world / "new.csv", rows=400)
    done = together(world, world / "new.csv", world / "scores.csv", airline={"fallback": False})
    assert done["airline"] == Written(world / "scores.csv", 403, 400, 0, 3), done
    assert done["airport"].rows == 400, "of the others it does not know that they are asked for"
    written = pl.read_csv(world / "scores.csv")
    scores, _ = expected(world, table, fallback=False)
    assert np.array_equal(written["score"].to_numpy(), scores, equal_nan=True)
    assert written["id"].to_list() == table["id"].to_list()


def test_new_rows_of_another_table_are_entered_in_the_book(world):
    new = pl.read_parquet(world / "airport" / "data.parquet").head(50).with_columns(pl.col("id") + "n")
    new.write_parquet(world / "table.parquet")
    asked = pl.DataFrame({"id": new["id"], "plane": np.zeros(50)})
    asked.write_parquet(world / "new.parquet")
    done = together(
        world, world / "new.parquet", world / "scores.parquet", match="keyed",
        airport={"source": world / "table.parquet"},
    )  # fmt: skip
    assert done["airline"].joint == 50, done
    book = Shipments(world / "airport" / "embeddings")
    assert book.versions() == {1: 950}
    assert check_sent(Folder(world / "airport"), book) == Checked(900, 0, 50, 0), "another table's rows"


def test_a_book_that_forgot_what_left_for_a_prediction_lets_nothing_leave(world):
    to_score(world, world / "new.parquet")
    embeddings = world / "airport" / "embeddings"
    shutil.copytree(embeddings, world / "before")
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed")
    assert done["airline"].joint == 700, done
    shutil.rmtree(embeddings)
    shutil.copytree(world / "before", embeddings)
    to_score(world, world / "more.parquet", rows=600)
    refused = together(world, world / "more.parquet", world / "again.parquet", match="keyed")["airport"]
    assert isinstance(refused, StorageError), refused
    assert "book of embeddings has 1 entries, and 2 were made" in str(refused)
    assert [line["rows"] for line in sealed(world, "airport")] == [702], "nothing more has left"
    with pytest.raises(StorageError, match="has 1 entries, and 2 were made"):
        audit_run(world / "airport")


def test_a_split_training(split, tmp_path, monkeypatch):
    world = copied(next(iter(split.values())).path.parent, tmp_path)
    monkeypatch.setenv("TACIT_STATE", state_of(world / "airport"))
    pl.DataFrame({"id": [3, 59, 777, 60]}).write_parquet(world / "new.parquet")
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed")
    assert done["airline"] == Written(world / "scores.parquet", 4, 2, 0, 2), done
    written = pl.read_parquet(world / "scores.parquet")
    assert written["score"].is_null().to_list() == [False, False, True, True]
    assert written["basis"].to_list() == ["joint", "joint", "none", "none"]
    with pytest.raises(UsageError, match="leaves no model for rows without a partner"):
        predict(world / "airline", world / "new.parquet", world / "others.parquet", fallback=True)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ({"id": ["f1", "f2"]}, "has no column 'plane'"),
        ({"plane": [1.0]}, "has no column 'id'"),
        ({"id": ["f1", "f2"], "plane": ["far", "near"]}, "'plane' holds 'far' in row 0"),
        ({"id": ["f1", "f2", "f1"], "plane": [0.0, 0.0, 0.0]}, "rows 0 and 2 have the same id"),
        ({"id": [None], "plane": [0.0]}, "no row has an id"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_before_anybody_is_asked(world, table, match):
    pl.DataFrame(table).write_parquet(world / "new.parquet")
    with pytest.raises(DataError, match=match):
        predict(world / "airline", world / "new.parquet", world / "scores.parquet")
    assert not (world / "scores.parquet").exists()


def test_wrong_arguments(world):
    to_score(world, world / "new.parquet")
    with pytest.raises(UsageError, match="which gets no scores"):
        predict(world / "airport", out=world / "scores.parquet")
    with pytest.raises(UsageError, match="say which file"):
        predict(world / "airline", world / "new.parquet")
    with pytest.raises(UsageError, match="is there already"):
        predict(world / "airline", world / "new.parquet", world / "new.parquet")
    with pytest.raises(UsageError, match=r"\.parquet or \.csv"):
        predict(world / "airline", world / "new.parquet", world / "scores.json")
    with pytest.raises(UsageError, match="there is no folder"):
        predict(world / "airline", world / "new.parquet", world / "none" / "scores.csv")
    with pytest.raises(DataError, match="no such file"):
        predict(world / "airline", world / "nothing.parquet", world / "scores.csv")
    pl.DataFrame({"id": ["f1"], "port": ["p1"]}).write_parquet(world / "table.parquet")
    with pytest.raises(DataError, match="has no column 'wind', 'rain'"):
        predict(world / "airport", world / "table.parquet")


@pytest.mark.parametrize(
    ("airport", "field", "match"),
    [({"match": "private"}, "match", "give --match the same word"), ({}, "model", "not of one training")],
)
def test_what_differs_is_named_and_nothing_is_sent(world, monkeypatch, airport, field, match):
    to_score(world, world / "new.parquet")
    if field == "model":
        release = world / "airport" / "runs" / "small" / "release" / "codes.npy"
        np.save(release, np.load(release)[::-1])
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed", airport=airport)
    assert isinstance(done["airport"], RefusedError), done
    assert done["airport"].field == field
    assert match in str(done["airport"])
    assert isinstance(done["airline"], OverError)
    assert not sealed(world, "airline")
    assert not sealed(world, "airport")


def test_a_half_that_has_changed_is_refused_by_its_owner_and_by_the_peer(world):
    to_score(world, world / "new.parquet")
    (world / "airline" / "runs" / "small" / "halves.json").write_text(json.dumps({"airport": "00" * 32}))
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed")
    assert isinstance(done["airline"], RefusedError), done
    assert done["airline"].field == "half"
    (world / "airport" / "runs" / "small" / "halves.json").write_text(json.dumps({"airport": "00" * 32}))
    with pytest.raises(DataError, match="the half of airport is another one"):
        predict(world / "airport")


# --- a peer that lies ------------------------------------------------------------------------------------------------


class Lying:
    """A link on which every embedding is replaced by something else."""

    def __init__(self, link, change):
        self._link, self._change = link, change

    def __getattr__(self, name):
        return getattr(self._link, name)

    def send(self, message):
        self._link.send(self._change(message) if message.kind == "embedding" else message)


def _with(payload=None, **more):
    return lambda message: Message(
        more.get("step", message.step),
        more.get("kind", message.kind),
        message.payload if payload is None else payload(message.payload),
        b"",
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_with(lambda rows: rows[:-1]), "embedding"),
        (_with(lambda rows: torch.cat([rows, rows[:1]])), "embedding"),
        (_with(lambda rows: rows[:, :-1]), "embedding"),
        (_with(lambda rows: torch.full_like(rows, 2)), "embedding"),
        (_with(step=5), "embedding"),
        (_with(lambda rows: rows[:0].reshape(0, 32), kind="points"), "message"),
    ],
    ids=["too few rows", "too many rows", "narrow", "neither known nor unknown", "another part", "another kind"],
)
def test_a_feature_party_that_sends_something_else_is_refused(world, monkeypatch, change, field):
    to_score(world, world / "new.parquet", rows=50)
    inner = predict_features.meet
    monkeypatch.setattr(
        predict_features, "meet", lambda *a, **k: {name: Lying(link, change) for name, link in inner(*a, **k).items()}
    )
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed")
    assert isinstance(done["airline"], RefusedError), done
    assert done["airline"].field == field
    assert not (world / "scores.parquet").exists()


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"job": "../../../keys", "rows": 1, "matched": ""}, "job"),
        ({"job": "0" * 32, "rows": 10**9, "matched": ""}, "rows"),
        ({"job": "0" * 32, "rows": -1, "matched": ""}, "rows"),
        ({"job": "0" * 32, "rows": "1", "matched": ""}, "rows"),
        ({"job": "0" * 32, "rows": 1, "matched": "ab"}, "matched"),
        ({"job": 1}, "message"),
    ],
)
def test_a_label_party_that_asks_for_something_else_is_refused(world, monkeypatch, said, field):
    to_score(world, world / "new.parquet", rows=50)
    inner = conversation.heard

    def heard(link, kind, step, fields, telling, why):
        if "job" in fields:
            message = control("hello", 1, said)
            link = type("Heard", (), {"peer": link.peer, "recv": lambda self, timeout: message})()
        if "received" in fields:
            return {"match": False, "received": False}
        return inner(link, kind, step, fields, telling, why)

    monkeypatch.setattr(predict_features, "heard", heard)
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed")
    assert isinstance(done["airport"], RefusedError), done
    assert done["airport"].field == field
    assert not sealed(world, "airport")


class Once:
    """Calls a function once, and ends whoever calls it again."""

    def __init__(self, inner):
        self.inner, self.called = inner, False

    def __call__(self, *args, **options):
        if self.called:
            raise OverError
        self.called = True
        return self.inner(*args, **options)


@pytest.mark.parametrize("file", ["new.parquet", "others.parquet"])
def test_a_label_party_that_hangs_up_with_its_answer_gets_no_other_rows_from_the_same_command(world, monkeypatch, file):
    to_score(world, world / "new.parquet", rows=50)
    to_score(world, world / "others.parquet", rows=90)
    inner = predict_label.Asking._receive

    def hung_up(asking, link, inbox):
        inner(asking, link, inbox)
        raise OverError

    with ThreadPoolExecutor(1) as airport:
        delivering = airport.submit(predict, world / "airport", match="keyed")
        with monkeypatch.context() as patch:
            patch.setattr(predict_label.Asking, "_receive", hung_up)
            with pytest.raises(OverError):
                predict(world / "airline", world / "new.parquet", world / "scores.parquet", match="keyed")
        if file == "new.parquet":  # the same prediction, of which it says that other rows were matched
            shutil.rmtree(world / "airline" / "runs" / "small" / "predictions")
        monkeypatch.setattr(predict_label, "meet", Once(predict_label.meet))
        with pytest.raises((RefusedError, OverError)):  # the link may be down before it is read
            predict(world / "airline", world / file, world / "scores.parquet", match="keyed")
        refused = delivering.exception(60)
    assert isinstance(refused, RefusedError)
    assert refused.field == "job"
    assert "answered twice by one command" in str(refused)
    assert [line["rows"] for line in sealed(world, "airport")] == [52]


# --- how much, and for how long --------------------------------------------------------------------------------------


def test_rows_by_key_are_counted_over_a_month_and_the_same_ones_once(world):
    settings = world / "airport" / "party.toml"
    settings.write_text(settings.read_text() + "align.keyed_rows_a_month = 800\n")
    to_score(world, world / "new.parquet")
    assert together(world, world / "new.parquet", world / "first.parquet", match="keyed")["airline"].joint == 700
    again = together(world, world / "new.parquet", world / "again.parquet", match="keyed")
    assert again["airline"].joint == 700, again
    to_score(world, world / "more.parquet", rows=200)
    done = together(world, world / "more.parquet", world / "more-scores.parquet", match="keyed")
    for name in ("airport", "airline"):
        assert isinstance(done[name], RefusedError), done
        assert done[name].field == "keyed_rows_a_month"
    assert "asks for 202 rows by key and has asked for 702 in 30 days, where 800 are allowed" in str(done["airport"])
    assert "`[align] keyed_rows_a_month` in the party.toml of airport" in str(done["airline"])
    assert [(line["what"], line["rows"]) for line in sealed(world, "airport")] == [
        ("embeddings", 702), ("nothing: refused", 202),
    ]  # fmt: skip
    assert asked_for(world) == [702]
    settings.write_text(settings.read_text().replace("= 800", "= 904"))
    assert together(world, world / "more.parquet", world / "more-scores.parquet", match="keyed")["airline"].joint == 200


def test_other_rows_under_the_name_of_a_prediction_count_anew(world, monkeypatch):
    monkeypatch.setattr(predict_label.Job, "named", staticmethod(lambda *_: "a" * 32))
    entered = []
    for number in range(2):
        own = pl.read_parquet(world / "airline" / "data.parquet").select("id", "plane")
        own[50 * number : 50 * number + 50].write_parquet(world / "new.parquet")
        done = together(world, world / "new.parquet", world / f"{number}.parquet", match="keyed")
        assert done["airline"].joint == 50, done
        entered.append([one.rows for one in Shipments(world / "airport" / "embeddings").all()])
    assert entered == [[900, 50], [900, 50, 50]]
    assert [(line["job"], line["rows"]) for line in sealed(world, "airport")] == [("a" * 32, 50)] * 2
    assert asked_for(world) == [50, 50]


def test_the_same_file_over_a_changed_table_counts_anew(world):
    """What leaves is something else: it is charged, on record and in the book."""
    table, entered = world / "airport" / "data.parquet", []
    to_score(world, world / "new.parquet", rows=50)
    for number in range(3):
        done = together(world, world / "new.parquet", world / f"{number}.parquet", match="keyed")
        assert done["airline"].joint == 50, done
        entered.append(len(Shipments(world / "airport" / "embeddings").all()))
        if number:  # the third time nothing has changed
            continue
        rows = pl.read_parquet(table)
        rows.with_columns(wind=-pl.col("wind")).write_parquet(table)
    assert asked_for(world) == [52, 52]
    first, second = sealed(world, "airport")
    assert first["sha256"] != second["sha256"]
    assert entered == [2, 3, 3]


def test_what_is_asked_by_key_is_on_record_before_the_first_row_is_looked_up(world, monkeypatch):
    def lost(*_):
        raise OverError

    to_score(world, world / "new.parquet", rows=50)
    monkeypatch.setattr(predict_features.Directory, "rows", lost)
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed")
    assert isinstance(done["airport"], OverError), done
    assert asked_for(world) == [52]


@pytest.mark.parametrize("asked", [["f1", "f2", "f1"], ["x1", "f2", "x1"]], ids=["known", "unknown"])
def test_a_row_that_is_asked_for_twice_is_refused_whether_it_is_known_or_not(world, monkeypatch, asked):
    """By its token, before anything is looked up: a refusal does not tell which rows are here."""
    monkeypatch.setattr(predict_label, "read_ids", lambda *_: several(asked))
    monkeypatch.setattr(predict_features.Directory, "rows", lambda *_: pytest.fail("it was looked up"))
    to_score(world, world / "new.parquet", rows=1)
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed")
    for name in ("airport", "airline"):
        assert isinstance(done[name], RefusedError), done
    assert (done["airport"].field, str(done["airport"])) == ("tokens", "airline asks for a row more than once")
    assert asked_for(world) == []


def several(ids):
    """Ids of which one may be there twice, which no file of a label party may have."""
    rows = [read_ids(pl.DataFrame({"id": [one]}), "id") for one in ids]
    hashes = np.concatenate([one.hashes for one in rows])
    return Ids(hashes, np.arange(len(ids)), rows[0].report)


def test_privately_nobody_is_matched_twice_by_one_command(world, monkeypatch):
    to_score(world, world / "new.parquet", rows=50)
    to_score(world, world / "others.parquet", rows=90)
    matched = predict_label.private_match

    def hung_up(*args):
        matched(*args)
        raise OverError

    with ThreadPoolExecutor(1) as airport:
        delivering = airport.submit(predict, world / "airport")
        with monkeypatch.context() as patch:
            patch.setattr(predict_label, "private_match", hung_up)
            with pytest.raises(OverError):
                predict(world / "airline", world / "new.parquet", world / "scores.parquet")
        monkeypatch.setattr(predict_label, "meet", Once(predict_label.meet))
        with pytest.raises((RefusedError, OverError)):
            predict(world / "airline", world / "others.parquet", world / "scores.parquet")
        refused = delivering.exception(60)
    assert isinstance(refused, RefusedError)
    assert "answered twice by one command" in str(refused)
    assert not sealed(world, "airport")


def test_what_a_label_party_began_and_never_ended_gives_way_to_what_it_begins_next(world):
    folder, told = world / "airport" / "runs" / "small" / "predictions", []
    for number in range(3):
        (folder / f"{number:032x}").mkdir(parents=True)
    (folder / "kept by its owner").mkdir()
    to_score(world, world / "new.parquet", rows=50)
    telling = Telling(report=told.append)
    done = together(world, world / "new.parquet", world / "scores.parquet", match="keyed", airport={"telling": telling})
    assert done["airline"].joint == 50, done
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["kept by its owner"]
    assert "3 predictions that airline began and did not end were removed here" in told


def test_a_label_party_that_has_everything_and_is_gone_is_not_waited_for(world, monkeypatch):
    monkeypatch.setattr(conversation, "PATIENCE", 2.0)
    to_score(world, world / "new.parquet", rows=50)

    def gone(*_):
        raise OverError

    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as airport:
        patch.setattr(predict_label, "control", lambda kind, *rest: gone() if kind == "done" else control(kind, *rest))
        delivering = airport.submit(predict, world / "airport", match="keyed")
        with pytest.raises(OverError):
            predict(world / "airline", world / "new.parquet", world / "scores.parquet", match="keyed")
        delivered = delivering.result(60)
    assert (delivered.rows, delivered.known, delivered.confirmed) == (52, 50, False)
    written = predict(world / "airline", world / "new.parquet", world / "scores.parquet", match="keyed")
    assert written.joint == 50, "nobody else is needed for that"


def test_a_table_that_changes_while_it_is_embedded_keeps_everything_at_home(world):
    """Its ids stood elsewhere: everybody would get somebody else's score."""
    to_score(world, world / "new.csv")
    data = world / "airport" / "data.parquet"

    def trace(point):
        if point == "matched":
            pl.read_parquet(data).reverse().write_parquet(data)

    telling = Telling(trace=trace)
    found = together(world, world / "new.csv", world / "out.csv", airport={"telling": telling})
    assert isinstance(found["airport"], DataError), found
    assert "was changed while it was read" in str(found["airport"])
    assert not (world / "out.csv").exists()
    assert not predictions(Folder(world / "airport")).read(), "nothing has left"
