"""Two companies serve: two processes, real TLS, real HTTP."""

import signal

import numpy as np
import polars as pl
import pytest

from tacit.company import sealed_log
from tacit.one_shot.shipments import Shipments
from tests.serve.files import copied, expected, to_score, together
from tests.serve.online import serving


@pytest.fixture(name="world")
def _world(exchanged, tmp_path):
    return copied(exchanged.path, tmp_path)


@pytest.fixture(name="start")
def _start(tmp_path):
    with serving(tmp_path) as start:
        yield start


def both(start, world):
    airline, airport = start(world / "airline"), start(world / "airport")
    airline.heard("connected")
    return airline, airport


def sealed(world, name):
    return sealed_log.read(world / name / "runs" / "small" / "predictions.jsonl")


def test_scores_are_those_of_both_halves_in_one_place_bit_for_bit(world, start):
    table = to_score(world, world / "new.parquet", rows=300)
    airline, airport = both(start, world)
    said = airline.scores(table.to_dicts())
    scores, joint = expected(world, table)
    assert said["scores"] == scores.tolist()
    assert said["basis"] == np.where(joint, "joint", "fallback").tolist()
    reasons = dict(zip(table["id"].to_list(), said["reason"], strict=True))
    assert reasons.pop("x1") == reasons.pop("x2") == "not every party has this id"
    assert reasons.pop(None) == "this row has no id"
    assert set(reasons.values()) == {None}
    alone = [airline.scores([row])["scores"][0] for row in table.head(5).to_dicts()]
    assert alone == scores[:5].tolist()
    assert (airline.stop(), airport.stop()) == (0, 0)
    assert [(one["what"], one["rows"]) for one in sealed(world, "airline")] == [
        ("room for tokens", 10_000), ("tokens", 302),
    ]  # fmt: skip
    lines = sealed(world, "airport")
    assert [(one["what"], one["rows"]) for one in lines] == [("room for embeddings", 10_000), ("embeddings", 302)]
    assert lines[-1]["different"] == 300
    assert Shipments(world / "airport" / "embeddings").versions() == {1: 900}, "these had all left in training"
