"""One side of a timed prediction, or of a bare TLS stream of as many bytes; the receiving one prints when parts came.

    python -m benchmarks._predicting predict FOLDER [FILE OUT]
    python -m benchmarks._predicting receive FOLDER PORT BYTES
    python -m benchmarks._predicting send PORT BYTES

A line of JSON: the seconds from the first part to the last, those of the whole, and the most memory there was, in MB.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import tempfile
import time
from pathlib import Path

from tacit.company.folder import Folder
from tacit.serve.conversation import Telling
from tacit.serve.predict import predict
from tacit.wire.certificates import Identity

__all__ = ["receive", "score", "send"]

PIECE = 1 << 19  # bytes that are sent at a time over a bare stream: none is faster with more or less


def score(folder: Path, *files: Path) -> None:
    """Be a party of a prediction."""
    came: list[float] = []
    began = time.perf_counter()

    def progress(what: str, done: int, total: int) -> None:
        if what.startswith("receiving"):
            came.append(time.perf_counter())
        elif what.startswith("stored"):  # on the disk, which the last part alone is waited for
            came[-1:] = [time.perf_counter()]

    predict(folder, *files, match="keyed", telling=Telling(progress=progress))
    _tell(came, began)


def receive(folder: Path, port: int, size: int) -> None:
    """Take so many bytes from a TLS connection, and forget them."""
    came, began, part = [], time.perf_counter(), memoryview(bytearray(PIECE))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, Folder(folder).identity)
    with socket.create_server(("127.0.0.1", port)) as door:
        taken, _ = door.accept()
        with context.wrap_socket(taken, server_side=True) as line:
            for start in range(0, size, PIECE):
                left = min(PIECE, size - start)
                while left:
                    count = line.recv_into(part[:left])
                    if not count:
                        raise EOFError(f"{left} bytes of a part are missing")
                    left -= count
                came.append(time.perf_counter())
    _tell(came, began)


def send(port: int, size: int) -> None:
    """Send so many bytes over a TLS connection, as soon as somebody listens."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    part = bytes(PIECE)
    with _connected(port) as plain, context.wrap_socket(plain) as line:
        for start in range(0, size, PIECE):
            line.sendall(part[: min(PIECE, size - start)])
        line.recv(1)  # until the other side has everything and goes: a line that is closed before may lose its end


def _connected(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.01)


def _load(context: ssl.SSLContext, identity: Identity) -> None:
    """The certificate of a party; the library takes files alone."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(identity.cert_pem + identity.key_pem)
        file.flush()
        context.load_cert_chain(file.name)


def _tell(came: list[float], began: float) -> None:
    parts = came[-1] - came[0] if came else 0.0
    whole = time.perf_counter() - began
    print(json.dumps({"parts": parts, "count": len(came), "whole": whole, "peak": _peak()}), flush=True)


def _peak() -> float:
    """Not ru_maxrss: that of a new process starts with what the process had that started it."""
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith("VmHWM:"))


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "predict":
        score(*map(Path, words))
    elif what == "receive":
        receive(Path(words[0]), *map(int, words[1:]))
    else:
        send(*map(int, words))
