"""The way to a peer that lasts while links break and come back: a feature party dials, a label party keeps a desk."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from tacit.contracts import Link, Message
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.wire.codec import control, read_control

__all__ = ["Alarm", "Desk", "DeskLine", "Dialer", "Waiting", "refusal", "refused_by"]

Waiting = Callable[[str, float, str], None]
"""Called about once a second while nothing comes: the peer's name, the seconds so far, and why, as far as known."""

Alarm = Callable[[str, str, str], None]
"""Called when something was refused: the peer's name, the field, and the reason."""

TICK = 0.5  # seconds between two looks around while nothing comes
_FIRST, _LONGEST, _GROWTH = 0.1, 10.0, 1.7  # seconds between two attempts to connect


class _Clock:
    """How long nothing has come, told once a second."""

    def __init__(self, peer: str, waiting: Waiting) -> None:
        self._peer = peer
        self._waiting = waiting
        self.restart()

    def restart(self) -> None:
        self._since = self._told = time.monotonic()

    def tell(self, why: str) -> None:
        now = time.monotonic()
        if now - self._told >= 1.0:
            self._told = now
            self._waiting(self._peer, now - self._since, why)


def refusal(error: RefusedError) -> Message:
    """What a peer is told when it is refused."""
    return control("refusal", 0, {"field": error.field, "reason": str(error)})


def refused_by(message: Message, peer: str) -> RefusedError:
    """The error for a refusal that came from a peer."""
    said = read_control(message)
    field, reason = str(said.get("field", "?"))[:100], str(said.get("reason", "?"))[:2000]
    return RefusedError(field, f"{peer} refused to go on, about {field!r}: {reason}")


def _last_words(link: Link, error: RefusedError) -> None:
    """Say why, as far as the link still carries it, and end it."""
    try:
        link.send(refusal(error))
    except LinkError:
        pass
    finally:
        link.close()


class Dialer:
    """The feature party's line: it connects, greets, and does so again without limit when the link breaks.

    Args:
        peer: the label party's name.
        connect: makes a link, or raises `LinkError` where that may work later.
        greet: does the handshake over a new link and sends the open request again; raises `RefusedError` where the
            two can't go on.
        waiting: told while nothing comes.
        jitter: draws the pauses between attempts, so that several parties do not come all at once.
    """

    def __init__(
        self,
        peer: str,
        connect: Callable[[], Link],
        greet: Callable[[Link], None],
        *,
        waiting: Waiting = lambda *_: None,
        jitter: random.Random | None = None,
    ) -> None:
        self.peer = peer
        self.reconnects = -1  # the first connection is none
        self._connect = connect
        self._greet = greet
        self._clock = _Clock(peer, waiting)
        self._jitter = jitter or random.SystemRandom()
        self._link: Link | None = None

    def send(self, message: Message) -> None:
        """Send if there is a link; a new link begins with the open request anyway."""
        if self._link is not None:
            try:
                self._link.send(message)
            except LinkError:
                self._drop()

    def recv(self) -> Message:
        """The next message, over however many links."""
        self._clock.restart()
        while True:
            try:
                if self._link is None:
                    self._dial()
                    continue
                message = self._link.recv(TICK)
            except LinkError:
                self._drop()
                continue
            if message is None:
                self._clock.tell("no answer yet")
            elif message.kind == "refusal":
                self.close()
                raise refused_by(message, self.peer)
            else:
                return message

    def close(self) -> None:
        """End the link."""
        self._drop()

    def _dial(self) -> None:
        """One link, greeted; as many attempts as it takes."""
        pause = _FIRST
        while self._link is None:
            try:
                self._open()
            except LinkError as error:
                self._clock.tell(str(error))
                time.sleep(pause * self._jitter.uniform(0.5, 1.0))
                pause = min(pause * _GROWTH, _LONGEST)
        self.reconnects += 1

    def _open(self) -> None:
        link = self._connect()
        try:
            self._greet(link)
        except RefusedError as error:
            _last_words(link, error)
            raise
        except (LinkError, ProtocolError):
            link.close()
            raise
        self._link = link

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


class Desk:
    """The label party's side: all its feature parties come here, and each has a line of its own.

    It all happens in the thread that calls `recv`, so what the handshake says about the journal is true when it is
    said.

    Args:
        accept: waits so many seconds for a new link, whose peer is proven.
        greet: does the handshake; raises `RefusedError` where the peer can't go on.
        peers: the feature parties' names.
        waiting: told while nothing comes.
        alarm: told of everything that was refused.
    """

    def __init__(
        self,
        accept: Callable[[float], Link | None],
        greet: Callable[[Link], None],
        peers: Iterable[str],
        *,
        waiting: Waiting = lambda *_: None,
        alarm: Alarm = lambda *_: None,
    ) -> None:
        self._accept = accept
        self._greet = greet
        self._waiting = waiting
        self.alarm = alarm
        self.links: dict[str, Link | None] = dict.fromkeys(peers)
        self.connections = 0

    def line(self, peer: str) -> DeskLine:
        """The line to one feature party."""
        return DeskLine(self, peer, self._waiting)

    def poll(self, timeout: float) -> None:
        """Let in whoever is at the door, or comes in this time."""
        link = self._accept(timeout)
        if link is None:
            return
        try:
            self._greet(link)
        except RefusedError as error:
            self.alarm(link.peer, error.field, str(error))
            _last_words(link, error)
        except ProtocolError as error:
            self.alarm(link.peer, "message", str(error))
            link.close()
        except LinkError:
            link.close()
        else:
            self.drop(link.peer)  # a party talks over one link, the newest
            self.links[link.peer] = link
            self.connections += 1

    def drop(self, peer: str) -> None:
        """End the link to one party; it may come again."""
        link, self.links[peer] = self.links[peer], None
        if link is not None:
            link.close()

    def close(self) -> None:
        """End all links."""
        for peer in self.links:
            self.drop(peer)


class DeskLine:
    """The label party's line to one feature party; see `Desk.line`."""

    def __init__(self, desk: Desk, peer: str, waiting: Waiting) -> None:
        self.peer = peer
        self._desk = desk
        self._clock = _Clock(peer, waiting)

    def send(self, message: Message) -> None:
        """Send if the party is there; if it is not, it will ask again when it comes."""
        link = self._desk.links[self.peer]
        if link is not None:
            try:
                link.send(message)
            except LinkError:
                self._desk.drop(self.peer)

    def recv(self) -> Message:
        """The next message of this party, over however many links."""
        self._clock.restart()
        while True:
            message = self.look()
            if message is not None:
                return message
            there = self._desk.links[self.peer] is not None
            self._clock.tell("connected, but nothing comes" if there else "not connected")

    def look(self) -> Message | None:
        """The next message, or None where none comes for a moment."""
        self._desk.poll(0.0)
        link = self._desk.links[self.peer]
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
            self._desk.alarm(self.peer, said.field, str(said))
            self._desk.drop(self.peer)
            return None
        return message

    def refuse(self, error: RefusedError) -> None:
        """Tell the party that it is refused, end its link, and raise an alarm here."""
        self._desk.alarm(self.peer, error.field, str(error))
        link = self._desk.links[self.peer]
        if link is not None:
            _last_words(link, error)
            self._desk.links[self.peer] = None
