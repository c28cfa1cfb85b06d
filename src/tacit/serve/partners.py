"""The feature parties as a label party sees them that serves: who is there, what is asked of them, what has come.

Requests that come while a message is on its way wait a moment and go in one message; where nothing is on its way, they
go at once. What a partner sends that was not asked for ends its link, and nothing of it is used.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.config import Serve
from tacit.contracts import Link, Message
from tacit.errors import LinkError, RefusedError
from tacit.serve.conversation import ROWS
from tacit.serve.log import Log
from tacit.serve.metrics import LabelMetrics
from tacit.serve.record import Account
from tacit.serve.tokens import SIZE
from tacit.wire.line import refused_by

_ON_THE_WAY = 8  # messages to one partner that are not answered yet
_REFUSALS = ("budget", "rate", "tokens", "failure")


@dataclass(frozen=True)
class Missing:
    """Why there is no embedding of a row."""

    reason: str


Answer = asyncio.Future[bytes | Missing]
"""What comes of a row: whether the partner knows it and its embedding, as bytes; or why nothing comes."""


class Partner:
    """One feature party. Everything but `_send` happens in the thread of the event loop.

    `width` are the bytes of a row's embedding; where they are floating point `numbers`, these must be finite.
    """

    def __init__(
        self, name: str, width: int, numbers: bool, account: Account, settings: Serve, metrics: LabelMetrics, log: Log
    ) -> None:
        self.name, self.width, self._numbers, self._account = name, width, numbers, account
        self._cache = Cache(settings.cache_seconds, settings.cache_rows)
        self._most, self._pause = settings.waiting_rows, settings.batch_ms / 1000
        self._metrics, self._log = metrics, log
        self._loop = asyncio.get_running_loop()
        self._sender = ThreadPoolExecutor(1, thread_name_prefix=f"tacit-to-{name}")
        self._queue: deque[bytes] = deque()
        self._answers: dict[bytes, Answer] = {}  # of rows that are asked for, or wait to be
        self._sent: dict[int, tuple[list[bytes], float]] = {}  # by the number of the message: its tokens, and when
        self._step = 0
        self._timer: asyncio.TimerHandle | None = None
        self.link: Link | None = None

    # --- asking ---

    def ask(self, tokens: Iterable[bytes]) -> list[Answer]:
        """For each token what will come of it."""
        found = [self._answer(token) for token in tokens]
        if self._queue and self._timer is None and len(self._sent) < _ON_THE_WAY:
            self._timer = self._loop.call_later(self._pause if self._sent else 0.0, self._flush)
        return found

    def _answer(self, token: bytes) -> Answer:
        known = self._answers.get(token)
        if known is not None:
            return known
        answer: Answer = self._loop.create_future()
        held = self._cache.get(token)
        self._metrics.cache.labels(self.name, "no" if held is None else "yes").inc()
        if held is not None:
            answer.set_result(held)
        elif self.link is None:
            answer.set_result(Missing(f"{self.name} is not connected"))
        elif len(self._queue) >= self._most:
            answer.set_result(Missing(f"{self.name} is behind"))
        else:
            self._answers[token] = answer
            self._queue.append(token)
        return answer

    def _flush(self) -> None:
        """Send what waits."""
        self._timer = None
        while self._queue and self.link is not None and len(self._sent) < _ON_THE_WAY:
            tokens = [self._queue.popleft() for _ in range(min(len(self._queue), ROWS))]
            self._step += 1
            self._sent[self._step] = tokens, time.monotonic()
            payload = torch.frombuffer(bytearray(b"".join(tokens)), dtype=torch.uint8).reshape(-1, SIZE)
            self._metrics.messages.labels(self.name).inc()
            self._sender.submit(self._send, self.link, Message(self._step, "tokens", payload, b""))

    def _send(self, link: Link, message: Message) -> None:
        """In a thread of its own: it may wait for the disk or for the network. Why it fails is for the owner alone."""
        try:
            self._account.take(len(message.payload))
            link.send(message)
        except Exception as error:
            if not isinstance(error, LinkError):
                self._log("nothing is asked for", partner=self.name, error=type(error).__name__, reason=str(error))
                link.close()
            self._loop.call_soon_threadsafe(self.detach, link, str(error))

    # --- links ---

    def attach(self, link: Link) -> Link | None:
        """Ask over this link from now on; the one before it, which is to be closed."""
        old = self.link
        if old is not None:
            self.detach(old, "it has connected anew")
        self.link, self._step = link, 0
        self._log("connected", partner=self.name)
        return old

    def detach(self, link: Link, reason: str) -> None:
        """A link is over: nothing comes any more of what was asked for over it."""
        if link is not self.link:
            return
        self.link = None
        self._log("not connected", partner=self.name, reason=reason)
        self._sent.clear()
        self._queue.clear()
        missing = Missing(f"{self.name} is not connected")
        for answer in self._answers.values():
            answer.set_result(missing)
        self._answers.clear()

    def connected(self) -> bool:
        """Whether it can be asked."""
        return self.link is not None

    @property
    def oldest(self) -> float:
        """For how many seconds a message has not been answered; 0 where none is on its way. Any thread may ask."""
        sent = tuple(self._sent.values())
        return time.monotonic() - sent[0][1] if sent else 0.0

    # --- what comes ---

    def take(self, link: Link, message: Message) -> None:
        """Take an answer; a `RefusedError` where it is not one to what was asked."""
        if link is not self.link:
            return
        asked = self._sent.get(message.step)
        if message.kind not in ("embedding", "refusal") or asked is None:
            raise RefusedError("message", f"a {message.kind} {message.step} came that was not asked for")
        tokens = asked[0]
        if message.kind == "refusal":
            self._settle(message.step, [self._missing(message)] * len(tokens))
            return
        rows = message.payload.numpy()
        self._check(message.step, rows, len(tokens))
        each = [row.tobytes() for row in rows]
        for token, row in zip(tokens, each, strict=True):
            self._cache.put(token, row)
        self._settle(message.step, each)

    def _missing(self, message: Message) -> Missing:
        said = refused_by(message, self.name)
        field = said.field if isinstance(said, RefusedError) and said.field in _REFUSALS else "other"
        self._metrics.refusals.labels(self.name, field).inc()
        return Missing(f"{self.name} refused ({field})")

    def _check(self, step: int, rows: NDArray[np.uint8], count: int) -> None:
        if rows.shape != (count, 1 + self.width):
            raise RefusedError("embedding", f"embedding {step} is {rows.shape}, not {(count, 1 + self.width)}")
        if (rows[:, 0] > 1).any():
            raise RefusedError("embedding", f"embedding {step} has rows that are neither known nor unknown")
        if self._numbers and not np.isfinite(np.ascontiguousarray(rows[:, 1:]).view(np.float32)).all():
            raise RefusedError("embedding", f"embedding {step} holds numbers that are not finite")

    def _settle(self, step: int, values: Iterable[bytes | Missing]) -> None:
        tokens, _ = self._sent.pop(step)
        for token, value in zip(tokens, values, strict=True):
            answer = self._answers.pop(token)
            if not answer.done():
                answer.set_result(value)
        if self._queue and self._timer is None:
            self._flush()

    def close(self) -> None:
        """Nothing is asked for any more."""
        self._sender.shutdown()
        self._account.close()


class Cache:
    """Values by token, each for so many seconds (0 for none at all), the newest so many of them. One thread uses it."""

    def __init__(self, seconds: float, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._most, self._now = seconds, most, now
        self._held: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, token: bytes) -> bytes | None:
        """The value, if it is here and not too old."""
        found = self._held.get(token)
        if found is None:
            return None
        if found[0] <= self._now():
            del self._held[token]
            return None
        return found[1]

    def put(self, token: bytes, value: bytes) -> None:
        """Keep a value; the oldest goes where there are too many."""
        if self._seconds:
            self._held.pop(token, None)
            self._held[token] = (self._now() + self._seconds, value)
            if len(self._held) > self._most:
                self._held.popitem(last=False)
