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
        ("airline", "part scored", 2),
        ("airport", "matched", 1),
        ("airport", "embedding made", 1),
        ("airport", "entered", 1),
        ("airport", "embedding sent", 2),
    ],
)
def test_the_same_file(exchanged, processes, tmp_path, name, point, count):
    world = copied(exchanged.path, tmp_path)
    source, out = world / "new.parquet", world / "scores.parquet"
    table = to_score(world, source)

    def start(party, **kill):
        how = "\n".join(["keyed", *([str(source), str(out)] if party == "airline" else [])])
        events = str(world / f"{party}.events")
        return processes.start(Start(str(world / party), events, "predict", how=how, chunk=600, **kill))

    running = {each: start(each, **({"kill_at": point, "count": count} if each == name else {}))
               for each in ("airline", "airport")}  # fmt: skip
    assert running[name].wait(60) == -9, running[name].events
    assert not out.exists()
    running[name] = start(name)
    assert [process.wait(60) for process in running.values()] == [0, 0], [one.events for one in running.values()]
    written = pl.read_parquet(out)
    scores, joint = expected(world, table)
    assert written["id"].equals(table["id"], null_equal=True)
    assert np.array_equal(written["score"].to_numpy(), scores)
    assert (written["basis"] == "joint").to_numpy().tolist() == joint.tolist()
