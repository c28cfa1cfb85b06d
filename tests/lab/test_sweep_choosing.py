"""Which setting is chosen under a limit."""

import json
from xml.etree import ElementTree

import polars as pl
import pytest

from tacit.errors import UsageError
from tacit.lab import sweep
from tacit.lab.choosing import best, points
from tacit.lab.data import generated
from tacit.lab.drawing import draw_sweep as draw
from tacit.lab.sweeping.judging import wanted
from tacit.lab.sweeping.results import Sweep, as_table


def row(replica, protection, strength, auc, worst, high, *, seed=0, knob="scale", attack="norm@cut", **options):
    knob = None if strength is None else knob
    return {
        "replica": replica, "protection": protection, "knob": knob, "strength": strength, "seed": seed,
        "options": json.dumps({**({} if knob is None else {knob: strength}), **options}), "part": "whole",
        "test_auc": auc, "test_loss": None if auc is None else 0.4, "worst": worst,
        "worst low": None if worst is None else worst - 0.01, "worst high": high,
        "worst attack": None if worst is None else attack, "worst part": None if worst is None else "whole",
    }  # fmt: skip


def chosen(rows, limit, wanted=(), **options):
    return best(points(as_table(rows), wanted), limit, **options)


ROWS = [
    row(0, "none", None, 0.80, 0.99, 1.0),
    row(1, "marvell", 1.0, 0.79, 0.65, 0.70),
    row(2, "marvell", 4.0, 0.78, 0.57, 0.59, attack="residual@cut"),
    row(3, "matched", 8.0, 0.77, 0.54, 0.56, visits=3),
    row(4, "iso", 9.0, 0.60, 0.50, 0.52),
]


def test_the_best_model_under_the_limit():
    choice = chosen(ROWS, 0.6)
    assert choice.holds
    assert choice.point.setting.spelled == "marvell(scale=4)"
    assert choice.point.attack == "residual@cut"
    assert choice.cost == pytest.approx(0.02)
    assert choice.baseline.setting.protection == "none"
    assert chosen(ROWS, 0.58).point.setting.spelled == "matched(scale=8, visits=3)"
    assert chosen(ROWS, 0.75).point.setting.strength == 1.0


def test_the_upper_end_counts_and_not_the_value():
    rows = [*ROWS[:1], row(1, "marvell", 1.0, 0.79, 0.55, 0.61), row(2, "marvell", 2.0, 0.70, 0.58, 0.59)]
    assert chosen(rows, 0.6).point.setting.strength == 2.0
    rows[2]["worst high"] = 0.6
    assert not chosen(rows, 0.6).holds, "at the limit is not under it"


def test_the_nearest_is_named_where_none_holds():
    choice = chosen(ROWS, 0.51)
    assert not choice.holds
    assert choice.point.setting.protection == "iso"


def test_no_protection_is_never_the_nearest_and_ties_go_by_value():
    rows = [row(0, "none", None, 0.8, 0.97, 1.0), row(1, "iso", 1.0, 0.79, 0.99, 1.0), row(2, "iso", 9.0, 0.7, 0.98, 1)]
    assert chosen(rows, 0.6).point.setting.strength == 9.0
    assert chosen(rows[:1], 0.6).point.setting.protection == "none", "unless there is nothing else"


def test_every_seed_must_hold_the_limit():
    rows = [
        *ROWS[:3], row(5, "none", None, 0.82, 0.98, 1.0, seed=1), row(6, "marvell", 1.0, 0.81, 0.5, 0.51, seed=1),
        row(7, "marvell", 4.0, 0.74, 0.61, 0.63, seed=1),
    ]  # fmt: skip
    assert not chosen(rows, 0.6).holds
    choice = chosen(rows, 0.65)
    assert choice.point.setting.strength == 4.0
    assert choice.point.seeds == 2
    assert choice.point.test_auc == pytest.approx(0.76)
    assert choice.point.high == 0.63
    assert choice.cost == pytest.approx(0.05)


def test_a_training_that_ran_away_is_never_chosen():
    rows = [*ROWS[:3], row(3, "iso", 1.0, None, None, None), row(4, "iso", 2.0, 0.99, None, None)]
    rows[4]["notes"] = "losses are not finite: the training ran away"
    assert chosen(rows, 0.6).point.setting.protection == "marvell"
    assert [point.worst for point in points(as_table(rows))][3:] == [None, None]
    with pytest.raises(UsageError, match=r"\(ran away\)"):
        chosen(rows[3:], 0.6)


def test_why_there_is_nothing_to_choose_from():
    silent = row(1, "iso", 2.0, 0.7, None, None)
    assert points(as_table([silent]))[0].failed == "no attack could run"
    with pytest.raises(UsageError, match=r"\(no attack could run\)"):
        chosen([silent], 0.6)
    with pytest.raises(UsageError, match="no row of a whole training"):
        chosen([], 0.6)


def test_without_a_baseline_there_is_no_cost():
    choice = chosen(ROWS[1:], 0.6)
    assert choice.baseline is None
    assert choice.cost is None
    assert json.loads(json.dumps(choice.as_dict()))["chosen"]["spelled"] == "marvell(scale=4)"


@pytest.mark.parametrize("limit", [0.5, 1.0, 0.0, 60.0, float("nan")])
def test_a_limit_that_is_none(limit):
    with pytest.raises(UsageError, match=r"between 0\.5"):
        chosen(ROWS, limit)


def test_choosing_from_a_sweep_and_by_sweeping():
    recipe = {"attacks": ["norm"], "layers": ["cut"], "epochs": 1}
    rows = [{**one, **dict.fromkeys(wanted(recipe), 0.5)} for one in ROWS]
    assert Sweep(None, as_table(rows), {"recipe": recipe}).best(0.6).point.setting.strength == 4.0
    data = generated.table(4000, (5,), 2, 0.4, 0)
    options = {"epochs": 1, "batch_size": 512, "network": {"width": 8, "layers": 4}, "points": 1}
    choice = sweep(data, protect=["iso(t=10000)"], thorough=False, **options).best(0.9, quick=True)
    assert choice.holds
    assert choice.point.setting.spelled == "iso(t=10000)"
    assert choice.baseline.high > 0.9
    assert choice.point.untried == ("likelihood@cut", "learned@cut", "spectral@cut", "contextual@cut")
    assert choice.as_dict()["warning"] == "not tried: likelihood, learned, spectral, contextual: they may read it"


def test_what_should_have_been_tried():
    recipe = {"attacks": ["norm", "residual"], "layers": ["layer1"], "epochs": 1}
    cheap = ("norm", "residual", "cosine", "hint", "majority", "top_share")
    slow = ["likelihood@cut", "learned@cut", "spectral@cut", "contextual@cut"]
    assert wanted(recipe) == [f"{name}@{layer}" for layer in ("cut", "layer1") for name in cheap] + slow
    more = wanted({**recipe, "epochs": 2})[len(wanted(recipe)) :]
    assert more[0] == "accumulated(norm)@cut"
    assert "accumulated(likelihood, spread)@cut" in more


def test_attacks_that_never_ran_are_named_and_refused():
    rows = [{**one, "norm@cut": 0.55, "cosine@cut": 0.55} for one in ROWS]
    columns = ["norm@cut", "residual@cut", "residual@layer1", "learned@cut"]
    with pytest.raises(UsageError, match=r"not tried, and may read the labels: residual, learned; .*--quick"):
        chosen(rows, 0.6, columns)
    quick = chosen(rows, 0.6, columns, quick=True)
    assert quick.holds
    assert quick.warning == "not tried: residual, learned: they may read it"
    assert quick.as_dict()["untried"] == columns[1:]
    del rows[2]["cosine@cut"]
    other = chosen(rows, 0.6, columns, quick=True)
    assert other.point.setting.protection == "matched", "what was tried on one setting has to be tried on all"
    assert chosen([{**one, **dict.fromkeys(columns, 0.5)} for one in ROWS], 0.6, columns).warning is None


def test_pictures_are_drawn_of_what_can_be_drawn(tmp_path):
    found = points(as_table([*ROWS, row(9, "iso", 1.0, None, None, None)]))
    plain, ringed = tmp_path / "a.svg", tmp_path / "b.svg"
    assert draw(found, plain, title="x") == plain
    assert draw(found, ringed, title="x", choice=chosen(ROWS, 0.6)) == ringed
    drawn = ElementTree.parse(plain)
    assert len(drawn.findall(".//{*}circle[@class]")) >= len(found) - 1
    assert "ring" not in {one.get("class") for one in drawn.iter()}
    assert "ring" in {one.get("class") for one in ElementTree.parse(ringed).iter()}
    assert draw(found[-1:], tmp_path / "c.svg", title="x") is None


def test_a_table_has_every_column_whatever_rows_have():
    table = as_table([{**ROWS[0], "norm@cut": 0.6}, {**ROWS[1], "cosine@cut": 0.7, "cosine@cut q95": 0.8}])
    assert table["norm@cut"].to_list() == [0.6, None]
    assert table.columns[-9:-6] == ["norm@cut", "cosine@cut", "cosine@cut q95"]
    assert table.schema["replica"] == pl.Int64
    assert table.schema["worst attack"] == pl.String


def test_an_attack_that_did_not_run_has_not_failed():
    rows = [{**one, "learned@cut": 0.99 if place == 0 else 0.55} for place, one in enumerate(ROWS)]
    del rows[2]["learned@cut"]
    choice = chosen(rows, 0.6)
    assert choice.point.setting.spelled == "matched(scale=8, visits=3)", "marvell(scale=4) would do, had it been tried"
    untried = {point.setting.spelled: point.untried for point in points(as_table(rows))}
    assert untried["marvell(scale=4)"] == ("learned@cut",)
    with pytest.raises(UsageError, match="not tried everywhere, and may read the labels: learned, hint@layer1;"):
        chosen([rows[2], {**rows[3], "hint@layer1": None}, {**rows[4], "test_auc": None}], 0.6, ["hint@layer1"])
