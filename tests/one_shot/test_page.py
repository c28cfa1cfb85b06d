"""What a page and other programs get of a training in one exchange."""

import json

import pytest

from tacit.views.exchange import part_left
from tacit.views.reading import RunReader, find
from tacit.views.track.following import facts_of, run_curves


def reader_of(companies, name):
    (place,) = find([companies.run(name)])
    reader = RunReader(place)
    assert reader.refresh()
    return reader


def test_a_page_gets_parts_in_time_and_what_left(reported):
    detail = reader_of(reported, "airport").detail()
    parts = [one["part"] for one in detail["exchange"]["timeline"] if not one["still"]]
    assert parts.index("asking for flipped labels") < parts.index("decoders") < parts.index("sending the embedding")
    assert all(first <= last for one in detail["exchange"]["timeline"] for first, last in one["spans"])
    assert [one["bytes"] for one in detail["exchange"]["left"]] == [3000]
    assert detail["left_bytes"] == 3000
    assert {one["column"] for one in detail["exchange"]["columns"]} == {"port", "wind", "rain"}
    assert (detail["mode"], detail["verdict"], detail["worst"]["measure"]) == ("one_shot", "held", "variance_read")


def test_a_card_of_a_label_party_shows_what_is_certified(reported):
    reader = reader_of(reported, "airline")
    card = reader.card()
    assert (card["worst"]["attack"], card["worst"]["value"]) == ("certified bound", pytest.approx(0.75))
    assert card["utility"]["name"] == "test_auc"
    reader.report = None  # as before the training is over
    assert reader.card()["worst"]["value"] == pytest.approx(0.75)
    assert json.dumps(reader.detail())


def test_trackers_get_the_heads_figures_at_one_side_and_the_audits_at_the_other(reported):
    airline = {name: y[0] for name, x, y, _ in run_curves(reader_of(reported, "airline")) if x}
    assert airline["exchange/certified auc"] == pytest.approx(0.75)
    assert airline["exchange/test AUC with partners"] == airline["utility/test_auc"]
    assert airline["exchange/canaries.low"] < airline["exchange/canaries"] < airline["exchange/canaries.high"]
    airport = {name: y[0] for name, x, y, _ in run_curves(reader_of(reported, "airport")) if x}
    assert {"exchange/most read", "exchange/read of wind", "exchange/read of wind.high"} <= airport.keys()
    assert not [name for name in airport if "utility" in name or "certified" in name]
    facts = facts_of(reader_of(reported, "airline"))
    assert (facts["mode"], facts["limit"], facts["exchange.width"]) == ("one_shot", 0.75, 2)


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        ({"done": 1, "total": 4}, 30.0),
        ({"done": 0, "total": 4}, None),
        ({"done": 1, "total": 4, "alive": False}, None),
        ({"done": 1, "total": 4, "parts": []}, None),
    ],
)
def test_how_long_a_part_still_takes(status, seconds):
    begun = [{"part": "decoders", "time": "2026-11-15T10:00:00+00:00"}]
    told = {"alive": True, "state": "training", "time": "2026-11-15T10:00:10+00:00", "parts": begun, **status}
    assert part_left(told) == seconds
