"""Companies that are given a command at once are heard while they speak."""

import subprocess
import sys
from types import SimpleNamespace

from tacit.lab.two_companies import together

SPEAKS = "import json; print(json.dumps({'said': 'x' * 1_000_000}))"  # more than a pipe holds


def test_a_long_answer_does_not_hold_anybody():
    def start(*words):
        return subprocess.Popen(
            [sys.executable, "-c", SPEAKS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    company = SimpleNamespace(start=start, folder=None)
    assert len(together([company, company], "train", lambda: None)["said"]) == 1_000_000
