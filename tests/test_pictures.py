"""The pictures of the docs come from runs of ours: the script still runs, and pages quote what it found."""

import importlib
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from tacit.audit.metrics.leak_auc import auc
from tacit.lab.data import flights

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
SETTINGS = ("0.5", "0.6", "0.8", "0.9")  # options and the coin flip: said in prose, measured nowhere


@pytest.fixture(scope="module", name="scripts")
def _scripts():
    """The script and its parts, which lie beside one another and not in a package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        yield importlib.import_module("make_pictures"), importlib.import_module("pictures_runs")


@pytest.fixture(scope="module", name="document")
def _document():
    return json.loads((IMAGES / "leaks.json").read_text())


def test_the_script_still_measures_what_the_pictures_need(scripts):
    _, runs = scripts
    sizes = runs.Sizes(rows=1200, epochs=2, batch=256, follow=256)
    data = flights.load(rows=sizes.rows, by_day=False)
    wanted = next(one for one in runs.settings(sizes) if one.kind == "matched")
    found = runs.measure(wanted, data, sizes)
    assert found["name"] in runs.shown(sizes)
    assert len(found["visits"]) == sizes.epochs
    assert set(found["histograms"]) == {"norm", "cosine", "residual"}
    for counted in found["histograms"].values():
        assert sum(counted["negative"]) == pytest.approx(1.0, abs=0.01)
        assert sum(counted["positive"]) == pytest.approx(1.0, abs=0.01)
    assert 0.5 <= found["worst"]["value"] <= found["worst"]["high"] <= 1.0
    assert found["worst"]["value"] == max(found["leaks"].values())


def test_proved_noise_is_what_its_proof_asks_for(scripts, seeded):
    """Two rows as far apart as clipping lets them be, over all visits: the best test has the AUC that was asked for."""
    _, runs = scripts
    proved, visits, count = runs.Proved.for_limit(0.9, 3), 3, 4000
    labels = (torch.arange(count) % 2).double()
    grad = torch.zeros(count, 8, dtype=torch.float64)
    grad[:, 0] = (2 * labels - 1) * 100  # far beyond the clip, in opposite directions
    noise = seeded(0)
    scores = sum(proved(grad, labels, noise).value[:, 0] for _ in range(visits))
    assert float(auc(scores, labels)) == pytest.approx(0.9, abs=0.02)


def test_the_committed_pictures_are_those_of_the_committed_figures(scripts, document):
    script, _ = scripts
    drawn = script.pictures(document)
    assert {path.name for path in IMAGES.glob("leaks-*.svg")} == set(drawn)
    for name, picture in drawn.items():
        assert (IMAGES / name).read_text() == picture, f"{name}: run python scripts/make_pictures.py --draw"


def test_pictures_are_small_and_tell_what_they_show(scripts, document):
    script, _ = scripts
    for name, picture in script.pictures(document).items():
        root = ElementTree.fromstring(picture)
        told = {child.tag.rpartition("}")[2]: child.text for child in root}
        assert told["title"], name
        assert told["desc"], name
        assert "prefers-color-scheme: dark" in picture
        assert len(picture) < 150_000
    assert sum(path.stat().st_size for path in IMAGES.glob("leaks*")) < 500_000


@pytest.mark.parametrize("name", ["explain-what-leaks.md", "explain-differential-privacy.md"])
def test_tables_of_the_pages_are_those_of_the_figures(scripts, document, name):
    script, _ = scripts
    page = (ROOT / "docs" / name).read_text()
    assert "<!-- table:" in page
    assert script.filled(page, script.tables(document)) == page


@pytest.mark.parametrize("name", ["explain-what-leaks.md", "explain-differential-privacy.md"])
def test_figures_of_the_prose_are_measured(scripts, document, name):
    """Each paragraph with figures names them before it; it holds those and no other."""
    script, _ = scripts
    known = script.quotable(document)
    page = re.sub(r"<!-- table:.*?<!-- end -->|```.*?```", "", (ROOT / "docs" / name).read_text(), flags=re.DOTALL)
    quoted = 0
    for paragraph in re.split(r"\n\n+", page):
        found = re.match(r"<!-- figures: (.*?) -->\n", paragraph)
        names = found[1].split() if found else []
        prose = re.sub(r"`[^`]*`|\([^)]*\.(?:md|svg)[^)]*\)", "", paragraph[found.end() :] if found else paragraph)
        numbers = set(re.findall(r"\b\d\.\d+\b", prose))
        spelled = {one: {f"{known[one]:.2f}", f"{known[one]:.3f}"} for one in names}
        for one, ways in spelled.items():
            assert ways & numbers, f"{one} = {known[one]} is not in: {prose}"
        strange = numbers - set().union(*spelled.values()) - set(SETTINGS)
        assert not strange, f"{strange} are measured nowhere: {prose}"
        quoted += len(names)
    assert quoted > 3
