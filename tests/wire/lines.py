"""A clock that the test moves, and links that give what they were made with."""

from collections import deque
from random import Random

import torch

from tacit.contracts import Message
from tacit.errors import LinkError
from tacit.wire.line import Dialer


def gradient(step):
    return Message(step, "gradient", torch.tensor([float(step)]), b"")


class Time:
    """A clock that goes on when somebody sleeps or waits."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class Link:
    """Gives what it was made with: messages, errors to raise, or None where nothing comes until the time is up."""

    def __init__(self, time, *coming, peer="peer", full=False):
        self.time, self.coming, self.peer, self.full = time, deque(coming), peer, full
        self.sent, self.closed = [], 0

    def send(self, message):
        if self.full or self.closed:
            raise LinkError("gone")
        self.sent.append(message)

    def recv(self, timeout=None):
        assert not self.closed
        what = self.coming.popleft() if self.coming else None
        if what is None:
            self.time.now += timeout
        elif isinstance(what, Exception):
            raise what
        return what

    def close(self):
        self.closed += 1


class SeenError(Exception):
    """The test has seen enough."""


def dialer(time, coming, *, greet=lambda link: None, waiting=lambda *_: None, jitter=None, **options):
    """A dialer whose attempts to connect give these links or errors, one after the other; it knows when they were."""
    coming = deque(coming)

    def connect():
        line.attempts.append(time.now)
        what = coming.popleft()
        if isinstance(what, Exception):
            raise what
        return what

    line = Dialer(
        "label", connect, greet, waiting=waiting, jitter=jitter or Random(3), sleep=time.sleep, now=time, **options
    )
    line.attempts = []
    return line
