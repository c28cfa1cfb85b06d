"""A party's own eye on what it sends: what is recorded and looked at, and what is left of it after a kill."""

import json
from functools import partial

import pytest
import torch

from tacit.align.batches import Plan, Task, digest
from tacit.config import Contract, Live, Record
from tacit.contracts import Message
from tacit.report.run_files import LIVE
from tacit.split.feature_party import FeatureParty
from tacit.split.guard import Watch, look_at_embeddings, look_at_gradients, looks
from tacit.split.label_party import LabelParty
from tacit.split.protect.gradient import protection
from tacit.split.session import Turned

CONTRACT = """
run = "small"
label_party = "airline"
feature_parties = ["airport"]
loss = "binary"
epochs = {epochs}
batch_size = 16
cut.widths.airport = {width}
minimum.gradient.name = "none"
"""
ROWS, WIDTH = 64, 4
PLAN = Plan(ROWS, 16, 2, seed=1)


def contract(epochs=2, width=WIDTH):
    return Contract.read(CONTRACT.format(epochs=epochs, width=width))


def label_party():
    torch.manual_seed(0)
    top = torch.nn.Linear(WIDTH, 1)
    labels = torch.arange(ROWS) % 2
    return LabelParty(
        top=top, labels=labels, optimizer=torch.optim.SGD(top.parameters()), protect=protection("none"),
        noise=torch.Generator().manual_seed(0),
    )  # fmt: skip


class Peer:
    """Asks with an embedding that has the label in it."""

    def recv(self, kind, step):
        z = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(step))
        return Message(step, kind, z, digest(self.rows))

    def send(self, message):
        self.sent = message


def run(watch, party, first, last):
    """Turns of an epoch of four steps; what the party's figures are goes to its watch."""
    peer = Peer()
    for turn in range(first, last):
        peer.rows = (torch.arange(16) + 16 * turn) % ROWS
        task = Task(turn, "train", turn // 4, peer.rows)
        watch.step(Turned(task, False, party.step(peer.rows, peer)))


@pytest.fixture(name="watched")
def _watched(tmp_path):
    def make(**options):
        party = label_party()
        record = Record(**{"last": 3, "follow": 20, **options.pop("record", {})})
        live, secret = Live(**{"every": 2, **options.pop("live", {})}), options.pop("secret", b"1" * 32)
        look = partial(look_at_gradients, party, ())
        watch = Watch(tmp_path, contract(), options.pop("plan", PLAN), record, live, secret, look)
        watch.resume(0, 0)
        return watch, party

    return make


def test_every_step_is_recorded_and_every_second_one_looked_at(watched, tmp_path):
    watch, party = watched()
    run(watch, party, 0, 8)
    assert watch.recorder.steps == 8
    assert watch.recorder.batches().view.rows.shape == (3, 16)
    seen = looks(tmp_path / LIVE)
    assert [one["step"] // 2 for one in seen] == [0, 1, 2, 3], "one of each two"
    assert [one["epoch"] for one in seen] == [0, 0, 1, 1]
    assert {"norm", "cosine"} <= set(seen[0]["found"])
    assert all(one["figures"]["loss"] > 0 for one in seen)
    assert watch.seconds > 0


def test_what_was_sent_is_recorded_beside_what_was_hidden(watched):
    watch, party = watched()
    party.protect = protection("iso", t=1.0)
    run(watch, party, 0, 4)
    kept = watch.recorder.batches()
    assert not torch.equal(kept.view.gradient, kept.clean)
    assert kept.clean.shape == kept.view.gradient.shape == kept.view.embedding.shape


def test_after_a_kill_the_looks_since_the_checkpoint_are_forgotten_and_made_again(watched, tmp_path):
    watch, party = watched()
    run(watch, party, 0, 8)
    whole = (tmp_path / LIVE).read_bytes()
    (tmp_path / LIVE).write_bytes(whole[:-5])  # the last line is cut short
    again, party = watched()
    (tmp_path / LIVE).write_bytes(whole[:-5])
    again.resume(4, 4)
    assert [one["step"] // 2 for one in looks(tmp_path / LIVE)] == [0, 1]
    assert (tmp_path / LIVE).read_bytes() == b"".join(line + b"\n" for line in whole.split(b"\n")[:2])
    again.resume(0, 0)
    run(again, party, 0, 8)
    assert (tmp_path / LIVE).read_bytes() == whole


def test_lines_that_are_no_looks_are_left_out(tmp_path):
    path = tmp_path / LIVE
    assert looks(path) == []
    good = {"step": 1, "turn": 1, "epoch": 0, "found": {"norm": 0.5}}
    path.write_text("\n".join([json.dumps(good), "[]", "7", "{}", "no", json.dumps(good)[:-4]]))
    assert looks(path) == [good]


def test_evaluations_and_farewells_are_not_recorded(watched, tmp_path):
    watch, _ = watched()
    watch.step(Turned(Task(4, "evaluate", 0, torch.arange(16)), False, {}))
    watch.step(Turned(Task(5, "done", 2, torch.arange(0)), False, {}))
    assert watch.recorder.steps == 0
    assert not (tmp_path / LIVE).exists()


@pytest.mark.parametrize("record", [{"last": 0, "follow": 0}])
def test_nothing_is_kept_where_nothing_is_wanted(watched, tmp_path, record):
    watch, party = watched(record=record)
    assert watch.recorder is None
    run(watch, party, 0, 4)
    watch.keep(4)
    assert [one["step"] // 2 for one in looks(tmp_path / LIVE)] == [0, 1], "it looks all the same"


def test_what_is_kept_followed_and_looked_at_is_a_matter_of_the_secret(watched):
    """Drawn over all rows, the whole epoch and every stretch, each epoch anew; whoever has no secret can't tell."""
    plan = Plan(4000, 16, 3, seed=1)  # 250 steps in an epoch
    found = {}
    for secret in (b"1" * 32, b"2" * 32, b"1" * 32):
        watch, _ = watched(secret=secret, plan=plan, record={"last": 24, "follow": 500}, live={"every": 50})
        kept = [[step for step in range(250) if watch._keeps(250 * epoch + step)] for epoch in range(3)]
        seen = watch.followed.tolist(), kept, [watch._looked_at(stretch) for stretch in range(15)]
        assert found.setdefault(secret, seen) == seen, "the same whenever it is started"
    (followed, kept, looked), (others, kept_by_other, looked_by_other) = found.values()
    for rows in (followed, others):
        assert len(set(rows)) == 500
        assert min(rows) < 400 < 3600 < max(rows)
    assert len(set(followed) & set(others)) < 150  # 62 by chance, with a deviation of 7
    for epoch, batches in enumerate(kept):
        assert len(batches) == 24
        assert batches[0] < 100 < 150 < batches[-1], "over the whole epoch: else 1 in a million"
        assert batches != kept_by_other[epoch]
    assert kept[0] != kept[1]
    assert looked != looked_by_other


def test_what_is_recorded_is_what_the_secret_chose(watched):
    watch, party = watched(record={"last": 2, "follow": 10})
    run(watch, party, 0, 8)
    chosen = [step for step in range(8) if watch._keeps(step)]
    last = [((torch.arange(16) + 16 * step) % ROWS).tolist() for step in chosen[-2:]]
    assert watch.recorder.batches().view.rows.tolist() == last
    assert sorted(watch.recorder.visits().view.rows[0].tolist()) == watch.followed.tolist()


def test_what_is_followed_fits_into_a_bounded_memory(tmp_path):
    made = [
        Watch(
            tmp_path,
            contract(epochs, width),
            Plan(10**8, 16, epochs, seed=1),
            Record(last=1, follow=10**9),
            Live(),
            b"1" * 32,
            partial(look_at_gradients, label_party(), ()),
        )
        for epochs, width in ((1, 4), (100, 4), (100, 4096))
    ]
    follow = [watch.recorder.follow for watch in made]
    assert follow[0] // 100 == follow[1] > follow[2] > 0
    for watch, (epochs, width) in zip(made, ((1, 4), (100, 4), (100, 4096)), strict=True):
        assert watch.recorder.follow * epochs * width * 3 * 4 <= 64 * 2**20


def test_inputs_that_are_codes_are_not_looked_at(tmp_path):
    """No variance of codes can be read; the training goes on."""
    bottom = torch.nn.EmbeddingBag(5, WIDTH, mode="sum")
    party = FeatureParty(
        bottom=bottom, features=torch.arange(ROWS)[:, None] % 5, optimizer=torch.optim.SGD(bottom.parameters())
    )
    look = partial(look_at_embeddings, party)
    watch = Watch(tmp_path, contract(), PLAN, Record(last=2, follow=4), Live(every=1), b"1" * 32, look)
    watch.resume(0, 0)
    rows = torch.arange(16)
    party.steps = 1
    z = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(0))
    watch.step(Turned(Task(0, "train", 0, rows), False, {"embedding": z, "own_embedding": z, "gradient": z}))
    assert watch.recorder.steps == 1
    assert not (tmp_path / LIVE).exists()


@pytest.mark.parametrize(("every", "steps", "expected"), [(128, 10_000, 128), (128, 120, 15), (128, 5, 1), (0, 120, 0)])
def test_a_short_run_is_looked_at_more_often(every, steps, expected):
    assert Live(every=every).within(steps).every == expected
