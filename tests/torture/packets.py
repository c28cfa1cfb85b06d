"""Two network namespaces with a relay of ours between them that loses packets: what TCP then does is the kernel's own.

Needs the rights of root and the command `ip`; the kernel's own means for this (netem) are not there everywhere.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from types import TracebackType
from typing import Self

from tests.torture.world import FEATURES, LABEL, PARTIES

__all__ = ["ADDRESSES", "LossyNetwork"]

ADDRESSES = {LABEL: "10.213.77.1", FEATURES: "10.213.77.2"}
"""Of each party, in its own namespace."""

_PREFIX = f"tct{os.getpid() % 1_000_000}"  # of interfaces, whose names have 15 characters at most
_ALL = socket.htons(3)  # ETH_P_ALL
_OUTGOING = 4  # PACKET_OUTGOING: our own frames, which a socket of this kind sees as well
_ETHTOOL = 0x8946
_OFFLOADS = (0x17, 0x1F, 0x24)  # checksums, segmentation in two ways: a relay must see what a wire would carry


class LossyNetwork:
    """While it is open, the two parties' namespaces see each other, over a line that loses packets.

    Args:
        loss: the share of packets that are lost, in each direction.
        delay: seconds that each takes.
        seed: decides which.

    Attributes:
        passed: packets that arrived.
        lost: packets that did not.
    """

    def __init__(self, *, loss: float, delay: float, seed: int) -> None:
        self.passed = self.lost = 0
        self._loss, self._delay = loss, delay
        self._draw = random.Random(seed)
        self._names = {name: f"tacit-{os.getpid()}-{name}" for name in PARTIES}
        self._stop, self._wake = os.pipe()
        self._thread: threading.Thread | None = None
        self._sockets: list[socket.socket] = []

    @staticmethod
    def possible() -> bool:
        """Whether the system lets us."""
        return os.geteuid() == 0 and shutil.which("ip") is not None and not _ip("netns", "list")

    def inside(self, name: str) -> list[str]:
        """What a command begins with to run in a party's namespace."""
        return ["ip", "netns", "exec", self._names[name]]

    def __enter__(self) -> Self:
        try:
            self._sockets = [self._wire(name, number) for number, name in enumerate(PARTIES)]
        except BaseException:
            self._remove()
            raise
        self._thread = threading.Thread(target=self._relay, name="tacit-packets", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(self._wake, b".")
        if self._thread is not None:
            self._thread.join(10)
        self._remove()

    def _wire(self, name: str, number: int) -> socket.socket:
        """A namespace, a pair of interfaces with one end in it, and a socket on the other end."""
        space, outer, inner = self._names[name], f"{_PREFIX}o{number}", f"{_PREFIX}i{number}"
        _must("netns", "add", space)
        _must("link", "add", outer, "type", "veth", "peer", "name", inner)
        for interface in (outer, inner):
            _switch_off(interface)
        _must("link", "set", inner, "netns", space)
        _must("-n", space, "addr", "add", f"{ADDRESSES[name]}/24", "dev", inner)
        _must("-n", space, "link", "set", "lo", "up")
        _must("-n", space, "link", "set", inner, "up")
        _must("link", "set", outer, "up", "promisc", "on")
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, _ALL)
        raw.bind((outer, 0))
        return raw

    def _relay(self) -> None:
        """Take frames from one end to the other, late or never."""
        waiting: list[tuple[float, int, int, bytes]] = []
        order = 0
        ends = {each.fileno(): place for place, each in enumerate(self._sockets)}
        while True:
            due = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            ready, _, _ = select.select([*ends, self._stop], [], [], due)
            if self._stop in ready:
                return
            for fd in ready:
                frame, source = self._sockets[ends[fd]].recvfrom(65_536)
                if source[2] == _OUTGOING:
                    continue
                if self._draw.random() < self._loss:
                    self.lost += 1
                    continue
                order += 1
                heapq.heappush(waiting, (time.monotonic() + self._delay, order, 1 - ends[fd], frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, place, frame = heapq.heappop(waiting)
                self._sockets[place].send(frame)
                self.passed += 1

    def _remove(self) -> None:
        for raw in self._sockets:
            raw.close()
        for end in (self._stop, self._wake):
            os.close(end)
        for number, space in enumerate(self._names.values()):
            _ip("netns", "del", space)
            _ip("link", "del", f"{_PREFIX}o{number}")


def _ip(*words: str) -> int:
    return subprocess.run(["ip", *words], capture_output=True).returncode


def _must(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _switch_off(interface: str) -> None:
    """Let an interface send what a wire would carry: packets of its own size, with their checksums."""
    with socket.socket() as control:
        for command in _OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            fcntl.ioctl(control, _ETHTOOL, struct.pack("16sP8x", interface.encode(), ctypes.addressof(value)))
