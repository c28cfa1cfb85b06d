"""What a page gets of a training in one exchange."""

import json

import pytest

from tacit.report.exchange import part_left
from tacit.report.reading import RunReader, find, frame


def reader_of(companies, name):
    (place,) = find([companies.run(name)])
    reader = RunReader(place)
    assert reader.refresh()
    return reader


def test_a_page_gets_parts_in_time_and_what_left(reported):
    detail = reader_of(reported, "airport").detail()
    parts = [one["part"] for one in detail["exchange"]["timeline"] if not one["still"]]
    assert parts.index("asking for randomized labels") < parts.index("decoders") < parts.index("sending the embedding")
    assert all(first <= last for one in detail["exchange"]["timeline"] for first, last in one["spans"])
    assert [one["bytes"] for one in detail["exchange"]["left"]] == [48 * 1500, 188], "points of ids and products"
    assert detail["left_bytes"] == 48 * 1500 + 188
    assert {one["column"] for one in detail["exchange"]["columns"]} == {"port", "wind", "rain"}
    assert (detail["mode"], detail["verdict"], detail["worst"]["measure"]) == ("one_shot", "held", "variance_read")


def test_a_card_of_a_label_party_shows_the_label_bound(reported):
    reader = reader_of(reported, "airline")
    card = reader.card()
    assert (card["worst"]["attack"], card["worst"]["value"]) == ("label bound", pytest.approx(0.75))
    assert card["utility"]["name"] == "test_auc"
    reader.report = None  # as before the training is over
    assert reader.card()["worst"]["value"] == pytest.approx(0.75)
    assert json.dumps(reader.detail())


def test_the_long_table_has_the_heads_figures_at_one_side_and_the_audits_at_the_other(reported):
    rows = frame(reader_of(reported, "airline")).rows_by_key(["group", "name"], named=True, unique=True)
    assert rows["exchange", "bound on auc"]["value"] == pytest.approx(0.75)
    assert rows["exchange", "test AUC with partners"]["value"] == rows["utility", "test_auc"]["value"]
    canaries = rows["exchange", "canaries"]
    assert canaries["low"] < canaries["value"] < canaries["high"]
    rows = frame(reader_of(reported, "airport")).rows_by_key(["group", "name"], named=True, unique=True)
    assert rows["exchange", "read of wind"]["high"] is not None
    assert ("exchange", "most read") in rows
    assert not [name for group, name in rows if group == "utility" or "bound on" in name]


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
