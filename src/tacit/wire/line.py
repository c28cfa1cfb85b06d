"""The way to a peer that lasts while links break and come back: a feature party dials, a label party keeps a desk."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from tacit.contracts import Link, Message
from tacit.errors import (
    DiskFullError,
    GaveUpError,
    LinkError,
    ProtocolError,
    RefusedError,
    TacitError,
)
from tacit.wire.codec import control, read_control
from tacit.wire.network_link import NetworkLink

Waiting = Callable[[str, float, str], None]
"""Called about once a second while nothing comes: the peer's name, the seconds so far, and why, as far as known."""

Alarm = Callable[[str, str, str], None]
"""Called when something was refused: the peer's name, the field, and the reason."""

TICK = 0.5  # seconds between two looks around while nothing comes
_HEARD = 5.0  # seconds in which a peer that was refused hangs up
_FIRST, _LONGEST, _GROWTH = 0.1, 10.0, 1.7  # seconds between two attempts to connect

STOPPED = RefusedError("stopped", "")
"""All that a peer hears where an error ends a command, whatever the error: see `leave`."""

GAVE_UP = {
    "interrupted": "it was interrupted",
    "disk": "its disk is full",
    "wait": "it has waited for as long as it was told to",
    "limit": "its own limit keeps its embeddings at home",
    "ended": "its own limit has ended this run",
    "partner": "another party has given up",
}
"""Causes that a peer hears, so that it need not wait. None hangs on labels, units, or what was sent of them before."""


class _Clock:
    """How long nothing has come, told once a second, and how long a peer was not there, which may be too long."""

    def __init__(self, peer: str, waiting: Waiting, now: Callable[[], float], wait: float = math.inf) -> None:
        self._peer, self._waiting, self._now, self._wait = peer, waiting, now, wait
        self._gone = now()
        self.restart()

    def lost(self) -> None:
        """From now on there is no link."""
        self._gone = self._now()

    def alone(self) -> None:
        """Give up where there has been no link for longer than one waits."""
        if self._now() - self._gone > self._wait:
            raise given_up(self._peer, self._wait)

    def restart(self) -> None:
        self._since = self._told = self._now()

    def tell(self, why: str) -> None:
        now = self._now()
        if now - self._told >= 1.0:
            self._told = now
            self._waiting(self._peer, now - self._since, why)


def refusal(error: RefusedError) -> Message:
    """What a peer is told when it is refused."""
    return control("refusal", 0, {"field": error.field, "reason": str(error)})


def refused_by(message: Message, peer: str) -> RefusedError | LinkError:
    """The error for a refusal that came from a peer; one that can't be read is a refusal all the same.

    A peer that has stopped without a word about why is one that may come back: the link is over, and nothing else is.
    The peer's words end on a terminal and in a log: what would move a cursor there or begin a new line becomes "?".
    """
    try:
        said = read_control(message)
    except ProtocolError as error:
        said = {"reason": str(error)}
    field, reason = plain(said.get("field", "?"), 100), plain(said.get("reason", "?"), 2000)
    if field == GaveUpError.FIELD:
        why = GAVE_UP.get(reason, "it does not say why")
        remedy = "agree on another `run` in contract.toml" if reason == "ended" else _LATER
        return GaveUpError("partner", f"{peer} gave up: {why}; {remedy}")
    if field == STOPPED.field:
        return LinkError(f"{peer} has stopped, and its owner knows why: ask there")
    return RefusedError(field, f"{peer} refused to go on, about {field!r}: {reason}")


def plain(words: object, most: int) -> str:
    """At most so many characters of what a peer said, each of which only shows."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(words)[:most])


_LATER = "what is done is kept, and the same command, given again on both sides, resumes"


def given_up(peer: str, wait: float) -> GaveUpError:
    """The error where one has waited for a peer for as long as one wants to, in seconds."""
    return GaveUpError("wait", f"{peer} was not there for {wait:g} s, which is as long as --wait says: {_LATER}")


def gave_up(cause: str) -> RefusedError:
    """What a peer hears of a cause of `GAVE_UP`. That of a limit is a feature party's: labels' limits are silent."""
    return RefusedError(GaveUpError.FIELD, cause)


def words_of(error: BaseException | None) -> RefusedError | None:
    """What a peer hears of whatever ends a command; None for nothing.

    It hears what is wrong with its own words (`RefusedError`), and that this side gave up, for a cause of `GAVE_UP`. Of
    all else it hears that this side has stopped: a cause could reveal labels, units, or what was sent before. Its owner
    hears the cause at home. Where a link broke nothing is said: it is made again.
    """
    cause: str | None = None
    if isinstance(error, GaveUpError):
        cause = error.cause
    elif isinstance(error, KeyboardInterrupt):
        cause = "interrupted"
    elif isinstance(error, DiskFullError):
        cause = "disk"
    if cause is not None:
        return gave_up(cause)
    if isinstance(error, RefusedError):
        return error
    return STOPPED if isinstance(error, Exception) and not isinstance(error, LinkError) else None


def last_words(link: Link, error: RefusedError, heard: Callable[[], bool] = lambda: True) -> None:
    """Say why, as far as the link still carries it, and end it when that was heard: whoever has heard it hangs up."""
    try:
        link.send(refusal(error))
        while not heard():
            link.recv(TICK)
    except (LinkError, ProtocolError):
        pass
    finally:
        link.close()


def leave(
    links: Iterable[Link], error: BaseException | None, say: Callable[[Link, RefusedError], None] = last_words
) -> None:
    """End links. The one place where whatever escapes from a command becomes words for a peer: those of `words_of`."""
    words = words_of(error)
    for link in links:
        if words is None:
            link.close()
        else:
            say(link, words)


@contextmanager
def leaving(links: Iterable[Link]) -> Iterator[None]:
    """End links where an error escapes, as `leave` does; else they stay open."""
    try:
        yield
    except BaseException as error:
        leave(links, error)
        raise


class Dialer:
    """The feature party's line: it connects, greets, and does so again without limit when the link breaks.

    As a context it ends the link as `leave` does.
    """

    def __init__(
        self,
        peer: str,
        connect: Callable[[], Link],  # raises `LinkError` where that may work later
        greet: Callable[[Link], None],  # does the handshake and asks again; a `RefusedError` where they can't go on
        *,
        waiting: Waiting = lambda *_: None,
        wait: float = math.inf,  # seconds without a link after which it gives up
        jitter: random.Random | None = None,  # of the pauses: several parties do not come all at once
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.peer = peer
        self.reconnects = -1  # the first connection is none
        self._connect, self._greet = connect, greet
        self._clock = _Clock(peer, waiting, now, wait)
        self._jitter = jitter or random.SystemRandom()
        self._sleep, self._now = sleep, now
        self._pause = _FIRST
        self._link: Link | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        link, self._link = self._link, None
        leave([] if link is None else [link], error)

    def send(self, message: Message) -> None:
        """Send if there is a link; a new link begins with the open request anyway."""
        if self._link is not None:
            try:
                self._link.send(message)
            except LinkError:
                self.close()

    def recv(self) -> Message:
        """The next message, over however many links."""
        self._clock.restart()
        while True:
            try:
                message = self._open().recv(TICK)
            except LinkError as error:
                self.close()
                self._rest(str(error))
                continue
            if message is None:
                self._clock.tell("connected, and at work on its answer")
            elif message.kind == "refusal":
                self.close()
                said = refused_by(message, self.peer)
                if isinstance(said, RefusedError):
                    raise said
                self._rest(str(said))
            else:
                self._pause = _FIRST
                return message

    def deliver(self, message: Message, seconds: float) -> bool:
        """Send a last message until the peer sends it back, for so long; whether it did."""
        end = self._now() + seconds
        while self._now() < end:
            try:
                link = self._open()
                link.send(message)
                while self._now() < end:
                    said = link.recv(TICK)
                    if said is not None and said.fingerprint == message.fingerprint:
                        return True
            except LinkError as error:
                self.close()
                self._rest(str(error))
        return False

    def part(self, error: RefusedError, patience: float = 20.0) -> None:
        """Tell the peer that nothing more comes, as soon as it can be reached in this time, and end the link."""
        end = self._now() + patience
        while self._now() < end:
            try:
                link, self._link = self._open(), None
            except LinkError as reason:
                self._rest(str(reason))
            except RefusedError:  # it does not want to go on either
                return
            else:
                last_words(link, error)
                return

    def close(self) -> None:
        """End the link."""
        if self._link is not None:
            self._link.close()
            self._link = None
            self._clock.lost()

    def reach(self) -> Link:
        """A greeted link, which the caller closes, as soon as there is one."""
        while True:
            try:
                return self._open()
            except LinkError as error:
                self._rest(str(error))

    def _open(self) -> Link:
        """The link that there is, or a new one, greeted."""
        if self._link is None:
            link = self._connect()
            try:
                self._greet(link)
            except RefusedError as error:
                last_words(link, error)
                raise
            except TacitError:
                link.close()
                raise
            self._link = link
            self.reconnects += 1
        return self._link

    def _rest(self, why: str) -> None:
        """Pause before the next attempt, longer each time until a message has come; `waiting` is told meanwhile."""
        end = self._now() + self._pause * self._jitter.uniform(0.5, 1.0)
        self._pause = min(self._pause * _GROWTH, _LONGEST)
        while (left := end - self._now()) > 0:
            self._sleep(min(left, TICK))
            self._clock.tell(why)
            self._clock.alone()


class Arrivals:
    """Links that peers have made, until somebody accepts them."""

    def __init__(self, name: str) -> None:
        self._name, self._over = name, False
        self._links: list[NetworkLink] = []
        self._changed = threading.Condition()

    def add(self, link: NetworkLink) -> None:
        """One more, which reads already."""
        with self._changed:
            self._living().append(link)
            self._changed.notify_all()

    def accept(self, timeout: float | None = None) -> Link | None:
        """The next link that a peer made and that still lives, or None where none came in so many seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._over or self._living(), timeout):
                return None
            if self._over:
                raise LinkError(f"{self._name} no longer listens")
            return self._links.pop(0)

    def _living(self) -> list[NetworkLink]:
        self._links = [link for link in self._links if not link.over.is_set()]
        return self._links

    def close(self) -> None:
        """Nobody comes any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()


class Desk:
    """The label party's side: all its feature parties come here, and each has a line of its own.

    It all happens in the thread that calls `recv`, so what the handshake says about the journal is true when it is
    said. As a context it ends all links as `leave` does, when whoever is told has had the time to hear it.
    """

    def __init__(
        self,
        accept: Callable[[float], Link | None],  # waits so many seconds for a new link, whose peer is proven
        greet: Callable[[Link], None],  # does the handshake; raises `RefusedError` where the peer can't go on
        peers: Iterable[str],
        *,
        waiting: Waiting = lambda *_: None,
        alarm: Alarm = lambda *_: None,
        wait: float = math.inf,  # seconds for which a peer may be missing
        missing: Callable[[], str] = lambda: "not connected",  # what there is to say about a peer that is not there
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accept, self._greet, self._now = accept, greet, now
        self.alarm, self.missing = alarm, missing
        self.links: dict[str, Link | None] = dict.fromkeys(peers)
        self._clocks = {peer: _Clock(peer, waiting, now, wait) for peer in self.links}
        self.connections = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        leave([link for link in self.links.values() if link is not None], error, self._refuse)

    def line(self, peer: str) -> DeskLine:
        """The line to one feature party."""
        return DeskLine(self, peer, self._clocks[peer])

    def poll(self, timeout: float) -> None:
        """Let in whoever is at the door, or comes in this time."""
        link = self._accept(timeout)
        if link is None:
            return
        try:
            if link.peer not in self.links:
                raise RefusedError("party", f"{link.peer} has no part in this run: compare contract.toml")
            self._greet(link)
        except RefusedError as error:
            self.alarm(link.peer, error.field, str(error))
            last_words(link, error)
        except ProtocolError as error:
            self.alarm(link.peer, "message", str(error))
            link.close()
        except LinkError:
            link.close()
        except Exception as error:  # it ends the command: who is being greeted hears that as all others do
            leave([link], error, self._refuse)
            raise
        else:
            self.drop(link.peer)  # a party talks over one link, the newest
            self.links[link.peer] = link
            self.connections += 1

    def turn_away(self, error: RefusedError, patience: float = 20.0) -> None:
        """Refuse everybody who is here or comes in this time, each once, and return when all have heard it."""
        end, told = self._now() + patience, set()
        for peer, link in self.links.items():
            if link is not None:
                self._refuse(link, error)
                self.links[peer] = None
                told.add(peer)
        while self._now() < end and told != set(self.links):
            link = self._accept(TICK)
            if link is not None:
                self._refuse(link, error)
                told.add(link.peer)

    def _refuse(self, link: Link, error: RefusedError) -> None:
        """Last words to one who is trusted; only when they were heard may this process end."""
        end = self._now() + _HEARD
        last_words(link, error, lambda: self._now() >= end)

    def drop(self, peer: str) -> None:
        """End the link to one party; it may come again."""
        link, self.links[peer] = self.links[peer], None
        if link is not None:
            link.close()
            self._clocks[peer].lost()

    def close(self) -> None:
        """End all links."""
        for peer in self.links:
            self.drop(peer)


class DeskLine:
    """The label party's line to one feature party; see `Desk.line`."""

    def __init__(self, desk: Desk, peer: str, clock: _Clock) -> None:
        self.peer, self._desk, self._clock = peer, desk, clock

    @property
    def link(self) -> Link | None:
        """The link to this party that there is now; another one after a break."""
        return self._desk.links[self.peer]

    def send(self, message: Message) -> None:
        """Send if the party is there; if it is not, it will ask again when it comes."""
        if self.link is not None:
            try:
                self.link.send(message)
            except LinkError:
                self._desk.drop(self.peer)

    def recv(self) -> Message:
        """The next message of this party, over however many links."""
        self._clock.restart()
        while True:
            message = self.look()
            if message is not None:
                return message
            self._clock.tell(self._desk.missing() if self.link is None else "connected, and at work on its part")
            self.there()

    def there(self) -> None:
        """Give up where this party has been missing for longer than one waits."""
        if self.link is None:
            self._clock.alone()

    def look(self) -> Message | None:
        """The next message, or None where none comes for a moment."""
        self._desk.poll(0.0)
        link = self.link
        if link is None:
            self._desk.poll(TICK)
            return None
        try:
            message = link.recv(TICK)
        except LinkError:
            self._desk.drop(self.peer)
            return None
        except ProtocolError as error:  # its bytes are not what was agreed: nothing has changed here, it may come again
            self.refuse(RefusedError("message", str(error)))
            return None
        if message is not None and message.kind == "refusal":
            said = refused_by(message, self.peer)
            if isinstance(said, GaveUpError):
                self._desk.drop(self.peer)
                raise said
            self._desk.alarm(self.peer, said.field if isinstance(said, RefusedError) else STOPPED.field, str(said))
            self._desk.drop(self.peer)
            return None
        return message

    def refuse(self, error: RefusedError) -> None:
        """Tell the party that it is refused, end its link, and raise an alarm here."""
        self._desk.alarm(self.peer, error.field, str(error))
        if self.link is not None:
            last_words(self.link, error)
            self._desk.links[self.peer] = None
            self._clock.lost()
