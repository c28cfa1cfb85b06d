"""Who behaves badly, with the right certificate or without any: it must change nothing at the label party."""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from tacit._version import __version__
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.company.meeting import dial, training_limits
from tacit.config import Contract
from tacit.contracts import Message
from tacit.errors import LinkError
from tacit.split.checkpoint import Checkpoints
from tacit.split.correspondence import Correspondence
from tacit.split.handshake import Hello, greet_label_party
from tacit.split.journal import Journal
from tacit.wire.codec import PROTOCOL, Limit
from tacit.wire.network import allow_files
from tacit.wire.network_link import NetworkLink

__all__ = ["ATTACKS", "Flood", "intrude", "reach"]

_WAIT = 20.0  # seconds for the label party's word
_REPEATS = 20


class _Peer:
    """The feature party's journal and a link that was greeted as that party would."""

    def __init__(self, folder: Folder, exchange: Correspondence, *, greet: bool) -> None:
        contract, rows = folder.contract, aligned(folder)
        self.exchange = exchange
        self.limits = training_limits(contract, folder.config.name)
        self.link = reach(folder, contract, self.limits)
        self.hello = Hello(
            PROTOCOL, __version__, contract.run, "features", folder.config.name, contract.digest, rows.id, rows.digest,
            "none", 0, 0, "",
        )  # fmt: skip
        if greet:
            greet_label_party(self.link, self.hello, exchange)

    @property
    def last(self) -> Message:
        """The newest request that was answered."""
        found = self.exchange.request(self.exchange.complete - 1)
        assert found is not None
        return found

    def hear(self) -> str:
        """The field that the label party refuses for, or what else it does."""
        try:
            message = self.link.recv(_WAIT)
        except LinkError:
            return "closed"
        return "nothing" if message is None else message.kind


def reach(folder: Folder, contract: Contract, limits: Mapping[str, Limit]) -> NetworkLink:
    """A link to the label party, as soon as it listens."""
    until = time.monotonic() + _WAIT
    while True:
        try:
            link = dial(folder, contract, limits)
        except LinkError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            assert isinstance(link, NetworkLink)
            return link


def _garbage(peer: _Peer) -> str:
    draw = random.Random(1)
    peer.link.write_frame(draw.randbytes(5000))
    return peer.hear()


def _bad_hello(peer: _Peer) -> str:
    peer.link.write_frame(random.Random(2).randbytes(300))
    return peer.hear()


def _not_a_number(peer: _Peer) -> str:
    return _next(peer, lambda payload: payload * float("nan"))


def _wrong_shape(peer: _Peer) -> str:
    return _next(peer, lambda payload: payload[:-1])


def _skip(peer: _Peer) -> str:
    last = peer.last
    peer.link.send(replace(last, step=last.step + 5))
    return peer.hear()


def _equivocate(peer: _Peer) -> str:
    last = peer.last
    changed = last.payload.clone()
    changed.view(-1)[0] += 1e-3
    peer.link.send(replace(last, payload=changed))
    return peer.hear()


def _repeat(peer: _Peer) -> str:
    """Ask the same again and again; only one answer may ever come."""
    heard = set()
    for _ in range(_REPEATS):
        peer.link.send(peer.last)
        message = peer.link.recv(_WAIT)
        heard.add("nothing" if message is None else message.fingerprint.hex())
    stored = peer.exchange.answer(peer.exchange.complete - 1)
    assert stored is not None
    return "the stored answer" if heard == {stored.fingerprint.hex()} else f"{len(heard)} answers"


def _next(peer: _Peer, spoil: Callable[[torch.Tensor], torch.Tensor]) -> str:
    last = peer.last
    peer.link.send(replace(last, step=last.step + 1, payload=spoil(last.payload)))
    return peer.hear()


ATTACKS: Mapping[str, tuple[Callable[[_Peer], str], bool]] = {
    "random bytes": (_garbage, True),
    "random bytes instead of a hello": (_bad_hello, False),
    "an embedding that is not finite": (_not_a_number, True),
    "an embedding of another shape": (_wrong_shape, True),
    "a step that is not due": (_skip, True),
    "another request for an answered step": (_equivocate, True),
    "the same request again and again": (_repeat, True),
}
"""What an intruder can do, and whether it says a proper hello first."""


def intrude(path: str | Path, how: str) -> str:
    """Come once with the party's certificate and do this; what the label party did about it."""
    folder = Folder(path)
    contract = folder.contract
    where = folder.run_folder(contract)
    attack, greet = ATTACKS[how]
    with Journal(where / "journal") as journal:
        newest = Checkpoints(where / "checkpoints").newest()
        assert newest is not None
        assert newest.turn is not None
        said: Any = newest.state["transcripts"]
        peer_name = contract.label_party
        limits = training_limits(contract, folder.config.name)
        exchange = Correspondence(
            journal, peer_name, role="features", limits=limits, turn=newest.turn, transcripts=said.get(peer_name)
        )
        peer = _Peer(folder, exchange, greet=greet)
        try:
            return attack(peer)
        finally:
            peer.link.close()


class Flood:
    """Connections of somebody without a certificate, who says nothing. As many as are closed are made anew.

    Args:
        port: of this machine, where somebody listens or will.
        many: connections at a time.
    """

    def __init__(self, port: int, many: int) -> None:
        self.made = 0
        self._address = ("127.0.0.1", port)
        self._many = many
        self._open: dict[int, socket.socket] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._stand, name="tacit-flood", daemon=True)

    @property
    def stands(self) -> bool:
        """Whether all connections are open."""
        return len(self._open) == self._many

    def __enter__(self) -> Self:
        allow_files(2 * self._many)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(30)

    def _stand(self) -> None:
        ends = select.poll()
        while not self._over.is_set():
            for number, _ in ends.poll(50):
                ends.unregister(number)
                self._open.pop(number).close()
            try:
                while len(self._open) < self._many and not self._over.is_set():
                    one = socket.create_connection(self._address, 1.0)
                    self._open[one.fileno()] = one
                    ends.register(one, select.POLLIN)
                    self.made += 1
            except OSError:  # nobody listens now, or there is no room
                self._over.wait(0.05)
        for one in self._open.values():
            one.close()
