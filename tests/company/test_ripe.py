"""Labels that are not complete yet: younger rows stay out of an alignment, and the plan counts them."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from benchmarks._companies import contract, two_companies
from tacit.company.agreed import agree, check_agreed
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.company.plans import rows_ahead
from tacit.company.ready import checks
from tacit.company.ways import way_of
from tacit.errors import DataError, UsageError
from tests.at_once import all_of
from tests.torture.world import free_port

SPLIT = contract(batch_size=4)
ONE_SHOT = SPLIT.split("loss =")[0] + 'alignment.smallest_set = 10\nmode = "one_shot"\nexchange.bits = 1\n'
RULE = '\nlabel.complete = "30 days after clicked at"\n'


def clicked(days, rows=40):
    """Rows of which every fourth was clicked on so many days ago, and the others long before; the last has no date."""
    today = datetime.now(UTC).date()
    dates = [str(today - timedelta(days=days if row % 4 == 0 else 300)) for row in range(rows - 1)]
    draw = np.random.default_rng(1)
    table = {"id": range(rows), "y": [row % 2 for row in range(rows)], "clicked at": [*dates, None]}
    return pl.DataFrame({**table, "x": draw.normal(size=rows)})


def companies(path, port, days, *, text=SPLIT, rule=RULE):
    table = clicked(days)
    made = two_companies(path, (table, table.select("id", "x")), port=port, text=text)
    settings = path / "airline" / "party.toml"
    settings.write_text(settings.read_text() + rule)
    return made


@pytest.mark.parametrize("text", [SPLIT, ONE_SHOT], ids=["split", "one exchange"])
@pytest.mark.parametrize(("days", "young"), [(30, 11), (31, 1), (-5, 11)], ids=["not yet", "since today", "to come"])
def test_rows_whose_label_is_not_complete_stay_out_of_the_alignment(text, days, young, tmp_path):
    airline, airport = companies(tmp_path, free_port(), days, text=text)
    settings = tmp_path / "airline" / "party.toml"
    settings.write_text("limit = 0.75\n" + settings.read_text())
    assert (rows_ahead(airline).young, rows_ahead(airline).most) == (young, 40 - young)
    all_of(airline.align, airport.align)
    assert aligned(airline).count == aligned(airport).count == 40 - young
    assert sorted(aligned(airline).rows.tolist()) == [row for row in range(39) if row % 4 or young == 1]
    assert rows_ahead(Folder(tmp_path / "airline")).young == young, "the plan counts them when all is aligned as well"


def test_the_plan_and_the_check_count_them_and_the_yes_covers_the_rule(tmp_path):
    airline, _ = companies(tmp_path, free_port(), 30)
    told = {one.name: one for one in checks(airline.path)}
    assert "29 of 40 rows can be aligned" in told["data"].words
    assert "11 rows were left out: their label is not complete" in told["data"].words
    sent = "11 rows stay out of an alignment today: their labels are complete 30 days after clicked at."
    assert sent in way_of(airline.terms).plan(airline).sent
    agree(airline)
    check_agreed(airline.path)
    settings = airline.path / "party.toml"
    settings.write_text(settings.read_text().replace("30 days", "7 days"))
    with pytest.raises(UsageError, match="has changed since somebody agreed"):
        check_agreed(airline.path)


@pytest.mark.parametrize(
    ("rule", "error", "words"),
    [
        ('\nlabel.complete = "30 days"\n', UsageError, "is no such rule"),
        ('\nlabel.complete = "30 days after seen"\n', DataError, "seen"),
        ('\nlabel.complete = "30 days after x"\n', DataError, "no dates"),
        ('\nlabel.complete = "9999 days after clicked at"\n', DataError, "leaves all out"),
    ],
)
def test_a_rule_that_can_t_be_kept_is_told_before_anybody_is_met(rule, error, words, tmp_path):
    airline, _ = companies(tmp_path, free_port(), 30, rule=rule)
    with pytest.raises(error, match=words):
        airline.align()


def test_a_feature_party_has_no_labels_to_wait_for(tmp_path):
    _, airport = companies(tmp_path, free_port(), 30)
    settings = tmp_path / "airport" / "party.toml"
    settings.write_text(settings.read_text() + RULE)
    with pytest.raises(UsageError, match="is not for a party with the role 'features'"):
        airport.align()
