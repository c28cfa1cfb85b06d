"""A training with several turns open at once: killed anywhere on either side, it ends as if it had never been."""

import copy
from collections import deque
from contextlib import suppress

import pytest
import torch

from tacit.align.batches import Plan
from tacit.cut.session import LabelSession
from tacit.errors import RefusedError
from tacit.protect.embedding.adversarial import adversarial
from tacit.protect.embedding.gaussian import gaussian
from tacit.protect.gradient.none import none
from tacit.wire.exactly_once import AskingChannel
from tests.plain_network import mlp

DEPTH, EVERY = 3, 6
POINTS = {
    "label": ("request received", "request written", "answer computed", "answer written", "answer sent", "applied"),
    "one": ("request computed", "request written", "request sent", "answer received", "answer written", "applied"),
}


def protected(start):
    """Noise on every embedding, and something that learns on the side."""
    reconstructor, generator = torch.nn.Linear(6, 5), torch.Generator().manual_seed(start)
    with torch.no_grad():
        for weight in reconstructor.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return [adversarial(0.1, reconstructor=reconstructor), gaussian(snr=10.0)]


def same(one, two):
    return all(torch.equal(one[name][key], two[name][key]) for name in one for key in one[name])


@pytest.fixture(name="deep")
def _deep(parties, tmp_path):
    """Makes a world of this depth; `reference` is what one without any disturbance gives."""

    def make(name, **more):
        return parties.World(
            tmp_path / name, **{"depth": DEPTH, "every": EVERY, "protect_embedding": protected, **more}
        )

    return make


@pytest.fixture(name="undisturbed", scope="module")
def _undisturbed():
    return {}


def reference(parties, deep, undisturbed, **more):
    key = tuple(sorted(more.items()))
    if key not in undisturbed:
        world = deep("undisturbed", **more)
        undisturbed[key] = parties.weights(parties.train(world)), world.answers
    return undisturbed[key]


@pytest.mark.parametrize("count", [2, 9])
@pytest.mark.parametrize(("name", "point"), [(name, point) for name in POINTS for point in POINTS[name]])
def test_killed_at_any_point_the_models_end_the_same(parties, deep, undisturbed, name, point, count):
    weights, answers = reference(parties, deep, undisturbed)
    world, killer = deep("killed"), parties.Killer(point, count)
    sessions = parties.train(world, {name: killer})
    assert killer.count == 0, "nothing was killed"
    assert same(weights, parties.weights(sessions))
    assert world.answers == answers
    assert all(len(one) == 1 for one in world.answers.values())
    assert not world.alarms


def test_both_sides_killed_and_three_parties(parties, deep, undisturbed):
    names = {"names": ("one", "two")}
    weights, answers = reference(parties, deep, undisturbed, **names)
    world = deep("killed", **names)
    killers = {
        "label": parties.Killer("answer written", 9), "one": parties.Killer("request sent", 5),
        "two": parties.Killer("answer received", 6),
    }  # fmt: skip
    sessions = parties.train(world, killers)
    assert [killer.count for killer in killers.values()] == [0, 0, 0]
    assert same(weights, parties.weights(sessions))
    assert world.answers == answers
    assert not world.alarms


def most_open(points):
    """How many requests were open at once, at most, by the points that a feature party passed."""
    now = most = 0
    for point in points:
        now += {"request written": 1, "answer written": -1}.get(point, 0)
        most = max(most, now)
    return most


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_as_many_turns_are_open_as_the_depth_says(parties, deep, depth):
    world, points = deep("trained", depth=depth, every=100), parties.Killer()
    parties.train(world, {"one": points})
    assert most_open(points.seen) == depth


# --- an independent reference ----------------------------------------------------------------------------------------


def rests(plan, every):
    """The turns before which everything is answered: written out for this plan, of five batches and two tests."""
    assert (plan.steps, plan.tests, plan.epochs, every) == (5, 2, 2, 6)
    return {0, 2, 5, 6, 7, 12, 14}


def late(world):
    """The same training in plain PyTorch, gradients applied late, bare on both sides."""
    x, y, plan = world.x["one"], world.y, world.plan
    bottom, _ = mlp(5, widths=(8, 6), cut=2, generator=torch.Generator().manual_seed(0))
    top = torch.nn.Linear(6, 1)
    torch.nn.init.normal_(top.weight, generator=torch.Generator().manual_seed(99))
    torch.nn.init.zeros_(top.bias)
    below, above = (torch.optim.Adam(half.parameters(), lr=0.02) for half in (bottom, top))
    waiting = deque()

    def apply():
        then, z, gradient = waiting.popleft()
        z.backward(gradient)
        for now, was in zip(bottom.parameters(), then.parameters(), strict=True):
            now.grad = was.grad
        below.step()

    for task in plan.tasks():
        while waiting and task.turn in rests(plan, world.every):
            apply()
        if task.what != "train":
            continue
        then = copy.deepcopy(bottom)
        z = then(x[task.rows])
        cut = z.detach().requires_grad_()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(top(cut).squeeze(1), y[task.rows])
        above.zero_grad()
        loss.backward()
        above.step()
        waiting.append((then, z, cut.grad))
        if len(waiting) == world.depth:
            apply()
    return {"one": bottom.state_dict(), "label": top.state_dict()}


@pytest.mark.parametrize("depth", [1, 3])
def test_the_models_are_those_of_late_gradients(parties, deep, depth):
    world = deep("trained", depth=depth, protect=none(), protect_embedding=lambda start: ())
    assert same(late(world), parties.weights(parties.train(world)))


# --- a feature party that does not wait ------------------------------------------------------------------------------


class Impatient(AskingChannel):
    """Sends requests for turns that are far from due, as soon as it may send one."""

    def send(self, message):
        super().send(message)
        if message.kind == "embedding" and message.step == 2:
            for step in range(3, 3 + DEPTH):
                self.line.send(type(message)(step, message.kind, message.payload, message.rows))


def test_a_feature_party_that_sends_more_than_may_be_open_is_refused(parties, deep, monkeypatch):
    step = LabelSession._do

    def slow(self, task):
        """Answers when all of it has come: how fast the peer is must not matter here."""
        channel = self.channels[0]
        if task.turn == 2:
            while channel._open < DEPTH + 1 and not world.alarms:
                channel._read_ahead()
        return step(self, task)

    monkeypatch.setattr(LabelSession, "_do", slow)
    world = deep("impatient")
    world.asking = Impatient
    with suppress(RefusedError):  # it ends there, or finds the link closed first and comes again without a word more
        parties.train(world)
    ((_, field, why),) = world.alarms
    assert field == "request"
    assert "requests came and none of them has an answer yet: the contract's depth is 3" in why
    assert all(len(one) == 1 for one in world.answers.values())


# --- where everything is answered ------------------------------------------------------------------------------------


class Looking:
    """A guard that notes, before each embedding is protected, which turns are over."""

    def __init__(self):
        self.over, self.before_turn = [], {}

    def before(self, task, embedding):
        self.before_turn[task.turn] = list(self.over)

    def leaving(self, task):
        pass


def test_where_a_gate_may_decide_nothing_is_open(parties, deep):
    world = deep("trained", every=100)
    world.feature_guard = looking = Looking()
    world.turned = lambda turned: looking.over.append(turned.task.turn)
    parties.train(world)
    assert looking.over == list(range(world.plan.turns))
    behind = {turn: turn - len(over) for turn, over in looking.before_turn.items()}
    assert behind == {0: 0, 1: 1, 2: 0, 3: 1, 4: 2, 7: 0, 8: 1, 9: 2, 10: 2, 11: 2}


@pytest.mark.parametrize("steps", [3, 90, 300, 1000])
def test_before_a_look_back_everything_that_was_sent_is_known(steps):
    """The points at which a gate may decide are a matter of the plan alone."""
    plan = Plan(steps * 2, 2, epochs=2, seed=0)
    found = [task.turn for task in plan.tasks() if task.what == "train" and plan.looked_back(task) == task.turn]
    apart = max(64, -(-steps // 4))
    expected = {epoch * steps + place for epoch in (0, 1) for place in range(0, steps, apart)}
    assert found == sorted(expected | {early for early in (0, 2, 8, 32) if early < steps})
