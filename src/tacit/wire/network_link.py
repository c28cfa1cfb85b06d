"""Links between machines: TLS, frames of the codec after their lengths, heartbeats between them."""

from __future__ import annotations

import math
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

import torch
from torch import Tensor

from tacit.contracts import Message
from tacit.disk import Buffer
from tacit.errors import LinkError
from tacit.wire.codec import Assembler, Limit, pieces

ROOM = 8  # frames that are read ahead: 32 MiB at most, and enough that two who both send do not wait for each other
SEND_SECONDS = 30.0  # how long a peer may take nothing of what is sent before it counts as gone
FLUSH_SECONDS = 5.0  # how long close() waits for the peer to take what was sent
BEAT_SECONDS, SILENCE_SECONDS = 5.0, 15.0  # a peer that is silently gone is noticed, also while nothing is sent
LENGTH = struct.Struct("<I")

_RECORD = 1 << 14  # bytes of a TLS record, at most
_AT_ONCE = 1 << 16  # bytes that go to or from the network in one call: the other side reads while we write
_UNSAID = 1 << 12  # bytes that TLS may want to say by itself before something is sent
_IDLE_SECONDS = 0.05  # for which nobody receives before somebody reads ahead
_HEARD_SECONDS = 1.0  # for which what came before a link broke is read, at most


class Secured:
    """TLS on a socket, its records in memory. One thread at a time takes, one at a time sends.

    A socket that does TLS by itself asks the system for each record, twice to read it, and who waits for the network
    keeps everybody else from TLS. Here many records go at a time, and nobody waits with TLS in hand.
    """

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, *, server: bool = False) -> None:
        self.plain = plain
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_side=server)
        self._touching = threading.Lock()  # OpenSSL lets one thread at a time touch a connection

    def take(self, room: memoryview) -> int:
        """Take what is there from the network, by way of this room, as many bytes; `decrypt` says where it ended."""
        count = self.plain.recv_into(room)
        with self._touching:
            if count:
                self._came.write(room[:count])
            else:
                self._came.write_eof()
        return count

    def encrypt(self, *said: Buffer) -> bytes:
        """Records that carry this, after whatever else TLS has to say."""
        with self._touching:
            for piece in said:
                if len(piece):
                    self._tls.write(piece)
            return self._goes.read()

    def decrypt(self, room: memoryview) -> int:
        """Read what was taken, as room allows; an `EOFError` after the other's last word, `SSLEOFError` without one."""
        got, size = 0, len(room)
        with self._touching, suppress(ssl.SSLWantReadError):
            while got < size:
                count = int(self._tls.read(size - got, room[got:]))
                if not count and not got:
                    raise EOFError("the other side has closed it")
                if not count:
                    break
                got += count
        if self._goes.pending > _UNSAID:  # each heartbeat takes along what TLS has to say
            raise ValueError("it asks for new keys again and again")
        return got

    def goodbye(self) -> bytes:
        """The last record, after which nothing is said."""
        with self._touching:
            with suppress(OSError, ValueError):  # the answer is not waited for; or TLS is over already
                self._tls.unwrap()
            return self._goes.read()


class NetworkLink:
    """One end of a connection; `connect` and `Server.accept` make them. Any thread may send; one at a time receives.

    Who sends writes and who receives reads by himself. While nobody receives, a thread of its own reads ahead: it keeps
    the link alive, sees that it ends, and lets two go on who both send. A length of 0 is a heartbeat.
    """

    def __init__(
        self,
        peer: str,
        limits: Mapping[str, Limit],
        secured: Secured,  # after its handshake
        release: Callable[[NetworkLink], None] = lambda link: None,  # called when it is over
    ) -> None:
        self.peer, self._assembler, self.one_message = peer, Assembler(limits), threading.Lock()
        self._secured, self.plain = secured, secured.plain
        self.plain.setblocking(False)
        with suppress(OSError):  # of a connection that is gone already
            self.plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._release, self._closed, self.reason, self.over = release, False, "", threading.Event()
        self._sent, self._silent = time.monotonic(), 0.0  # when we last said something; how long we waited in vain
        self._taken = 0  # how often something came
        self._torn = False  # whether a record was cut off, after which TLS can say nothing
        self._room, self._head = memoryview(bytearray(_AT_ONCE)), memoryview(bytearray(LENGTH.size))
        self._frame: Tensor | None = None  # the one that comes
        self._into, self._got = self._head, 0  # where what comes next belongs, and how much of that is there
        self._ahead: deque[Tensor] = deque()  # frames that were read while nobody received
        self.room = ROOM  # how many of them
        self._woken = self._wake = -1  # the two ends of a pipe
        self._turn = threading.Condition()
        self._receiving = 0  # the thread that does
        self._keeping = self._nudged = False  # whether the keeper reads, and is told to stop
        self._wanting = self._received = 0  # how many wait for their turn, and how often one came
        self._keeper = threading.Thread(target=self._keep, name=f"tacit-from-{peer}", daemon=True)

    def start(self) -> None:
        """Read from now on; where that can't be, it is closed."""
        try:
            self._woken, self._wake = os.pipe()
            self._keeper.start()
        except BaseException:
            for end in (self._woken, self._wake) if self._wake >= 0 else ():
                os.close(end)
            self.plain.close()
            raise

    @property
    def limits(self) -> Mapping[str, Limit]:
        """What may come; frames are judged as `recv` takes them, so new limits hold from the next call on."""
        return self._assembler.limits

    @limits.setter
    def limits(self, limits: Mapping[str, Limit]) -> None:
        self._assembler.limits = limits

    # --- out ---

    def send(self, message: Message) -> None:
        """Hand a message over, whose tensor may change then; wait while the peer takes nothing, but not for ever."""
        with self.one_message:
            for head, content in pieces(message):
                self.write_frame(head, content)

    def write_frame(self, head: Buffer, content: Buffer = b"") -> None:
        """One frame after its length: a full record, then the rest from where it lies. Nobody else writes meanwhile."""
        room, rest = max(_RECORD - LENGTH.size - len(head), 0), memoryview(content)
        first = b"".join((LENGTH.pack(len(head) + len(rest)), head, rest[:room]))
        if self._over:
            raise LinkError(self.reason or self._closed_here)
        try:
            self._push(self._secured.encrypt(first, rest[room:_AT_ONCE]))
            for start in range(_AT_ONCE, len(rest), _AT_ONCE):
                self._push(self._secured.encrypt(rest[start : start + _AT_ONCE]))
        except (OSError, ValueError) as error:  # ValueError: TLS is over
            self.give_up(self._broke(in_words(error)))
            raise LinkError(self.reason) from None
        except LinkError:
            raise
        except BaseException:  # an interrupt: half a frame may be out, and nothing can follow it
            self.end(self._broke("a message was interrupted"))
            raise

    def _push(self, records: bytes) -> None:
        left, until = memoryview(records), time.monotonic() + SEND_SECONDS
        while left:
            if self._over:
                self._torn = True
                raise LinkError(self.reason or self._closed_here)
            try:
                left, until = left[self.plain.send(left) :], time.monotonic() + SEND_SECONDS
            except BlockingIOError:
                if not _ready(self.plain, select.POLLOUT, 1.0) and time.monotonic() > until:
                    raise TimeoutError(f"nothing was taken for {SEND_SECONDS:g} s") from None
        self._sent = time.monotonic()

    def _beat(self) -> None:
        """Say that we are there, unless something was just said or is being said."""
        if time.monotonic() - self._sent > BEAT_SECONDS and self.one_message.acquire(blocking=False):
            try:
                if _ready(self.plain, select.POLLOUT, 0.0):  # then there is room for so few bytes
                    with suppress(LinkError):
                        self.write_frame(b"")
            finally:
                self.one_message.release()

    # --- in ---

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message, or None where it was not complete in so many seconds; what came of it is kept."""
        until = time.monotonic() + (math.inf if timeout is None else timeout)
        while (frame := self.next_frame(until)) is not None:
            message = self._assembler.feed(frame)
            if message is not None:
                return message
        return None

    def next_frame(self, until: float) -> Tensor | None:
        """The next frame by this time: one that was read ahead, or read here and now."""
        try:
            if not self._ahead and self._take_turn():
                while not (self._ahead or self._over):
                    left = until - time.monotonic()
                    frame = self._read(left)
                    if frame is not None or left <= 0.0:
                        return frame
        finally:
            self._give_turn()
        if self._closed or not self._ahead:
            raise LinkError(self._closed_here if self._closed else self.reason)
        return self._ahead.popleft()

    def _take_turn(self, *, yielding: bool = False) -> bool:
        """Let nobody else read, unless there is nothing to be read any more, or somebody else receives and we yield."""
        with self._turn:
            self._received, self._wanting = self._received + 1, self._wanting + 1
            if self._keeping and not self._nudged:
                self._nudged = True
                os.write(self._wake, b"x")
            try:
                while self._keeping or (self._receiving and not yielding):
                    self._turn.wait(_IDLE_SECONDS)
            finally:
                self._wanting -= 1
            free = not (self._receiving or self._over)
            self._receiving = threading.get_ident() if free else self._receiving
            return free

    def _give_turn(self) -> None:
        if self._receiving == threading.get_ident():
            self._receiving = 0

    def _hear_out(self) -> None:
        """Read what came before the connection broke, unless somebody does: it may say why."""
        until = time.monotonic() + _HEARD_SECONDS
        try:
            more = self._take_turn(yielding=True)
            while more and len(self._ahead) < self.room and time.monotonic() < until:
                before, frame = self._taken, self._read(0.0)
                if frame is not None:
                    self._ahead.append(frame)
                more = frame is not None or self._taken > before
        finally:
            self._give_turn()

    def _keep(self) -> None:
        """Read while nobody has received anything for some time, until it is over."""
        before = -1
        while not self._over:
            self._beat()
            with self._turn:
                wanted = self._receiving or self._wanting or before != self._received
                if wanted or len(self._ahead) >= self.room:
                    before = self._received
                    self._turn.wait(_IDLE_SECONDS)
                    continue
                self._keeping = True
            frame = self._read(BEAT_SECONDS)
            with self._turn:
                if frame is not None:
                    self._ahead.append(frame)
                if self._nudged:
                    os.read(self._woken, 1)
                self._keeping = self._nudged = False
                self._turn.notify_all()
        self._leave()

    def _read(self, seconds: float) -> Tensor | None:
        """The next frame, if it is there now or after a wait for more of it; where the link is over, it is ended."""
        try:
            frame = self._complete()
            if frame is None:
                self._take(min(seconds, BEAT_SECONDS))
                frame = self._complete()
            return frame
        except EOFError:
            parted = not (self._got or self._frame is not None)
            self.end(f"{self.peer} closed the link" if parted else self._broke("it ended within a frame"))
        except (OSError, ValueError, RuntimeError, MemoryError) as error:  # RuntimeError: torch has no memory
            self.end(self._broke(in_words(error)))
        except BaseException:  # an interrupt: what was read may be lost, and nothing after it can be understood
            self.end(self._broke("receiving was interrupted"))
            raise
        return None

    def _complete(self) -> Tensor | None:
        """The next frame, in torch's memory, if all of it was taken."""
        while True:
            self._got += self._secured.decrypt(self._into[self._got :])
            if self._got < len(self._into):
                return None
            self._got, self._into, frame, self._frame = 0, self._head, self._frame, None
            if frame is not None:
                return frame
            (size,) = LENGTH.unpack(self._head)
            if size > (most := self._assembler.most):
                raise ValueError(f"a frame of {size} bytes was announced, and {most} are the most: another program?")
            if size:
                self._frame = torch.empty(size, dtype=torch.uint8)
                self._into = self._frame.numpy().data

    def _take(self, seconds: float) -> None:
        """What has come, or comes in so many seconds. Whoever says nothing at all for too long is gone."""
        try:
            self._secured.take(self._room)
            self._silent, self._taken = 0.0, self._taken + 1
        except BlockingIOError:
            if seconds > 0.0:
                began = time.monotonic()
                _ready(self.plain, select.POLLIN, seconds, self._woken)
                self._silent += min(time.monotonic() - began, seconds)  # no more: we may be who was held up
                if self._silent >= SILENCE_SECONDS and not _ready(self.plain, select.POLLIN, 0.0):
                    raise TimeoutError(f"nothing came for {SILENCE_SECONDS:g} s") from None

    # --- the end ---

    @property
    def _over(self) -> bool:
        return self._closed or bool(self.reason)

    @property
    def _closed_here(self) -> str:
        return f"the link to {self.peer} is closed"

    def _broke(self, why: str) -> str:
        return f"the link to {self.peer} broke: {why}"

    def give_up(self, reason: str) -> None:
        """End it at once; what came before that can still be received."""
        self._hear_out()
        self.end(reason)

    def end(self, reason: str) -> None:
        """Nothing goes over this connection any more. The first reason given stays."""
        self.reason = self.reason or reason
        with suppress(OSError):
            self.plain.shutdown(socket.SHUT_RDWR)
        with self._turn:
            self._turn.notify_all()

    def _leave(self) -> None:
        """Close everything, once nobody is about to use it."""
        if self._closed:
            self._say_goodbye()
        self.end(self._closed_here)
        with self.one_message, self._turn:
            while self._receiving:
                self._turn.wait(_IDLE_SECONDS)
            self.plain.close()
            os.close(self._woken)
            os.close(self._wake)
            self.over.set()
        self._release(self)

    def _say_goodbye(self) -> None:
        """End our direction, then wait for the peer's end: it has taken everything before that."""
        until = time.monotonic() + FLUSH_SECONDS
        if self.one_message.acquire(timeout=FLUSH_SECONDS):
            with suppress(OSError):
                if not self._torn and _ready(self.plain, select.POLLOUT, FLUSH_SECONDS):
                    self.plain.send(self._secured.goodbye())
                self.plain.shutdown(socket.SHUT_WR)
            self.one_message.release()
        with suppress(OSError):
            while (left := until - time.monotonic()) > 0:
                with suppress(BlockingIOError):  # somebody who receives was faster
                    if _ready(self.plain, select.POLLIN, left) and not self.plain.recv(_RECORD):
                        return

    def close(self, seconds: float | None = None) -> None:
        """End the link when the peer has taken what was sent, or after some seconds; wait for that, if not for less."""
        self._closed = True
        with self._turn:
            if not self.over.is_set():
                os.write(self._wake, b"x")
            self._turn.notify_all()
        self.over.wait(2 * FLUSH_SECONDS if seconds is None else seconds)


def _ready(plain: socket.socket, events: int, timeout: float, other: int = -1) -> bool:
    """Whether a socket may be read or written, or another file has something, within so many seconds."""
    poll = select.poll()
    poll.register(plain.fileno(), events)
    if other >= 0:
        poll.register(other, select.POLLIN)
    return bool(poll.poll(1000 * timeout))


def in_words(error: Exception) -> str:
    """What an error of the system or of TLS says."""
    if isinstance(error, ssl.SSLEOFError):
        return "the other side was stopped, or the line cut"
    return getattr(error, "strerror", None) or str(error)
