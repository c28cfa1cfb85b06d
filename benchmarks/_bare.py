"""One of two bare processes: a split step over mutual TLS and nothing else, which ours is held against.

    python -m benchmarks._bare FOLDER ROLE PORT JOURNAL

Network, optimizer, batch and bytes are those of `_two_processes`. The feature party sets the pace, as there. JOURNAL is
"none", or "journal" for a pair that writes each message down, under one SHA-256, into a file that was allocated
beforehand: a request is on the disk before it goes out, an answer before it is given.
"""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks._plain import BATCH, ROWS, WIDTH, halves, table
from tacit.wire.certificates import Identity

_HEADER = 64  # bytes before a tensor, as ours
_FILE = 256 << 20  # bytes of a journal; behind them it begins again, as one does that is checkpointed


def write_keys(folder: Path, *identities: Identity) -> None:
    """Put each party's key and certificate where its process finds them."""
    for identity in identities:
        (folder / f"{identity.name}.key").write_bytes(identity.key_pem)
        (folder / f"{identity.name}.crt").write_bytes(identity.cert_pem)


def _connected(folder: Path, role: str, port: int) -> ssl.SSLSocket:
    """Mutual TLS 1.3 with the other process."""
    server, peer = role == "label", "features" if role == "label" else "label"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.check_hostname = ssl.TLSVersion.TLSv1_3, False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(folder / f"{peer}.crt")
    context.load_cert_chain(folder / f"{role}.crt", folder / f"{role}.key")
    if server:
        with socket.create_server(("127.0.0.1", port)) as door:
            plain, _ = door.accept()
    else:
        plain = _reached(port)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_side=server)


def _reached(port: int) -> socket.socket:
    until = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


class _Log:
    """Messages in a file that was allocated beforehand."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(self._fd, 0, _FILE)
        for place in range(0, _FILE, 1 << 20):
            os.pwrite(self._fd, bytes(1 << 20), place)
        os.fsync(self._fd)
        self._end = 0

    def write(self, message: bytearray) -> None:
        if self._end + len(message) + 32 > _FILE:
            self._end = 0
        os.pwritev(self._fd, [message, hashlib.sha256(message).digest()], self._end)
        self._end += len(message) + 32

    def sync(self) -> None:
        os.fdatasync(self._fd)


class _NoLog:
    def __init__(self, path: Path) -> None: ...
    def write(self, message: bytearray) -> None: ...
    def sync(self) -> None: ...


class _Wire:
    """Tensors over the connection, each after a header."""

    def __init__(self, line: ssl.SSLSocket) -> None:
        self._line = line

    def send(self, message: bytearray) -> None:
        self._line.sendall(message)

    def receive(self) -> bytearray:
        message = bytearray(_HEADER + 4 * BATCH * WIDTH)
        view, got = memoryview(message), 0
        while got < len(message):
            count = self._line.recv_into(view[got:])
            if not count:
                sys.exit()
            got += count
        return message


def _message(tensor: Tensor) -> bytearray:
    return bytearray(_HEADER) + tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data


def _tensor(message: bytearray) -> Tensor:
    return torch.frombuffer(message, dtype=torch.float32, offset=_HEADER).view(BATCH, WIDTH)


def _feature_step(wire: _Wire, log: _Log | _NoLog) -> Callable[[], None]:
    bottom, features = halves()[0], table()[0]
    optimizer = torch.optim.Adam(bottom.parameters(), lr=1e-3)
    batches = torch.randperm(ROWS).split(BATCH)
    done = 0

    def step() -> None:
        nonlocal done
        rows, done = batches[done % len(batches)], done + 1
        z = bottom(features[rows])
        request = _message(z)
        log.write(request)
        log.sync()
        wire.send(request)
        answer = wire.receive()
        log.write(answer)  # on the disk with the next request
        optimizer.zero_grad()
        z.backward(_tensor(answer))
        optimizer.step()

    return step


def _label_step(wire: _Wire, log: _Log | _NoLog) -> Callable[[], None]:
    top, labels = halves()[1], table()[1]
    optimizer = torch.optim.Adam(top.parameters(), lr=1e-3)
    batches = torch.randperm(ROWS).split(BATCH)
    done = 0

    def step() -> None:
        nonlocal done
        rows, done = batches[done % len(batches)], done + 1
        request = wire.receive()
        log.write(request)
        z = _tensor(request).requires_grad_()
        loss = functional.binary_cross_entropy_with_logits(top(z).squeeze(1), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        assert z.grad is not None
        answer = _message(z.grad)
        log.write(answer)
        log.sync()
        wire.send(answer)
        optimizer.step()

    return step


def main(folder: Path, role: str, port: int, journal: str) -> None:
    """Train until the reader of the times has enough."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    log = (_Log if journal == "journal" else _NoLog)(folder / f"{role}-{journal}.log")
    wire = _Wire(_connected(folder, role, port))
    step = (_label_step if role == "label" else _feature_step)(wire, log)
    if role == "label":
        while True:
            step()
    step()
    print("ready", flush=True)
    while line := sys.stdin.readline().strip():
        started = time.perf_counter()
        for _ in range(int(line)):
            step()
        print(time.perf_counter() - started, "-", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
