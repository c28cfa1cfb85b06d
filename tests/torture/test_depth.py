"""Two processes with mutual TLS over a slow line, several steps on their way at once, killed on either side."""

import random

import pytest

from tests.torture.bench import Bench
from tests.torture.books import check_ledgers
from tests.torture.kills import Fates, train_under_kills
from tests.torture.processes import Processes
from tests.torture.relay import Relay
from tests.torture.world import FEATURES, LABEL, Size, free_port

DEPTH, DELAY, KILLS = 4, 0.02, 8
SIZE = Size(rows=1280, epochs=2, every=25, depth=DEPTH)


@pytest.fixture(name="bench", scope="module")
def _bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("depth")
    with Processes(folder / "said") as processes:
        yield Bench(folder, processes, size=SIZE, kills=KILLS, one_shot_kills=0, seed=1)


def test_requests_are_on_their_way_together(bench):
    """A round trip is one that the label party's side waits for: with one request at a time there is one a turn."""
    port = free_port()
    with Relay(port, delay=DELAY) as relay:
        training = bench.fresh(port=port, connect=relay.port)
        training.finish()
        assert bench.same(training) == 1
        assert not training.alarms()
        assert relay.round_trips < SIZE.turns
        bench.discard(training)


def test_killed_again_and_again_over_a_slow_line_the_models_are_the_same(bench):
    port, fates = free_port(), Fates(KILLS, random.Random(2), lambda done: None)
    with Relay(port, delay=DELAY) as relay:
        training = bench.fresh(port=port, connect=relay.port)
        train_under_kills(training, fates, 200.0)
        assert bench.same(training) == 1
        check_ledgers(training, bench.folder / "reference", SIZE)
        assert relay.connections > 1
        bench.discard(training)
    assert {name for name, _ in fates.done} == {LABEL, FEATURES}
