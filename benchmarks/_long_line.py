"""A line with a long round trip between two hosts of this machine, over which the system's own TCP talks.

    python -m benchmarks._long_line NEAR FAR SECONDS

Two network namespaces, each with a device whose packets this process takes and gives to the other one so many seconds
later. It says "ready", and takes both away again when its input ends. Unlike a relay between two connections it leaves
windows, and how they grow, to the two ends. It needs root, and Debian's iproute2.
"""

from __future__ import annotations

import fcntl
import os
import queue
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["ADDRESSES", "inside", "long_line", "possible"]

ADDRESSES = ("10.99.0.1", "10.99.0.2")  # which nobody else sees
_TUN = Path("/dev/net/tun")
_MAKE, _PACKETS = 0x400454CA, 0x1001  # TUNSETIFF; IFF_TUN and IFF_NO_PI, from linux/if_tun.h
_LARGEST = 60_000  # bytes of a packet: large ones, so that this process is not what limits the line


def possible() -> bool:
    """Whether such a line can be made here."""
    return os.geteuid() == 0 and _TUN.exists()


def inside(host: str) -> list[str]:
    """What runs a command on one of the two hosts."""
    return ["ip", "netns", "exec", host]


@contextmanager
def long_line(seconds: float) -> Iterator[tuple[str, str]]:
    """The names of two hosts with the addresses `ADDRESSES`, between which packets take so many seconds each way."""
    hosts = f"tacit-near-{os.getpid()}", f"tacit-far-{os.getpid()}"
    command = [sys.executable, "-m", "benchmarks._long_line", *hosts, str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as line:
        assert line.stdout is not None
        if line.stdout.readline() != "ready\n":
            raise RuntimeError("no line could be made: see what `ip` says")
        yield hosts


def main(near: str, far: str, seconds: float) -> None:
    """Carry packets until the input ends."""
    hosts = near, far
    try:
        devices = [_host(name, place) for place, name in enumerate(hosts)]
        for one, other in (devices, devices[::-1]):
            waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
            threading.Thread(target=_take, args=(one, seconds, waiting), daemon=True).start()
            threading.Thread(target=_give, args=(other, waiting), daemon=True).start()
        print("ready", flush=True)
        sys.stdin.read()
    finally:
        for name in hosts:
            subprocess.run(["ip", "netns", "del", name], check=False)


def _host(name: str, place: int) -> int:
    """A namespace with a device and an address; the file with the device's packets."""
    device = f"tacit{os.getpid() % 100_000}{place}"
    file = os.open(_TUN, os.O_RDWR)
    fcntl.ioctl(file, _MAKE, struct.pack("16sH14x", device.encode(), _PACKETS))
    for words in (
        ["ip", "netns", "add", name],
        ["ip", "link", "set", device, "netns", name],
        [*inside(name), "ip", "address", "add", f"{ADDRESSES[place]}/24", "dev", device],
        [*inside(name), "ip", "link", "set", device, "mtu", str(_LARGEST), "txqueuelen", "10000", "up"],
        [*inside(name), "ip", "link", "set", "lo", "up"],
    ):
        subprocess.run(words, check=True)
    return file


def _take(device: int, seconds: float, waiting: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    with suppress(OSError):  # the namespace is gone
        while True:
            packet = os.read(device, _LARGEST + 100)
            waiting.put((time.monotonic() + seconds, packet))


def _give(device: int, waiting: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    with suppress(OSError):
        while True:
            due, packet = waiting.get()
            if (early := due - time.monotonic()) > 0:
                time.sleep(early)
            os.write(device, packet)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
