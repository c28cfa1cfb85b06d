"""A model that answers: rows of requests to scores, with the partners' embeddings or by the fallback."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.serve.account import Account
from tacit.serve.asked import Asked, Form
from tacit.serve.door import Door
from tacit.serve.halves import Scorer
from tacit.serve.online import Log, Metrics
from tacit.serve.partners import Missing, Partner
from tacit.serve.tokens import token_key

_SHARE = 0.75  # of a deadline, for partners; the rest is for the scores
_UNKNOWN, _NO_ID = "not every party has this id", "this row has no id"
_SLOW = "{} did not answer in time"


@dataclass(frozen=True)
class Scored:
    """What a request gets."""

    scores: list[Any]  # of each row a number, one for each of several classes, or None
    basis: list[str]  # of each row "joint", "fallback" or "none"
    reason: list[str | None]  # why it is not joint, or None


class LiveModel:
    """A model, with its door and its partners. It is made and used in the thread of the event loop."""

    def __init__(self, folder: Folder, where: Path, scorer: Scorer, metrics: Metrics, log: Log) -> None:
        settings, numbers = folder.config.serve, folder.terms.mode == "split"
        self.name, self.settings, self.scorer, self._metrics = folder.terms.run, settings, scorer, metrics
        self.fallback = settings.fallback and scorer.fallback
        self._deadline = settings.deadline_ms / 1000
        self.form = Form(folder.table.ids, scorer.encoder, token_key(aligned(folder)), settings.rows_a_request)
        writing = threading.Lock()
        accounts = {
            name: Account(where, "tokens", name, writing=writing, version=version)
            for name, version in scorer.versions.items()
        }
        self.partners = {
            name: Partner(name, width, numbers, accounts[name], settings, metrics, log)
            for name, width in scorer.widths.items()
        }
        self.door = Door(folder, where, scorer, self.partners, log)
        self._worker = Worker(self._score)
        self.versions = {"run": self.name, folder.config.name: scorer.digest, **scorer.versions}

    @property
    def ready(self) -> bool:
        """Whether rows get scores: all partners are there, or there is a fallback."""
        return self.fallback or all(partner.link is not None for partner in self.partners.values())

    async def close(self) -> None:
        """End all links, enter what was asked for, and end the thread that scores."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.door.close)
        await asyncio.sleep(0)  # what the ends of links have left to do in this loop
        for partner in self.partners.values():
            await loop.run_in_executor(None, partner.close)
        await loop.run_in_executor(None, self._worker.close)

    async def scored(self, asked: Asked) -> Scored:
        """The scores of a request, within the deadline."""
        tokens = list(dict.fromkeys(token for token in asked.tokens if token is not None))
        answers = {name: partner.ask(tokens) for name, partner in self.partners.items()}
        waiting = [answer for each in answers.values() for answer in each if not answer.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=_SHARE * self._deadline)
        found: dict[bytes, list[bytes] | str] = {}
        for place, token in enumerate(tokens):
            found[token] = _together({name: each[place] for name, each in answers.items()})
        rows = [_NO_ID if token is None else found[token] for token in asked.tokens]
        job = _Job(asked, rows)
        scores = await asyncio.wrap_future(self._worker.submit(job))
        return self._told(rows, scores)

    def _told(self, rows: Sequence[list[bytes] | str], scores: NDArray[np.float64]) -> Scored:
        other = "fallback" if self.fallback else "none"
        reason = [row if isinstance(row, str) else None for row in rows]
        basis = ["joint" if one is None else other for one in reason]
        for place in np.flatnonzero(~np.isfinite(scores).all(axis=1)):
            if basis[place] != "none":  # a model of the owner's may overflow; JSON has no word for what comes then
                basis[place], reason[place] = "none", "the score is no finite number"
        for one in ("joint", "fallback", "none"):
            self._metrics.count("tacit_serve_rows_total", basis.count(one), basis=one)
        single = scores.shape[1] == 1
        told = zip(basis, scores.tolist(), strict=True)
        return Scored([None if one == "none" else row[0] if single else row for one, row in told], basis, reason)

    # --- in the worker's thread ---

    def _score(self, jobs: Sequence[_Job]) -> list[NDArray[np.float64]]:
        """The scores of several requests at once: of a row they are the same whatever rows come with it."""
        rows = [row for job in jobs for row in job.rows]
        table = pl.DataFrame(
            [
                pl.Series(name, [value for job in jobs for value in job.asked.values[name]], dtype=dtype)
                for name, dtype in self.form.dtypes.items()
            ]
            or {"row": np.arange(len(rows))}  # without columns of its own the party still has rows
        )
        scores = np.full((len(rows), len(self.scorer.outputs)), np.nan)
        joint = np.flatnonzero([not isinstance(row, str) for row in rows])
        others = np.flatnonzero([isinstance(row, str) for row in rows])
        if len(joint):
            embeddings = {
                name: _stacked([row[place] for row in rows if not isinstance(row, str)])
                for place, name in enumerate(self.partners)
            }
            mine = table[joint] if len(others) else table
            scores[joint] = self.scorer.score(mine, embeddings, joint)
        if self.fallback and len(others):
            scores[others] = self.scorer.score(table[others], None, others)
        ends = np.cumsum([len(job.rows) for job in jobs])[:-1]
        return np.split(scores, ends)


def _stacked(rows: Sequence[bytes]) -> NDArray[np.uint8]:
    """Rows of bytes as one array, which torch may take as it is.  (rows, width)"""
    return np.frombuffer(bytearray(b"".join(rows)), np.uint8).reshape(len(rows), -1)


def _together(answers: dict[str, asyncio.Future[bytes | Missing]]) -> list[bytes] | str:
    """The embeddings of all partners; or why there are not all of them."""
    found = []
    for name, answer in answers.items():
        if not answer.done():
            return _SLOW.format(name)
        value = answer.result()
        if isinstance(value, Missing):
            return value.reason
        found.append(value)
    return _UNKNOWN if any(value[0] != 1 for value in found) else [value[1:] for value in found]


# --- one thread that scores ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """Rows of one request: of each its embeddings, or why it has none."""

    asked: Asked
    rows: Sequence[list[bytes] | str]


class Worker:
    """A thread that takes all jobs that wait and does them together; `work` gives a result for each."""

    MOST = 64  # jobs at once

    def __init__(self, work: Callable[[Sequence[_Job]], Sequence[NDArray[np.float64]]]) -> None:
        self._work = work
        self._jobs: queue.SimpleQueue[tuple[_Job, Future[NDArray[np.float64]]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tacit-scores", daemon=True)
        self._thread.start()

    def submit(self, job: _Job) -> Future[NDArray[np.float64]]:
        """Have a job done."""
        done: Future[NDArray[np.float64]] = Future()
        self._jobs.put((job, done))
        return done

    def close(self) -> None:
        """End the thread, after what waits."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._jobs.get()) is not None:
            some = [first]
            while len(some) < self.MOST and not self._jobs.empty():
                more = self._jobs.get()
                if more is None:
                    self._jobs.put(None)  # after these
                    break
                some.append(more)
            self._do(some)

    def _do(self, some: Sequence[tuple[_Job, Future[NDArray[np.float64]]]]) -> None:
        try:
            results = self._work([job for job, _ in some])
        except Exception as error:
            if len(some) > 1:  # each for itself, so that nobody gets another one's error
                for one in some:
                    self._do([one])
                return
            _settle(some[0][1], error)
            return
        for (_, done), result in zip(some, results, strict=True):
            _settle(done, result)


def _settle(done: Future[NDArray[np.float64]], result: NDArray[np.float64] | Exception) -> None:
    """Give a result to whoever still waits for it."""
    if done.set_running_or_notify_cancel():
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)
