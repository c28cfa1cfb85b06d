"""The pictures: what stands where, whatever the values are."""

import re
from xml.etree import ElementTree

import pytest

from tacit.report.document import LiveCurve
from tacit.report.measures import MEASURES, Judged
from tacit.report.plots import Mark, curves, interval, scale
from tacit.report.scatters import Dot, Panel, tradeoff_file
from tacit.report.svg import Axis, at, el, near, stretched, ticks

AUC, READ = MEASURES["leak_auc"], MEASURES["variance_read"]


def test_elements_escape_what_they_hold():
    assert el("text", "<b>&", class_="a", text_anchor="\"'") == (
        '<text class="a" text-anchor="&#34;&#39;">&lt;b&gt;&amp;</text>'
    )
    assert el("g", el("rect", x=1), y=None) == '<g><rect x="1"></rect></g>'


@pytest.mark.parametrize(
    ("low", "high", "most", "marks"),
    [
        (0.5, 1.0, 5, [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        (0, 37_000, 5, [0, 10_000, 20_000, 30_000]),
        (0.6912, 0.7512, 5, [0.7, 0.72, 0.74]),
        (3, 3, 5, [3]),
    ],
    ids=["auc", "steps", "utility", "one"],
)
def test_ticks_are_round(low, high, most, marks):
    assert list(ticks(low, high, most)) == marks


@pytest.mark.parametrize(("share", "said"), [(-3.0, "0.00%"), (0.123456, "12.35%"), (7.0, "100.00%")])
def test_nothing_stands_outside(share, said):
    assert at(share) == said


def test_labels_at_the_edges_grow_inwards():
    assert [near(0.0), near(0.5), near(1.0)] == ["start", "middle", "end"]


def test_a_curve_breaks_where_nothing_is_known():
    assert 'd="M0.00 50.00L50.00 50.00M100.00 0.00"' in stretched([(0, 0.5), (0.5, 0.5), None, (1, 0)], "a")


@pytest.mark.parametrize(("measure", "place"), [(AUC, "10.00%"), (READ, "55.00%")], ids=["auc", "read"])
def test_the_scale_begins_where_nothing_is_learnt(measure, place):
    drawn = scale(measure, Judged(0.55, 0.5, 0.6), title="t")
    assert f'<circle cx="{place}"' in drawn
    assert "beyond" not in drawn


def test_what_lies_beyond_the_limit_is_shaded():
    drawn = scale(AUC, None, [Mark("limit", 0.6, "limit")], title="t")
    assert re.search(r'<rect x="20.00%"[^>]* class="beyond" width="80.00%"', drawn)
    assert ">limit 0.600</text>" in drawn
    assert "<circle" not in drawn


def test_no_two_labels_of_a_scale_meet():
    drawn = scale(AUC, None, [Mark("worst case", 0.7), Mark("budget", 0.7, "limit")], title="t")
    heights = re.findall(r'dy="(\d+)" text-anchor="\w+" class="\w+ name"', drawn)
    assert len(heights) == len(set(heights)) == 2


@pytest.mark.parametrize(("high", "over"), [(0.6, False), (0.601, True)])
def test_an_interval_over_the_limit_is_marked_and_said(high, over):
    drawn = interval("a", AUC, Judged(0.55, 0.5, high), 0.6)
    assert ("range over" in drawn) is over
    assert (", over the limit" in drawn) is over


def test_long_curves_keep_their_highest_points():
    values = [0.5] * 10_000
    values[7_777] = 0.9
    drawn = curves(AUC, [LiveCurve(attack="a", steps=tuple(range(10_000)), values=tuple(values))], 0.6)
    path = re.search(r' d="([^"]+)"', drawn)
    assert path is not None
    heights = [float(one) for one in re.findall(r"[ML][\d.]+ ([\d.]+)", path[1])]
    assert len(heights) <= 150
    assert min(heights) == pytest.approx(20.0)  # 0.9 on an axis from 0.5 to 1


@pytest.mark.parametrize("limit", [None, 0.6], ids=["free", "limit"])
def test_one_point_is_enough(limit):
    assert "nan" not in curves(AUC, [LiveCurve(attack="a", steps=(1,), values=(0.5,))], limit)
    assert "<circle" in curves(AUC, [LiveCurve(attack="a", steps=(1,), values=(0.5,))], limit)  # a line can't be seen
    assert "<circle" not in curves(AUC, [LiveCurve(attack="a", steps=(1, 2), values=(0.5, 0.6))], limit)


def test_settings_side_by_side_are_a_file_that_brings_all_it_needs():
    dots = [Dot(0.6, 0.7, across=(0.55, 0.7)), Dot(0.8, 0.75, "<2>", up=(0.74, 0.76))]
    chosen = Panel("leak", {"no protection": [Dot(1.0, 0.8)], "<b>&": dots}, Axis(0.5, 1.0), 0.65, (dots[0], False))
    text = tradeoff_file(
        "a & b", [chosen, Panel("mean", {"<b>&": dots}, Axis(0, 1))], worth="AUC", levels={"alone": 0.6}
    )
    drawn = ElementTree.fromstring(text)
    circles = [one.get("class") for one in drawn.findall(".//{*}circle")]
    assert circles.count("dots s2") == 5, "two in each panel, and one in the key"
    assert circles.count("dots bare") == 2
    assert circles.count("ring bad") == 2
    assert "prefers-color-scheme: dark" in text
    words = [one.text for one in drawn.findall(".//{*}text")]
    assert {"a & b", "<b>&", "<2>", "limit 0.650", "alone: 0.600", "leak", "mean"} <= set(words)
    whiskers = [(one.get("x1"), one.get("x2")) for one in drawn.findall(".//{*}line") if "whisker" in one.get("class")]
    assert whiskers[0] == ("10.00%", "40.00%")
    assert "nan" not in tradeoff_file("one", [Panel("leak", {"a": dots[:1]}, Axis(0.5, 1.0))], worth="AUC")
