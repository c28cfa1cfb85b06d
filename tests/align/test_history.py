"""What was answered before limits what is answered next, and the file that holds it tells nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from tacit.align.history import Alignment, History
from tacit.company.aligned import Log
from tacit.company.facts import ALIGNMENT
from tacit.company.folder import create
from tacit.errors import RefusedError, StorageError, UsageError

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Clock:
    def __init__(self):
        self.time = START

    def __call__(self):
        return self.time


@pytest.fixture(name="clock")
def _clock():
    return Clock()


@pytest.fixture(name="log")
def _log(tmp_path):
    """As a party keeps it, in its file of facts."""
    folder = create(tmp_path / "clinic", role="features")
    settings = folder.path / "party.toml"
    settings.write_text(settings.read_text().replace("numeric = []", 'numeric = ["age"]'))
    return Log(folder, ALIGNMENT)


@pytest.fixture(name="history")
def _history(log, clock):
    return History(log, runs=3, few=5, share=0.01, now=clock)


def refused(call, *arguments):
    with pytest.raises(RefusedError) as caught:
        call(*arguments)
    assert caught.value.field == "history"
    return str(caught.value)


def test_what_was_written_is_read_again(history, log, clock):
    begun = history.begin("clinic", 50, 70)
    clock.time += timedelta(minutes=2)
    history.end(begun, common=12)
    again = History(log, now=clock)
    assert again.lines() == [
        begun,
        Alignment("2026-03-01T12:02:00+00:00", "clinic", 50, 70, 12, "done"),
    ]
    history.end(begun, result="minimum")
    assert again.lines()[-1].result == "minimum"
    assert again.lines()[-1].common == -1


def test_what_is_kept_are_sizes(history, log):
    history.begin("clinic", 50, 70)
    (line,) = log.read()
    assert set(line) == {"date", "peer", "count", "peer_count", "common", "result"}


def test_too_many_alignments_with_one_peer_are_refused_until_they_are_old(history, clock):
    for size in (1000, 2000, 3000):
        history.check("clinic")
        history.begin("clinic", 50, size)
        clock.time += timedelta(days=1)
    text = refused(history.check, "clinic")
    assert "clinic has aligned 3 times since 2026-03-01T12:00:00+00:00, and 3 are allowed in 30 days" in text
    refused(history.begin, "clinic", 50, 9000)
    assert [line.result for line in history.lines()] == ["begun", "begun", "begun", "history"]
    history.check("registry")
    for days in (9, 16, 23, 29):
        clock.time = START + timedelta(days=days)
        refused(history.begin, "clinic", 50, 9000)
    clock.time = START + timedelta(days=30, seconds=1)
    history.check("clinic")


@pytest.mark.parametrize("ahead", [timedelta(days=31), timedelta(days=4000)])
def test_a_clock_that_was_set_ahead_makes_nothing_old(ahead, history, clock):
    for size in (1000, 2000, 3000):
        history.begin("clinic", 50, size)
    clock.time = START + ahead
    for _ in range(3):  # what is refused is written down under the wrong date, and that does not help either
        refused(history.begin, "clinic", 50, 9000)
    clock.time = START + timedelta(hours=1)
    assert "since 2026-03-01T12:00:00" in refused(history.begin, "clinic", 50, 9000)


def test_an_edited_set_is_refused_though_the_clock_was_set_ahead(history, clock):
    history.begin("clinic", 50, 100)
    clock.time = START + timedelta(days=31)
    assert "single ids" in refused(history.begin, "clinic", 50, 101)


def test_a_pause_counts_as_a_quarter_of_the_window(history, clock):
    """Whoever aligns every month is taken to have done so four times in 30 days, and needs a limit above that."""
    several = History(history.log, runs=5, now=clock)
    for month in range(24):
        clock.time = START + timedelta(days=31 * month)
        several.begin("clinic", 50, 1000)
    clock.time += timedelta(days=31)
    refused(History(history.log, runs=4, now=clock).begin, "clinic", 50, 1000)


def test_an_alignment_counts_from_its_beginning_however_it_ended(history):
    for size in (1000, 2000, 3000):
        history.begin("clinic", 50, size)  # the peer hung up once it had its answer
    refused(history.check, "clinic")


def test_ends_do_not_count_twice(history):
    for size in (1000, 2000):
        history.end(history.begin("clinic", 5, size))
    history.check("clinic")


@pytest.mark.parametrize(
    ("former", "size", "passes"),
    [
        (100, 100, True),  # the same set again
        (100, 101, False),
        (100, 95, False),
        (100, 94, True),
        (100, 106, True),
        (10_000, 10_100, False),  # one in a hundred
        (10_000, 10_101, True),
        (10_000, 9_900, False),
    ],
)
def test_an_edited_set_is_refused(former, size, passes, history):
    history.begin("clinic", 50, former)
    if passes:
        history.check("clinic", size)
        return
    text = refused(history.check, "clinic", size)
    assert f"clinic comes with {size} ids, and on 2026-03-01T12:00:00+00:00 it came with {former}" in text
    assert f"about {abs(former - size)} single ids" in text
    history.check("registry", size)
    history.check("clinic")


def test_an_edited_set_is_refused_though_the_own_table_has_changed(history):
    history.begin("clinic", 50, 100)
    refused(history.begin, "clinic", 51, 101)


def test_edits_can_be_allowed(log):
    history = History(log, allow_edits=True)
    history.begin("clinic", 50, 100)
    history.begin("clinic", 50, 101)
    assert len(history.lines()) == 2


class Full:
    def read(self):
        return []

    def append(self, fields):
        raise StorageError("the disk is full")


def test_what_can_not_be_written_down_does_not_start():
    with pytest.raises(StorageError, match="the disk is full; an alignment that is not written down does not start"):
        History(Full()).begin("clinic", 5, 100)


def test_wrong_use(log):
    with pytest.raises(UsageError, match=r"runs = 0"):
        History(log, runs=0)
