"""A training between parties that can be stopped and disturbed at every point, with nothing left to chance.

The parties are the real ones: sessions, channels, lines, handshakes, journals, checkpoints. Each runs in a thread of
its own, but only while the trial lets it, up to the next point where its process could end; so what happens is a matter
of who is let on when. Time is a number that goes on when everybody waits.
"""

import shutil
import tempfile
import types
from collections import Counter, deque
from math import inf
from pathlib import Path
from random import Random

import pytest
import torch

from tacit.align.batches import Plan
from tacit.errors import LinkError, ProtocolError
from tacit.labels.tally import Tally
from tacit.split.checkpoint import Checkpoints
from tacit.split.durable import Durable
from tacit.split.exactly_once import AnsweringChannel, AskingChannel
from tacit.split.feature_party import FeatureParty
from tacit.split.handshake import Hello, greet_feature_party, greet_label_party
from tacit.split.label_party import LabelParty
from tacit.split.protect.gradient.iso import iso
from tacit.split.protect.keyed_noise import KeyedNoise
from tacit.split.session import FeatureSession, LabelSession
from tacit.wire.codec import CONTROL, PROTOCOL, AtMost, Limit
from tacit.wire.line import Desk, Dialer
from tests.split.machine.processes import Disk, End, Process

ROWS, BATCH, INPUTS, WIDTH, EVERY = 20, 4, 3, 2, 3
PLAN = Plan(ROWS, BATCH, epochs=2, seed=5, test_share=0.2)  # twice four batches and an evaluation, and a farewell
LIMITS = {
    **dict.fromkeys(("embedding", "gradient", "evaluation"), Limit(torch.float32, (BATCH, WIDTH))),
    "figures": Limit(torch.float64, (AtMost(1),)),
    **dict.fromkeys(("hello", "refusal", "done"), CONTROL),
}
REQUESTS, ANSWERS = ("embedding", "evaluation", "done"), ("gradient", "figures", "done")


def numbered():
    """The turn of each request and of each answer, by kind and step."""
    turns, seen = {}, Counter()
    for task in PLAN.tasks():
        step, pair = seen[task.what], {"train": 0, "evaluate": 1, "done": 2}[task.what]
        turns[REQUESTS[pair], step] = turns[ANSWERS[pair], step] = task.turn
        seen[task.what] += 1
    return turns


TURN_OF = numbered()


def attached(session):
    """What a session's channels are made with."""
    return {
        "turn": session.turn, "trace": session.durable.trace, "judge": session.judge, "leaving": session.count,
    }  # fmt: skip


class Trial:
    """A training between processes, and everything that is known about it."""

    def __init__(self, names, *, answering=AnsweringChannel, asking=AskingChannel, journal=Disk):
        self.names, self.kinds = names, (answering, asking, journal)
        self.folder = Path(tempfile.mkdtemp(prefix="tacit-trial-"))
        self.now, self.turn_to_go = 0.0, 0
        self.processes, self.door = {}, deque()
        self.answers = {}  # every answer that ever went out, by peer, kind and step
        self.said = {}  # what was sent by and to whom, by kind and step, as far as both still know
        self.sent = Counter()  # how many requests or answers, by and to whom
        self.alarms, self.due = Counter(), Counter()  # fields of alarms: those that came, those that had to come
        self.lied = False  # whether anybody ever took what its peer did not say just then
        self.excused = set()  # parties that may end with an error, because the trial put something into their way
        generator = torch.Generator().manual_seed(1)
        self.x = {name: torch.randn(ROWS, INPUTS, generator=generator) for name in names}
        self.y = (torch.arange(ROWS) % 3 == 0).float()

    # --- the parties ---

    def durable(self, process):
        journal = self.kinds[2](self.folder / process.name / "journal", sync=False)
        trace = lambda point: process.pause()  # noqa: E731
        checkpoints = Checkpoints(self.folder / process.name / "checkpoints")
        tally = Tally(self.tally(process.name))
        return Durable(journal, checkpoints, {"data": "same"}, every=EVERY, trace=trace, tally=tally)

    def tally(self, name):
        """Where is counted what left, apart from the party's folder."""
        return self.folder / "state" / name

    def hello(self, name, role):
        return Hello(PROTOCOL, "1", "run", role, name, "c", "a", "r", "p", 0, 0, "")

    def feature(self, process):
        name, durable = process.name, self.durable(process)
        bottom = fixed(torch.nn.Linear(INPUTS, WIDTH), self.names.index(name))
        optimizer = torch.optim.SGD(bottom.parameters(), lr=0.1, momentum=0.9)
        party = FeatureParty(bottom=bottom, features=self.x[name], optimizer=optimizer)
        noise = KeyedNoise(name.encode().ljust(32, b"*"), "embedding")
        session = process.session = FeatureSession(party, PLAN, durable, noise=noise, shared=("test_loss",))
        (exchange,) = session.exchanges(["label"], "features", LIMITS)
        line = Dialer(
            "label", lambda: self.connect(process),
            lambda link: greet_label_party(link, self.hello(name, "features"), exchange),
            jitter=Random(0), now=lambda: self.now, sleep=lambda seconds: process.pause(lambda: False, seconds),
        )  # fmt: skip
        process.exchanges = {"label": exchange}
        session.connect(self.kinds[1](exchange, line, **attached(session)))
        for _ in session.run():
            pass
        session.leave()
        line.close()

    def label(self, process):
        self.door.clear()
        durable, names = self.durable(process), self.names
        top = fixed(Top(WIDTH * len(names), 1), 99)
        optimizer = torch.optim.SGD(top.parameters(), lr=0.1, momentum=0.9)
        party = LabelParty(top=top, labels=self.y, optimizer=optimizer, protect=iso(t=1.0))
        session = process.session = LabelSession(
            party, PLAN, durable, noise=KeyedNoise(b"s" * 32, "gradient"), shared=("test_loss",),
            measure=lambda logits, labels: {"test_loss": float((logits.flatten() - labels).pow(2).mean())},
        )  # fmt: skip
        exchanges = dict(zip(names, session.exchanges(names, "label", LIMITS), strict=True))

        def greet(link):
            greet_feature_party(link, self.hello("label", "label"), exchanges[link.peer])
            link.greeted = True

        desk = Desk(
            lambda seconds: self.accept(process, seconds), greet, names, now=lambda: self.now,
            alarm=lambda peer, field, reason: self.alarms.update([field]),
        )  # fmt: skip
        lines = {name: desk.line(name) for name in names}
        channels = [self.kinds[0](exchanges[n], lines[n], **attached(session)) for n in names]
        session.connect(*channels)
        process.exchanges = exchanges
        for _ in session.run():
            pass
        session.leave(inf)

    def connect(self, process):
        label = self.processes.get("label")
        if label is None or label.over:
            raise LinkError("nobody listens")
        ours, theirs = End(process, "label"), End(label, process.name)
        ours.other, theirs.other = theirs, ours
        self.door.append(theirs)
        return ours

    def accept(self, process, seconds):
        if seconds:
            process.pause(lambda: bool(self.door), seconds)
        return self.door.popleft() if self.door else None

    # --- what the trial notices ---

    def note_sent(self, process, peer, message):
        """A request or an answer goes out: it must be written down, and survive the end of the power."""
        name, turn = process.name, TURN_OF.get((message.kind, message.step))
        if turn is None:
            return
        written, disk = process.exchanges[peer]._turns.get(turn), process.session.durable.journal
        assert written is not None
        assert message.fingerprint == (written.answered if name == "label" else written.asked)
        assert disk._durable == disk._newest.end
        self.sent[name, peer] += 1
        self.said.setdefault((name, peer), {})[message.kind, message.step] = message
        if name == "label":
            self.answers.setdefault((peer, message.kind, message.step), set()).add(message.fingerprint)

    def note_taken(self, end, message, how):
        """Something is taken: if the peer did not send it now, work out whether there must be an alarm."""
        me, peer, turn = end.process.name, end.peer, TURN_OF.get((message.kind, message.step))
        if how != "forged" and turn is not None:  # a request makes the turn before it complete
            end.process.taken[peer] = max(end.process.taken[peer], turn if me == "label" else turn + 1)
        if how == "sent":
            return
        self.lied = True
        self.excused |= {me, peer} - {"label"}
        if me != "label":
            return
        known = (message.kind, message.step) in end.process.exchanges[peer]._places
        if not end.greeted:
            self.due["message"] += 1
        elif how == "forged" or not (known or self.is_due(peer, message)):
            self.due["request"] += 1

    def is_due(self, peer, message):
        session = self.processes["label"].session
        turn = session.channels[self.names.index(peer)].turn
        return turn < PLAN.turns and TURN_OF[message.kind, message.step] == turn

    # --- what happens ---

    def start(self, name):
        process = self.processes.get(name)
        if process is None or (process.over and not self.finished(name)):
            if process is not None:
                self.end(name)
            self.processes[name] = Process(self, name)

    def end(self, name, power=False):
        """Kill a process that runs; of one that ended by itself, see that it was right to."""
        process = self.processes[name]
        process.kill(power)
        if process.error is not None:
            allowed = (ProtocolError,) if name in self.excused else ()
            if not isinstance(process.error, allowed):
                raise process.error
        self.excused.discard(name)

    def finished(self, name):
        process = self.processes[name]
        return process.over and process.error is None and not process._killed

    def event(self):
        """Let one process go on: in turn whoever is ready, else the one whose wait is over first."""
        running = [process for process in self.processes.values() if not process.over]
        if not running:
            return
        self.turn_to_go += 1
        order = [running[(self.turn_to_go + i) % len(running)] for i in range(len(running))]
        chosen = next((process for process in order if process.ready()), None)
        if chosen is None:
            chosen = min(order, key=lambda process: process.deadline)
            self.now = chosen.deadline
        chosen.go()

    def until(self, condition, most=6000):
        for _ in range(most):
            if condition():
                return
            self.event()
        raise AssertionError(f"no progress: {', '.join(map(str, self.processes.values()))}")

    def cut(self):
        """The network is gone for a moment, with all that was under way."""
        for process in self.processes.values():
            for link in process.links:
                link.close()
                link.inbox.clear()

    def to_the_end(self):
        """No more trouble: every party goes on, or is started again, until all are through."""
        self.cut()
        for _ in range(8):
            for name in ("label", *self.names):
                self.start(name)
            self.until(lambda: all(self.finished(name) for name in self.names) or self.ended())
            if all(self.finished(name) for name in self.names):
                break
        label = self.processes["label"]
        self.until(lambda: label.over or (label.session is not None and label.session.turn == PLAN.turns))
        assert all(self.finished(name) for name in self.names)

    def ended(self):
        return [name for name, process in self.processes.items() if process.over and not self.finished(name)]

    def weights(self):
        """All models' numbers, in one order."""
        models = [self.processes[name].session.model for name in ("label", *self.names)]
        return torch.cat([value.flatten() for model in models for value in model.state_dict().values()])

    def close(self):
        for process in self.processes.values():
            process.kill()
        shutil.rmtree(self.folder)


class Top(torch.nn.Linear):
    """One layer over all cuts."""

    def forward(self, *cuts):
        return super().forward(torch.cat(cuts, dim=1))


def fixed(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(name="trials", scope="session")
def _trials():
    """The tools of this file, for tests that may not import it."""
    asked = {turn: what for what, turn in TURN_OF.items() if what[0] in REQUESTS}
    return types.SimpleNamespace(Trial=Trial, Disk=Disk, TURN_OF=TURN_OF, ASKED=asked, TURNS=PLAN.turns)
