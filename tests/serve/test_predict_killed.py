"""Killed at any point, on either side, and started again with the same command, both end with the same file."""

import numpy as np
import polars as pl
import pytest

from tests.serve.files import copied, expected, to_score
from tests.torture.workers import Start


@pytest.mark.parametrize(
    ("name", "point", "count"),
    [
        ("airline", "matched", 1),
        ("airline", "embedding stored", 1),
        ("airline", "embedding stored", 3),
        ("airline", "embedding stored", 4),  # the last one, before the airport hears of it
        ("airline", "part scored", 2),
        ("airport", "matched", 1),
        ("airport", "embedding made", 1),
        ("airport", "entered", 1),
        ("airport", "embedding sent", 2),
    ],
)
def test_the_same_file(exchanged, processes, tmp_path, name, point, count):
    world = copied(exchanged.path, tmp_path)
    start, source, out = _starting(processes, world)
    table = to_score(world, source)
    running = {each: start(each, **({"kill_at": point, "count": count} if each == name else {}))
               for each in ("airline", "airport")}  # fmt: skip
    assert running[name].wait(60) == -9, running[name].events
    assert not out.exists()
    running[name] = start(name)
    assert [process.wait(60) for process in running.values()] == [0, 0], [one.events for one in running.values()]
    _right(world, table, out)


@pytest.mark.parametrize("point", ["embedding sent", "all sent"])
def test_a_feature_party_killed_after_its_last_part_ends_when_it_is_started_again(
    exchanged, processes, tmp_path, point
):
    world = copied(exchanged.path, tmp_path)
    start, source, out = _starting(processes, world)
    table = to_score(world, source)
    killed = {"kill_at": point, "count": 4 if point == "embedding sent" else 1}
    airline, airport = start("airline"), start("airport", **killed)
    assert airport.wait(60) == -9
    airport = start("airport")  # whether its last part has come, and the airline is gone by now, is chance
    assert [airline.wait(60), airport.wait(60)] == [0, 0], (airline.events, airport.events)
    _right(world, table, out)
    table = to_score(world, source, rows=300)
    out.unlink()
    airport = start("airport")  # the next prediction is answered as ever
    assert [start("airline").wait(60), airport.wait(60)] == [0, 0]
    _right(world, table, out)


def _starting(processes, world):
    source, out = world / "new.parquet", world / "scores.parquet"

    def start(party, **kill):
        how = "\n".join(["keyed", *([str(source), str(out)] if party == "airline" else [])])
        events = str(world / f"{party}.events")
        return processes.start(Start(str(world / party), events, "predict", how=how, chunk=200, **kill))

    return start, source, out


def _right(world, table, out):
    written = pl.read_parquet(out)
    scores, joint = expected(world, table)
    assert written["id"].equals(table["id"], null_equal=True)
    assert np.array_equal(written["score"].to_numpy(), scores)
    assert (written["basis"] == "joint").to_numpy().tolist() == joint.tolist()
