"""Lines that last while links break: pauses, greetings and refusals, with a clock that the test moves."""

from collections import deque
from itertools import pairwise
from random import Random

import pytest
import torch

from tacit.contracts import Message
from tacit.errors import LinkError, ProtocolError, RefusedError, StorageError
from tacit.wire.codec import CONTROL, Limit
from tacit.wire.line import TICK, Desk, Dialer, refusal, refused_by
from tacit.wire.memory import links

LIMITS = {"gradient": Limit(torch.float32, (1,)), **dict.fromkeys(("hello", "refusal"), CONTROL)}


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


@pytest.fixture(name="time")
def _time():
    return Time()


class SeenError(Exception):
    """The test has seen enough."""


def dialer(time, coming, *, greet=lambda link: None, waiting=lambda *_: None, jitter=None):
    """A dialer whose attempts to connect give these links or errors, one after the other; it knows when they were."""
    coming = deque(coming)

    def connect():
        line.attempts.append(time.now)
        what = coming.popleft()
        if isinstance(what, Exception):
            raise what
        return what

    line = Dialer("label", connect, greet, waiting=waiting, jitter=jitter or Random(3), sleep=time.sleep, now=time)
    line.attempts = []
    return line


# --- the feature party's line ----------------------------------------------------------------------------------------


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
    assert {why for _, _, why, _ in told} == {"no answer yet", "nobody listens"}


def test_the_seconds_of_a_wait_begin_with_it(time):
    told = []
    link = Link(time, *[None] * 4, gradient(0), *[None] * 4, gradient(1))
    line = dialer(time, [link], waiting=lambda *what: told.append(what))
    line.recv()
    time.now += 50
    line.recv()
    assert [seconds for _, seconds, _ in told] == [1.0, 2.0, 1.0, 2.0]


# --- the label party's desk ------------------------------------------------------------------------------------------


class Door:
    """Links that come, each when the desk looks for the n-th time."""

    def __init__(self, time, *coming):
        self.time, self.coming = time, deque(coming)

    def __call__(self, timeout):
        what = self.coming.popleft() if self.coming else None
        if what is None:
            self.time.now += timeout
        return what


def desk(time, *coming, greet=lambda link: None, waiting=lambda *_: None):
    alarms = []
    made = Desk(
        Door(time, *coming), greet, ("one", "two"), waiting=waiting, now=time, alarm=lambda *what: alarms.append(what)
    )
    return made, alarms


def test_each_party_has_a_line_of_its_own(time):
    one, two = Link(time, gradient(1), peer="one"), Link(time, gradient(2), peer="two")
    made, alarms = desk(time, two, one)
    assert made.line("one").recv().step == 1
    assert made.line("two").recv().step == 2
    made.line("two").send(gradient(4))
    assert [message.step for message in two.sent] == [4]
    assert one.sent == []
    assert (made.connections, alarms) == (2, [])
    made.close()
    assert (one.closed, two.closed) == (1, 1)


def test_nobody_is_there(time):
    told = []
    made, _ = desk(time, waiting=lambda *what: told.append(what))
    line = made.line("one")
    line.send(gradient(0))  # it will ask again when it comes
    assert line.look() is None
    made._accept.coming.extend([None] * 8 + [Link(time, None, None, None, gradient(3), peer="one")])
    assert line.recv().step == 3
    whys = [why for _, _, why in told]
    assert whys[0] == "not connected"
    assert whys[-1] == "connected, but nothing comes"
    assert [seconds for _, seconds, _ in told] == sorted(seconds for _, seconds, _ in told)


def test_the_newest_link_wins(time):
    old, new = Link(time, gradient(0), gradient(8), peer="one"), Link(time, gradient(1), peer="one")
    made, alarms = desk(time, old, new)
    line = made.line("one")
    assert line.recv().step == 0
    assert line.recv().step == 1
    line.send(gradient(5))
    assert (old.closed, len(old.sent), len(new.sent)) == (1, 0, 1)
    assert (made.connections, alarms) == (2, [])


def test_a_link_that_is_not_greeted_does_not_take_the_place_of_one_that_is(time):
    old, new = Link(time, None, gradient(1), peer="one"), Link(time, peer="one")

    def greet(link):
        if link is new:
            raise RefusedError("journal", "an older copy")

    made, alarms = desk(time, old, new, greet=greet)
    assert made.line("one").recv().step == 1
    assert (old.closed, new.closed) == (0, 1)
    assert alarms == [("one", "journal", "an older copy")]
    assert refused_by(new.sent[0], "label").field == "journal"


def test_an_unknown_party_is_refused_before_anything_is_said_to_it(time):
    stranger, one = Link(time, gradient(9), peer="three"), Link(time, gradient(1), peer="one")
    greeted = []
    made, alarms = desk(time, stranger, one, greet=greeted.append)
    assert made.line("one").recv().step == 1
    assert greeted == [one]
    assert stranger.closed == 1
    assert [(peer, field) for peer, field, _ in alarms] == [("three", "party")]
    assert set(made.links) == {"one", "two"}


@pytest.mark.parametrize(
    ("error", "fields"), [(ProtocolError("no hello"), ["message"]), (LinkError("cut"), [])], ids=["garbage", "cut"]
)
def test_a_greeting_that_fails_leaves_the_desk_as_it_was(time, error, fields):
    first, second = Link(time, peer="one"), Link(time, gradient(1), peer="one")

    def greet(link):
        if link is first:
            raise error

    made, alarms = desk(time, first, second, greet=greet)
    assert made.line("one").recv().step == 1
    assert (first.closed, first.sent) == (1, [])
    assert [field for _, field, _ in alarms] == fields


def test_ones_own_old_copy_ends_the_label_party(time):
    def greet(_):
        raise StorageError("this folder is an older copy")

    made, alarms = desk(time, Link(time, peer="one"), greet=greet)
    with pytest.raises(StorageError, match="older copy"):
        made.line("one").recv()
    assert alarms == []


def test_garbage_is_refused_with_an_alarm_and_the_party_may_come_again(time):
    first, second = Link(time, ProtocolError("no such message"), peer="one"), Link(time, gradient(1), peer="one")
    made, alarms = desk(time, first, None, second)
    assert made.line("one").recv().step == 1
    assert alarms == [("one", "message", "no such message")]
    assert refused_by(first.sent[0], "label").field == "message"
    assert first.closed == 1


def test_garbage_in_the_bytes_of_a_link(time):
    """The same over a link with a codec, where the bytes are really wrong."""
    ours, theirs = links(LIMITS, names=("one", "label"))
    second = Link(time, gradient(1), peer="one")
    made, alarms = desk(time, theirs, None, second)
    ours.outgoing.put(b"rubbish" * 20)
    assert made.line("one").recv().step == 1
    assert [(peer, field) for peer, field, _ in alarms] == [("one", "message")]
    assert ours.recv(1).kind == "refusal"


def test_a_refusal_of_the_party_is_an_alarm_and_it_may_come_again(time):
    first = Link(time, refusal(RefusedError("rows", "they differ")), peer="one")
    made, alarms = desk(time, first, None, Link(time, gradient(1), peer="one"))
    assert made.line("one").recv().step == 1
    assert alarms == [("one", "rows", "one refused to go on, about 'rows': they differ")]
    assert first.closed == 1


@pytest.mark.parametrize("words", [b"no JSON", b'{"field":[1]}'])
def test_a_refusal_that_can_not_be_read_is_one_all_the_same(time, words):
    said = Message(0, "refusal", torch.tensor(list(words), dtype=torch.uint8), b"")
    made, alarms = desk(time, Link(time, said, peer="one"), None, Link(time, gradient(1), peer="one"))
    assert made.line("one").recv().step == 1
    ((_, _, reason),) = alarms
    assert reason.startswith("one refused to go on")
    with pytest.raises(RefusedError, match="label refused to go on"):
        dialer(time, [Link(time, said)]).recv()


def test_a_link_that_breaks_is_dropped_and_the_party_may_come_again(time):
    first, second = Link(time, LinkError("cut"), peer="one"), Link(time, gradient(1), peer="one", full=True)
    made, alarms = desk(time, first, None, second)
    line = made.line("one")
    assert line.recv().step == 1
    line.send(gradient(0))  # this one breaks too
    assert (first.closed, second.closed, made.links["one"], alarms) == (1, 1, None, [])


def test_who_is_refused_is_told_once_and_loses_its_link(time):
    link = Link(time, gradient(0), peer="one")
    made, alarms = desk(time, link)
    line = made.line("one")
    line.recv()
    line.refuse(RefusedError("request", "another content"))
    line.refuse(RefusedError("request", "another content"))  # without a link there is only the alarm
    assert (link.closed, len(link.sent), made.links["one"]) == (1, 1, None)
    assert alarms == 2 * [("one", "request", "another content")]


def test_a_long_refusal_is_cut_short():
    told = refused_by(refusal(RefusedError("f" * 5000, "r" * 9000)), "peer")
    assert len(told.field) == 100
    assert len(str(told)) < 2300
