"""Worlds that differ in the labels, units or history of the rows that a partner has picked, and what it hears in each.

One party is a real process; its partner runs here, and everything that comes to it over its links is written down.
"""

from __future__ import annotations

import copy
import json
import shutil
import time
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError

import numpy as np
import polars as pl
import pytest
import torch

from tacit.align.ids import read_ids
from tacit.company import meeting
from tacit.company.align import align
from tacit.company.aligned import aligned, counted_facts
from tacit.company.audit import find_run
from tacit.company.facts import SPLIT_RUN, SplitRun
from tacit.company.folder import Folder
from tacit.contracts import Link, Message
from tacit.errors import LinkError, RefusedError
from tacit.exchange import label_party as one_shot_label
from tacit.exchange.label_party import Answers
from tacit.exchange.train import train_one_shot
from tacit.labels.flips import flips
from tacit.labels.records import Rows
from tacit.serve.answering import Answering, FeatureService
from tacit.serve.conversation import Telling, label_limits, purpose
from tacit.serve.halves import load_embedder, load_scorer
from tacit.serve.predict import predict
from tacit.serve.rows import ServedTable
from tacit.serve.tokens import token_key, tokens_of
from tacit.split.train import train
from tests.exchange.companies import Companies, OverError, table
from tests.torture.processes import Process, Processes
from tests.torture.workers import FAILED, Start, state_of

Verb = Literal["align", "train", "private", "keyed", "serve"]

ROWS, PICKED = 2600, 1000
PATIENCE = 120.0
SPLIT = """
run = "small"
label_party = "airline"
feature_parties = ["airport"]
loss = "binary"
epochs = 2
batch_size = 100
test_share = 0.2
alignment.smallest_set = 10
cut.widths.airport = 4
minimum.gradient.name = "none"
"""
EXCHANGE = 'mode = "one_shot"\nalignment.smallest_set = 10\nexchange.bits = 3\n'
MATCHED = 'protect.gradient = { name = "matched", leak_auc = 0.6, visits = 8 }'
QUICK = 'learn = { learner = "linear" }\n'
SIZES = "align.allow_edits = true\nalign.runs_a_month = 1000\n"
OWN = 'categorical = [], numeric = ["plane"]'


@dataclass(frozen=True)
class Setting:
    """What both companies have agreed on, and what the airline has written in its party.toml."""

    way: Literal["one_shot", "split"] = "one_shot"
    exchange: str = ""  # lines of [exchange]
    label: str = "late"  # the column
    protect: str = "limit = 0.75\nbudget = 0.75"  # of the airline

    def companies(self, path: Path) -> Companies:
        """Both, in a folder of their own, with the tables of `whole` and of `picked`."""
        made = Companies(path, whole())
        picked().write_parquet(path / "airport" / "data.parquet")
        made.agree(self.exchange)
        more = SIZES + (QUICK if self.way == "one_shot" else "")
        made.set("airline", self.protect, f'label = "{self.label}", {OWN}', SIZES)
        made.set(
            "airport", "" if self.way == "one_shot" else "protect.embedding = []", 'numeric = ["wind", "rain"]', more
        )
        if self.way == "split":
            for name in ("airline", "airport"):
                (path / name / "contract.toml").write_text(SPLIT)
        return made


SETTINGS = {
    "one exchange": Setting(),
    "counted by persons": Setting(exchange='unit = "person"'),
    "a rare class": Setting(exchange='rare = "positive"'),
    "three classes": Setting(exchange="classes = 3", label="how", protect="limit = 0.75\nodds = 4.0\nbudget = 0.75"),
    "numbers": Setting(
        exchange='target = "number"\nlow = -3.0\nhigh = 3.0', label="delay", protect="limit = 0.75\nbudget = 0.75"
    ),
    "no label sent": Setting(exchange='labels = "none"', protect=""),
    "split": Setting("split", protect=MATCHED),
    "split under a limit": Setting("split", protect=f"{MATCHED}\nlimit = 0.8"),
}


def whole() -> pl.DataFrame:
    """The airline's rows. Those that the airport has not picked are few of class 1, so that this class is rare."""
    rows = table(ROWS, seed=11)
    kept = pl.int_range(pl.len()) < PICKED
    return rows.with_columns(late=pl.when(kept).then("late").otherwise(pl.int_range(pl.len()) % 8 == 0).cast(pl.Int64))


def picked() -> pl.DataFrame:
    """The rows that the partner has: of its choice, it may know their labels."""
    return whole().head(PICKED)


# --- worlds -----------------------------------------------------------------------------------------------------------

KINDS = ("drawn", "of one class", "one odd", "none", "one known", "some missing")


@dataclass(frozen=True)
class World:
    """What is drawn of the rows that were picked; every other row keeps its own."""

    seed: int
    kind: str = ""  # of labels; one that is drawn where none is named

    def make(self, made: Companies, setting: Setting) -> None:
        """Give the rows that were picked other labels and persons."""
        draw = np.random.default_rng(self.seed)
        labels = self._labels(draw, setting.label)
        persons = draw.integers(0, draw.integers(2, PICKED), PICKED)
        change(made, {setting.label: labels, "person": [f"p{one}" for one in persons]})

    def _labels(self, draw: np.random.Generator, column: str) -> list[object]:
        kind = self.kind or str(draw.choice(KINDS))
        values = picked()[column].unique().sort()
        labels = values.gather(draw.integers(0, len(values), PICKED)).to_numpy().astype(object)
        one, other = values.gather(draw.choice(len(values), 2, replace=False)).to_list()
        place = draw.integers(PICKED)
        if kind in ("of one class", "one odd"):
            labels[:] = one
        if kind == "one odd":
            labels[place] = other
        if kind == "some missing":
            labels[draw.random(PICKED) < draw.random()] = None
        if kind in ("none", "one known"):
            labels[:] = None
        if kind == "one known":
            labels[place] = one
        return list(labels)

    def live(self, made: Companies, setting: Setting) -> None:
        """Give these rows a history: what was paid for some or all of them before, and who they were then.

        And a split run in which they went out, or none.
        """
        draw = np.random.default_rng([self.seed, 1])
        before = str(draw.choice(["nothing", "less", "all", "all of one", "all of others"]))
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("TACIT_STATE", state_of(made.path / "airline"))
            if draw.random() < 0.5:
                folder = made.folder("airline")
                older = SplitRun("ab", "older", aligned(folder).id, setting.label, "matched(leak_auc=0.6, visits=8)", 2)
                with counted_facts(folder, SPLIT_RUN) as facts:
                    facts.enter(older)
            if before != "nothing":
                path = made.path / "airline" / "contract.toml"
                agreed = path.read_text()
                if setting.way == "split":
                    path.write_text(f"{EXCHANGE}{agreed.split('loss')[0]}")
                self._pay(made, setting, draw, before)
                path.write_text(agreed)
        if before == "all of others":
            change(made, {"person": [f"q{one}" for one in draw.integers(0, PICKED, PICKED)]})

    def _pay(self, made: Companies, setting: Setting, draw: np.random.Generator, before: str) -> None:
        """Enter an earlier exchange in the airline's book."""
        folder = made.folder("airline")
        rows = aligned(folder)
        answers = Answers(folder, rows, flips(0.6))
        with answers._book() as book:
            keys, units = one_shot_label._keys(folder, answers.contract, rows, book)
            some = units == units[draw.integers(PICKED)] if before == "all of one" else keys == keys
            some = some.all(axis=1)
            labels = np.full(PICKED, -1) if answers.target.classes != 2 else answers.target.values
            given = Rows(keys[some], units[some], labels[some].astype(np.int64))
            terms = answers._terms()
            if before == "less" and setting.label == "late":
                book.release("before", given, flips(0.6), replace(terms, run="before"))
            else:  # the budget has no room for another column's labels beside it
                book.release("before", given, flips(0.75), replace(terms, run="before", label="another"))


def change(made: Companies, columns: Mapping[str, list[Any]]) -> None:
    """Give the airline other values for the rows that were picked."""
    path = made.path / "airline" / "data.parquet"
    rows = pl.read_parquet(path)
    new = picked().select("id").with_columns(pl.Series(f"{name}_new", values) for name, values in columns.items())
    one, there = rows.join(new, on="id", how="left", maintain_order="left"), pl.col("id").is_in(new["id"].implode())
    one = one.with_columns(
        pl.when(there).then(f"{name}_new").otherwise(name).cast(rows.schema[name]).alias(name) for name in columns
    )
    one.select(rows.columns).write_parquet(path)


# --- what the partner hears -------------------------------------------------------------------------------------------


@dataclass
class Heard:
    """All that a partner gets, in its order: links and messages; and how its command ended."""

    messages: list[tuple[object, ...]] = field(default_factory=list)
    raw: bytes = b""
    ended: str = ""  # with which error, if with any

    def on(self, link: Link) -> Link:
        """Listen on a link."""
        recv = link.recv
        self.messages.append(("link", link.peer))

        def heard(timeout: float | None = None) -> Message | None:
            message = recv(timeout)
            if message is not None:
                said = message.payload.numpy().tobytes()
                words = said if message.kind == "refusal" else b""
                shape = tuple(message.payload.shape), str(message.payload.dtype)
                self.messages.append((message.kind, message.step, *shape, len(message.rows), words))
                self.raw += said
            return message

        link.recv = heard  # type: ignore[method-assign]
        return link


def copied(made: Companies, path: Path) -> Companies:
    """The same companies once more, with what their machines keep apart from their folders."""
    shutil.copytree(made.path, path)
    again = copy.copy(made)
    again.path = path
    return again


@dataclass
class Pair:
    """A party that is a process of its own, and its partner here."""

    processes: Processes
    made: Companies
    party: str = "airline"  # in a process
    heard: Heard = field(default_factory=Heard)

    @property
    def partner(self) -> str:
        """The other one."""
        return "airport" if self.party == "airline" else "airline"

    def do(self, verb: Verb, fails: str = "", *, refused: bool = False, kill_at: str = "", count: int = 1) -> Process:
        """Let both give a command; what the partner hears is in `heard`. The party's process, when it has ended.

        `fails` names a call that fails in the process; see `Start`. Where it is `refused` it ends with an error too,
        and with `kill_at` it is killed at so many passes of that point.
        """
        self.heard, where = Heard(), self.made.path / self.party
        how = self._asked(self.party, verb)
        command = "predict" if verb in ("private", "keyed") else verb
        process = self.processes.start(
            Start(str(where), f"{where}.events", command, kill_at, count, how=how, fails=fails)
        )

        def waiting(*_: object) -> None:
            if process.over:
                raise OverError

        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("TACIT_STATE", state_of(self.made.path / self.partner))
            connect, listen = meeting.connect, meeting.listen
            patched.setattr(meeting, "connect", lambda *args: self.heard.on(connect(*args)))
            patched.setattr(meeting, "listen", lambda *args: self._listening(listen(*args)))
            try:
                self._act(verb, process, waiting)
            except (OverError, LinkError, RefusedError) as error:
                assert fails or refused or kill_at, process.events
                self.heard.ended = type(error).__name__
        if verb == "serve":
            process.kill()
        code = process.wait(PATIENCE)
        assert code is not None
        assert fails or code == (FAILED if refused else -9 if verb == "serve" or kill_at else 0), process.events
        return process

    def _listening(self, server: Any) -> Any:
        accept = server.accept

        def accepted(timeout: float | None = None) -> Link | None:
            link = accept(timeout)
            return None if link is None else self.heard.on(link)

        server.accept = accepted
        return server

    def _act(self, verb: Verb, process: Process, waiting: Callable[..., None]) -> None:
        """The partner's part."""
        folder = self.made.folder(self.partner)
        if verb == "align":
            align(folder, waiting=waiting)
        elif verb == "train":
            way = train_one_shot if folder.terms.mode == "one_shot" else train
            way(folder, waiting=waiting)
        elif verb == "serve":
            (self._serve if self.partner == "airport" else self._ask)(folder, process)
        else:
            files = [Path(one) for one in self._asked(self.partner, verb).split("\n")[1:]]
            predict(folder, *files, match=verb, telling=Telling(waiting=waiting))

    def _asked(self, name: str, verb: Verb) -> str:
        """How a party predicts: how rows are matched and, where it is the airline, the file and that of its scores."""
        if verb not in ("private", "keyed"):
            return ""
        if name != "airline":
            return verb
        asked = self.made.path / f"{verb}.parquet"
        whole().head(50).select("id", "plane").write_parquet(asked)
        return "\n".join([verb, str(asked), str(self.made.path / f"{verb}-scores.parquet")])

    def _serve(self, folder: Folder, process: Process) -> None:
        """Answer the airline's service, of which somebody asks for some rows."""
        _, where = find_run(folder)
        half = load_embedder(folder, "serving")
        answering = Answering(folder, where, half, ServedTable(folder, half.columns), lambda *_, **__: None)
        service = FeatureService(folder, half, answering, lambda *_, **__: None)
        with ThreadPoolExecutor(1) as pool:
            answered = pool.submit(service.run)
            try:
                address = _told(process, "http")["address"]
                _told(process, "connected")
                body = json.dumps({"rows": whole().head(20).select("id", "plane").to_dicts()}).encode()
                asked = urllib.request.Request(f"{address}/score", body, {"Content-Type": "application/json"})
                try:
                    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                        assert len(json.loads(answer.read())["scores"]) == 20
                except HTTPError:
                    assert process.start.fails
            finally:
                service.over.set()
                answered.result(PATIENCE)

    def _ask(self, folder: Folder, process: Process) -> None:
        """Ask the airport's service for some rows."""
        scorer = load_scorer(folder, "serving")
        limits = label_limits(scorer.widths)
        ids = read_ids(picked().head(20), folder.table.ids)
        tokens = torch.from_numpy(tokens_of(token_key(aligned(folder)), ids.hashes).copy())
        with meeting.server(folder, folder.terms, limits) as door:
            link = door.accept(PATIENCE)
            if link is None:
                raise OverError
            meeting.said_hello(link, folder, folder.terms, purpose("serve", scorer.versions))
            assert link.recv(PATIENCE) is not None  # which half it has
            link.send(Message(1, "tokens", tokens, b""))
            assert link.recv(PATIENCE) is not None
            link.close()


def _told(process: Process, event: str) -> dict[str, Any]:
    """The first of these events, as soon as a service tells of it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and not process.over:
        for one in process.events:
            if one["event"] == event:
                return one
        time.sleep(0.02)
    raise OverError
