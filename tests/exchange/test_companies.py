"""One-shot training between companies: real folders, real TLS, real disks."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from tacit.cli import app as cli
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.company.shipments import Shipment, Shipments
from tacit.errors import DataError, GaveUpError, LabelsError, LimitError, StorageError, UsageError
from tacit.exchange import label_party as one_shot_label
from tacit.exchange.checked import Checked, check_sent
from tacit.exchange.common import every_row, own_inputs
from tacit.exchange.feature_party import _row_keys
from tacit.exchange.train import train_one_shot
from tacit.labels.book import open_book
from tacit.serve.halves import load_embedder, load_scorer

from .companies import Companies, table


def sent(companies, name="airport", run="small"):
    return np.load(companies.run(name, run) / "flips" / "sent.npy")


def sound(outcomes):
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return outcomes


@pytest.fixture(scope="module", name="trained")
def _trained(tmp_path_factory):
    companies = Companies(tmp_path_factory.mktemp("companies"), table())
    companies.align()
    return companies, sound(companies.train())


def test_both_end_with_what_is_theirs(trained):
    companies, outcomes = trained
    airline, airport = outcomes["airline"], outcomes["airport"]
    assert airline.figures["test_auc"] > airline.alone["test_auc"] + 0.05
    assert airline.label_bound.auc == pytest.approx(0.75)
    assert "at most 0.750" in airline.label_bound.sentence
    assert airport.heard
    assert airport.sent == 563 == airline.received, "three bits a row"
    assert 0 < airport.audit["worst"] <= 1
    assert sent(companies).shape == (1200,)
    states = [json.loads((companies.run(name) / "status.json").read_bytes()) for name in ("airline", "airport")]
    assert [one["state"] for one in states] == ["finished", "finished"]
    assert states[1]["history"] == [], "no figure of the airline's"


def test_started_again_they_say_the_same_and_ask_nobody(trained):
    companies, outcomes = trained
    again = train_one_shot(companies.folder("airline"))
    assert (again.figures, again.alone) == (outcomes["airline"].figures, outcomes["airline"].alone)


def test_every_cell_that_was_sent_is_compared_with_what_its_rows_columns_give(trained, tmp_path):
    companies, _ = trained
    shutil.copytree(companies.path / "airport", tmp_path / "airport")
    folder, table_file = Folder(tmp_path / "airport"), tmp_path / "airport" / "data.parquet"
    book = Shipments(folder.path / "embeddings")
    assert check_sent(folder, book) == Checked(1500, 0, 0, 0)
    own = pl.read_parquet(table_file)
    wind = pl.when(pl.int_range(pl.len()) == 0).then(pl.col("wind") + 0.01).otherwise(pl.col("wind"))
    own.with_columns(wind).head(1498).write_parquet(table_file)
    assert check_sent(folder, book) == Checked(1497, 1, 2, 0), "a row that changed, two that are gone"
    shown = CliRunner().invoke(cli, ["ledger", "--folder", str(folder.path), "--check"])
    assert "the cells of 1,497 rows are what their columns give" in " ".join(shown.output.split())
    own.write_parquet(table_file)
    with closing(sqlite3.connect(book.path)) as db, db:
        db.execute("UPDATE sent SET codes = x'07' WHERE key = (SELECT key FROM sent WHERE codes = x'00' LIMIT 1)")
    with pytest.raises(StorageError, match="its cells are not what they give"):
        check_sent(folder, book)
    with closing(sqlite3.connect(book.path)) as db, db:
        db.execute("DELETE FROM sent WHERE key = (SELECT key FROM sent LIMIT 1)")
    with pytest.raises(StorageError, match="1 rows too few or too many"):
        check_sent(folder, book)


def test_nothing_of_the_labels_but_flips_lies_with_the_airport(trained):
    companies, _ = trained
    found = {path.name for path in companies.run("airport").rglob("*") if path.is_file()}
    assert "figures.json" not in found
    assert "label_bound.json" not in found


def test_another_run_and_another_partner_get_the_same_bits(tmp_path):
    companies = Companies(tmp_path, table(), ("airport", "weather"))
    companies.align()
    sound(companies.train())
    assert np.array_equal(sent(companies, "airport"), sent(companies, "weather"))
    ids = {name: _ids(companies, name, "small") for name in companies.parties}
    first = dict(zip(ids["airport"], sent(companies, "airport"), strict=True))
    companies.agree(run="later")
    companies.align()
    sound(companies.train())
    later = dict(zip(_ids(companies, "airport", "later"), sent(companies, "airport", "later"), strict=True))
    common = first.keys() & later.keys()
    assert len(common) > 800
    book = Shipments(companies.path / "airport" / "embeddings")
    assert [(one.run, one.partner, one.rows) for one in book.all()] == [
        ("small", "airline", 1500),
        ("later", "airline", 1500),
    ]
    assert book.versions() == {2: 1500}, "of every row two versions have left"
    notes = [
        json.loads((companies.run("airport", run) / "release" / "release.json").read_bytes())["audit"]["notes"]
        for run in ("small", "later")
    ]
    assert not any("left before" in note for note in notes[0])
    assert "together with 1 numbers a row that left before" in notes[1][0]
    assert all(first[row] == later[row] for row in common)


def _ids(companies, name, run):
    rows = aligned(companies.folder(name)).rows[:1200]
    return pl.read_parquet(companies.path / name / "data.parquet")["id"].to_numpy()[rows].tolist()


def test_a_limit_of_the_airport_keeps_what_tells_more_at_home(companies):
    companies.set("airport", limits="limit = 0.01", columns='categorical = ["port"], numeric = ["wind", "rain"]')
    companies.align()
    outcomes = companies.together(lambda name, _: train_one_shot(companies.folder(name)))
    assert isinstance(outcomes["airport"], LimitError)
    assert "nothing was sent" in str(outcomes["airport"])
    assert isinstance(outcomes["airline"], GaveUpError)
    assert "airport gave up: its own limit keeps its embeddings at home" in str(outcomes["airline"])
    assert not (companies.run("airport") / "release").exists()
    assert not list(companies.run("airline").glob("received/*"))


def test_another_limit_and_withheld_columns_go_on_in_the_same_run(companies):
    """No label is asked for again, and no row; what was sent is embedded later as it was, whatever is withheld then."""
    columns = 'categorical = ["port"], numeric = ["wind", "rain"]'
    quick = 'learn = { learner = "linear", withheld = %s }\n'
    companies.set("airport", "limit = 0.01", columns, quick % "[]")
    companies.align()
    alignment = aligned(companies.folder("airport")).id
    assert isinstance(companies.train()["airport"], LimitError)
    flips = (companies.run("airport") / "flips" / "sent.npy").read_bytes()
    companies.set("airport", "", columns, quick % '["wind"]')
    sound(companies.train())
    assert (companies.run("airport") / "flips" / "sent.npy").read_bytes() == flips
    assert aligned(companies.folder("airport")).id == alignment
    with closing(open_book(companies.path / "airline" / "coins", companies.folder("airline").secret)) as book:
        assert len(book.summary().releases) == 1
    codes, rows = np.load(companies.run("airport") / "release" / "codes.npy"), aligned(companies.folder("airport")).rows
    own = pl.read_parquet(companies.path / "airport" / "data.parquet")
    companies.set("airport", "", columns, quick % "[]")
    assert np.array_equal(load_embedder(companies.path / "airport", "small").embed(own)[rows], codes)
    for limits, withheld in (("limit = 0.9", '["wind"]'), ("", "[]")):
        companies.set("airport", limits, columns, quick % withheld)
        with pytest.raises(UsageError, match="attacked and written down under"):
            train_one_shot(companies.folder("airport"))


def test_what_left_while_a_release_was_attacked_is_attacked_with_it(tmp_path):
    """Another run of the airport's overlaps: it is entered between this one's audit and its entry."""
    companies = Companies(tmp_path, table(900))
    quick = 'learn = { learner = "linear" }\n'
    companies.set("airport", columns='categorical = ["port"], numeric = ["wind", "rain"]', more=quick)
    companies.align()
    points = []

    def trace(point):
        points.append(point)
        if points.count("release written") == 1 and point == "release written":
            folder = companies.folder("airport")
            keys = _row_keys(folder, aligned(folder))
            other = Shipment("other", "airline", "other", "", 900, 0.1)
            Shipments(folder.path / "embeddings").enter("other", keys, other, np.zeros((900, 1), np.uint8))

    def act(name, waiting):
        seen = trace if name == "airport" else lambda _: None
        return train_one_shot(companies.folder(name), waiting=waiting, trace=seen)

    outcomes = sound(companies.together(act))
    assert points.count("release written") == 2, "thrown away and made again"
    assert "together with 1 numbers a row that left before" in outcomes["airport"].audit["notes"][0]
    assert [one.run for one in Shipments(tmp_path / "airport" / "embeddings").all()] == ["other", "small"]


def test_a_table_that_changes_while_its_party_learns_keeps_everything_at_home(tmp_path):
    """Its rows would be in the book by other names, and no later audit would know of what left."""
    companies = Companies(tmp_path, table(900))
    companies.set("airport", columns='numeric = ["wind"]', more='learn = { learner = "linear" }\n')
    companies.align()
    data = tmp_path / "airport" / "data.parquet"

    def trace(point):
        if point == "release written":
            pl.read_parquet(data).reverse().write_parquet(data)

    def act(name, waiting):
        seen = trace if name == "airport" else lambda _: None
        return train_one_shot(companies.folder(name), waiting=waiting, trace=seen)

    found = companies.together(act)["airport"]
    assert isinstance(found, DataError)
    assert "was changed while it was read" in str(found)
    assert not Shipments(tmp_path / "airport" / "embeddings").all()


OWN = """
from sklearn.linear_model import LogisticRegression

class Strange(LogisticRegression):
    pass

def make():
    return LogisticRegression(C=0.1)
"""


@pytest.mark.parametrize("kept", [True, False], ids=["scikit-learn", "an object that can't be kept"])
def test_both_bring_models_of_their_own(tmp_path, kept):
    """What scikit-learn makes is kept and scores later; anything else learns at every start, and is refused then."""
    rows = table(900)
    companies = Companies(tmp_path, rows)
    for name, columns, section in (
        ("airline", LABEL, "head.factory"),
        ("airport", 'numeric = ["wind", "rain"]', "learn.factory"),
    ):
        (tmp_path / name / "mine.py").write_text(
            OWN if kept else OWN.replace("return LogisticRegression", "return Strange")
        )
        limits = "limit = 0.75" if name == "airline" else ""
        companies.set(name, limits, columns, f'{section} = "mine.py:make"\n')
    companies.agree()
    companies.align()
    outcomes = sound(companies.train())
    assert outcomes["airline"].figures["test_auc"] > outcomes["airline"].alone["test_auc"] + 0.05
    assert (companies.run("airport") / "learned").exists() == kept
    assert (companies.run("airline") / "head").exists() == kept
    again = train_one_shot(companies.folder("airport"))
    assert again.form == outcomes["airport"].form
    if not kept:
        for name in ("airline", "airport"):
            with pytest.raises(UsageError, match=r"mine.py:make gives an object that is not kept"):
                companies.folder(name).export(tmp_path / f"{name} model")
        return
    embedder, scorer = load_embedder(tmp_path / "airport", "try"), load_scorer(tmp_path / "airline", "try")
    scores = scorer.score(rows, {"airport": embedder.embed(rows)})
    assert roc_auc_score(rows["late"], scores[:, 0]) > 0.6
    assert not np.array_equal(scores, scorer.score(rows, None))


# --- at home, before anything leaves ---------------------------------------------------------------------------------


def airline_refuses(companies, kind, match):
    with pytest.raises(kind, match=match):
        train_one_shot(companies.folder("airline"))
    book = companies.path / "airline" / "coins" / "book.sqlite"
    if book.exists():
        with sqlite3.connect(book) as raw:
            assert raw.execute("SELECT COUNT(*) FROM releases").fetchone() == (0,)


LABEL = 'label = "late", numeric = ["plane"]'


@pytest.mark.parametrize(
    ("limits", "columns", "exchange", "kind", "match"),
    [
        (
            "limit = 0.75",
            'label = "how"',
            "",
            LabelsError,
            r"row \d+ \(counted from 0, id 'f\d+'\) has the label 2 .*from 0 to 1",
        ),
        ("limit = 0.75", LABEL, 'rare = "negative"', LabelsError, r'rare = "negative".*agree on the other'),
        ("", LABEL, "", UsageError, "takes a limit"),
        ("limit = 0.75", 'label = "how"', "classes = 3", UsageError, "odds must be set"),
        ("limit = 0.75\nbudget = 0.7", LABEL, "", UsageError, "budget = 0.7"),
        ("limit = 0.75\nodds_budget = 2.0", LABEL, "", UsageError, "odds_budget = 2"),
        ("limit = 0.75", LABEL + ', coin_id = ["person"]', "", DataError, "coin_id.*have the same"),
        ("limit = 0.75", LABEL, 'unit = "nobody"', DataError, "nobody"),
    ],
)
def test_bad_input_is_one_clear_error_and_nothing_leaves(companies, limits, columns, exchange, kind, match):
    companies.align()
    companies.agree(exchange)
    companies.set("airline", limits=limits, columns=columns)
    airline_refuses(companies, kind, match)


@pytest.mark.parametrize("limit", ["0.5", "0.3", "1.0"])
def test_a_limit_lies_between_a_coin_flip_and_an_open_book(companies, limit):
    companies.set("airline", limits=f"limit = {limit}", columns=LABEL)
    with pytest.raises(UsageError, match="limit"):
        train_one_shot(companies.folder("airline"))


def test_another_secret_is_refused_before_anybody_is_met(trained, tmp_path):
    companies, _ = trained
    copy = tmp_path / "airline"
    shutil.copytree(companies.path / "airline", copy)
    (copy / "keys" / "secret").write_bytes(bytes(32))
    with pytest.raises(StorageError, match="bring that secret back"):
        train_one_shot(copy)


def test_settings_that_change_under_a_run_are_refused(trained):
    companies, _ = trained
    party = companies.path / "airport" / "party.toml"
    before = party.read_text()
    party.write_text(before + "learn.known = 0.4\n")
    try:
        with pytest.raises(UsageError, match=r"began with another \[learn\] in party.toml"):
            train_one_shot(companies.folder("airport"))
    finally:
        party.write_text(before)


# --- more than two classes, and numbers ------------------------------------------------------------------------------


def test_three_classes(companies):
    companies.agree("classes = 3")
    companies.set(
        "airline", limits="limit = 0.8\nodds = 8.0\nbudget = 0.9", columns='label = "how", numeric = ["plane"]'
    )
    companies.align()
    outcomes = sound(companies.train())
    airline = outcomes["airline"]
    assert set(np.unique(sent(companies))) == {0, 1, 2}
    assert airline.figures["test_auc"] > airline.alone["test_auc"] + 0.05
    assert airline.figures["test_accuracy"] > airline.alone["test_accuracy"]
    assert airline.label_bound.auc <= 0.8
    assert airline.label_bound.odds <= 8.0


def test_numbers(companies):
    companies.agree('target = "number"\nlow = -4.0\nhigh = 4.0\ncells = 9')
    companies.set(
        "airline", limits="limit = 0.9\nodds = 12.0\nbudget = 0.95", columns='label = "delay", numeric = ["plane"]'
    )
    companies.align()
    outcomes = sound(companies.train())
    airline = outcomes["airline"]
    assert airline.figures["test_r2"] > airline.alone["test_r2"] + 0.2
    assert airline.label_bound.auc <= 0.9
    assert airline.label_bound.odds <= 12.0


def test_rows_of_one_person_count_together(companies):
    companies.agree('unit = "person"')
    companies.set("airline", limits="limit = 0.6", columns=LABEL)
    companies.align()
    label_bound = sound(companies.train())["airline"].label_bound
    assert label_bound.auc == pytest.approx(0.6)
    assert label_bound.total_auc == pytest.approx(0.648), "two rows each"
    assert "two persons" in label_bound.sentence


def test_labels_are_reissued_for_all_rows_at_the_price_of_all(companies):
    companies.set("airline", limits="limit = 0.6", columns=LABEL)
    companies.align()
    sound(companies.train())
    companies.agree(run="anew")
    companies.set("airline", limits="limit = 0.6", columns=f"{LABEL}, coin_epoch = 1")
    companies.align()
    label_bound = sound(companies.train())["airline"].label_bound
    assert not np.array_equal(sent(companies), sent(companies, run="anew"))
    assert label_bound.auc == pytest.approx(0.6)
    assert label_bound.total_auc == pytest.approx(0.648)


def test_a_network_learns_without_labels_from_all_rows_that_its_owner_has(companies):
    path = companies.path / "airport" / "data.parquet"
    others = table(300, seed=9).with_columns(pl.concat_str(pl.lit("other"), "id").alias("id"))
    pl.concat([pl.read_parquet(path), others]).write_parquet(path)
    columns = 'categorical = ["port"], numeric = ["wind", "rain"]'
    companies.set("airport", columns=columns, more='learn = { learner = "network" }\n')
    companies.align()
    sound(companies.train())
    folder = companies.folder("airport")
    rows = aligned(folder)
    every, known = every_row(folder, rows), own_inputs(folder, rows)
    assert (len(every), len(known)) == (1800, 1500)
    assert all(torch.equal(a[:1500], b) for a, b in zip(every.tensors, known.tensors, strict=True))
    assert (companies.run("airport") / "inputs of all rows").exists(), "it learnt from them"


def test_a_head_learns_from_a_sample(tmp_path):
    """Which is drawn from rows that have a label, the same when the run goes on."""
    companies = Companies(tmp_path, table(900))
    companies.set("airline", "limit = 0.75", LABEL, "head.sample = 300\n")
    companies.align()
    outcome = sound(companies.train())["airline"]
    assert outcome.figures["test_auc"] > outcome.alone["test_auc"]
    known = np.arange(1000) % 3 > 0
    rows = one_shot_label._learnt_from(known, 300, seed=1)
    assert len(np.unique(rows)) == 300
    assert known[rows].all()
    assert one_shot_label._learnt_from(known, 10_000, seed=1) == slice(1000)


def test_columns_from_a_query_learn_what_those_of_a_file_do(tmp_path, monkeypatch):
    """The rows are those that were aligned, whatever becomes of the database; so the same leaves."""
    outcomes = []
    for source in ("file", "query"):
        companies = Companies(tmp_path / source, table(900))
        companies.set("airport", columns='numeric = ["wind", "rain"]')
        folder = companies.path / "airport"
        if source == "query":
            rows = pl.read_parquet(folder / "data.parquet")
            with closing(sqlite3.connect(folder / "rows.sqlite")) as raw, raw:
                raw.execute("CREATE TABLE weather (id TEXT, wind REAL, rain REAL)")
                raw.executemany("INSERT INTO weather VALUES (?, ?, ?)", rows["id", "wind", "rain"].rows())
            monkeypatch.setenv("TACIT_TEST_ROWS", f"sqlite:///{folder / 'rows.sqlite'}")
            asked = 'query = "SELECT id, wind, rain FROM weather", url_from = "TACIT_TEST_ROWS"'
            settings = (folder / "party.toml").read_text()
            (folder / "party.toml").write_text(settings.replace('path = "data.parquet"', asked))
            (folder / "data.parquet").unlink()
        companies.align()
        if source == "query":
            (folder / "rows.sqlite").unlink()
        outcomes.append(sound(companies.train()))
    by_file, by_query = (outcome["airline"].figures["test_auc"] for outcome in outcomes)
    assert by_query > outcomes[1]["airline"].alone["test_auc"] + 0.05
    assert abs(by_file - by_query) < 0.1
