"""Pages as documents: links and their anchors lead somewhere, generated ones are up to date, each is of one kind."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.audit.attacks import shipped
from tacit.config import FEATURE_LIMIT, party_template
from tacit.lab import demo
from tacit.report.document import Report

ROOT = Path(__file__).parent.parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("papers/*.md"), *DOCS])
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def prose(page):
    return CODE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())


def anchors(page):
    """Of its headings, as repositories' browsers and the site make them: small letters, hyphens for spaces."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    names = []
    for title in re.findall(r"^#+ +(.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names.append(f"{name}-{names.count(name)}" if name in names else name)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?://|mailto:", link):
            continue
        target, _, anchor = link.partition("#")
        found = page if not target else page.parent / target
        assert found.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(found), f"{page.name} links to {link}; there are {anchors(found)}"


def test_anchors_are_those_of_a_browser(tmp_path):
    (tmp_path / "page.md").write_text("# One `two`: *three*\n\n```sh\n# no heading\n```\n\n## Four\n\n## Four\n")
    assert anchors(tmp_path / "page.md") == ["one-two-three", "four", "four-1"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_rows_of_a_table_have_as_many_cells_as_its_head(page):
    width = None
    for number, line in enumerate(prose(page).splitlines(), start=1):
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert width is None or cells in (None, width), f"{page.name}, line {number}: {line}"
        width = cells


def test_a_number_of_attacks_is_the_one_that_the_code_counts():
    labels, inputs = shipped()
    counted = {str(labels), str(inputs), str(labels + inputs)}
    for page in PAGES:
        if page.name not in ("results.md", "ref-comparison.md", "CHANGELOG.md"):  # of runs, of others, of the past
            named = re.findall(r"\b(\d+)(?=\s+\[?(?:label )?attacks\b)|(?<=attacks shipped \| )(\d+)", prose(page))
            named = [one or other for one, other in named]
            assert {*named} <= counted, f"{page.name} names {named} attacks; there are {labels} and {inputs}"
    row = f"| attacks that come with it | {labels} on labels, {inputs} on inputs |"
    assert row in (ROOT / "docs" / "ref-comparison.md").read_text()


def test_every_picture_is_shown_somewhere():
    shown = "".join(page.read_text() for page in PAGES)
    for picture in (ROOT / "docs" / "images").glob("*.*g"):
        assert picture.name in shown, f"no page shows {picture.name}: delete it"


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_is_of_one_kind_and_has_a_title(page):
    assert page.name.startswith(("tutorial-", "howto-", "explain-", "ref-")) or page.stem in ("index", "results")
    assert len(re.findall(r"^# .+", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)) == 1


def test_the_index_has_five_parts_in_the_order_in_which_a_reader_asks():
    index = (ROOT / "docs" / "index.md").read_text()
    parts = ["Start", "Split learning: the papers", "One exchange", "Operate", "Look up"]
    assert re.findall(r"^## (.+)$", index, re.MULTILINE) == parts
    assert re.findall(r"^:caption: (.+)$", index, re.MULTILINE) == [part.partition(":")[0] for part in parts]


def test_security_says_whom_to_write_to_what_is_in_scope_and_what_is_experimental():
    parts = re.findall(r"^## (.+)$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    assert parts == ["Whom to write to", "What is in scope", "What is not", "What is experimental"]


def test_the_airports_limit_is_the_same_in_demo_template_and_tutorial():
    assert demo.LIMIT == FEATURE_LIMIT <= 0.9
    for mode in ("one_shot", "split"):
        assert f"\nlimit = {FEATURE_LIMIT} " in party_template("features", "airport", mode=mode)
    tutorial = (ROOT / "docs" / "tutorial-one-shot.md").read_text()
    assert f"`limit = {FEATURE_LIMIT}`" in tutorial


def test_the_index_names_every_tutorial_and_how_to():
    listed = (ROOT / "docs" / "index.md").read_text().splitlines()
    for page in DOCS:
        if page.name.startswith(("tutorial-", "howto-")):
            assert page.stem in listed, f"add {page.stem} to docs/index.md"


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_docs.py", "--check"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_the_published_schema_is_that_of_reports():
    published = json.loads((ROOT / "docs" / "report-schema.json").read_text())
    assert published == Report.model_json_schema()


def test_commands_of_the_readme_exist():
    targets = set(re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def test_the_patent_note_is_where_users_look():
    for page in ("NOTICE", "docs/explain-matched.md"):
        text = (ROOT / page).read_text()
        assert "patents were" in text.lower().replace("\n", " ")
        assert "max_norm" in text
        assert "marvell" in text
