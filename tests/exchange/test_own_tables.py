"""Tables as companies have them: dates, labels that are words, ids with decimals, names with blanks and umlauts."""

from __future__ import annotations

import json
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from tacit.align.ids import read_ids
from tacit.company import meeting
from tacit.company.aligned import aligned
from tacit.company.check import check_table
from tacit.company.folder import Folder
from tacit.errors import DataError, LabelsError
from tacit.exchange.plan import plan
from tacit.serve.halves import load_embedder, load_scorer
from tests.exchange.companies import Companies, table

BANK = 'label = "gekauft", dates = ["Kunde seit"], numeric = ["Umsatz in €"]'
MEDIA = 'categorical = ["Büro"], times = ["last visit"], numeric = ["rain"]'


def warty(rows=1500):
    """Rows whose label hangs on the day of a visit; the bank has numbers for ids, and the other side text."""
    plain = table(rows)
    days = (100 * plain["wind"]).round().cast(pl.Int64)
    return plain.with_columns(
        id=pl.Series([100_000.0 + row for row in range(rows)]),
        gekauft=plain["late"].replace_strict({1: "churned", 0: "stayed"}),
        **{
            "Kunde seit": pl.Series([date(2014, 1, 19) + timedelta(days=row % 700) for row in range(rows)]),
            "Umsatz in €": plain["plane"],
            "Büro": plain["port"],
            "last visit": pl.Series([f"{date(2020, 1, 1) + timedelta(days=day)} 08:30" for day in days]),
        },
    )


def bank(path, **columns):
    """A label party with a table of its own, and the contract of both."""
    made = Companies(path, warty())
    made.set("airline", limits="limit = 0.75", columns=BANK)
    made.set("airport", columns=MEDIA)
    if columns:
        data = path / "airline" / "data.parquet"
        pl.read_parquet(data).with_columns(**columns).write_parquet(data)
    return made


def said(made, line):
    for name in ("airline", "airport"):
        path = made.path / name / "contract.toml"
        path.write_text(line + "\n" + path.read_text())


@pytest.fixture(scope="module", name="trained")
def _trained(tmp_path_factory):
    made = bank(tmp_path_factory.mktemp("own"))
    path = made.path / "airport" / "data.parquet"
    rows = pl.read_parquet(path)
    rows.with_columns(id=rows["id"].cast(pl.Int64).cast(pl.String)).write_parquet(path)
    said(made, 'positive = "churned"')
    made.align()
    outcomes = made.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return made, outcomes


def test_words_dates_and_ids_are_taken_as_they_are(trained):
    made, outcomes = trained
    assert outcomes["airline"].figures["test_auc"] > outcomes["airline"].alone["test_auc"] + 0.05
    sent = np.load(made.run("airport") / "flips" / "sent.npy")
    rows = aligned(made.folder("airline"))
    labels = rows.table(made.folder("airline").data, ["gekauft"])["gekauft"].to_numpy()[: len(sent)]
    assert sent[labels == "churned"].mean() > sent[labels == "stayed"].mean() + 0.3, "1 is the class that was named"
    found = json.loads((made.run("airport") / "release" / "release.json").read_text())["audit"]["findings"]
    assert {one["column"] for one in found} >= {"last visit", "Büro", "rain"}, "a date is one column to its owner"


def test_the_halves_take_the_same_columns_later(trained):
    made, _ = trained
    embedder, scorer = load_embedder(made.path / "airport", "test"), load_scorer(made.path / "airline", "test")
    assert embedder.columns == ("Büro", "rain", "last visit")
    assert scorer.columns == ("Umsatz in €", "Kunde seit")
    rows = warty(20)
    text = rows.with_columns(pl.col("Kunde seit").cast(pl.String))
    codes = {"airport": embedder.embed(rows)}
    assert np.array_equal(scorer.score(rows, codes), scorer.score(text, codes)), "as JSON spells a date"


# --- before anything is sent ------------------------------------------------------------------------------------------


def everything(path):
    return {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}


def test_a_plan_says_what_would_be_sent_and_sends_nothing(tmp_path, monkeypatch):
    made = bank(tmp_path)
    said(made, 'positive = "churned"')
    made.set("airport", limits="limit = 0.9", columns=MEDIA)
    monkeypatch.setattr(meeting, "connect", None)
    before = everything(tmp_path)
    label, features = (plan(made.folder(name)) for name in ("airline", "airport"))
    assert "'gekauft' (1 is 'churned') of 80% of the common rows, 1,500 at most goes to airport" in label.sent[0]
    assert "the right one at most 75.0% of the time" in label.sent[1]
    assert "airline gets one of 8 groups, once, learnt from Büro, rain, last visit." in features.sent[0]
    assert "more than 90% of any column, nothing is sent" in features.sent[1]
    assert everything(tmp_path) == before
    made.set("airport", columns=MEDIA)
    assert "No limit is set" in plan(made.folder("airport")).warnings[0]


def test_after_it_a_plan_says_what_it_cost(trained):
    made, _ = trained
    found = plan(made.folder("airline"))
    assert found.sent[3] == "0 of these labels are new; 1,200 leave again as they are, which costs nothing."
    assert found.figures["rows"] == 1200
    assert found.figures["total_auc"] == pytest.approx(0.75)
    assert plan(made.folder("airport")).figures["before"] == 1


# --- labels ----------------------------------------------------------------------------------------------------------


def checked(made):
    folder = Folder(made.path / "airline")
    check_table(folder, folder.data, read_ids(folder.data, folder.table.ids))


WORDS = {
    "two words and none of them named": (
        {}, "", r"row 0 .counted from 0, id '\d+\.0'. has the label '(\w+)'.*in contract\.toml.*positive = \"\1\"",
    ),
    "a word that is not there": (
        {}, 'positive = "yes"',
        r"no row has that in the column 'gekauft', which has '\w+' \(row 0, counted from 0\), '\w+'.*agree",
    ),
    "a third word": (
        {"gekauft": pl.when(pl.col("rain") > 2).then(pl.lit("maybe")).otherwise("gekauft")}, 'positive = "churned"',
        r"more than one value, .*'maybe' \(row \d+, counted from 0\).*name all classes in class_names",
    ),
    "a word beside those that are named": (
        {"gekauft": pl.when(pl.col("rain") > 2).then(pl.lit("maybe")).otherwise("gekauft")},
        'class_names = ["stayed", "churned"]', "has the label 'maybe'.*correct them, or leave them empty",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("columns", "line", "words"), WORDS.values(), ids=WORDS)
def test_words_that_are_not_clear_are_told_with_what_to_write(columns, line, words, tmp_path):
    made = bank(tmp_path, **columns)
    said(made, line)
    with pytest.raises(LabelsError, match=words):
        checked(made)


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    made = bank(tmp_path, **{"Umsatz in €": pl.lit("12,5"), "Kunde seit": pl.lit("soon")})
    with pytest.raises(DataError) as caught:
        checked(made)
    lines = str(caught.value).splitlines()
    assert [line.split("'")[1] for line in lines[:2]] == ["Umsatz in €", "Kunde seit"]
    assert "write 12.5 with a point" in lines[0]
    assert "has the label" in lines[2]
    assert all("row 0 (counted from 0, id '" in line for line in lines[:2])
