"""The short form of the kills of `make torture` in one-shot training: real processes, a handful of kills."""

from tests.torture.one_exchange import POINTS, kills_in_one_exchange
from tests.torture.processes import Processes

KILLS = 6


def test_a_handful_of_kills(tmp_path):
    with Processes(tmp_path / "processes.log") as processes:
        found = kills_in_one_exchange(processes, tmp_path, wanted=KILLS, seed=3, at_once=1)
    assert found.figures["kills"] >= KILLS
    assert found.figures["identical"]
    assert set(found.figures["by_point"]) == {
        f"{name}: {point}" for name, points in POINTS.items() for point in (*points, "any moment")
    }
