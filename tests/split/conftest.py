"""Two parties in two threads, with real journals and checkpoints on disk and links that can break."""

import queue
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from benchmarks._memory_links import links
from tacit.align.batches import Plan
from tacit.errors import LinkError
from tacit.labels.tally import Tally
from tacit.split.checkpoint import Checkpoints
from tacit.split.durable import Durable
from tacit.split.exactly_once import AnsweringChannel, AskingChannel
from tacit.split.feature_party import FeatureParty
from tacit.split.handshake import Hello, greet_feature_party, greet_label_party
from tacit.split.journal import Journal
from tacit.split.label_party import LabelParty
from tacit.split.protect.gradient.matched import matched
from tacit.split.protect.keyed_noise import KeyedNoise
from tacit.split.session import FeatureSession, LabelSession
from tacit.wire.codec import CONTROL, PROTOCOL, AtMost, Limit
from tacit.wire.line import Desk, Dialer
from tests.plain_network import mlp

BATCH, WIDTH, ROWS, INPUTS = 16, 6, 100, 5


class KilledError(BaseException):
    """Stands for kill -9: nothing of ours may catch it."""


class Hub:
    """Where a feature party finds the label party, if it is up."""

    def __init__(self):
        self.door = None
        self.links = []

    def accept(self, timeout):
        try:
            return self.door.get(timeout=timeout) if timeout else self.door.get_nowait()
        except queue.Empty:
            return None

    def connect(self, name, limits):
        if self.door is None:
            raise LinkError("nobody listens")
        ours, theirs = links(limits, names=(name, "label"))
        self.links += [ours, theirs]
        self.door.put(theirs)
        return ours


class Killer:
    """Ends a party when it passes a point for the n-th time; and remembers all points."""

    def __init__(self, point=None, count=1):
        self.point = point
        self.count = count
        self.seen = []

    def __call__(self, point):
        self.seen.append(point)
        if point == self.point:
            self.count -= 1
            if self.count == 0:
                raise KilledError(point)


class World:
    """A training between a label party and feature parties, each with its folder."""

    def __init__(
        self,
        folder,
        *,
        names=("one",),
        protect=None,
        protect_embedding=lambda start: (),
        epochs=2,
        every=4,
        test_share=0.2,
    ):
        self.folder = Path(folder)
        self.state = self.folder / "state"  # apart from what is copied
        self.asking = AskingChannel
        self.feature_guard, self.turned = None, lambda turned: None
        self.names = names
        self.protect = protect or matched(leak_auc=0.6, visits=epochs)
        self.protect_embedding = protect_embedding  # of the number of starts before
        self.starts = Counter()
        self.plan = Plan(ROWS, BATCH, epochs, seed=5, test_share=test_share)
        self.every = every
        self.guard = {"data": "same"}
        self.hub = Hub()
        self.alarms = []
        self.answers = {}  # every answer that ever went out, by peer, kind and step
        self.version = "1"
        generator = torch.Generator().manual_seed(1)
        self.x = {name: torch.randn(ROWS, INPUTS, generator=generator) for name in names}
        self.y = (sum(x[:, 0] for x in self.x.values()) + torch.randn(ROWS, generator=generator) > 0.5).float()
        self.limits = {
            "embedding": Limit(torch.float32, (BATCH, WIDTH)),
            "gradient": Limit(torch.float32, (BATCH, WIDTH)),
            "evaluation": Limit(torch.float32, (AtMost(BATCH), WIDTH)),
            "figures": Limit(torch.float64, (AtMost(8),)),
            **dict.fromkeys(("hello", "refusal", "done"), CONTROL),
        }

    def hello(self, name, role):
        return Hello(PROTOCOL, self.version, "run", role, name, "c", "a", "r", "p", 0, 0, "")

    def durable(self, name, trace):
        folder = self.folder / name
        journal = Journal(folder / "journal", sync=False)
        tally = Tally(self.state / name)
        return Durable(
            journal, Checkpoints(folder / "checkpoints"), self.guard, every=self.every, trace=trace, tally=tally
        )

    def feature(self, name, trace=lambda point: None):
        durable = self.durable(name, trace)
        try:
            seed = torch.Generator().manual_seed(self.names.index(name))
            bottom, _ = mlp(INPUTS, widths=(8, WIDTH), cut=2, generator=seed)
            optimizer = torch.optim.Adam(bottom.parameters(), lr=0.02)
            protect = self.protect_embedding(self.starts[name])
            self.starts[name] += 1
            party = FeatureParty(bottom=bottom, features=self.x[name], optimizer=optimizer, protect=protect)
            noise = KeyedNoise(name.encode().ljust(32, b"*"), "embedding")
            session = FeatureSession(
                party, self.plan, durable, noise=noise, shared=("test_loss",), guard=self.feature_guard,
            )  # fmt: skip
            (exchange,) = session.exchanges(["label"], "features", self.limits)
            line = Dialer(
                "label",
                lambda: self.hub.connect(name, self.limits),
                lambda link: greet_label_party(link, self.hello(name, "features"), exchange),
            )
            session.connect(self.asking(exchange, line, **attached(session, trace)))
            for turned in session.run():
                self.turned(turned)
            session.leave()
            line.close()
            durable.journal.close()
            return session
        finally:
            release(durable)

    def label(self, trace=lambda point: None):
        durable = self.durable("label", trace)
        self.hub.door = queue.Queue()
        try:
            session = self._label_session(durable, trace)
            for _ in session.run():
                pass
            session.leave(3)
            durable.journal.close()
            return session
        finally:
            self.hub.door = None
            for link in self.hub.links:
                link.close()
            self.hub.links.clear()
            release(durable)

    def _label_session(self, durable, trace):
        seed = torch.Generator().manual_seed(99)
        top = Top(WIDTH * len(self.names), 1)
        torch.nn.init.normal_(top.weight, generator=seed)
        torch.nn.init.zeros_(top.bias)
        optimizer = torch.optim.Adam(top.parameters(), lr=0.02)
        party = LabelParty(top=top, labels=self.y, optimizer=optimizer, protect=self.protect)
        session = LabelSession(
            party, self.plan, durable, noise=KeyedNoise(b"s" * 32, "gradient"), shared=("test_loss",),
            measure=lambda logits, labels: {"test_loss": float((logits.flatten() - labels).pow(2).mean())},
        )  # fmt: skip
        exchanges = dict(zip(self.names, session.exchanges(self.names, "label", self.limits), strict=True))
        desk = Desk(
            self.hub.accept,
            lambda link: greet_feature_party(link, self.hello("label", "label"), exchanges[link.peer]),
            self.names,
            alarm=lambda *what: self.alarms.append(what),
        )
        session.connect(
            *(
                Watched(self, AnsweringChannel(exchange, desk.line(name), **attached(session, trace)))
                for name, exchange in exchanges.items()
            )
        )
        return session


def attached(session, trace):
    """What a session's channels are made with."""
    return {"turn": session.turn, "trace": trace, "judge": session.judge, "leaving": session.count}


def release(durable):
    """What the end of a process does to its locks, without a last sync."""
    durable.journal._release()
    durable.tally.close()


class Top(torch.nn.Linear):
    """One layer over all cuts."""

    def forward(self, *cuts):
        return super().forward(torch.cat(cuts, dim=1))


class Watched:
    """A channel whose line notes every answer that goes out."""

    def __new__(cls, world, channel):
        inner = channel.line.send

        def send(message):
            key = (channel.exchange.peer, message.kind, message.step)
            world.answers.setdefault(key, set()).add(message.fingerprint)
            inner(message)

        channel.line.send = send
        return channel


def train(world, killers=None, patience=60):
    """Run all parties to the end; one that is killed is started again. Returns the sessions by name."""
    killers = dict(killers or {})
    done, errors, failed = {}, {}, threading.Event()

    def keep_running(name):
        while name not in done:
            trace = killers.pop(name, lambda point: None)
            try:
                done[name] = world.label(trace) if name == "label" else world.feature(name, trace)
            except KilledError:
                continue
            except BaseException as error:
                errors[name] = error
                failed.set()
                return

    threads = [threading.Thread(target=keep_running, args=(name,), daemon=True) for name in ("label", *world.names)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + patience
    while any(thread.is_alive() for thread in threads) and not failed.wait(0.01) and time.monotonic() < end:
        pass
    if errors:
        raise next(iter(errors.values()))
    assert not any(thread.is_alive() for thread in threads), "a party waits for something that never comes"
    return done


def weights(sessions):
    return {
        name: {key: value.clone() for key, value in session.model.state_dict().items()}
        for name, session in sessions.items()
    }


@pytest.fixture
def parties():
    """The tools of this file, for tests that may not import it."""
    import types

    return types.SimpleNamespace(
        World=World, Killer=Killer, KilledError=KilledError, train=train, weights=weights, ROWS=ROWS, BATCH=BATCH
    )
