"""A feature party's line, which lasts while links break: pauses, greetings and refusals."""

from collections import deque
from itertools import pairwise

import pytest

from tacit.errors import (
    DiskFullError,
    GaveUpError,
    LabelsError,
    LimitError,
    LinkError,
    ProtocolError,
    RefusedError,
    StorageError,
    UsageError,
)
from tacit.wire.codec import read_control
from tacit.wire.line import GAVE_UP, STOPPED, TICK, gave_up, given_up, leaving, refusal, refused_by
from tests.wire.lines import Link, SeenError, Time, dialer, gradient


@pytest.fixture(name="time")
def _time():
    return Time()


def test_the_first_message_connects_and_greets(time):
    greeted, link = [], Link(time, gradient(0), gradient(1))
    line = dialer(time, [link], greet=greeted.append)
    line.send(gradient(9))  # there is no link: the greeting will send what is open
    assert [line.recv().step, line.recv().step] == [0, 1]
    line.send(gradient(7))
    assert greeted == [link]
    assert [message.step for message in link.sent] == [7]
    assert (line.reconnects, time.slept) == (0, [])
    line.close()
    assert link.closed == 1


def test_a_greeted_link_is_handed_out_as_soon_as_there_is_one(time):
    greeted, link = [], Link(time)
    line = dialer(time, [LinkError("nobody listens")] * 3 + [link], greet=greeted.append)
    assert line.reach() is link
    assert greeted == [link]
    assert (len(line.attempts), link.closed) == (4, 0)


def test_pauses_between_attempts_grow_to_ten_seconds_with_jitter_and_without_end(time):
    attempts = 40
    line = dialer(time, [LinkError("nobody listens")] * attempts + [Link(time, gradient(0))])
    assert line.recv().step == 0
    pauses = [after - before for before, after in pairwise(line.attempts)]
    longest = [min(0.1 * 1.7**attempt, 10.0) for attempt in range(attempts)]
    shares = [pause / most for pause, most in zip(pauses, longest, strict=True)]
    assert 0.5 - 1e-6 <= min(shares) < 0.6
    assert 0.9 < max(shares) <= 1.0 + 1e-6  # two parties that were cut off together do not come together
    assert line.reconnects == 0


def test_after_a_message_the_pauses_are_short_again_and_before_one_they_grow(time):
    broken = [Link(time, LinkError("cut")) for _ in range(6)]
    line = dialer(time, [*broken, Link(time, gradient(0), LinkError("cut")), Link(time, gradient(1))])
    line.recv()
    assert sum(time.slept) > 0.5 * sum(0.1 * 1.7**attempt for attempt in range(6))  # greeted, but of no use
    time.slept.clear()
    assert line.recv().step == 1
    assert sum(time.slept) <= 0.1
    assert line.reconnects == 7


def test_a_link_that_breaks_is_closed_and_the_next_one_is_greeted(time):
    first, second = Link(time, gradient(0), LinkError("cut")), Link(time, None, gradient(1))
    greeted = []
    line = dialer(time, [first, second], greet=greeted.append)
    assert [line.recv().step, line.recv().step] == [0, 1]
    assert (first.closed, second.closed, greeted, line.reconnects) == (1, 0, [first, second], 1)


def test_a_link_that_breaks_while_sending_is_left_and_nothing_is_raised(time):
    first, second = Link(time, gradient(0)), Link(time, gradient(1))
    line = dialer(time, [first, second])
    line.recv()
    first.full = True
    line.send(gradient(5))
    assert first.closed == 1
    line.send(gradient(5))
    assert line.recv().step == 1


def test_a_greeting_that_breaks_is_tried_again(time):
    links_ = [Link(time), Link(time), Link(time, gradient(0))]
    failures = deque([LinkError("cut"), LinkError("silent"), None])

    def greet(link):
        if (error := failures.popleft()) is not None:
            raise error

    assert dialer(time, links_, greet=greet).recv().step == 0
    assert [link.closed for link in links_] == [1, 1, 0]


def test_a_greeting_that_is_refused_here_ends_it_and_the_peer_is_told_why(time):
    link = Link(time)

    def greet(_):
        raise RefusedError("rows", "they differ")

    with pytest.raises(RefusedError, match="they differ"):
        dialer(time, [link, Link(time)], greet=greet).recv()
    assert link.closed == 1
    assert refused_by(link.sent[0], "x").field == "rows"
    with pytest.raises(RefusedError, match="they differ"):
        dialer(time, [Link(time, full=True)], greet=greet).recv()  # also where the peer can't be told


@pytest.mark.parametrize("error", [StorageError("an older copy"), ProtocolError("no hello")])
def test_whatever_else_ends_a_greeting_closes_the_link_and_is_raised(time, error):
    link = Link(time)

    def greet(_):
        raise error

    with pytest.raises(type(error), match=str(error)):
        dialer(time, [link], greet=greet).recv()
    assert link.closed == 1
    assert link.sent == []


def test_a_refusal_that_comes_later_ends_it_too(time):
    link = Link(time, gradient(0), refusal(RefusedError("request", "another content")))
    line = dialer(time, [link])
    line.recv()
    with pytest.raises(RefusedError, match="label refused to go on, about 'request': another content") as refused:
        line.recv()
    assert (refused.value.field, link.closed) == ("request", 1)


def test_waiting_is_told_about_once_a_second_whatever_there_is_to_wait_for(time):
    told = []

    def waiting(peer, seconds, why):
        told.append((peer, round(seconds, 6), why, time.now))
        if len(told) == 60:
            raise SeenError

    silent = Link(time, *[None] * 20, LinkError("cut"))
    line = dialer(time, [silent] + [LinkError("nobody listens")] * 1000, waiting=waiting)
    began = time.now
    with pytest.raises(SeenError):
        line.recv()
    whens = [began] + [when for *_, when in told]
    gaps = [after - before for before, after in pairwise(whens)]
    assert all(1.0 - 1e-6 <= gap <= 1.0 + 2 * TICK for gap in gaps)  # also in a pause of ten seconds
    assert all(seconds == pytest.approx(when - began) for _, seconds, _, when in told)
    assert {peer for peer, *_ in told} == {"label"}
    assert {why for _, _, why, _ in told} == {"connected, and at work on its answer", "nobody listens"}


def test_the_seconds_of_a_wait_begin_with_it(time):
    told = []
    link = Link(time, *[None] * 4, gradient(0), *[None] * 4, gradient(1))
    line = dialer(time, [link], waiting=lambda *what: told.append(what))
    line.recv()
    time.now += 50
    line.recv()
    assert [seconds for _, seconds, _ in told] == [1.0, 2.0, 1.0, 2.0]


# --- giving up -------------------------------------------------------------------------------------------------------


def test_one_who_waits_no_longer_gives_up_but_never_while_there_is_a_link(time):
    silent = Link(time, *[None] * 100, gradient(0), LinkError("cut"))
    line = dialer(time, [silent] + [LinkError("nobody listens")] * 100, wait=20.0)
    line.recv()
    assert time.now > 100.0 + 20.0, "it was there"
    cut = time.now
    with pytest.raises(GaveUpError, match="label was not there for 20 s") as over:
        line.recv()
    assert over.value.cause == "wait"
    assert 20.0 < time.now - cut < 21.0


@pytest.mark.parametrize("cause", [*GAVE_UP, "something else"])
def test_who_hears_that_a_peer_gave_up_ends(time, cause):
    line = dialer(time, [Link(time, refusal(gave_up(cause)))])
    with pytest.raises(GaveUpError, match=f"label gave up: {GAVE_UP.get(cause, 'it does not say why')};") as heard:
        line.recv()
    assert heard.value.cause == "partner"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (DiskFullError("no room"), "disk"),
        (given_up("x", 3.0), "wait"),
        (GaveUpError("partner", "x gave up"), "partner"),
    ],
    ids=["interrupted", "disk", "wait", "partner"],
)
def test_a_peer_hears_the_cause_where_one_gives_up(time, error, cause):
    link = Link(time)
    with pytest.raises(type(error)), leaving([link]):
        raise error
    assert read_control(link.sent[0]) == {"field": "gave up", "reason": cause}
    assert link.closed == 1


@pytest.mark.parametrize(
    "error",
    [LimitError("0.6"), LabelsError("7"), StorageError("an older copy"), UsageError("x"), KeyError(1)],
    ids=repr,
)
def test_of_whatever_may_hang_on_labels_a_peer_hears_that_it_is_over(time, error):
    """Also of a limit: only a feature party names that, where it knows that it is its own."""
    link = Link(time)
    with pytest.raises(type(error)), leaving([link]):
        raise error
    assert read_control(link.sent[0]) == {"field": STOPPED.field, "reason": ""}
