"""Progress: rate and time left, a bar on a terminal, now and then a line elsewhere, nothing when quiet."""

import io

import pytest
from rich.console import Console

from tacit.progress import Pace, on_terminal, one_bar


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture(name="clock")
def _clock():
    return Clock()


def test_rate_and_time_left(clock):
    pace = Pace("steps", clock)
    assert pace.at("training", 0, 1000) == ""
    clock.now += 2
    assert pace.at("training with marvell", 100, 1000) == "50 steps/s, 0:18 left"
    assert pace.counted("training", 100, 1000) == "100 of 1,000 steps (10%)"
    clock.now += 1000
    assert pace.at("training", 101, 1000) == "0.1 steps/s, 2:28:39 left"


def test_another_kind_of_work_is_measured_anew(clock):
    pace = Pace("steps", clock)
    pace.at("training", 0, 1000)
    clock.now += 1
    assert pace.at("training", 500, 1000) == "500 steps/s, 0:01 left"
    assert pace.at("attacking single messages", 1, 20) == ""
    clock.now += 2
    assert pace.at("attacking single messages", 2, 20) == "0.5 attacks/s, 0:36 left"
    assert pace.at("attacking all visits", 0, 20) == "", "it goes back, so it is something new"


def test_what_is_loaded_has_no_unit(clock):
    pace = Pace("steps", clock)
    pace.at("loading criteo", 0, 300)
    clock.now += 1
    assert pace.at("loading criteo", 100, 300) == "0:02 left"
    assert pace.counted("loading criteo", 100, 300) == "33%"


def test_lines_where_there_is_no_terminal(clock, capsys):
    with one_bar(quiet=False, first="begin", now=clock) as show:
        for done in range(400):
            clock.now += 1
            show("training", done, 1000)
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "tacit: training, 29 of 1,000 steps (3%), 1 steps/s, 16:11 left"
    assert 8 < len(lines) < 14, "one in half a minute at first, fewer later"
    assert all("steps/s" in line for line in lines)


def test_a_short_command_and_a_quiet_one_say_nothing(clock, capsys):
    with one_bar(quiet=False, first="begin", now=clock) as show:
        clock.now += 4
        show("training", 1, 2)
    with one_bar(quiet=True, first="begin", now=clock) as show:
        clock.now += 100
        show("training", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_waiting_has_no_end(clock, capsys):
    with one_bar(quiet=False, first="begin", now=clock) as show:
        clock.now += 31
        show("waiting for airport, 31 s (not connected)", 0, 0)
    assert capsys.readouterr().err == "tacit: waiting for airport, 31 s (not connected)\n"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_bar_fits_and_keeps_rate_and_time(monkeypatch, clock, width):
    shown = Console(file=io.StringIO(), force_terminal=True, width=width)
    monkeypatch.setattr("rich.console.Console", lambda **_: shown)
    with one_bar(quiet=False, first="begin", now=clock) as show:
        show("training with a very long name of a protection (leak_auc=0.6, visits=5)", 0, 1000)
        clock.now += 2
        show("training with a very long name of a protection (leak_auc=0.6, visits=5)", 100, 1000)
    said = shown.file.getvalue()
    assert "50 steps/s, 0:18 left" in said
    assert " 10%" in said


def test_words_are_shown_as_they_are(monkeypatch):
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("rich.console.Console", lambda **_: shown)
    with one_bar(quiet=False, first="begin") as show:
        show("waiting for airport, 3 s ([/a] [red]x)", 0, 0)
    assert "([/a] [red]x)" in shown.file.getvalue()


@pytest.mark.parametrize(("terminal", "quiet"), [(True, False), (True, True), (False, False)])
def test_python_has_a_bar_on_a_terminal_alone(monkeypatch, capsys, terminal, quiet):
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("rich.console.Console", lambda **_: shown)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    with on_terminal(quiet=quiet, first="begin") as show:
        show("training", 1, 2)
    assert ("training" in shown.file.getvalue()) == (terminal and not quiet)
    assert capsys.readouterr() == ("", "")
