"""The demo whole, on few flights: two companies, real processes, all five protections, one exchange."""

import json
import math

import pytest

from tacit.lab import demo

ROWS = 6000


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TACIT_STATE", str(out / "state"))
        patched.setattr("os.cpu_count", lambda: 1)
        acts = {}
        whole = demo.run(out, rows=ROWS, progress=lambda *_: None, show=acts.__setitem__)
    assert list(acts) == ["match", "split", "exchange"] == list(whole)
    return out, json.loads(json.dumps(whole))


def test_five_protections_meet_the_papers_attacks_and_all_others(told):
    rows = {one["protection"].partition("(")[0]: one for one in told[1]["split"]["rows"]}
    assert list(rows) == list(demo.PROTECTIONS)
    for one in rows.values():
        assert len(one["leak_auc"]) > 20, "every attack"
        assert one["leak_auc"][one["worst"]["attack"]]["value"] == one["worst"]["value"]
    assert rows["none"]["leak_auc"]["norm"]["value"] > 0.95
    assert rows["marvell"]["leak_auc"]["norm"]["value"] < 0.7
    assert rows["marvell"]["leak_auc"]["cosine"]["value"] < 0.8
    assert rows["marvell"]["worst"]["value"] > 0.9
    assert rows["matched"]["leak_auc"]["cosine"]["value"] < 0.65
    embedding = told[1]["split"]["embedding"]
    assert embedding["noised"]["read"] < embedding["bare"]["read"] - 0.2


def test_marvell_is_trained_by_two_companies_and_the_figures_are_those_of_their_report(told):
    out, whole = told
    folder = out / "split" / "marvell"
    report = json.loads((folder / "airline" / "runs" / "flights" / "report.json").read_text())
    marvell = next(one for one in whole["split"]["rows"] if one["protection"] == "marvell(scale=4)")
    assert {one["attack"]: one["value"] for one in report["leaks"]} == {
        name: one["value"] for name, one in marvell["leak_auc"].items()
    }
    assert report["subject"]["protection"] == "marvell(scale=4)"
    for name in ("airline", "airport"):
        assert (folder / name / "runs" / "flights" / "live.jsonl").read_text().strip(), "attacked while it runs"
        assert list((folder / name).glob("runs/flights/journal/journal-*.log"))


def test_the_exchange_states_its_bound_and_holds_the_airports_limit(told):
    out, whole = told
    exchange = whole["exchange"]
    assert exchange["label_bound"]["total_auc"] <= 0.6
    assert math.log(exchange["label_bound"]["total_odds"]) < 1.11
    assert exchange["audit"]["worst"] <= exchange["limit"] == demo.LIMIT
    assert f"limit = {demo.LIMIT}" in (out / "airport" / "party.toml").read_text()
    assert len(exchange["scored"]) == 3
    assert exchange["bytes"]["embedding"] == -(-demo.BITS * whole["match"]["common"] // 8), "two bits a flight"
