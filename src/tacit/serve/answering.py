"""A feature party that serves: it stays connected to the label party; tokens in, embeddings out, on record before."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.align.directory import Directory
from tacit.align.encoder import Inputs
from tacit.align.ids import read_ids
from tacit.company.aligned import aligned
from tacit.company.departures import column_digests, counted_book, predictions, row_keys
from tacit.company.folder import Folder
from tacit.company.meeting import dial, said_hello
from tacit.company.shipments import Shipment, version_of
from tacit.contracts import Link, Message
from tacit.errors import GaveUpError, LinkError, ProtocolError, RefusedError
from tacit.labels.records import Keys
from tacit.serve.conversation import feature_limits, purpose
from tacit.serve.halves import Embedder
from tacit.serve.log import Log
from tacit.serve.metrics import FeatureMetrics
from tacit.serve.record import Account, Marks
from tacit.serve.rows import ServedTable
from tacit.serve.tokens import token_key, tokens_of
from tacit.wire.codec import control
from tacit.wire.line import Dialer, last_words, refusal

_PAUSE = 5.0  # seconds after a label party has refused, or sent what may not come


class Rate:
    """So many rows a minute, on average; after a pause so many at once."""

    def __init__(self, rows: int, now: Callable[[], float] = time.monotonic) -> None:
        self._most, self._now = rows, now
        self._left, self._at = float(rows), now()

    def take(self, rows: int) -> None:
        """Let so many pass, or raise a `RefusedError`."""
        now = self._now()
        self._left = min(self._most, self._left + (now - self._at) * self._most / 60)
        self._at = now
        if rows > self._left:
            raise RefusedError("rate", f"{self._most:,} rows a minute are answered, and these are more")
        self._left -= rows


@dataclass(frozen=True)
class _Known:
    """The rows that can be asked for: hashes of their ids, where a token leads, and what the model takes of them."""

    hashes: NDArray[np.uint8]
    places: Directory
    inputs: Inputs  # of the table's rows
    rows: NDArray[np.int64]  # of these


class Answering:
    """Answers requests, one at a time."""

    def __init__(self, folder: Folder, where: Path, embedder: Embedder, rows: ServedTable, log: Log) -> None:
        self._folder, self._embedder, self._rows, self._log = folder, embedder, rows, log
        self._settings, self._peer = folder.config.serve, folder.terms.label_party
        self._key, self._columns = token_key(aligned(folder)), list(folder.table.ids)
        predictions(folder).read()  # an older copy is refused before anybody is met
        self._account = Account(folder, where, "embeddings", self._peer, version=embedder.version)
        self._rate = Rate(self._settings.rows_a_minute)
        self.connected = False
        self.metrics = FeatureMetrics()
        self.refresh()
        some = torch.from_numpy(self._known.rows[:64])
        embedder.embed_inputs(self._known.inputs[some])  # what can't be embedded is told before anybody is met
        self._marks = Marks(folder, where)
        self.metrics.connected.set_function(lambda: self.connected)
        self.metrics.known.set_function(lambda: self.known)
        self.metrics.left.set_function(lambda: self._settings.different_rows - len(self._marks))

    @property
    def known(self) -> int:
        """Rows that can be asked for."""
        return len(self._known.rows)

    def close(self) -> None:
        """Enter what has left in all."""
        self._account.different = len(self._marks)
        self._account.close()
        self._marks.close()

    # --- which rows there are ---

    def refresh(self) -> None:
        """Look which rows there are now."""
        table = self._rows.held()
        found = read_ids(table.ids, self._columns)
        places = Directory(tokens_of(self._key, found.hashes), np.arange(len(found)))
        self._known = _Known(found.hashes, places, table.inputs, found.rows)

    def refresh_until(self, over: threading.Event) -> None:
        """The same every few minutes; where it fails, what was known stays known."""
        while not over.wait(self._settings.refresh_seconds or None):
            try:
                self.refresh()
            except Exception as error:  # a table may be away for a while, or half written
                self._log("refresh failed", error=type(error).__name__, reason=str(error))

    # --- answers ---

    def answer(self, message: Message) -> Message:
        """What to say to a request: embeddings, or why not."""
        began = time.monotonic()
        try:
            payload = self._answered(message.payload.numpy())
        except RefusedError as error:
            return self._refused(message, error)
        except Exception as error:  # a model of the owner's may fail; what is said is for the owner
            self._log("request failed", error=type(error).__name__, reason=str(error))
            return self._refused(message, RefusedError("failure", "the rows can't be answered at the moment"))
        self.metrics.requests.labels("answered").inc()
        self.metrics.seconds.observe(time.monotonic() - began)
        return Message(message.step, "embedding", torch.from_numpy(payload), b"")

    def _refused(self, message: Message, error: RefusedError) -> Message:
        self.metrics.requests.labels(error.field).inc()
        self._log("request refused", field=error.field, reason=str(error), rows=len(message.payload))
        return control("refusal", message.step, {"field": error.field, "reason": str(error)})

    def _answered(self, tokens: Keys) -> NDArray[np.uint8]:
        """For each token whether its row is known here, and the embedding.  (tokens, 1 + width)"""
        if not len(tokens):
            raise RefusedError("tokens", "a request for no row")
        if len({token.tobytes() for token in tokens}) < len(tokens):
            raise RefusedError("tokens", "a row is asked for more than once in one request")
        self._rate.take(len(tokens))
        known = self._known
        places = known.places.rows(tokens)
        asked = np.flatnonzero(places >= 0)
        inputs = known.inputs[torch.from_numpy(known.rows[places[asked]])]
        values = self._embedder.embed_inputs(inputs)
        payload = np.zeros((len(tokens), 1 + self._embedder.width), np.uint8)
        payload[asked, 0] = 1
        payload[asked, 1:] = values
        self._enter(row_keys(self._folder, known.hashes[places[asked]]), values, inputs, len(tokens))
        self.metrics.rows.labels("yes").inc(len(asked))
        self.metrics.rows.labels("no").inc(len(tokens) - len(asked))
        return payload

    def _enter(self, keys: Keys, values: NDArray[np.uint8], inputs: Inputs, count: int) -> None:
        """Put on record what is about to leave, and hold the budget.

        Rows that are not known here count in it as if they left, so that a refusal does not tell which are.
        """
        fresh, marks = self._marks.fresh(keys, values)
        most, again = self._settings.different_rows, len(keys) - len(fresh)
        if len(self._marks) + count - again > most:
            raise RefusedError("budget", f"{most:,} different rows may be asked for, and nearly all have been")
        self._account.different = len(self._marks)
        self._account.take(count)
        if len(fresh):
            if self._embedder.booked is not None:
                self._ship(*self._embedder.booked, keys[fresh], values[fresh], inputs[torch.from_numpy(fresh)])
            self._marks.add(marks)

    def _ship(self, form: str, worst: float, keys: Keys, values: NDArray[np.uint8], inputs: Inputs) -> None:
        """Into the book of embeddings, by which later releases are attacked together with what has left."""
        name = f"serving {self._embedder.version}"
        version = version_of(name, np.empty(0))
        shipment = Shipment(self._folder.terms.run, self._peer, version, f"{form}, for serving", 0, worst)
        with counted_book(self._folder) as book:
            book.extend(name, shipment, keys, values, column_digests(self._folder, inputs))


# --- over however many links -----------------------------------------------------------------------------------------


class _StoppedError(Exception):
    """Somebody has asked the service to stop."""


class FeatureService:
    """Answers the label party until it is stopped, over however many links."""

    def __init__(
        self, folder: Folder, embedder: Embedder, answering: Answering, log: Log, *, wait: float = math.inf
    ) -> None:
        self._folder, self._embedder, self._answering, self._log = folder, embedder, answering, log
        self._wait = wait  # seconds for which the label party may be missing
        self._peer = folder.terms.label_party
        self._told = ""
        self.over = threading.Event()

    def run(self) -> None:
        """Serve until `over` is set; what is being answered then is answered."""
        dialer = Dialer(self._peer, self._dialled, self._greet, waiting=self._waiting, wait=self._wait)
        threading.Thread(target=self._answering.refresh_until, args=(self.over,), daemon=True).start()
        try:
            with dialer, suppress(_StoppedError):
                while not self.over.is_set():
                    self._step(dialer)
        finally:
            self._answering.connected = False
            self.over.set()
            self._answering.close()

    def _step(self, dialer: Dialer) -> None:
        """Answer the next request."""
        try:
            message = dialer.recv()
            if message.kind != "tokens":
                raise ProtocolError(f"a {message.kind} came where tokens must")
        except ProtocolError as error:
            self._answering.connected = False
            if isinstance(error, GaveUpError) and error.cause == "wait":
                raise
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
        hello = purpose("serve", {self._peer: self._embedder.version})
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
