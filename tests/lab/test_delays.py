"""How late flights came, in three classes and in minutes: two companies, two processes, real flights."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tacit.exchange.messages import packed_size
from tacit.lab.data import flights
from tacit.lab.one_exchange import run
from tacit.labels.mechanisms import outcomes, read_mechanism

ROWS = 2000
LIMIT, ODDS = 0.74, 8.0


def test_labels_of_a_delay_agree():
    table = flights.with_delays(flights.airline())
    assert (table["late"] == (table["minutes"] >= 60)).all()
    assert (table["minutes"].min(), table["minutes"].max()) == flights.MINUTES
    shares = [(table["when"] == when).mean() for when in range(3)]
    assert shares == pytest.approx([0.763, 0.124, 0.113], abs=0.001)
    some = flights.airline()[1000:1010].reverse()
    assert flights.with_delays(some)["late"].to_list() == some["late"].to_list()
    assert flights.with_delays(some)["minutes"].to_list() == table[1000:1010].reverse()["minutes"].to_list()


@pytest.mark.parametrize(
    ("label", "most", "figures"),
    [("when", 3, {"test_auc", "test_accuracy"}), ("minutes", 16, {"test_r2", "test_rmse"})],
)
def test_two_processes_learn_how_late_flights_come(tmp_path, monkeypatch, label, most, figures):
    monkeypatch.setenv("TACIT_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # small trees on several threads wait for each other
    told = run(tmp_path, rows=ROWS, seed=0, limit=LIMIT, odds=ODDS, label=label, progress=lambda *_: None)
    label_bound, train = told["label_bound"], told["label_bound"]["rows"]
    assert 0.55 < label_bound["auc"] <= LIMIT
    assert 1 < label_bound["odds"] <= ODDS
    assert [one["truth"] is not None and len(one["score"]) for one in told["scored"]] == [
        1 if label == "minutes" else 3
    ] * 3
    assert all(one["score"] != one["alone"] for one in told["scored"]), "with the airport's embedding, and without"
    assert told["figures"].keys() == told["alone"].keys() == figures
    flips = tmp_path / "airport" / "runs" / "flights" / "flips"
    sent, coin = np.load(flips / "sent.npy"), read_mechanism(json.loads((flips / "mechanism.json").read_bytes()))
    assert len(sent) == train
    assert 2 <= len(np.unique(sent)) <= outcomes(coin) <= most
    embedding = -(-3 * told["common"] // 8)  # three bits a row, nothing between them
    assert told["bytes"] == {"labels": packed_size(train, outcomes(coin)), "embedding": embedding}
    reports = {
        name: json.loads((tmp_path / name / "runs" / "flights" / "report.json").read_bytes())
        for name in ("airline", "airport")
    }
    measured = {one["name"]: one for one in reports["airline"]["exchange"]["figures"]}
    assert measured["canaries"]["held"], "within five standard errors of the certificate"
    assert reports["airline"]["verdict"] == "held"
    assert reports["airport"]["exchange"]["release"]["columns"], "decoders read something of some column"
