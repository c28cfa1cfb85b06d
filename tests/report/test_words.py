"""The sentences of a report: true in every state, and what is empty says why."""

import html

import pytest

from tacit.report.document import Leak, LiveCurve, Report, Subject
from tacit.report.measures import MEASURES, Judged, judged
from tacit.report.rendering import render
from tacit.report.words import headline, over_limit, signed, spelled


def changed(report, **changes):
    return Report(**{**dict(report), **changes})


def one_attack(value, half=0.01, baseline=None, limit=0.6, verdict="held", measure="leak_auc"):
    figures = {"value": value, "low": value - half, "high": value + half}
    worst = leak = Leak(attack="a", on="batches", measure=measure, baseline=baseline, **figures)
    side = "label" if measure == "variance_read" else "features"
    return Report(
        made="now",
        subject=Subject(kind="run", side=side, run="r"),
        limit=limit,
        verdict=verdict,
        worst=worst,
        leaks=(leak,),
    )


@pytest.mark.parametrize(
    ("report", "stamp", "tone", "verdict"),
    [
        pytest.param(
            one_attack(0.537),
            "Limit held",
            "good",
            "The limit of 0.600 was held: the one attack that ran guesses right 54 times in 100.",
            id="held",
        ),
        pytest.param(
            one_attack(0.997, verdict="broken"),
            "Limit broken",
            "bad",
            "The limit of 0.600 was broken: the one attack that ran guesses right more than 99 times in 100.",
            id="broken",
        ),
        pytest.param(
            one_attack(0.595, verdict="broken"),
            "Limit broken",
            "bad",
            "The limit of 0.600 was broken: the one attack that ran guesses right 60 times in 100, and 0.605 can't be "
            "ruled out.",
            id="interval",
        ),
        pytest.param(
            one_attack(0.55, verdict="broken"),
            "Limit broken",
            "bad",
            "The limit of 0.600 was broken: the one attack that ran guesses right 55 times in 100, but the limit was "
            "passed while training ran.",
            id="earlier",
        ),
        pytest.param(
            one_attack(0.74, baseline=0.71),
            "Limit held",
            "good",
            "The limit of 0.600 was held: the one attack that ran guesses right 74 times in 100 (71 times in 100 "
            "without any message).",
            id="baseline",
        ),
        pytest.param(
            one_attack(0.7, limit=None, verdict="no limit"),
            "No limit set",
            "bad",
            "No limit was set; the one attack that ran guesses right 70 times in 100.",
            id="no limit",
        ),
        pytest.param(
            one_attack(0.55, verdict="not judged"),
            "Not judged",
            "open",
            "Whether the limit of 0.600 was held can't be said, because not everything was tested; the one attack that "
            "ran guesses right 55 times in 100.",
            id="not judged",
        ),
        pytest.param(
            one_attack(0.004, measure="variance_read", half=0.001),
            "Limit held",
            "good",
            "The limit of 0.600 was held: the one attack that ran reads less than 1% of the columns.",
            id="features",
        ),
    ],
)
def test_the_verdict_is_one_sentence(report, stamp, tone, verdict):
    head = headline(report)
    assert (head.stamp, head.tone, head.verdict) == (stamp, tone, verdict)
    assert head.verdict in render(report).replace("&#39;", "'")


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (one_attack(0.97, verdict="broken"), "Nearly everything of the labels can be recovered."),
        (one_attack(0.93, limit=0.95, measure="variance_read"), "Nearly everything of the columns can be recovered."),
        (one_attack(0.9), ""),
    ],
)
def test_what_reads_nearly_everything_is_told_in_red_whatever_the_limit_is(report, words):
    assert headline(report).alarm == words
    assert (f'<p class="alarm">{words}</p>' in render(report)) == bool(words)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({}, ""),
        (
            {"role": "label", "label": "Gebucht am", "positive": "ja", "ids": ("Kunde", "Filiale")},
            "About the label 'Gebucht am', of which 'ja' counts as 1, in kunden.csv: of the 1,567 rows that bank has "
            "as well by 'Kunde' and 'Filiale'.",
        ),
        (
            {"role": "label", "label": "tier", "classes": ("none", "basic", "gold"), "ids": ("id",)},
            "About the label 'tier', which is one of 'none', 'basic' and 'gold', in kunden.csv: of the 1,567 rows that "
            "bank has as well by 'id'.",
        ),
        (
            {"role": "features", "columns": tuple("abcdefgh"), "ids": ("id",)},
            "About 8 columns ('a', 'b', 'c', 'd', 'e' and 3 more) in kunden.csv: of the 1,567 rows that bank has as "
            "well by 'id'.",
        ),
    ],
)
def test_what_a_report_is_about_is_one_sentence(about, words):
    more = {"common": 1567, "table": "kunden.csv", "peers": ("bank",), **about} if about else {}
    report = changed(one_attack(0.55), subject=Subject(kind="run", side="features", run="r", **more))
    assert signed(report) == words
    assert words in html.unescape(render(report))


def test_a_baseline_is_taken_off_and_said():
    report = one_attack(0.74, baseline=0.71)
    head = headline(report)
    assert head.figure is not None
    assert head.figure.value == pytest.approx(0.53)
    assert (head.figure.low, head.figure.high) == (pytest.approx(0.52), pytest.approx(0.54))
    assert "0.500 + 0.740 − 0.710" in " ".join(head.meaning)
    assert not over_limit(report)  # 0.75 is above 0.6, but not what the messages add


def test_what_is_judged_starts_where_nothing_is_learnt():
    leak = Leak(attack="a", on="batches", measure="variance_read", value=0.5, low=0.4, high=0.6, baseline=0.3)
    assert judged(leak).value == pytest.approx(0.2)


def test_the_best_of_many_attacks(reports):
    assert "the best of 9 attacks guesses right 55 times in 100" in headline(reports["full"]).verdict


@pytest.mark.parametrize(
    ("value", "said"), [(0.5, "50 times"), (1.0, "100 times"), (0.9951, "more than 99 times"), (0.644, "64 times")]
)
def test_times_in_a_hundred(value, said):
    assert f"guesses right {said}" in MEASURES["leak_auc"].reaches(value)


def test_figures_of_models_are_spelled():
    assert spelled("test_auc") == "test AUC"
    assert spelled("test_loss") == "test loss"


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("minimal", {}, "No attack could run"),
        ("minimal", {}, "No limit was set by the owner"),
        ("minimal", {}, "No epoch was finished"),
        ("minimal", {}, "Nothing was measured while training ran"),
        ("minimal", {}, "No model was released"),
        ("minimal", {}, "attacks that nobody has thought of"),
        ("minimal", {}, "no gate decided anything"),
        ("minimal", {}, "The report names no command"),
        ("foreign", {}, "Files hold messages, not a training"),
        ("full", {"decisions": ()}, "The gate made no decision"),
        ("full", {"curves": ()}, "Nothing was measured while training ran"),
    ],
)
def test_what_is_empty_says_why(name, changes, told, reports):
    assert told in " ".join(render(changed(reports[name], **changes)).split())


def test_epochs_over_the_limit_are_counted(reports):
    assert "In 4 of 8 epochs the worst attack could have reached over the limit" in render(reports["full"])
    assert "could have reached over the limit" not in render(reports["features"])


def test_overrides_stand_on_the_first_page(reports):
    head, _, _ = render(reports["broken"]).partition("<section")
    assert "1 override on record" in head
    assert "override" not in render(reports["full"]).partition("<body>")[2].partition("<section")[0]


def test_long_lists_are_cut_and_say_so(reports):
    page = render(reports["long"])
    assert "183 ordinary epochs are left out here" in page
    assert "worst q95 after epoch 61 (and 139 more: see report.json)" in page
    assert page.count('<span class="tag resume">') == 3
    assert page.count('scope="row" data-label="Attack"') == 100
    assert len(page) < 500_000


def test_a_model_that_is_not_tested_in_every_epoch(reports):
    long = reports["long"]
    some = [one.model_copy(update={"figures": {"test_auc": 0.7} if one.epoch == 3 else {}}) for one in long.moments]
    assert "0.700" in render(changed(long, moments=tuple(reversed(some))))
    many = [long.moments[0].model_copy(update={"epoch": i}) for i in range(1, 5_001)]
    assert len(render(changed(long, moments=tuple(many)))) < 500_000


@pytest.mark.parametrize(
    "changes", [{"limit": None}, {"worst": None}, {"limit": float("nan")}], ids=["limit", "worst", "nan"]
)
def test_a_verdict_without_its_grounds_is_refused(changes, reports):
    with pytest.raises(ValueError, match=r"no limit|no attack ran|finite"):
        changed(reports["full"], **changes)


def test_figures_are_finite():
    with pytest.raises(ValueError, match="finite"):
        Leak(attack="a", on="live", value=float("nan"), low=0.5, high=0.6)


def test_a_curve_has_a_value_for_each_step():
    with pytest.raises(ValueError, match="2 steps and 1 values"):
        LiveCurve(attack="a", steps=(1, 2), values=(0.5,))


def test_what_single_batches_reach_counts_too():
    report = one_attack(0.57, verdict="broken")
    loud = report.leaks[0].model_copy(update={"quantile": 0.62})
    report = changed(report, leaks=(loud,))
    assert over_limit(report) == [loud]
    assert headline(report).verdict.endswith("57 times in 100, and 0.620 can't be ruled out.")
    page = render(report)
    assert "95% of batches under 0.620" in page
    assert "over the limit" in page


def test_who_does_worse_with_messages_learns_nothing():
    (leak,) = one_attack(0.62, baseline=0.69).leaks
    assert judged(leak) == Judged(0.5, 0.5, 0.5, 0.69)
    page = render(one_attack(0.62, baseline=0.69))
    assert "0.690 without messages, 0.620 with them (0.610 to 0.630)" in page


def test_code_names_are_not_for_readers():
    leak = one_attack(0.55).leaks[0].model_copy(update={"knows": "the gradients; known.labels.", "costs": "`k` passes"})
    page = render(changed(one_attack(0.55), leaks=(leak,)))
    assert "the gradients; the labels that it is told." in page
    assert "known.labels" not in page
    assert "k passes" in page
