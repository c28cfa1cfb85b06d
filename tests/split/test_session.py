"""A training that is killed anywhere ends as if it had never been, and every request has one answer."""

import os
import shutil
from dataclasses import replace

import pytest
import torch

from tacit.align.batches import digest
from tacit.contracts import Message
from tacit.errors import StorageError
from tacit.split.exactly_once import AskingChannel
from tacit.split.journal import Journal
from tacit.split.label_party import ALIKE, LabelParty, alike
from tacit.split.protect.embedding.adversarial import adversarial
from tacit.split.protect.embedding.distance_correlation import distance_correlation
from tacit.split.protect.embedding.gaussian import gaussian
from tacit.split.protect.embedding.noise_regularization import noise_regularization

POINTS = {
    "label": (
        "request received", "request written", "answer computed", "answer written", "answer sent", "applied",
        "checkpoint written", "journal rotated",
    ),
    "one": (
        "request computed", "request written", "request sent", "answer received", "answer written", "applied",
        "checkpoint written", "journal rotated",
    ),
}  # fmt: skip


def hiding_at(start):
    """All kinds of embedding protections; what learns is another one at every start, until a checkpoint comes back."""
    reconstructor = torch.nn.Linear(6, 5)
    generator = torch.Generator().manual_seed(start)
    with torch.no_grad():
        for weight in reconstructor.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return [
        distance_correlation(0.1), adversarial(0.1, reconstructor=reconstructor), noise_regularization(0.01),
        gaussian(snr=10.0),
    ]  # fmt: skip


def same(one, two):
    return all(torch.equal(one[name][key], two[name][key]) for name in one for key in one[name])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, request):
    """What the training gives when nothing happens: weights, answers and the points that were passed."""
    return {}


def reference(parties, undisturbed, tmp_path, names=("one",)):
    if names not in undisturbed:
        world = parties.World(tmp_path / "undisturbed", names=names)
        killers = {name: parties.Killer() for name in ("label", *names)}
        sessions = parties.train(world, killers)
        undisturbed[names] = (
            parties.weights(sessions), world.answers, {name: killer.seen for name, killer in killers.items()},
            {name: session.history for name, session in sessions.items()},
        )  # fmt: skip
    return undisturbed[names]


def test_an_undisturbed_run_passes_every_point_and_learns(parties, undisturbed, tmp_path):
    weights, answers, seen, history = reference(parties, undisturbed, tmp_path)
    assert {name: set(points) for name, points in seen.items()} == {name: set(p) for name, p in POINTS.items()}
    assert all(len(one) == 1 for one in answers.values())
    assert [line["epoch"] for line in history["label"]] == [0, 1]
    assert [line["test_loss"] for line in history["one"]] == [round(x["test_loss"], 2) for x in history["label"]]
    world = parties.World(tmp_path / "again")
    assert same(weights, parties.weights(parties.train(world)))


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize(("name", "point"), [(name, point) for name in POINTS for point in POINTS[name]])
def test_killed_at_any_point_the_models_end_the_same(parties, undisturbed, tmp_path, name, point, count):
    weights, answers, seen, history = reference(parties, undisturbed, tmp_path)
    count = min(count, seen[name].count(point))
    world = parties.World(tmp_path / "killed")
    killer = parties.Killer(point, count)
    sessions = parties.train(world, {name: killer})
    assert killer.count == 0, "nothing was killed"
    assert same(weights, parties.weights(sessions))
    assert world.answers.keys() == answers.keys()
    assert all(world.answers[key] == answers[key] for key in answers)
    assert not world.alarms
    assert {who: session.history for who, session in sessions.items()} == history


def test_three_parties_and_one_of_them_killed(parties, undisturbed, tmp_path):
    names = ("one", "two")
    weights, answers, _, _ = reference(parties, undisturbed, tmp_path, names)
    for name in ("label", "two"):
        world = parties.World(tmp_path / name, names=names)
        sessions = parties.train(world, {name: parties.Killer("answer written", 5)})
        assert same(weights, parties.weights(sessions))
        assert world.answers == answers


@pytest.mark.parametrize("count", [2, 9])
@pytest.mark.parametrize("point", ["request computed", "request sent", "answer written", "applied", "journal rotated"])
def test_a_feature_party_that_learns_to_hide_ends_the_same(parties, undisturbed, tmp_path, point, count):
    """What its protections have learned and the noise on its embeddings survive a kill like everything else."""
    weights, requests, learned = hidden_reference(parties, undisturbed, tmp_path)
    world = parties.World(tmp_path / "killed", protect_embedding=hiding_at)
    killer = parties.Killer(point, count)
    sessions = parties.train(world, {"one": killer})
    assert killer.seen.count(point) >= 1
    assert same(weights, parties.weights(sessions))
    assert sessions["one"].durable.checkpoints.newest().state["transcripts"] == requests
    ended = sessions["one"].party.shield.state()
    assert all(same({"": now["module"]}, {"": then["module"]}) for now, then in zip(ended, learned, strict=True))


def hidden_reference(parties, undisturbed, tmp_path):
    if "hiding" not in undisturbed:
        sessions = parties.train(parties.World(tmp_path / "hiding", protect_embedding=hiding_at))
        state = sessions["one"].party.shield.state()
        assert any(one["module"] for one in state)
        said = sessions["one"].durable.checkpoints.newest().state["transcripts"]
        undisturbed["hiding"] = parties.weights(sessions), said, state
    return undisturbed["hiding"]


def test_what_a_feature_party_says_is_judged_before_it_is_written_down(parties, tmp_path):
    world = parties.World(tmp_path)
    durable = world.durable("label", lambda point: None)
    session = world._label_session(durable, lambda point: None)
    tasks = {task.what: task for task in world.plan.tasks()}
    train, evaluate = tasks["train"], tasks["evaluate"]
    good = Message(0, "embedding", torch.zeros(parties.BATCH, 6), digest(train.rows))
    session.now, judge = train, session.judge
    assert judge(good) is None
    assert "other rows" in judge(Message(0, "embedding", good.payload, digest(evaluate.rows)))
    few = Message(0, "evaluation", torch.zeros(len(evaluate.rows) - 1, 6), digest(evaluate.rows))
    session.now = evaluate
    assert "rows or figures came" in judge(few)
    durable.journal.close()


def _draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def _spread(count, jitter=0.0):
    """All rows at one place but for so many of length 50, and within a jitter of it."""
    z = torch.zeros(512, 64)
    z[:count] = 50 * torch.eye(64)[torch.arange(count) % 64]
    z[count:] += jitter * _draw(512 - count, 64)
    return z


@pytest.mark.parametrize(
    ("z", "refused"),
    [
        (torch.ones(512, 64), True),
        (torch.zeros(512, 64), True),  # a bottom that has died
        (_spread(32), True),
        (_spread(32, jitter=1e-4), True),
        (_draw(512, 64), False),
        (_draw(512, 64).relu() * (_draw(512, 1) > 0), False),  # half of the rows are zero
        (torch.ones(31, 64), False),  # a few may be alike by chance
        # Somebody who takes more trouble is not refused: what this stops is as the docs say, not more.
        (_spread(32, jitter=2e-3), False),
        (_spread(102), False),
        (3 * torch.eye(16, 64)[torch.arange(512) % 16], False),
    ],
    ids=["one vector", "zeros", "most", "nearly", "honest", "half zeros", "few rows", "jitter", "80%", "16 vectors"],
)  # fmt: skip
def test_a_batch_in_which_nearly_all_rows_are_alike_is_refused_and_no_other(z, refused):
    assert (alike(z) > ALIKE) == refused


@pytest.mark.parametrize(
    ("lost", "says"),
    [(["journal"], "does not know what was said"), (["checkpoints"], "no good checkpoint"),
     (["journal", "checkpoints"], "no good checkpoint")],
)  # fmt: skip
def test_a_party_that_has_lost_its_memory_does_not_answer_again(parties, tmp_path, lost, says):
    world = parties.World(tmp_path)
    parties.train(world)
    for name in lost:
        shutil.rmtree(tmp_path / "label" / name)
    with pytest.raises(StorageError, match=says):
        world.label()


def test_with_the_newest_checkpoint_damaged_the_one_before_serves(parties, undisturbed, tmp_path):
    weights, answers, _, _ = reference(parties, undisturbed, tmp_path)
    world = parties.World(tmp_path / "damaged")
    sessions = parties.train(world)
    newest = max((tmp_path / "damaged" / "label" / "checkpoints").glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    sessions["label"] = world.label()  # the journal has the turns since then, and nobody need be asked
    assert same(weights, parties.weights(sessions))
    assert world.answers == answers


class Liar(AskingChannel):
    """A feature party that asks something else than it would, wherever its journal does not hold it to its word."""

    def send(self, message):
        if self.exchange.request(self.turn) is None and message.payload.numel():
            message = replace(message, payload=message.payload + 1e-3)
        super().send(message)


def restored_with_a_liar(parties, world, at):
    """Train to the end with backups of both at a turn; bring both back, and let the feature party lie from there on."""
    copies = world.folder / "copies"

    def back_up(name):
        passed = []

        def trace(point):
            passed.append(point)
            if point == "applied" and passed.count(point) == at:
                shutil.copytree(world.folder / name, copies / name)

        return trace

    parties.train(world, {name: back_up(name) for name in ("label", "one")})
    for name in ("label", "one"):
        shutil.rmtree(world.folder / name)
        shutil.copytree(copies / name, world.folder / name)
    (world.state / "one").write_text("0")  # a liar keeps no count
    world.asking = Liar
    try:
        parties.train(world)
    finally:
        steps = [found for (_, kind, _), found in world.answers.items() if kind == "gradient"]
        world.twice = sum(len(found) > 1 for found in steps), len(steps)


def test_a_restored_backup_does_not_answer_a_lying_peer_again(parties, tmp_path):
    world = parties.World(tmp_path, epochs=6)
    with pytest.raises(StorageError, match=r"an older copy: it knows of 15 messages, and 43 have left"):
        restored_with_a_liar(parties, world, at=15)
    assert world.twice == (0, 30)


def test_without_its_counter_a_run_does_not_go_on(parties, tmp_path):
    world = parties.World(tmp_path)
    parties.train(world)
    (world.state / "label").unlink()
    with pytest.raises(StorageError, match="gone or another one's"):
        world.label()
    assert not (world.state / "label").exists()


def test_on_a_device_an_answer_that_left_and_is_lost_is_not_computed_again(parties, tmp_path, monkeypatch):
    """A CPU would come to the same bits; elsewhere a second answer would have other noise."""
    world, passed, copy = parties.World(tmp_path), [], tmp_path / "copy"

    def trace(point):
        passed.append(point)
        if point == "answer sent" and passed.count(point) == 8:
            shutil.copytree(world.folder / "label", copy / "label")
            shutil.copy(world.state / "label", copy / "count")

    parties.train(world, {"label": trace})
    shutil.rmtree(world.folder / "label")
    shutil.copytree(copy / "label", world.folder / "label")
    shutil.copy(copy / "count", world.state / "label")
    with Journal(world.folder / "label" / "journal", sync=False) as journal:
        place = [place for place, record in journal.records() if record.kind == "answered"][-1]
    os.truncate(world.folder / "label" / "journal" / f"journal-{place.segment:012d}.log", place.offset)
    inner = LabelParty.__init__

    def elsewhere(party, **options):
        inner(party, **options)
        party.device = torch.device("meta")

    monkeypatch.setattr(LabelParty, "__init__", elsewhere)
    with pytest.raises(StorageError, match="this folder is an older copy: it knows of 7 messages, and 8 have left"):
        world.label()
