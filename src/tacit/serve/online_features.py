"""A feature party that serves: it stays connected to the label party and answers what that asks for."""

from __future__ import annotations

import threading

from tacit.company.folder import Folder
from tacit.company.meeting import dial, said_hello
from tacit.contracts import Link
from tacit.errors import LinkError, ProtocolError, RefusedError
from tacit.serve.answering import Answering
from tacit.serve.halves import Embedder
from tacit.serve.online import Log, feature_limits, purpose
from tacit.wire.codec import control
from tacit.wire.line import Dialer, last_words, refusal

_PAUSE = 5.0  # seconds after a label party has refused, or sent what may not come


class _StoppedError(Exception):
    """Somebody has asked the service to stop."""


class FeatureService:
    """Answers the label party until it is stopped, over however many links."""

    def __init__(self, folder: Folder, embedder: Embedder, answering: Answering, log: Log) -> None:
        self._folder, self._embedder, self._answering, self._log = folder, embedder, answering, log
        self._peer = folder.terms.label_party
        self._told = ""
        self.over = threading.Event()

    def run(self) -> None:
        """Serve until `over` is set; what is being answered then is answered."""
        dialer = Dialer(self._peer, self._dialled, self._greet, waiting=self._waiting)
        threading.Thread(target=self._answering.refresh_until, args=(self.over,), daemon=True).start()
        try:
            while not self.over.is_set():
                self._step(dialer)
        except _StoppedError:
            pass
        finally:
            self._answering.connected = False
            self.over.set()
            self._answering.again.set()  # its thread ends
            dialer.close()
            self._answering.close()

    def _step(self, dialer: Dialer) -> None:
        """Answer the next request."""
        try:
            message = dialer.recv()
            if message.kind != "tokens":
                raise ProtocolError(f"a {message.kind} came where tokens must")
        except ProtocolError as error:
            self._answering.connected = False
            self._log("link refused", peer=self._peer, reason=str(error))
            if not isinstance(error, RefusedError):
                dialer.send(refusal(RefusedError("message", str(error))))
            dialer.close()
            self.over.wait(_PAUSE)
            return
        dialer.send(self._answering.answer(message))

    def _dialled(self) -> Link:
        self._answering.connected = False
        return dial(self._folder, self._folder.terms, feature_limits())

    def _greet(self, link: Link) -> None:
        """Compare versions; where they differ it is tried again later, for the other side may come to another one."""
        hello = purpose({self._peer: self._embedder.version})
        try:
            said_hello(link, self._folder, self._folder.terms, hello)
            link.send(control("hello", 1, {"half": self._embedder.digest}))
        except RefusedError as error:
            last_words(link, error)
            raise LinkError(str(error)) from None
        self._answering.connected = True
        self._tell("connected", "")

    def _waiting(self, _peer: str, _seconds: float, why: str) -> None:
        """Called about once a second while nothing comes."""
        if self.over.is_set():
            raise _StoppedError
        if not self._answering.connected:
            self._tell("not connected", why)

    def _tell(self, event: str, why: str) -> None:
        """Once, not every second."""
        if (said := f"{event} {why}") != self._told:
            self._told = said
            self._log(event, peer=self._peer, **({"reason": why} if why else {}))
