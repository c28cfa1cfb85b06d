"""A feature party's last word: said over as many links as it takes, until it is said back or the time is up."""

from collections import deque
from random import Random

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import LinkError, RefusedError
from tacit.split.exactly_once import CONFIRMED
from tacit.wire.line import Dialer

ANSWER = Message(3, "gradient", torch.zeros(1), b"")


class Link:
    """Gives messages and errors one after the other, then silence; each wait moves the clock."""

    peer = "label"

    def __init__(self, clock, *coming, broken=False):
        self.clock, self.coming, self.broken = clock, deque(coming), broken
        self.sent, self.closed = [], False

    def send(self, message):
        if self.broken:
            raise LinkError("gone")
        self.sent.append(message.fingerprint)

    def recv(self, timeout):
        self.clock[0] += timeout
        what = self.coming.popleft() if self.coming else None
        if isinstance(what, Exception):
            raise what
        return what

    def close(self):
        self.closed = True


@pytest.fixture(name="dial")
def _dial():
    """A dialer over a clock that the test can read, whose attempts to connect give links or errors."""
    clock = [0.0]

    def sleep(seconds):
        clock[0] += seconds

    def dial(*coming, greet=lambda link: None):
        coming = deque(coming)

        def connect():
            what = coming.popleft() if coming else LinkError("nobody listens")
            if isinstance(what, Exception):
                raise what
            return what

        return Dialer("label", connect, greet, jitter=Random(1), sleep=sleep, now=lambda: clock[0])

    return clock, dial


def test_it_is_said_once_and_said_back(dial):
    clock, dial = dial
    link = Link(clock, None, ANSWER, CONFIRMED)  # the last answer may come once more before
    assert dial(link).deliver(CONFIRMED, 10.0)
    assert link.sent == [CONFIRMED.fingerprint]
    assert clock[0] < 3


def test_it_is_said_over_the_link_that_there_is(dial):
    clock, dial = dial
    link = Link(clock, ANSWER, CONFIRMED)
    line = dial(link)
    assert line.recv() is ANSWER
    assert line.deliver(CONFIRMED, 10.0)
    assert line.reconnects == 0


def test_it_is_said_again_over_each_new_link(dial):
    clock, dial = dial
    cut, full, good = Link(clock, LinkError("cut")), Link(clock, broken=True), Link(clock, CONFIRMED)
    assert dial(cut, LinkError("nobody listens"), full, good).deliver(CONFIRMED, 10.0)
    assert [link.sent for link in (cut, full, good)] == [[CONFIRMED.fingerprint], [], [CONFIRMED.fingerprint]]
    assert (cut.closed, full.closed) == (True, True)


@pytest.mark.parametrize("silent", [True, False])
def test_where_nobody_says_it_back_it_is_given_up_in_time(dial, silent):
    clock, dial = dial
    link = Link(clock)
    assert not dial(*[link] if silent else []).deliver(CONFIRMED, 10.0)
    assert 10.0 <= clock[0] < 17.0  # a pause may be under way
    assert len(link.sent) == silent


def test_one_who_is_refused_does_not_try_again(dial):
    clock, dial = dial

    def greet(link):
        raise RefusedError("journal", "an older copy")

    with pytest.raises(RefusedError, match="older copy"):
        dial(Link(clock), greet=greet).deliver(CONFIRMED, 10.0)
