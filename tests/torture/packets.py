"""Two network namespaces, and packets that a thread of ours takes from one to the other, late or never.

What TCP makes of that is the kernel's own. Needs the rights of root and the command `ip`; the kernel's own means for
this (netem) are not there everywhere.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.torture.world import FEATURES, LABEL, PARTIES

__all__ = ["ADDRESSES", "PacketLine"]

ADDRESSES = {LABEL: "10.213.77.1", FEATURES: "10.213.77.2"}
"""Of each party, in its own namespace."""

_TUN = Path("/dev/net/tun")
_MAKE, _PLAIN = 0x400454CA, 0x1001  # TUNSETIFF; IFF_TUN with IFF_NO_PI: packets and nothing before them


class PacketLine:
    """While it is open, the two parties' namespaces see each other, over a line that delays packets and loses some.

    Args:
        delay: seconds that each takes.
        loss: the share of packets that are lost, in each direction.
        seed: decides which.

    Attributes:
        passed: packets that arrived.
        lost: packets that did not.
    """

    def __init__(self, *, delay: float, loss: float = 0.0, seed: int = 0) -> None:
        self.passed = self.lost = 0
        self._loss, self._delay = loss, delay
        self._draw = random.Random(seed)
        self._names = {name: f"tacit-{os.getpid()}-{name}" for name in PARTIES}
        self._stop, self._wake = os.pipe()
        self._thread: threading.Thread | None = None
        self._ends: list[int] = []

    @staticmethod
    def possible() -> bool:
        """Whether the system lets us."""
        return os.geteuid() == 0 and _TUN.exists() and shutil.which("ip") is not None and not _ip("netns", "list")

    def inside(self, name: str) -> list[str]:
        """What a command begins with to run in a party's namespace."""
        return ["ip", "netns", "exec", self._names[name]]

    def __enter__(self) -> Self:
        try:
            for name in PARTIES:
                self._ends.append(self._wire(name))
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

    def _wire(self, name: str) -> int:
        """A namespace with an interface in it, and the file in which its packets are."""
        space, interface = self._names[name], f"tct{os.getpid() % 1_000_000}{len(self._ends)}"  # 15 letters at most
        end = os.open(_TUN, os.O_RDWR)
        fcntl.ioctl(end, _MAKE, struct.pack("16sH14x", interface.encode(), _PLAIN))
        _must("netns", "add", space)
        _must("link", "set", interface, "netns", space)
        _must("-n", space, "addr", "add", f"{ADDRESSES[name]}/24", "dev", interface)
        _must("-n", space, "link", "set", "lo", "up")
        _must("-n", space, "link", "set", interface, "mtu", "1500", "txqueuelen", "10000", "up")
        return end

    def _relay(self) -> None:
        """Take packets from one end to the other, late or never."""
        waiting: deque[tuple[float, int, bytes]] = deque()
        others = dict(zip(self._ends, reversed(self._ends), strict=True))
        while True:
            due = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            ready, _, _ = select.select([*others, self._stop], [], [], due)
            if self._stop in ready:
                return
            for end in ready:
                packet = os.read(end, 65_536)
                if self._draw.random() < self._loss:
                    self.lost += 1
                else:
                    waiting.append((time.monotonic() + self._delay, others[end], packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, other, packet = waiting.popleft()
                os.write(other, packet)
                self.passed += 1

    def _remove(self) -> None:
        for end in (*self._ends, self._stop, self._wake):
            os.close(end)
        for space in self._names.values():
            _ip("netns", "del", space)


def _ip(*words: str) -> int:
    return subprocess.run(["ip", *words], capture_output=True).returncode


def _must(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
