"""CITATION.cff: what the Citation File Format 1.2 asks for, and what the package says of itself."""

import tomllib
from pathlib import Path

import pytest
import yaml

from papers.bibliography import PAPERS
from tacit import __version__

ROOT = Path(__file__).parents[2]
KEYS = {
    "cff-version",
    "message",
    "title",
    "abstract",
    "type",
    "authors",
    "version",
    "license",
    "keywords",
    "references",
}


@pytest.fixture(scope="module", name="cited")
def _cited():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text())


def named(author):
    """An entity has a name, a person at least a family name."""
    return set(author) in ({"name"}, {"family-names", "given-names"}) and all(author.values())


def test_it_has_what_the_format_asks_for(cited):
    assert set(cited) == KEYS, "keys are those of CFF 1.2: look them up before you add one"
    assert cited["cff-version"] == "1.2.0"
    assert cited["type"] == "software"
    assert all(isinstance(cited[key], str) for key in ("message", "title", "abstract", "version", "license"))
    for work in (cited, *cited["references"]):
        assert work["title"]
        assert work["authors"]
        assert all(named(author) for author in work["authors"])
    assert {work["type"] for work in cited["references"]} == {"conference-paper", "report"}


def test_it_says_what_the_package_says(cited):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["version"] == __version__
    assert cited["license"] == project["license"]
    assert [author["name"] for author in cited["authors"]] == [author["name"] for author in project["authors"]]


def test_the_papers_have_the_authors_and_years_of_the_bibliography(cited):
    cited_as = {work["title"]: work for work in cited["references"]}
    for key in ("Li 2022", "Report 2020a", "Report 2020b"):
        work = cited_as.pop(PAPERS[key].title)
        names = [f"{author['given-names']} {author['family-names']}" for author in work["authors"]]
        assert ", ".join(names) == PAPERS[key].authors, key
        assert str(work["year"]) == key.split()[1].rstrip("ab"), key
    assert not cited_as
