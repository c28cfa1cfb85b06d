"""The tutorial on somebody else's system, word by word: its file is written and its commands are given."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "tutorial-audit-another-system.md"
BLOCKS = re.findall(r"^```(\w+) ?([^\n]*)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """Every file and command in its order; what was printed."""
    folder = tmp_path_factory.mktemp("tutorial")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    said = ""
    for language, name, text in BLOCKS:
        if name:
            (folder / name).write_text(text)
        elif language == "sh":
            done = subprocess.run(
                ["bash", "-ec", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=100
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            said += done.stdout
    return folder, said


def test_both_audits_break_the_limit(followed):
    _, said = followed
    assert said.count("The limit 0.6 is broken") == 2
    assert said.count("exit code 1") == 2


def test_the_figures_are_about_those_of_the_page(followed):
    folder, _ = followed
    shown = re.findall(r"^  (\w+\S*) +(batches|visits) +(\d\.\d+)", PAGE.read_text(), re.MULTILINE)
    assert len(shown) > 10
    first, second = (
        {
            (one["attack"], one["on"]): one["value"]
            for one in json.loads((folder / name / "report.json").read_text())["leaks"]
        }
        for name in ("first", "second")
    )
    for attack, on, figure in shown:
        assert (first if on == "batches" else second)[attack, on] == pytest.approx(float(figure), abs=0.02)


def test_who_collects_visits_reads_more(followed):
    folder, said = followed
    worst = [json.loads((folder / name / "report.json").read_text())["worst"] for name in ("first", "second")]
    assert worst[1]["low"] > worst[0]["high"]
    assert f"broken {worst[1]['attack']} {worst[1]['value']:.2f}" in said
