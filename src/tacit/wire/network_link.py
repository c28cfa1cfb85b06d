"""Links: messages as frames of the codec, through bounded queues, between two threads or two machines.

Between machines a link is one end of a TLS connection: each frame goes after its length, heartbeats between them.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

import torch
from torch import Tensor

from tacit.contracts import Link, Message
from tacit.disk import Buffer
from tacit.errors import LinkError
from tacit.wire.codec import FRAME, Assembler, Frame, Limit, pieces

ROOM = 8  # frames that wait to be taken: 32 MiB at most, and enough that two who both send do not wait for each other
SEND_SECONDS = 30.0  # how long a peer may take nothing of what is sent before it counts as gone
FLUSH_SECONDS = 5.0  # how long close() waits for the peer to take what was sent
BEAT_SECONDS, SILENCE_SECONDS = 5.0, 15.0  # a peer that is silently gone is noticed, also while nothing is sent
LENGTH = struct.Struct("<I")

_RECORD = 1 << 14  # bytes of a TLS record, at most
_RECORDS = 1 << 18  # bytes that are written while nobody reads

T = TypeVar("T")


class Pipe(Generic[T]):
    """Items in order between threads, at most `room` of them at a time.

    Whoever puts one more waits for a free place. Once it has ended nothing more goes in; what is in it can still be
    taken out, and after that taking is a `LinkError` that says why it ended.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._items: deque[T] = deque()
        self._reason: str | None = None
        lock = threading.Lock()
        self._filled = threading.Condition(lock)
        self._freed = threading.Condition(lock)

    def put(self, item: T, timeout: float | None = None) -> None:
        """Wait for a free place and put an item into it; a `LinkError` where none gets free in so many seconds."""
        if not self.offer(item, timeout):
            raise LinkError(f"nothing was taken for {timeout:g} s")

    def offer(self, item: T, timeout: float | None) -> bool:
        """The same; whether there was a place."""
        with self._freed:
            free = self._freed.wait_for(lambda: self._reason is not None or len(self._items) < self._room, timeout)
            if self._reason is not None:
                raise LinkError(self._reason)
            if free:
                self._items.append(item)
                self._filled.notify()
            return free

    def get(self, timeout: float | None = None) -> T | None:
        """The next item, or None where none came in so many seconds."""
        with self._filled:
            if not self._filled.wait_for(lambda: self._items or self._reason is not None, timeout):
                return None
            if not self._items:
                raise LinkError(self._reason)
            self._freed.notify_all()
            return self._items.popleft()

    def widen(self, room: int) -> None:
        """Let so many items wait, if that is more than now."""
        with self._freed:
            self._room = max(room, self._room)
            self._freed.notify_all()

    def end(self, reason: str) -> None:
        """Let nothing more in. The first reason given stays."""
        with self._filled:
            if self._reason is None:
                self._reason = reason
            self._filled.notify_all()
            self._freed.notify_all()

    def cut(self, reason: str) -> None:
        """End it at once: what nobody took yet is gone."""
        with self._filled:
            self._items.clear()
        self.end(reason)


class FrameLink:
    """Messages as frames, to and from a peer of this name. Any thread may send; one at a time receives."""

    def __init__(self, peer: str, limits: Mapping[str, Limit], incoming: Pipe[Frame]) -> None:
        self.peer, self.incoming = peer, incoming
        self._assembler = Assembler(limits)
        self._one_message = threading.Lock()

    @property
    def limits(self) -> Mapping[str, Limit]:
        """What may come; frames are judged as `recv` takes them, so new limits hold from the next call on."""
        return self._assembler.limits

    @limits.setter
    def limits(self, limits: Mapping[str, Limit]) -> None:
        self._assembler.limits = limits

    def send(self, message: Message) -> None:
        """Hand a message over; wait while the peer takes nothing, but not for ever: then it is gone.

        The tensor may be changed afterwards.
        """
        with self._one_message:
            for head, content in pieces(message):
                self.write_frame(head, content)

    def write_frame(self, head: Buffer, content: Buffer = b"") -> None:
        """One frame, in one piece or two. Nobody else writes meanwhile."""
        raise NotImplementedError

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message, or None where it was not complete in so many seconds; what came of it is kept."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(until - time.monotonic(), 0.0)
            frame = self.incoming.get(left)
            if frame is None:
                return None
            message = self._assembler.feed(frame)
            if message is not None:
                return message


class MemoryLink(FrameLink):
    """One end of a connection between two threads of a process, whose pipes are the other end's the other way round."""

    def __init__(self, peer: str, limits: Mapping[str, Limit], outgoing: Pipe[Frame], incoming: Pipe[Frame]) -> None:
        super().__init__(peer, limits, incoming)
        self.outgoing = outgoing

    def write_frame(self, head: Buffer, content: Buffer = b"") -> None:
        """One frame into the other end's pipe, as a copy."""
        self.outgoing.put(b"".join((head, content)), SEND_SECONDS)

    def close(self) -> None:
        """End both directions; what was sent can still be received at the other end."""
        self.outgoing.end(f"the link to {self.peer} is closed")
        self.incoming.cut(f"the link to {self.peer} is closed")


# --- between machines ------------------------------------------------------------------------------------------------


class NetworkLink(FrameLink):
    """One end of a connection; `connect` and `Server.accept` make them.

    OpenSSL lets one thread at a time touch a connection. So its socket never blocks, and whoever has to wait does so
    outside of the lock: one thread reads, those that send write by themselves. A frame goes after its length; a length
    of 0 is a heartbeat.
    """

    def __init__(
        self,
        peer: str,
        limits: Mapping[str, Limit],
        secured: ssl.SSLSocket,  # after its handshake
        release: Callable[[NetworkLink], None] = lambda link: None,  # called when it is over
    ) -> None:
        super().__init__(peer, limits, Pipe(ROOM))
        secured.setblocking(False)
        with suppress(OSError):  # of a connection that is gone already
            secured.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.over = threading.Event()
        self._secured, self._touching = secured, threading.Lock()
        self._release, self._closed, self._reason = release, False, ""
        self._sent = time.monotonic()
        self._woken, self._wake = os.pipe()
        self._reader = threading.Thread(target=self._read, name=f"tacit-from-{peer}", daemon=True)

    def start(self) -> None:
        """Read from now on."""
        self._reader.start()

    # --- out ---

    def write_frame(self, head: Buffer, content: Buffer = b"") -> None:
        """One frame, after its length: a full record, then what is left from where it lies."""
        room = max(_RECORD - LENGTH.size - len(head), 0)
        try:
            self._write(memoryview(b"".join((LENGTH.pack(len(head) + len(content)), head, content[:room]))))
            self._write(memoryview(content)[room:])
        except (OSError, ValueError) as error:  # ValueError: TLS is over
            self._end(f"the link to {self.peer} broke: {in_words(error)}")
            raise LinkError(self._reason) from None
        except LinkError:
            raise
        except BaseException:  # an interrupt: half a frame may be out, and nothing can follow it
            self._end(f"the link to {self.peer} broke: a message was interrupted")
            raise

    def _write(self, piece: memoryview) -> None:
        done, until, size, then = 0, time.monotonic() + SEND_SECONDS, _RECORDS, _RECORDS
        while done < len(piece):
            if self._reason or self._closed:
                raise LinkError(self._reason or f"the link to {self.peer} is closed")
            try:
                with self._touching:
                    done += self._secured.write(piece[done : done + size])
                size, until = then, time.monotonic() + SEND_SECONDS
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):  # TLS wants this piece again, though some is out
                if _ready(self._secured, select.POLLOUT, 1.0):
                    until = time.monotonic() + SEND_SECONDS
                    continue
                then = _RECORD  # to see that a slow peer takes anything at all
                if time.monotonic() > until:
                    raise TimeoutError(f"nothing was taken for {SEND_SECONDS:g} s") from None
        self._sent = time.monotonic()

    def _beat(self) -> None:
        """Say that we are there, unless something was just said or is being said."""
        if time.monotonic() - self._sent < BEAT_SECONDS or not self._one_message.acquire(blocking=False):
            return
        try:
            if _ready(self._secured, select.POLLOUT, 0.0):  # then there is room for so few bytes
                self._write(memoryview(LENGTH.pack(0)))
        finally:
            self._one_message.release()

    # --- in ---

    def _read(self) -> None:
        """Take frames until the connection is over; after `close` what comes is thrown away."""
        try:
            while (frame := self.read_frame()) is not None:
                while not self.incoming.offer(frame, BEAT_SECONDS):
                    self._beat()
            reason = f"{self.peer} closed the link"
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: torch has no memory for a frame
            reason = f"the link to {self.peer} broke: {in_words(error)}"
        except LinkError as error:  # closed here
            reason = str(error)
        if self._closed:
            self._say_goodbye()
        self._end(reason)
        with self._one_message, self._touching:  # nobody is about to use what is closed
            self._secured.close()
            os.close(self._woken)
            os.close(self._wake)
            self.over.set()
        self._release(self)

    def read_frame(self) -> Tensor | None:
        """The next frame, in torch's memory; None where the peer has ended the link between two frames."""
        size, head = 0, bytearray(LENGTH.size)
        while not size:
            if self._closed:  # also where heartbeats come without end
                raise LinkError(f"the link to {self.peer} is closed")
            self._beat()  # also while the other side has much to say
            if not self._fill(memoryview(head)):
                return None
            (size,) = LENGTH.unpack(head)
        if size > FRAME:
            raise ValueError(f"a frame of {size} bytes was announced, and {FRAME} are the most: another program?")
        frame = torch.empty(size, dtype=torch.uint8)
        if not self._fill(frame.numpy().data):
            raise ValueError("it ended within a frame")
        return frame

    def _fill(self, room: memoryview) -> bool:
        """Read as much as there is room for; False where there is nothing any more."""
        size, got = len(room), 0
        while got < size:
            try:
                with self._touching:
                    count = int(self._secured.read(size - got, room[got:]))
            except ssl.SSLWantReadError:
                self._wait()
                continue
            except ssl.SSLWantWriteError:
                if not _ready(self._secured, select.POLLOUT, SILENCE_SECONDS):
                    raise TimeoutError(f"nothing was taken for {SILENCE_SECONDS:g} s") from None
                continue
            if not count and got:
                raise ValueError("it ended within a frame")
            if not count:
                return False
            got += count
        return True

    def _wait(self) -> None:
        """Until something comes. Whoever says nothing at all for too long is gone."""
        self._beat()
        until = time.monotonic() + SILENCE_SECONDS
        while not _ready(self._secured, select.POLLIN, BEAT_SECONDS, self._woken):
            late = time.monotonic() >= until
            if late and not _ready(self._secured, select.POLLIN, 0.0, self._woken):  # we may be who was held up
                raise TimeoutError(f"nothing came for {SILENCE_SECONDS:g} s")
            self._beat()
        if self._closed:
            raise LinkError(f"the link to {self.peer} is closed")

    # --- the end ---

    def _end(self, reason: str) -> None:
        """Nothing goes over this connection any more. The first reason given stays."""
        self._reason = self._reason or reason
        self.incoming.end(self._reason)
        with suppress(OSError):
            socket.socket.shutdown(self._secured, socket.SHUT_RDWR)  # the method of the plain one: TLS stays over it

    def _say_goodbye(self) -> None:
        """End our direction, then wait for the peer's end: it has taken everything before that."""
        with suppress(OSError, ValueError):
            _ready(self._secured, select.POLLOUT, FLUSH_SECONDS)
        with suppress(OSError, ValueError), self._touching:
            self._secured.unwrap()  # says that this is the end; the answer is not waited for here
        until = time.monotonic() + FLUSH_SECONDS
        with suppress(OSError):
            socket.socket.shutdown(self._secured, socket.SHUT_WR)
            while (left := until - time.monotonic()) > 0:
                if _ready(self._secured, select.POLLIN, left) and not os.read(self._secured.fileno(), 1 << 16):
                    return

    def close(self) -> None:
        """End the link, after what was sent has gone out and the peer has taken it, or after some seconds."""
        self._closed = True
        self.incoming.cut(f"the link to {self.peer} is closed")
        if self._touching.acquire(timeout=FLUSH_SECONDS):
            try:
                if not self.over.is_set():
                    os.write(self._wake, b"x")
            finally:
                self._touching.release()
        else:  # the peer keeps TLS busy
            with suppress(OSError):
                socket.socket.shutdown(self._secured, socket.SHUT_RDWR)
        self.over.wait(2 * FLUSH_SECONDS)


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


def _ready(secured: ssl.SSLSocket, events: int, timeout: float, other: int = -1) -> bool:
    """Whether a socket may be read or written, or another file has something, within so many seconds."""
    poll = select.poll()
    poll.register(secured.fileno(), events)
    if other >= 0:
        poll.register(other, select.POLLIN)
    return bool(poll.poll(1000 * timeout))


def in_words(error: Exception) -> str:
    """What an error of the system or of TLS says."""
    if isinstance(error, ssl.SSLEOFError):
        return "the other side was stopped, or the line cut"
    return getattr(error, "strerror", None) or str(error)
