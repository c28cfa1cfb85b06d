"""Test rows by time or by group: one party's column says which, and all parties have them in the same order."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from benchmarks._companies import contract, two_companies
from tacit.company.aligned import aligned, alignment_of
from tacit.company.check import held_out
from tacit.company.folder import Folder
from tacit.config import read_contract
from tacit.errors import RefusedError, TacitError, UsageError
from tests.at_once import all_of, at_once
from tests.torture.world import free_port

SPLIT = contract(batch_size=4)
ONE_SHOT = SPLIT.split("loss =")[0] + 'alignment.smallest_set = 10\nmode = "one_shot"\nexchange.bits = 1\n'
WAYS = pytest.mark.parametrize("way", [SPLIT, ONE_SHOT], ids=["split", "one exchange"])
AFTER = '\ntest = { date = "day", after = 2026-01-01 }\n'
BY = '\ntest = { by = "household" }\n'


def table(rows=80):
    days = [str(date(2025, 12, 1) + timedelta(row)) for row in range(rows)]
    draw, homes = np.random.default_rng(1), [f"h{row // 4}" for row in range(rows)]
    return pl.DataFrame(
        {
            "id": range(rows),
            "y": [row % 2 for row in range(rows)],
            "x": draw.normal(size=rows),
            "day": days,
            "household": homes,
        }
    )


def companies(path, text):
    rows = table()
    made = two_companies(path, (rows, rows.sample(fraction=1.0, shuffle=True, seed=3)), port=free_port(), text=text)
    settings = path / "airline" / "party.toml"
    settings.write_text("limit = 0.75\n" + settings.read_text())
    return made


def by_id(folder):
    """The ids of the rows that are trained on, and of those for testing, as a party's own table has them."""
    rows = aligned(folder)
    ids = rows.table(folder.data, ["id"])["id"].to_list()
    return ids[: rows.train], ids[rows.train :]


@WAYS
@pytest.mark.parametrize("party", ["airline", "airport"])
def test_rows_of_a_day_and_later_are_for_testing_whoever_has_the_dates(way, party, tmp_path):
    text = way + AFTER.replace("date =", f'party = "{party}", date =')
    parties = companies(tmp_path, text)
    all_of(*(folder.align for folder in parties))
    (trained, tested), other = by_id(parties[0]), by_id(parties[1])
    assert (trained, tested) == other, "in the same order on both sides"
    assert sorted(trained) == list(range(31))
    assert sorted(tested) == list(range(31, 80))


@WAYS
def test_whole_groups_are_for_testing(way, tmp_path):
    parties = companies(tmp_path, way + BY)
    all_of(*(folder.align for folder in parties))
    trained, tested = by_id(parties[0])
    assert by_id(parties[1]) == (trained, tested)
    assert not {row // 4 for row in trained} & {row // 4 for row in tested}
    assert sorted([*trained, *tested]) == list(range(80))


def test_groups_are_drawn_by_the_seed_and_rows_without_one_are_groups_of_their_own():
    terms = read_contract(SPLIT + BY)
    rows = pl.DataFrame({"household": [*(f"h{row // 10}" for row in range(50_000)), *[None] * 50_000]})
    places = np.arange(100_000)
    one, again, other = (held_out(terms, rows, places, seed) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()
    assert one[:50_000].reshape(-1, 10).std(axis=1).max() == 0
    assert one[:50_000].mean() == pytest.approx(0.2, abs=0.03)
    assert one[50_000:].mean() == pytest.approx(0.2, abs=0.01)


def test_a_contract_without_test_rows_by_a_column_has_the_digest_that_it_had():
    assert "test" not in read_contract(SPLIT).content()
    assert read_contract(SPLIT).digest == "7b83472f2c10e1642554e5c3e9e96f99d365c44862daefec9a66698f09eef1ec"
    assert read_contract(SPLIT + BY).digest != read_contract(SPLIT + AFTER).digest != read_contract(SPLIT).digest


def test_an_alignment_with_other_test_rows_is_none_for_this_contract(tmp_path):
    parties = companies(tmp_path, SPLIT)
    all_of(*(folder.align for folder in parties))
    assert alignment_of(parties[0]).tested is None
    for folder in parties:
        (folder.path / "contract.toml").write_text(SPLIT + BY)
    assert alignment_of(Folder(parties[0].path)) is None
    with pytest.raises(UsageError, match="nothing is aligned"):
        aligned(Folder(parties[0].path))


def test_where_all_common_rows_are_for_testing_both_hear_so(tmp_path):
    parties = companies(tmp_path, SPLIT + AFTER.replace("2026", "2025"))
    found = at_once(*(folder.align for folder in parties))
    assert all(isinstance(one, RefusedError) and "all common rows are for testing" in str(one) for one in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('test = { date = "day" }', "date and after go together"),
        ('test = { by = "household", date = "day", after = 2026-01-01 }', "keep one of them"),
        ('test = { party = "airline" }', "name the column in by or date"),
        ('test = { party = "bank", by = "household" }', "is no party of this contract"),
        ('test = { by = "nothing" }', "'nothing'"),
        ('test = { date = "household", after = 2026-01-01 }', "is not a date"),
    ],
)
def test_what_can_t_be_is_told_before_anybody_is_met(text, words, tmp_path):
    airline, _ = companies(tmp_path, SPLIT + text)
    with pytest.raises(TacitError, match=words):
        airline.align()
