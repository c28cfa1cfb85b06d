"""The label party's desk: who is greeted, who is refused, and that all others come again."""

from collections import deque

import pytest
import torch

from benchmarks._memory_links import links
from tacit.contracts import Message
from tacit.errors import GaveUpError, LinkError, ProtocolError, RefusedError, StorageError
from tacit.wire.codec import CONTROL, Limit
from tacit.wire.line import STOPPED, Desk, gave_up, refusal, refused_by
from tests.wire.lines import Link, Time, dialer, gradient

LIMITS = {"gradient": Limit(torch.float32, (1,)), **dict.fromkeys(("hello", "refusal"), CONTROL)}


@pytest.fixture(name="time")
def _time():
    return Time()


class Door:
    """Links that come, each when the desk looks for the n-th time."""

    def __init__(self, time, *coming):
        self.time, self.coming = time, deque(coming)

    def __call__(self, timeout):
        what = self.coming.popleft() if self.coming else None
        if what is None:
            self.time.now += timeout
        return what


def desk(time, *coming, greet=lambda link: None, waiting=lambda *_: None, **options):
    alarms = []
    made = Desk(
        Door(time, *coming),
        greet,
        ("one", "two"),
        waiting=waiting,
        now=time,
        alarm=lambda *what: alarms.append(what),
        **options,
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


def test_an_error_while_one_is_greeted_is_told_to_that_one_as_to_all_others(time):
    one, two = Link(time, peer="one"), Link(time, peer="two")

    def greet(link):
        if link is two:
            raise StorageError("the label of row 7 is 1")

    def both():
        with made:
            made.poll(0.0)
            made.poll(0.0)

    made, _ = desk(time, one, two, greet=greet)
    with pytest.raises(StorageError):
        both()
    for link in (one, two):
        assert [bytes(message.payload) for message in link.sent] == [bytes(refusal(STOPPED).payload)]
        assert link.closed


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
    assert whys[-1] == "connected, and at work on its part"
    assert [seconds for _, seconds, _ in told] == sorted(seconds for _, seconds, _ in told)


def test_a_party_that_is_missing_for_too_long_is_given_up(time):
    one = Link(time, *[None] * 100, gradient(1), LinkError("cut"), peer="one")
    made, _ = desk(time, one, wait=20.0)
    assert made.line("one").recv().step == 1
    cut = time.now
    assert cut > 100.0 + 20.0, "it was there"
    with pytest.raises(GaveUpError, match="one was not there for 20 s"):
        made.line("one").recv()
    assert 20.0 < time.now - cut < 22.0


def test_who_gave_up_is_not_waited_for(time):
    made, alarms = desk(time, Link(time, gradient(1), refusal(gave_up("interrupted")), peer="one"))
    line = made.line("one")
    line.recv()
    with pytest.raises(GaveUpError, match="one gave up: it was interrupted"):
        line.recv()
    assert alarms == []


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
