"""A relay between the two parties that behaves as networks do: cuts, silence, delay, connections that just break.

It forwards bytes of TCP and looks at none of them. Silence is what it is on a real network: what was sent is held
back, not lost, for TCP sends it again until it arrives or its sender gives up.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ["Relay"]

_T = TypeVar("_T")
_PIECE = 65_536
_MESSAGE = 100  # bytes that the smallest message has at least, in TLS
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER that throws away what is unsent and says so to the peer


class _Connection:
    """One connection of a feature party and the one that the relay made for it to the label party."""

    def __init__(self, relay: Relay, one: asyncio.StreamWriter, two: asyncio.StreamWriter) -> None:
        self._relay = relay
        self._writers = (one, two)
        self.passing = asyncio.Event()
        self.forgotten = False
        if not relay.silent:
            self.passing.set()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward what comes, each piece as late as the relay's delay says, and then the end."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)
        late = asyncio.create_task(self._deliver(pieces, writer))
        try:
            while True:
                piece = await reader.read(_PIECE)
                await pieces.put((asyncio.get_running_loop().time() + self._relay.delay, piece))
                if not piece:
                    break
            await late
        except OSError:
            self.reset()
        finally:
            late.cancel()

    async def _deliver(self, pieces: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self.passing.wait()
            if not piece:
                writer.close()
                return
            self._relay.count(len(piece), towards_label=writer is self._writers[1])
            try:
                writer.write(piece)
                await writer.drain()
            except OSError:
                self.reset()
                return

    def reset(self) -> None:
        """Break it on both sides."""
        for writer in self._writers:
            found: socket.socket | None = writer.get_extra_info("socket")
            if found is not None and found.fileno() >= 0:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Relay:
    """Listens on a free port of its own and forwards to another one; see the module.

    Args:
        target: the port of the label party.
        delay: seconds that everything takes longer, in each direction.
    """

    def __init__(self, target: int, *, delay: float = 0.0) -> None:
        self.delay = delay
        self.silent = False
        self.connections = 0
        self.passed = 0  # bytes, in both directions
        self.round_trips = 0  # how often the label party's side was sent something after it had sent something itself
        self._towards_label = False
        self._severed = threading.Event()
        self._target = target
        self._open: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tacit-relay", daemon=True)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def count(self, size: int, *, towards_label: bool) -> None:
        """Take note of what passes; what is smaller than any message is a ping of the connection, or its answer."""
        self.passed += size
        if size >= _MESSAGE:
            self.round_trips += towards_label and not self._towards_label
            self._towards_label = towards_label

    # --- what happens to the network ---

    def cut(self) -> None:
        """Break all connections; new ones are broken at once."""
        self._severed.set()
        self._call(self._reset_all)

    def mend(self) -> None:
        """Everything passes again; after `forget`, over new connections alone."""
        self._severed.clear()
        self.silent = False
        self._call(self._pass_all)

    def silence(self) -> None:
        """Nothing arrives any more, and nobody is told."""
        self.silent = True
        self._call(self._hold_all)

    def forget(self) -> None:
        """As a firewall does that has lost its table: what goes on now passes over new connections, never old ones."""
        self._call(self._forget_all)

    def reset_one(self, draw: random.Random) -> None:
        """Break one of the connections that there are."""
        self._call(lambda: self._reset_some(draw))

    def close(self) -> None:
        """Break everything and stop listening."""

        async def end() -> None:
            self._server.close()
            self._reset_all()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # --- in the relay's own thread ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._severed.is_set():
                raise OSError("the line is cut")
            up, down = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # nobody listens there: what the caller would have seen
            writer.transport.abort()
            return
        connection = _Connection(self, writer, down)
        if self._severed.is_set():  # meanwhile
            connection.reset()
            return
        self.connections += 1
        self._open.add(connection)
        try:
            await asyncio.gather(connection.pump(reader, down), connection.pump(up, writer))
        except asyncio.CancelledError:  # `close` ends all tasks; streams of Python 3.11 complain about cancelled ones
            return
        finally:
            connection.reset()
            self._open.discard(connection)

    def _reset_all(self) -> None:
        for connection in self._open:
            connection.reset()

    def _reset_some(self, draw: random.Random) -> None:
        if self._open:
            draw.choice(list(self._open)).reset()

    def _hold_all(self) -> None:
        for connection in self._open:
            connection.passing.clear()

    def _pass_all(self) -> None:
        for connection in self._open:
            if not connection.forgotten:
                connection.passing.set()

    def _forget_all(self) -> None:
        for connection in self._open:
            connection.forgotten = True
            connection.passing.clear()

    def _call(self, act: Callable[[], None]) -> None:
        async def doing() -> None:
            act()

        self._do(doing())

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
