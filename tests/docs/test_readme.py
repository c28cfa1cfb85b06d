"""README: short, two ways of equal rank, and figures that are those of `docs/comparison.json`."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.comparison import page
from benchmarks.comparison.table import ROWS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}


@pytest.fixture(scope="module", name="document")
def _document():
    return json.loads((ROOT / "docs" / "comparison.json").read_text())


def test_it_is_short_and_names_both_ways_alike():
    assert len(README.splitlines()) <= 200
    two = README.partition("## Two ways to train")[2].partition("\n## ")[0]
    assert two.index("**Split learning**") < two.index("**One exchange**") < two.index("**Neither of them**")


def test_the_table_has_every_row_and_the_figures_that_were_measured(document):
    text = README.partition("<!-- table: comparison -->")[2].partition("<!-- end -->")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.strip().splitlines()[2:]]
    names = [name for name in ROWS if name in document["rows"] and name != "untrained"]
    assert len(lines) == len(names)
    for name, line in zip(names, lines, strict=True):
        row = document["rows"][name]
        way, source, papers, worst, bound, features, worth, size = line
        assert way.startswith(ROWS[name].words)
        assert source == ROWS[name].source
        assert worth == f"{row['test_auc']['mean']:.3f} ± {row['test_auc']['half']:.3f}"
        if row["worst"]:
            assert f"`{row['setting']['name']}" in way
            assert papers == f"{row['norm']:.2f}, {row['cosine']:.2f}"
            assert worst == f"{row['worst']['leak_auc']:.2f} {row['worst']['attack']}"
        else:
            assert papers == worst == ""
        assert bound == (f"{row['bound']['leak_auc']:.2f}" if row["bound"] else "")
        assert features == (f"{row['features']['worst']:.2f}" if row["features"] else "")
        number, _, unit = size.partition(" ")
        sent = sum(row["bytes"].values())
        assert float(number or 0) * {"MB": 1e6, "kB": 1e3, "": 1}[unit] == pytest.approx(sent, rel=0.02)


def test_what_the_text_says_of_rows_seeds_and_epochs_is_what_was_measured(document):
    common = document["common"]
    text = " ".join(README.split())
    seeds = {len(row["seeds"]) for row in document["rows"].values()}
    assert len(seeds) == 1
    assert f"{common['training_rows'] + common['test_rows']:,} flights, {WORDS[seeds.pop()]} seeds" in text
    assert f"{WORDS[common['split']['epochs']]} epochs" in text
    assert f"holds {common['limit']:g} against all attacks" in text
    assert f"`limit = {common['limit']:g}` and `odds = {common['odds']:g}`" in text
    for row in document["rows"].values():
        assert set(row["measured"]) == {"command", "machine", "version", "torch", "date"}


def test_the_picture_is_drawn_from_the_same_file_for_light_and_dark_ground(document):
    text = (ROOT / "docs" / "images" / "comparison.svg").read_text()
    assert text == page.drawn(document)
    picture = ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    assert float(picture.get("viewBox").split()[2]) <= 480, "letters can be read on a phone"
    described = picture.find("{http://www.w3.org/2000/svg}desc").text
    for name in {"iso", "max_norm", "marvell", "matched"} & set(document["rows"]):
        for point in document["rows"][name]["curve"]:
            assert f"the best of all {point['worst']['leak_auc']:.2f}" in described
    assert "docs/images/comparison.svg" in README


def test_acts_are_shown_as_the_demo_printed_them(document):
    shown = README.partition("<!-- table: demo -->")[2].partition("<!-- end -->")[0].splitlines()
    printed = [line for act in document["demo"]["acts"] for line in act.splitlines()]
    acts = [line for line in shown if line and not line.startswith("```")]
    assert [line.split()[1] for line in acts if line.lstrip().startswith("Act")] == ["2.", "3."]
    assert all(line in printed for line in acts)


def test_what_the_text_says_of_the_table_is_so(document):
    """That Marvell falls to `likelihood` at every strength, and what it costs to hold the papers' two attacks."""
    rows = document["rows"]
    untrained = rows["untrained"]["test_auc"]
    assert f"gets no gradient at all ({untrained['mean']:.3f})" in " ".join(README.split())
    for name in ("max_norm", "marvell"):
        assert abs(rows[name]["test_auc"]["mean"] - untrained["mean"]) < untrained["half"]
    for point in rows["marvell"]["curve"]:
        assert point["worst"]["attack"] == "likelihood"
        assert point["worst"]["leak_auc"] > 0.995
