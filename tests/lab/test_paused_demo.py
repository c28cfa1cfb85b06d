"""A company that its limit pauses leaves the other one waiting for ever: the demo ends both and says why."""

import subprocess
import sys

import pytest

from tacit.errors import LimitError
from tacit.lab import two_companies


class Acting:
    """A company that ends with a code, or waits, and says so in its status."""

    def __init__(self, code, status):
        self.code, self.status = code, status or {}

    def start(self, *words):
        act = "import time; time.sleep(60)" if self.code is None else f"import sys; sys.exit({self.code})"
        return subprocess.Popen([sys.executable, "-Sc", act], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_one_that_waits_is_ended_and_the_reason_is_told():
    paused = Acting(1, {"state": "paused", "reason": "the limit 0.6 can't be held. The peers only see that they wait."})
    with pytest.raises(LimitError, match=r"^the limit 0\.6 can't be held\. With more flights \(--rows\)"):
        two_companies.together([paused, Acting(None, None)], "train", lambda: None, done=(0, 1))


def test_a_broken_limit_at_the_end_is_no_pause():
    finished = Acting(1, {"state": "finished"})
    with pytest.raises(ValueError, match="Expecting value"):  # what they said is read: here, nothing
        two_companies.together([finished, Acting(0, {"state": "finished"})], "train", lambda: None, done=(0, 1))
