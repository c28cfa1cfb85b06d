"""A model that answers: rows of requests to scores, with the partners' embeddings or by the fallback."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.serve.asked import Asked, Form
from tacit.serve.door import Door
from tacit.serve.halves import Scorer
from tacit.serve.log import Log
from tacit.serve.metrics import LabelMetrics
from tacit.serve.partners import Missing, Partner
from tacit.serve.record import Account
from tacit.serve.tokens import token_key

_SHARE = 0.75  # of a deadline, for partners; the rest is for the scores
_JOBS = 64  # requests that are scored at once
_UNKNOWN, _NO_ID = "not every party has this id", "this row has no id"
_SLOW = "{} did not answer in time"


@dataclass(frozen=True)
class Scored:
    """What a request gets."""

    scores: list[Any]  # of each row a number, one for each of several classes, or None
    basis: list[str]  # of each row "joint", "fallback" or "none"
    reason: list[str | None]  # why it is not joint, or None


@dataclass(frozen=True)
class _Job:
    """Rows of one request, of each its embeddings, or why it has none; and what comes of them."""

    asked: Asked
    rows: Sequence[list[bytes] | str]
    scores: asyncio.Future[NDArray[np.float64]]


class LiveModel:
    """A model, with its door and its partners. It is made and used in the thread of the event loop."""

    def __init__(self, folder: Folder, where: Path, scorer: Scorer, log: Log) -> None:
        settings, numbers = folder.config.serve, folder.terms.mode == "split"
        self.name, self.settings, self.scorer, self.metrics = folder.terms.run, settings, scorer, LabelMetrics()
        self.fallback = settings.fallback and scorer.fallback
        self._deadline = settings.deadline_ms / 1000
        self.form = Form(folder.table.ids, scorer.encoder, token_key(aligned(folder)), settings.rows_a_request)
        accounts = {
            name: Account(folder, where, "tokens", name, version=version) for name, version in scorer.versions.items()
        }
        self.partners = {
            name: Partner(name, width, numbers, accounts[name], settings, self.metrics, log)
            for name, width in scorer.widths.items()
        }
        for name, partner in self.partners.items():
            self.metrics.connected.labels(self.name, name).set_function(partner.connected)
        self.door = Door(folder, where, scorer, self.partners, log)
        self._jobs: list[_Job] = []  # that wait for scores
        self._scoring: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tacit-scores")
        self.versions = {"run": self.name, folder.config.name: scorer.digest, **scorer.versions}

    @property
    def ready(self) -> bool:
        """Whether rows get scores: all partners are there, or there is a fallback."""
        return self.fallback or all(partner.connected() for partner in self.partners.values())

    async def close(self) -> None:
        """End all links, enter what was asked for, and end the thread that scores."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.door.close)
        await asyncio.sleep(0)  # what the ends of links have left to do in this loop
        for partner in self.partners.values():
            await loop.run_in_executor(None, partner.close)
        await loop.run_in_executor(None, self._thread.shutdown)

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
        job = _Job(asked, rows, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._scoring is None or self._scoring.done():
            self._scoring = asyncio.create_task(self._score_all())
        return self._told(rows, await job.scores)

    async def _score_all(self) -> None:
        """Score what waits, together; where that fails each request by itself, so that nobody gets another's error."""
        while self._jobs:
            some, self._jobs = self._jobs[:_JOBS], self._jobs[_JOBS:]
            try:
                await self._score_some(some)
            except Exception:
                for job in some:
                    try:
                        await self._score_some([job])
                    except Exception as error:
                        if not job.scores.done():
                            job.scores.set_exception(error)

    async def _score_some(self, jobs: Sequence[_Job]) -> None:
        scores = await asyncio.get_running_loop().run_in_executor(self._thread, self._score, jobs)
        for job, each in zip(jobs, scores, strict=True):
            if not job.scores.done():  # nobody may wait for it any more
                job.scores.set_result(each)

    def _told(self, rows: Sequence[list[bytes] | str], scores: NDArray[np.float64]) -> Scored:
        other = "fallback" if self.fallback else "none"
        reason = [row if isinstance(row, str) else None for row in rows]
        basis = ["joint" if one is None else other for one in reason]
        for place in np.flatnonzero(~np.isfinite(scores).all(axis=1)):
            if basis[place] != "none":  # a model of the owner's may overflow; JSON has no word for what comes then
                basis[place], reason[place] = "none", "the score is not a finite number"
        for one in ("joint", "fallback", "none"):
            self.metrics.rows.labels(one).inc(basis.count(one))
        single = scores.shape[1] == 1
        told = zip(basis, scores.tolist(), strict=True)
        return Scored([None if one == "none" else row[0] if single else row for one, row in told], basis, reason)

    # --- in the thread that scores ---

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
