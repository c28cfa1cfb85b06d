"""`tacit explain`: pages and docstrings in the terminal."""

import io
import json
import os
import pydoc
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import tacit
from tacit.audit import attacks, input_attacks
from tacit.cli import app
from tacit.cli.explain import _ALIASES, KINDS, find, text_of, topics
from tacit.errors import UsageError
from tacit.protect import embedding, gradient

DOCS = Path(__file__).parent.parent / "docs"


def invoke(*words, **options):
    return CliRunner().invoke(app, ["explain", *words], **options)


def test_every_page_is_a_topic():
    pages = {one.page for one in topics()}
    assert {path.stem for path in DOCS.glob("*.md")} - {"index"} <= pages
    assert (Path(tacit.__file__).parent / "docs").is_symlink(), "the pages of the package are those of the repository"
    assert {one.kind for one in topics()} == set(KINDS)


def test_every_protection_attack_and_metric_is_a_topic():
    known = {one.name for one in topics()}
    assert {*gradient.names(), *embedding.names(), *attacks.names(), *input_attacks.names(), "leak_auc"} <= known
    for one in topics():
        assert one.about, one.name
        assert len(one.about) < 160, one.name


@pytest.mark.parametrize(
    "name", ["leak-auc", "leak_auc", "explain-what-leaks", "explain-what-leaks.md", "LEAK-AUC", "auc"]
)
def test_a_page_by_all_its_names(name):
    text = text_of(find(name))
    assert (DOCS / "explain-what-leaks.md").read_text().splitlines()[0] in text


def test_a_protection_says_what_it_does():
    said = invoke("marvell").output
    assert "## `marvell`: protections of the gradient" in said
    assert gradient.marvell.marvell.__doc__.splitlines()[0] in said


def test_a_page_and_a_protection_of_one_name_are_both_shown():
    said = invoke("matched").output
    assert (DOCS / "explain-matched.md").read_text().splitlines()[0] in said
    assert "## `matched`: protections of the gradient" in said


def test_links_become_commands_and_pictures_words():
    text = text_of(topics())
    assert not re.search(r"\]\([a-z0-9-]+\.md", text)
    assert "<!--" not in text
    assert "![" not in text
    assert "(`tacit explain protections`)" in text


def test_aliases_lead_somewhere():
    assert set(_ALIASES.values()) <= {one.name for one in topics()}
    assert find("limit")[0].page == "howto-set-a-limit"


@pytest.mark.parametrize("width", [60, 80])
def test_the_list_is_grouped_and_fits(width):
    done = invoke(env={"COLUMNS": str(width)})
    assert done.exit_code == 0
    assert max(map(len, done.output.splitlines())) <= width
    places = [re.search(rf"^ *{kind} *$", done.output, re.MULTILINE).start() for kind in KINDS]
    assert places == sorted(places)
    assert "what-leaks" in done.output


def test_json():
    found = json.loads(invoke("residual", "--json").stdout)
    assert (found["topic"], found["page"]) == ("residual", "ref-attacks")
    assert "residual" in found["text"]
    listed = json.loads(invoke("--json").stdout)
    assert {"topic": "residual", "kind": "Attacks on labels"}.items() <= next(
        one for one in listed if one["topic"] == "residual"
    ).items()


@pytest.mark.parametrize(("asked", "meant"), [("marvel", "marvell"), ("resdual", "residual"), ("strenth", "strength")])
def test_an_unknown_topic_names_the_nearest(asked, meant):
    with pytest.raises(UsageError, match=rf"no topic '{asked}': did you mean .*{meant}"):
        find(asked)


def test_on_a_terminal_the_page_is_drawn(monkeypatch):
    screen = Console(file=io.StringIO(), width=80, height=10_000, force_terminal=True)
    module = sys.modules["tacit.cli.explain"]  # in the package the name is the verb's
    monkeypatch.setattr(module, "console", lambda most: screen)
    module._show("# Head\n\nSome `code`.", paged=True)
    said = screen.file.getvalue()
    assert "Head" in said
    assert "#" not in said


def test_a_long_page_goes_through_a_pager_that_shows_colours(monkeypatch):
    """Less without -R shows them as ESC[1m."""
    shown = []
    monkeypatch.setenv("LESS", "")  # put back afterwards
    monkeypatch.delenv("LESS")
    monkeypatch.setattr(pydoc, "pager", lambda text: shown.append((text, os.environ.get("LESS"))))
    screen = Console(file=io.StringIO(), width=80, height=5, force_terminal=True)
    module = sys.modules["tacit.cli.explain"]
    monkeypatch.setattr(module, "console", lambda most: screen)
    module._show("# Head\n\n" + "A line.\n\n" * 20, paged=True)
    ((text, less),) = shown
    assert "\x1b[" in text
    assert less == "-R"
