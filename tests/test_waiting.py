"""Nobody waits for ever: two companies as processes, one of which gives up, and what the other one hears of it.

How a party ends is the same for whatever labels, units and history are: `tests/company/test_two_worlds.py`.
"""

import signal
import subprocess
import sys
import time

import pytest

from tacit.company.agreed import agree
from tests.exchange.companies import Companies, table

LINEAR = 'learn = { learner = "linear" }\n'
COLUMNS = 'numeric = ["wind", "rain"]'
SLOW = """
import time

def make():
    open("learning", "w").close()
    time.sleep(600)
"""


@pytest.fixture(name="companies")
def _companies(tmp_path):
    made = Companies(tmp_path, table(900))
    made.set("airport", columns=COLUMNS, more=LINEAR)
    for name in ("airline", "airport"):
        agree(made.folder(name))
    return made


class Command:
    """A command of a party, in a process of its own."""

    def __init__(self, companies, name, *words):
        self.folder = companies.path / name
        line = [sys.executable, "-m", "tacit", *words, "--quiet", "--folder", str(self.folder)]
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder
        )

    def ended(self):
        """The exit code and what was said on the error stream; who goes on is killed."""
        try:
            said = self.process.communicate(timeout=300)[1]
        finally:
            self.process.kill()
        return self.process.returncode, said


def both(companies, *words):
    started = [Command(companies, name, *words) for name in ("airline", "airport")]
    return [one.ended() for one in started]


@pytest.mark.parametrize("name", ["airline", "airport"])
def test_one_waits_for_as_long_as_it_is_told_to(companies, name):
    code, said = Command(companies, name, "align", "--wait", "1s").ended()
    peer = {"airline": "airport", "airport": "airline"}[name]
    assert code == 75
    assert f"tacit: {peer} was not there for 1 s, which is as long as --wait says" in said
    assert "the same command, given again on both sides, resumes" in said


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_whoever_is_interrupted_tells_its_partner(companies, how):
    (companies.path / "airport" / "slow.py").write_text(SLOW)
    companies.set("airport", columns=COLUMNS, more='learn = { factory = "slow:make" }\n')
    companies.align()
    airline, airport = (Command(companies, name, "train") for name in ("airline", "airport"))
    while not (airport.folder / "learning").exists():
        assert airport.process.poll() is None, airport.ended()
        time.sleep(0.1)
    airport.process.send_signal(how)
    code, said = airport.ended()
    assert (code, "interrupted; what is done is in" in said) == (130, True), said
    code, said = airline.ended()
    assert code == 75
    assert "airport gave up: it was interrupted; what is done is kept" in said


def test_a_limit_that_can_t_be_held_ends_both_and_another_one_goes_on_in_the_same_run(companies):
    """With fewer columns, too. The labels that have come are not sent again."""
    companies.align()
    companies.set("airport", limits="limit = 0.01", columns=COLUMNS, more=LINEAR)
    (code, said), (own, why) = both(companies, "train")
    assert (own, code) == (1, 75), (said, why)
    assert "airport gave up: its own limit keeps its embeddings at home" in said
    assert "nothing was sent" in why
    sent = companies.run("airport") / "flips" / "sent.npy"
    before = sent.stat().st_mtime_ns
    withheld = 'learn = { learner = "linear", withheld = ["rain"] }\n'
    companies.set("airport", columns=COLUMNS, more=withheld)
    ended = both(companies, "train")
    assert [code for code, _ in ended] == [0, 0], ended
    assert sent.stat().st_mtime_ns == before
