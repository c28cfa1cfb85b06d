"""Every attack against every protection, on a small made-up table."""

import json

import polars as pl
import pytest

from papers import attacks
from papers.attacks import markdown, run, settings
from tacit.audit.attacks import names
from tacit.errors import DataError
from tacit.lab.data import load


@pytest.fixture(scope="module")
def found():
    patch = pytest.MonkeyPatch()
    patch.setattr("tacit.audit.attacks._network._UPDATES", 20)
    patch.setattr("tacit.audit.attacks._surrogate._UPDATES", 60)
    patch.setattr(attacks, "settings", lambda epochs: [settings(epochs)[place] for place in (0, 4)])
    yield run(load("generated:credit", rows=1200), epochs=2, batch_size=128)
    patch.undo()


def leaks(column, on):
    return {finding.attack: finding for finding in column.findings[on]}


def test_what_is_compared():
    assert [one.spelled for one in settings(5)] == [
        "none", "max_norm", "iso(t=10)", "marvell(scale=4)", "matched(leak_auc=0.6, visits=1)",
        "matched(leak_auc=0.6, visits=5)",
    ]  # fmt: skip
    assert len(settings(1)) == 5


def test_every_attack_is_tried_on_every_training(found):
    assert [column.protection for column in found.columns] == ["none", "matched(leak_auc=0.6, visits=1)"]
    for column in found.columns:
        tried = [finding for block in column.findings.values() for finding in block]
        assert {finding.attack.partition("(")[0] for finding in tried} == set(names())
        assert all(finding.seconds > 0 for finding in tried)
        assert "accumulated(norm)" in leaks(column, "visits")
        assert set(column.skipped) == set()


def test_bare_gradients_are_an_open_book_and_matched_ones_are_not(found):
    bare, matched = found.columns
    for name in ("direct_label", "cosine", "surrogate_top", "spectral(of=gradient)"):
        assert leaks(bare, "batches")[name].leak.value > 0.95, name
        assert leaks(matched, "batches")[name].leak.value < 0.7, name
    assert bare.worst.leak.value > 0.99
    assert bare.noise == 0.0
    assert matched.noise > 1.0


def test_the_files_say_the_same(found, tmp_path):
    text, as_json, csv = found.save(tmp_path)
    assert text.read_text() == markdown(found)
    told = json.loads(as_json.read_text())
    assert [one["protection"] for one in told["trainings"]] == [column.protection for column in found.columns]
    assert told["attacks"]["norm"]["costs"] == "one pass over the gradients."
    frame = pl.read_csv(csv)
    assert len(frame) == sum(len(column.rows()) for column in found.columns)
    norm = frame.filter(attack="norm", protection="none", on="batches")
    assert norm["value"][0] == leaks(found.columns[0], "batches")["norm"].leak.value


def test_the_table_has_a_line_for_each_attack_and_the_worst_last(found):
    text = markdown(found)
    rows = [row for row in text.splitlines() if row.startswith("|")]
    assert all(row.count("|") == 5 for row in rows)
    assert rows[0].startswith("| attack | seconds | `none` |")
    at = [row.split(" | ")[0] for row in rows]
    assert at.index("| **worst**") > at.index("| accumulated(norm)")
    (spectral,) = (row for row in rows if row.startswith("| spectral |"))
    assert spectral.count("(=)") == 2, "it looks at embeddings alone"


def test_pictures_are_refused():
    with pytest.raises(DataError, match="holds pictures"):
        run(load("generated:fashion", rows=50))
