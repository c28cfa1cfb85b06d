"""tacit choose --label-limit: what is tried, what is kept, and what is advised."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import UsageError
from tacit.lab.data import load
from tacit.lab.data.rows import Pictures
from tacit.lab.drawing import draw_exchange as draw
from tacit.lab.one_shot.advising import advise, points
from tacit.lab.one_shot.settings import Family, Search, Setting
from tacit.lab.one_shot.trying import FILE, Trial, try_all, world_of

ALONE, RAW = Family("alone"), Family("raw")
FLIPS, ODDS, TRUE, PCA = (Family("flips", "trees"), Family("flips", "trees", 3.0), Family("true", "trees"),
                          Family("none", "pca"))  # fmt: skip
MATCHED = Family("split", "matched")


def trial(family, figure, worst=0.0, width=1, noise=0.0, seed=0):
    setting = Setting(family, width if family.bottom else 0, noise)
    auc = 0.6 if family.labels == "flips" else 0.5 if family.keeps_labels else 1.0
    odds = 1.5 if family == FLIPS else 3.0 if family == ODDS else 1.0 if auc == 0.5 else math.inf
    return Trial(setting, seed, figure, worst / 2, worst / 3, worst, auc, odds, 1.0)


BASE = [trial(ALONE, 0.66), trial(RAW, 0.84, 1.0), trial(TRUE, 0.83, 0.7)]


def advice(*more, limit=None, given=True):
    found = points([*BASE, *more])
    return advise(found, label_limit=0.6, feature_limit=limit, given=given)


def test_the_best_that_holds_both_limits_is_taken():
    told = advice(trial(FLIPS, 0.76, 0.5), trial(FLIPS, 0.80, 0.9, width=8), trial(PCA, 0.75, 0.95, width=8), limit=0.6)
    assert told.chosen.setting == Setting(FLIPS, 1)
    said = " ".join(told.sentences)
    assert "Take flips, trees, 1 number: test AUC 0.760" in said
    assert "No embedding without labels holds the feature limit" in said
    assert "Split training" not in said
    assert "0.100 better than no partner" in said
    assert "0.080 worse than no protection" in said
    assert told.as_dict()["chosen"]["odds"] == 1.5


def test_where_features_are_no_secret_no_label_is_sent():
    told = advice(trial(FLIPS, 0.801, 0.9, width=8), trial(PCA, 0.80, 1.0, width=8))
    assert told.chosen.setting.family == PCA
    assert "send no label at all" in told.sentences[1]
    assert "send no label" not in " ".join(
        advice(trial(FLIPS, 0.82, 0.9, width=8), trial(PCA, 0.80, 1.0, width=8)).sentences
    )


def test_one_number_is_enough_where_more_bring_nothing():
    told = advice(trial(FLIPS, 0.80, 0.5), trial(FLIPS, 0.803, 0.9, width=8), trial(PCA, 0.70, 0.4))
    assert told.chosen.setting.width == 1
    assert any(one.startswith("One number is enough: 8 have 0.803") for one in told.sentences)


def test_odds_that_bring_something_and_odds_that_do_not():
    some, none = (advice(trial(FLIPS, 0.76, 0.5), trial(ODDS, figure, 0.5)) for figure in (0.79, 0.761))
    assert any("odds of 3 instead of 1.5 are worth 0.030" in one for one in some.sentences)
    assert any("bring nothing over the symmetric coin" in one for one in none.sentences)


def test_flips_that_a_label_free_embedding_of_no_more_leak_beats_are_named():
    told = advice(trial(FLIPS, 0.76, 0.5), trial(FLIPS, 0.77, 0.9, width=8), trial(PCA, 0.79, 0.8, width=8))
    assert any("tells no more than: flips, trees, 8 numbers." in one for one in told.sentences)
    assert "tells no more" not in " ".join(advice(trial(FLIPS, 0.76, 0.5), trial(PCA, 0.79, 0.8)).sentences)


def test_split_training_is_never_taken_and_what_it_told_is_said():
    split = [replace(trial(MATCHED, 0.83, 0.9, seed=seed), auc=0.58 + seed / 100) for seed in range(3)]
    told = advice(trial(FLIPS, 0.76, 0.5), *split)
    assert told.chosen.setting.family == FLIPS
    assert "promise of 0.6 has 0.830" in told.sentences[-1]
    assert "with AUC 0.600" in told.sentences[-1]  # the largest of the seeds
    assert not points(split)[0].frontier


def test_without_a_gain_one_does_without_the_partner():
    told = advice(trial(FLIPS, 0.70, 0.5), trial(PCA, 0.66, 0.1), limit=0.2, given=False)
    assert told.chosen is None
    assert "Do without the partner" in told.sentences[0]
    assert "--given" in told.sentences[-1]
    with pytest.raises(UsageError, match="feature-limit"):
        advice(limit=0.0)


def test_seeds_have_an_interval_and_their_worst_counts():
    (point,) = points([trial(FLIPS, 0.7, 0.3), trial(FLIPS, 0.8, 0.5, seed=1)])
    assert (point.figure.value, point.worst, point.seeds) == (pytest.approx(0.75), 0.5, 2)
    assert point.figure.high - point.figure.value == pytest.approx(12.7062 * 0.05, rel=1e-4)  # Student's t
    assert points([trial(FLIPS, 0.7)])[0].as_dict()["figure"] == {"value": 0.7, "low": None, "high": None}


def test_the_frontier_has_no_better_neighbour_that_tells_less():
    found = points([*BASE, trial(FLIPS, 0.76, 0.5), trial(PCA, 0.75, 0.6), trial(PCA, 0.80, 0.9, width=8)])
    assert [point.setting.words for point in found if point.frontier] == [
        "no partner", "flips, trees, 1 number", "no label, pca, 8 numbers",
    ]  # fmt: skip


def test_a_search_tries_every_width_and_noise_on_the_narrowest():
    search = Search(odds=3.0, widths=(4, 1), noises=(2.0,))
    assert [family.words for family in search.families()] == [
        "no partner", "true labels, raw columns", "split, no protection", "split, matched", "true labels, trees",
        "flips, trees", "flips, odds 3, trees", "no label, pca", "no label, waist", "no label, clusters",
    ]  # fmt: skip
    assert [family.words for family in replace(search, rivals=("split",)).families()] == [
        "no partner", "split, no protection", "split, matched", "flips, trees", "flips, odds 3, trees",
    ]  # fmt: skip
    assert [one.words for one in search.forms(MATCHED)] == ["split, matched, 128 numbers"]
    assert [(one.width, one.noise) for one in search.forms(FLIPS)] == [(1, 2.0), (1, 0.0), (4, 0.0)]
    assert len(search.forms(ALONE)) == 1


@pytest.mark.parametrize(
    "wrong",
    [{"label_limit": 0.5}, {"odds": 1.0}, {"widths": (0,)}, {"widths": ()}, {"learners": ("forest",)},
     {"rivals": ("lake",)}, {"widths": (129,)}, {"noises": (-1.0,)}, {"seeds": 0}, {"attack_rows": 10}],
)  # fmt: skip
def test_a_search_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(UsageError):
        Search(**wrong)


SMALL = Search(widths=(1,), noises=(), learners=("linear",), attack_rows=1000,
               rivals=("raw", "split", "true", "pca"))  # fmt: skip


@pytest.fixture(scope="module", name="tried")
def _tried(tmp_path_factory):
    out, told = tmp_path_factory.mktemp("tried"), []
    world = world_of(load("generated:credit", rows=1500))
    trials = try_all(world, SMALL, out, progress=lambda *of: told.append(of))
    return world, out, trials, told


def test_pictures_are_for_split_training():
    data = load("generated:credit", rows=1500)
    with pytest.raises(UsageError, match="holds pictures, and one exchange takes tables"):
        world_of(replace(data, inputs=Pictures(1, 8)))


def test_everything_is_tried_once_and_kept(tried):
    world, out, trials, told = tried
    assert [one.setting.family.labels for one in trials] == [
        "alone", "raw", "split", "split", "true", "flips", "none",
    ]  # fmt: skip
    assert told[-1] == ("done", 7, 7)
    assert all(0.3 < one.figure < 1 for one in trials)
    certified = [one.auc for one in trials if one.setting.family.labels != "split"]
    assert certified == pytest.approx([0.5, 1.0, 1.0, 0.6, 0.5], abs=1e-4)
    bare, matched = trials[2:4]
    assert bare.auc > 0.9, "bare gradients tell fair coins"
    assert matched.auc < 0.6 + 5 * 0.026, "five errors of an AUC of 500 canaries"
    assert (bare.setting.width, bare.odds) == (128, math.inf)
    assert trials[0].worst == 0
    assert all(0 < one.worst <= 1 for one in trials[1:])
    before = (out / FILE).read_text()
    (out / FILE).write_text(before + '{"cut by a ki')
    again = try_all(world, SMALL, out)
    assert again == trials
    assert (out / FILE).read_text() == before + '{"cut by a ki', "nothing was tried again"
    with pytest.raises(UsageError, match="another label_limit"):
        try_all(world, Search(label_limit=0.7, widths=(1,)), out)


def test_it_is_drawn(tried, tmp_path):
    found = points(tried[2])
    told = advise(found, label_limit=0.6, feature_limit=0.9)
    path = draw(found, tmp_path / "picture.svg", title="credit", advice=told)
    drawn = ElementTree.parse(path)
    sent = [point for point in found if point.setting.family.bottom]
    assert len(drawn.findall(".//{*}circle")) >= 2 * len(sent) > 0, "each setting stands in both panels"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments], terminal_width=100)


def test_the_command_says_what_to_take(tmp_path):
    small = ("choose", "--data", "generated:credit", "--rows", "1500", "--label-limit", "0.9", "--widths", "1",
             "--noise", "", "--learners", "linear", "--attack-rows", "1000", "--threads", "1",
             "--compare", "raw,true,pca,waist,clusters", "--out", tmp_path)  # fmt: skip
    done = invoke(*small, "--json", "--quiet")
    assert done.exit_code in (0, 1), done.output
    told = json.loads(done.stdout)
    assert (told["label_limit"], told["feature_limit"], len(told["settings"])) == (0.9, None, 7)
    assert done.exit_code == (told["chosen"] is None)
    assert (tmp_path / "choose-one-shot.svg").exists()
    again = invoke(*small, "--feature-limit", "0.5", "--quiet")
    words = " ".join(again.output.split())
    for part in ("flips, linear", "no label, waist", "Do without the partner", "--given", "none is better"):
        assert part in words, again.output
    swept = invoke("sweep", *small[1:], "--quiet")
    assert swept.exit_code == 0, swept.output
    assert "no label, waist" in swept.output
    assert "Do without" not in swept.output
    whole = json.loads(invoke("sweep", *small[1:], "--json", "--quiet").stdout)
    assert whole["settings"] == told["settings"]
    assert (tmp_path / "sweep-one-shot.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--odds", "3"), "--label-limit"),
        (("--label-limit", "0.6", "--widths", "1.5"), "whole numbers"),
        (("--label-limit", "0.6", "--noise", "much"), "numbers"),
        (("--label-limit", "0.6", "--feature-limit", "2"), "feature-limit"),
        (("--feature-limit", "0.5"), "--label-limit"),
        (("--label-limit", "0.6", "--compare", "lake"), "no rival 'lake'"),
    ],
)
def test_wrong_options_are_said_before_the_data_is_read(arguments, match, tmp_path):
    done = invoke("choose", *arguments, "--out", tmp_path)
    assert isinstance(done.exception, UsageError)
    assert match in str(done.exception)
