"""The short form of `make torture`: real processes, twenty kills, everything that must be refused, broken disks."""

import random
import socket
import time

import pytest

from benchmarks._relay import Relay
from tests.torture import main
from tests.torture.bench import Bench
from tests.torture.trials import SHORT, TRIALS, Outcome, chosen, run, summary
from tests.torture.world import PARTIES, Size, TrialError

KILLS = 20


def test_short_form(tmp_path):
    outcomes = run(tmp_path, SHORT, count=KILLS, seed=1, size=Size(rows=1280, epochs=3, every=8))
    assert {each.name: each.said for each in outcomes if not each.passed} == {}
    assert {each.name for each in outcomes} == set(SHORT)
    assert "connection flood" in SHORT
    found = summary(outcomes, seed=1)
    assert found["passed"]
    assert found["kills_survived"] >= KILLS
    assert found["models_identical"]
    assert found["distinct_answers_per_step"] == 1
    assert found["refused"] == found["refusals"] == sum(trial.group == "refusals" for trial in TRIALS.values())


class Fake:
    """A finished training, as `Bench.same` sees one."""

    def __init__(self, model=b"as it was", answers=None):
        self._model = model
        self._answers = answers or {"airport gradient 0": {"one"}}

    def model(self, name):
        return {"weight": self._model}

    def answers(self):
        return self._answers


@pytest.mark.parametrize(
    ("training", "problem"),
    [
        (Fake(model=b"as it isnt"), "model of airline differs"),
        (Fake(answers={"airport gradient 0": {"one", "two"}}), "2 distinct answers"),
        (Fake(answers={"airport gradient 0": {"two"}}), "other answers"),
        (Fake(answers={"airport gradient 0": {"one"}, "airport gradient 1": {"one"}}), "other answers"),
    ],
)
def test_a_difference_from_the_undisturbed_run_is_noticed(training, problem):
    bench = Bench.__new__(Bench)
    bench._models = {name: Fake().model(name) for name in PARTIES}
    bench._answers = Fake().answers()
    assert bench.same(Fake()) == 1
    with pytest.raises(TrialError, match=problem):
        bench.same(training)


def test_one_failure_fails_all():
    good, bad = Outcome("a", "disk", True, "", 1.0), Outcome("b", "disk", False, "why", 1.0)
    assert summary([good], seed=0)["passed"]
    assert not summary([good, bad], seed=0)["passed"]


def test_trials_are_chosen_by_words_of_their_names(capsys):
    assert chosen("") == list(TRIALS)
    assert chosen("cut of, delay") == ["cut of 5 s", "cut of 60 s", "delay of 40 ms each way"]
    with pytest.raises(SystemExit) as ended:
        main(["--only", "no such trial"])
    assert ended.value.code == 2
    assert "no such trial" in capsys.readouterr().err


# --- the relay -------------------------------------------------------------------------------------------------------


@pytest.fixture
def target():
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(10)
        yield found


@pytest.fixture
def relay(target):
    with Relay(target.getsockname()[1]) as made:
        yield made


@pytest.fixture
def pair(relay, target):
    """Both ends of a connection through the relay."""
    with socket.create_connection(("127.0.0.1", relay.port), 10) as near, target.accept()[0] as far:
        near.settimeout(10)
        far.settimeout(10)
        near.sendall(b"!")
        assert far.recv(1) == b"!"  # now the relay knows it as well
        yield near, far


def test_the_relay_passes_bytes_and_the_end(pair):
    near, far = pair
    near.sendall(b"there")
    assert far.recv(100) == b"there"
    far.sendall(b"and back")
    assert near.recv(100) == b"and back"
    near.shutdown(socket.SHUT_WR)
    assert far.recv(100) == b""


def test_a_cut_resets_both_ends_and_lets_nobody_in_until_it_is_mended(relay, target, pair):
    near, far = pair
    relay.cut()
    for end in (near, far):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    with socket.create_connection(("127.0.0.1", relay.port), 10) as late:
        late.settimeout(10)
        assert late.recv(1) == b""
    relay.mend()
    with socket.create_connection(("127.0.0.1", relay.port), 10) as again, target.accept()[0] as other:
        other.settimeout(10)
        again.sendall(b"x")
        assert other.recv(1) == b"x"


def test_silence_holds_bytes_back_and_loses_none(relay, pair):
    near, far = pair
    relay.silence()
    near.sendall(b"held")
    far.settimeout(0.3)
    with pytest.raises(TimeoutError):
        far.recv(10)
    far.settimeout(10)
    relay.mend()
    assert far.recv(10) == b"held"


def test_a_forgotten_connection_stays_silent_for_ever(relay, pair):
    near, far = pair
    relay.forget()
    relay.mend()
    near.sendall(b"never")
    far.settimeout(0.3)
    with pytest.raises(TimeoutError):
        far.recv(10)


def test_a_delay_delays_and_keeps_the_order(relay, pair):
    near, far = pair
    relay.delay = 0.1
    began = time.monotonic()
    for piece in range(10):
        near.sendall(bytes([piece]))
    got = b""
    while len(got) < 10:
        got += far.recv(10)
    assert got == bytes(range(10))
    assert time.monotonic() - began >= 0.1


def test_one_connection_is_broken(relay, pair):
    relay.reset_one(random.Random(0))
    with pytest.raises(ConnectionResetError):
        pair[0].recv(1)
