"""The reports of a training in one exchange, what they are made of, and what is done with a run that has one."""

from __future__ import annotations

import html
import json
import shutil

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tacit.cli.audit import audit
from tacit.cli.ledger import ledger
from tacit.cli.predict import export
from tacit.cli.run import status
from tacit.company.ready import checks
from tacit.errors import LimitError, UsageError
from tacit.exchange.cells import Cells
from tacit.exchange.head import load_head
from tacit.exchange.learn import load_bottom
from tacit.exchange.measured import added, canaries, most_of_flips, told_truth
from tacit.exchange.reporting import exchange_report
from tacit.labels.coins import Coins, counted_keys
from tacit.labels.flips import flips
from tacit.labels.numbers import number_flips
from tacit.report import seals
from tacit.report.rendering import read, render

SECRET = bytes(range(32))
COINS = Coins(SECRET, column="late", definition="2 classes", epoch=0)


def report_of(companies, name):
    return read(companies.run(name) / "report.json")


def test_the_label_partys_report_has_the_label_bound_first(reported):
    report = report_of(reported, "airline")
    told = report.exchange.label_bound
    assert report.verdict == "held"
    assert told.auc == pytest.approx(0.75)
    assert (told.rows, told.labels, told.releases, told.unit) == (1200, 1200, 1, "row")
    assert told.budget == 0.75
    assert told.odds == pytest.approx(3.0)
    page = (reported.run("airline") / "report.html").read_text()
    for words in (told.sentence, told.posterior, *told.not_covered):
        assert words in html.unescape(page)
    assert page.index("Label bound</h2>") < page.index("What was measured</h2>")


def test_what_was_measured_stands_beside_the_bound_that_it_checks(reported):
    figures = {one.name: one for one in report_of(reported, "airline").exchange.figures}
    for name in ("labels told by what was sent", "canaries"):
        assert figures[name].kind == "measurement"
        assert figures[name].most == pytest.approx(0.75)
        assert figures[name].held
        assert figures[name].low < 0.75 + 0.05  # five standard errors of 1,200 rows are 0.06
    without = figures["labels told by partners' embeddings"]
    together = figures["labels told by these and what was sent"]
    assert without.most is None
    assert together.most == pytest.approx(without.value + 0.25)
    assert together.held
    assert "adds +0." in together.about
    assert figures["test AUC with partners"].value > figures["test AUC without partners"].value
    assert figures["test AUC with partners"].kind == "private"


def test_the_feature_partys_report_says_what_was_read_of_each_column(reported):
    report = report_of(reported, "airport")
    told = report.exchange.release
    assert {one.column for one in told.columns} == {"port", "wind", "rain"}
    assert {(one.column, one.given) for one in told.columns if not one.given} >= {("port", False), ("wind", False)}
    assert any(one.given for one in told.columns), "what is read beyond all other columns stands beside"
    assert [one.high for one in told.columns] == sorted((one.high for one in told.columns), reverse=True)
    assert told.columns[0].high <= told.worst <= report.limit
    assert report.verdict == "held"
    assert told.sentence.startswith("Of each row one of 2 groups was sent. There is no bound on what a group tells")
    assert (told.form, told.bits, told.numbers, told.labels) == ("one of 2 groups", 1, 1, "flips")
    assert 0.01 < told.smallest <= 0.5
    flipped, bound = report.exchange.figures
    assert (flipped.kind, bound.kind) == ("measurement", "bound")
    assert flipped.held
    assert flipped.most == bound.value == pytest.approx(0.75, abs=1e-3)
    assert report.exchange.label_bound is None


def test_each_report_says_what_left_and_when(reported):
    (embedding,) = report_of(reported, "airport").exchange.departures
    assert (embedding.what, embedding.to, embedding.rows, embedding.bytes) == ("embedding", "airline", 1500, 188)
    left = {one.what: one for one in report_of(reported, "airline").exchange.departures}
    assert left["randomized labels"].bytes == 150
    assert left["randomized labels"].rows == 1200
    assert set(left) == {"randomized labels", "acknowledgement of its bytes"}
    assert all(one.time for one in left.values())


def test_whoever_signs_reads_first_what_it_is_about_and_what_was_sent_to_whom(reported):
    airline, airport = (report_of(reported, name) for name in ("airline", "airport"))
    about = airline.subject
    assert (about.label, about.table, about.ids, about.common) == ("late", "data.parquet", ("id",), 1500)
    assert about.columns == ("plane",)
    assert airport.subject.label is None, "a partner does not know what the label is called"
    assert airport.subject.columns == ("port", "wind", "rain")
    (alignment,) = airline.disclosed
    assert alignment.what == "which of its 1,500 ids are among 1,500 here"
    assert (alignment.to, alignment.rows) == ("airport", 1500)
    for name, words in {
        "airline": "About the label 'late' in data.parquet: of the 1,500 rows that airport has as well by 'id'.",
        "airport": "About 3 columns ('port', 'wind' and 'rain') in data.parquet: of the 1,500 rows that airline has",
    }.items():
        page = html.unescape((reported.run(name) / "report.html").read_text())
        assert page.index(words) < page.index('id="finding"')
        assert page.index(f"{alignment.what}, 1,500 rows") < page.index("Everything sent</h2>")


def test_what_the_partner_is_worth_stands_in_the_report_in_several_figures_with_intervals(reported):
    told = report_of(reported, "airline").exchange
    worth = {one.figure: one for one in told.worth}
    assert list(worth) == ["AUC", "PR-AUC", "log loss", "Brier score", "lift, highest tenth"]
    figures = {one.name: one.value for one in told.figures}
    assert worth["AUC"].together == pytest.approx(figures["test AUC with partners"])
    assert worth["AUC"].alone == pytest.approx(figures["test AUC without partners"])
    for name, sign in (("AUC", 1), ("PR-AUC", 1), ("log loss", -1), ("Brier score", -1)):
        assert worth[name].low <= worth[name].difference <= worth[name].high
        assert sign * worth[name].difference > 0, "wind, which the airport has, decides most"
    assert sum(one.rows for one in told.calibration) == 300
    assert [one.score for one in told.calibration] == sorted(one.score for one in told.calibration)
    page = (reported.run("airline") / "report.html").read_text()
    assert "What the partner is worth</h2>" in page
    assert not report_of(reported, "airport").exchange.worth, "it is the label party's alone"


def test_a_category_is_called_what_the_table_calls_it(reported):
    audit = json.loads((reported.run("airport") / "release" / "release.json").read_bytes())["audit"]
    asked = {one["question"] for one in audit["findings"] if one["column"] == "port"}
    assert {f"category 'p{code}'" for code in range(4)} <= asked


def test_reports_are_sealed(reported):
    path = reported.run("airline") / "report.json"
    assert seals.holds(path)


def test_an_audit_attacks_again_and_finds_the_same(reported):
    for name in ("airline", "airport"):
        before, again = report_of(reported, name), exchange_report(reported.folder(name), again=True)
        changed = {"made", "exchange"} if name == "airline" else {"made"}
        assert again.model_dump(exclude=changed) == before.model_dump(exclude=changed)
    assert (
        "1,200 randomized labels of 1 exchange "
        in exchange_report(reported.folder("airline"), again=True).exchange.checked
    )


def test_a_run_that_is_not_over_has_no_report_and_nothing_is_sent_for_it(companies):
    companies.align()
    for name in ("airline", "airport"):
        with pytest.raises(UsageError, match="not over"):
            exchange_report(companies.folder(name))
    assert not (companies.path / "airline" / "coins").exists()


def test_a_page_shows_nothing_that_a_column_could_slip_in(reported):
    report = report_of(reported, "airport")
    first, *rest = report.exchange.release.columns
    evil = first.model_copy(update={"column": "<script>alert(1)</script>"})
    release = report.exchange.release.model_copy(update={"columns": (evil, *rest)})
    page = render(report.model_copy(update={"exchange": report.exchange.model_copy(update={"release": release})}))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


# --- what is measured ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [flips(0.7), flips(0.65, 6.0, rare="positive"), flips(0.7, 9.0, classes=4)])
@pytest.mark.parametrize("telling", [0.0, 1.5])
def test_what_flips_add_to_columns_is_at_most_the_bound(mechanism, telling):
    draw = np.random.default_rng(2)
    labels = draw.integers(0, mechanism.classes, 20_000)
    score = telling * (labels == 1) + draw.normal(size=labels.size)
    columns = np.digitize(score, np.linspace(-2, 3, 60)).astype(np.uint8)[:, None]
    sent = COINS.draw(mechanism, counted_keys(np.arange(labels.size)), labels)
    found = added(mechanism, columns, sent, labels, seed=0)
    assert found.gain.value == pytest.approx(found.together.value - found.without.value, abs=1e-6)
    assert found.gain.holds(mechanism.auc - 0.5)
    if telling:
        assert found.without.value > 0.6 or mechanism.classes == 4
        assert found.gain.value > 0.01
    else:
        assert found.without.value == pytest.approx(0.5, abs=0.03)
        assert found.gain.value == pytest.approx(mechanism.auc - 0.5, abs=0.04)


def test_there_is_no_such_figure_of_numbers_and_of_too_few_rows():
    numbers = number_flips(0.7, 5, low=0, high=1, cells=8)
    columns, some = np.zeros((40, 1), np.uint8), np.zeros(40, np.int64)
    assert added(numbers, columns, some, some, seed=0) is None
    assert added(flips(0.7), columns, some, some, seed=0) is None


@pytest.mark.parametrize(
    "mechanism",
    [
        flips(0.6),
        flips(0.6, 3, rare="positive"),
        flips(0.7, 3, classes=5),
        number_flips(0.7, 5, low=0, high=1, cells=8),
    ],
    ids=["symmetric", "rare", "five classes", "numbers"],
)
def test_canaries_reach_the_bound_and_do_not_pass_it(mechanism):
    found = canaries(COINS, mechanism, 20_000, SECRET)
    assert found.holds(mechanism.auc)
    assert found.value > mechanism.auc - 0.05
    assert found == canaries(COINS, mechanism, 20_000, SECRET), "drawn from the secret alone"


def test_labels_that_were_sent_bare_are_seen():
    labels = np.random.default_rng(0).integers(0, 2, 2000)
    found = told_truth(flips(0.6), labels.astype(np.uint8), labels)
    assert found.value == 1
    assert not found.holds(0.6)


def test_what_the_coin_allows_is_what_the_design_says():
    assert most_of_flips(flips(0.6)) == pytest.approx(0.6, abs=1e-4)
    assert most_of_flips(flips(0.6, 7.4, rare="positive")) == pytest.approx(0.753, abs=1e-3)
    assert most_of_flips(flips(0.6, 3, classes=3)) is None


def test_too_few_rows_are_not_measured():
    assert told_truth(flips(0.6), np.zeros(12, np.uint8), np.array([1] * 3 + [0] * 9)) is None


def test_the_log_tells_the_parts_in_their_order(reported):
    lines = (reported.run("airport") / "log.jsonl").read_text().splitlines()
    parts = [one["part"] for one in map(json.loads, lines) if one["event"] == "part"]
    assert parts[0] == "preparing"
    assert parts.index("asking for randomized labels") < parts.index("decoders") < parts.index("sending the embedding")
    assert parts[-1] == "writing the report"


# --- what the verbs say of it ----------------------------------------------------------------------------------------


def said(verb, *words, code=0):
    app = typer.Typer()
    app.command()(verb)
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_status_says_the_label_bound_what_was_sent_and_what_left(reported):
    airline = said(status, "--folder", reported.path / "airline")
    assert (
        "label bound: leak AUC 0.75, odds 3 (1,200 labels); over all exchanges 0.75 and 3 (epsilon 1.099) for any row"
        in airline
    )
    assert "sent: randomized labels of 1,200 rows, 150 bytes to airport" in airline
    assert "sent: which of its 1,500 ids are among 1,500 here of 1,500 rows, 72,000 bytes to airport" in airline
    assert "Alignments: what partners were told" in said(ledger, "--folder", reported.path / "airport")
    airport = said(status, "--folder", reported.path / "airport")
    assert "one of 2 groups" in airport
    assert "sent: embedding of 1,500 rows, 188 bytes to airline" in airport
    assert "AUC" not in airport, "no figure of the airline's"


def test_audit_says_of_each_figure_whether_it_is_a_bound(reported):
    told = said(audit, reported.run("airline"))
    assert "canaries measurement" in told
    assert "All 1,200 randomized labels" in told
    assert seals.holds(reported.run("airline") / "report.json")
    assert "limit 0.99: held" in said(audit, "--folder", reported.path / "airport")
    told = said(audit, "--folder", reported.path / "airport", "--limit", "0.01", "--out", reported.path / "x", code=1)
    assert "limit 0.01: broken" in told
    with pytest.raises(UsageError, match="its limit is a bound"):
        said(audit, reported.run("airline"), "--limit", "0.9")


def test_export_copies_what_is_ones_own_with_what_is_known_of_it(reported, tmp_path):
    said(export, "--folder", reported.path / "airline", "--out", tmp_path / "mine")
    assert load_head(tmp_path / "mine" / "head").shape.width == 1
    assert load_head(tmp_path / "mine" / "fallback").shape.width == 0
    about = json.loads((tmp_path / "mine" / "about.json").read_bytes())
    assert (about["tacit_limit"], about["tacit_verdict"], about["tacit_overrides"]) == ("0.75", "held", "")
    assert (tmp_path / "mine").stat().st_mode & 0o077 == 0
    said(export, "--folder", reported.path / "airport", "--out", tmp_path / "theirs")
    cells = Cells.read(json.loads((tmp_path / "theirs" / "cells.json").read_bytes()))
    assert cells.numbers == load_bottom(tmp_path / "theirs" / "learned").width == 1
    with pytest.raises(UsageError, match="there already"):
        said(export, "--folder", reported.path / "airport", "--out", tmp_path / "theirs")


def test_a_report_that_was_changed_keeps_the_model_in_unless_somebody_answers_for_it(reported, tmp_path):
    copy = tmp_path / "airline"
    shutil.copytree(reported.path / "airline", copy)
    path = copy / "runs" / "small" / "report.json"
    path.write_text(path.read_text().replace('"held"', '"held" '))
    with pytest.raises(LimitError, match="tacit audit"):
        said(export, "--folder", copy, "--out", tmp_path / "out")
    said(export, "--folder", copy, "--out", tmp_path / "out", "--override", "A. Owner", "--reason", "a test")
    assert "A. Owner" in json.loads((tmp_path / "out" / "about.json").read_bytes())["tacit_overrides"]


def found(companies, name):
    return {one.name: one for one in checks(companies.path / name)}


def test_the_bound_of_an_exchange_is_told_before_it(reported):
    airline, airport = found(reported, "airline"), found(reported, "airport")
    assert airline["plan"].verdict == "ok"
    assert "0.75" in airline["plan"].words
    assert airport["plan"].verdict == "ok"
    assert "rows can be aligned" in airline["data"].words


def test_a_learner_of_ones_own_that_is_missing_is_told(companies):
    companies.set("airport", columns='numeric = ["wind"]', more='learn = { factory = "nothing.py:here" }\n')
    assert found(companies, "airport")["plan"].verdict == "problem"


@pytest.mark.parametrize(
    ("limits", "columns", "name", "verdict"),
    [
        ("", 'label = "late"', "plan", "problem"),
        ("limit = 0.6", 'label = "late", coin_id = ["person"]', "data", "problem"),
        ("limit = 0.6", 'label = "late"', "data", "ok"),
    ],
)
def test_what_would_stop_an_exchange_is_found_at_home(companies, limits, columns, name, verdict):
    companies.set("airline", limits=limits, columns=columns)
    assert found(companies, "airline")[name].verdict == verdict
    assert not (companies.path / "airline" / "coins").exists(), "nothing is changed"
