"""The docs are part of the product: their code runs, their links lead somewhere, their tables are up to date."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.report.document import Report

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{i}")
    for page in PAGES
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_code_in_the_docs_runs(block, capsys):
    names: dict[str, object] = {}
    exec(compile(block, "docs", "exec"), names)
    assert set(names) - {"__builtins__"}, "the block did nothing"


def test_there_are_code_blocks():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), f"{page.name} links to {target}"


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_docs.py", "--check"], capture_output=True, text=True
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
