"""The tutorial, word by word: its files are written, its commands are given, its scripts run, in one folder."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "tutorial-two-companies.md"
BLOCKS = re.findall(r"^```(\w+) ?([^\n]*)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """Every block in its order; what the commands printed, block by block."""
    folder, port = tmp_path_factory.mktemp("tutorial"), str(free_port())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    said = []
    for language, name, text in BLOCKS:
        text = text.replace("7443", port)
        if name:
            (folder / name).write_text(text)
            continue
        assert language == "sh", text
        done = subprocess.run(
            ["bash", "-ec", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        said.append(done.stdout)
    return folder, said


def test_the_tutorial_works_as_it_stands(followed):
    folder, said = followed
    together = "\n".join(said)
    assert together.count("rows are common to all parties") == 2
    assert "is ready for it" in together
    assert "flights (airline, label): finished" in together
    assert "flights-python (airport, features): finished" in together
    assert "What the receiver could tell about labels" in together
    for party in ("airline", "airport"):
        for run in ("flights", "flights-python"):
            assert (folder / party / "runs" / run / "model.safetensors").exists()


def test_both_sides_show_one_digest(followed):
    _, said = followed
    shown = next(text for text in said if text.count("Digest, which must be equal") == 2)
    digests = re.findall(r"on all sides:\n(.*\n.*)\n", shown)
    assert len(digests) == 2
    assert len(set(digests)) == 1
