"""The page of a training in one exchange, in a real browser: parts in time, what left, nothing of split training."""

import pytest
from playwright.sync_api import expect

LABEL_BOUND = {"auc": 0.6, "odds": 3.0, "total_auc": 0.62, "total_odds": 3.5, "rows": 1200, "unit": "row"}


@pytest.fixture(name="airline")
def _airline(folder):
    """A label party that waits for the embedding."""
    one = folder(mode="one_shot", label_bound=LABEL_BOUND, part="preparing", done=0, total=0)
    one.event("part", 0, part="preparing")
    one.event("connected", 2, peer="airport")
    one.event("left", 3, what="flipped labels", to="airport", rows=1200, bytes=150)
    for time, state in ((0, "training"), (2, "waiting"), (40, "waiting")):
        one.pace(time, 0, state)
    one.status(state="waiting", peer="airport", waiting_seconds=40, why="it has not sent its embedding yet")
    return one


def opened(visit, shows, one):
    client = shows(one.path.parents[2])
    (place,) = client.cards().values()
    return visit(client, f"/run/{place['id']}")


def test_a_label_party_sees_the_label_bound_and_what_left(airline, shows, visit):
    page = opened(visit, shows, airline)
    expect(page.locator(".verdict")).to_contain_text("Nobody tells two labels apart with an AUC above 0.600")
    expect(page.locator(".under")).to_have_text("Bound on leak AUC")
    expect(page.locator("#timeline tbody tr")).to_have_count(2)
    expect(page.locator("#timeline")).to_contain_text("waiting")
    expect(page.locator("#timeline rect.still")).to_have_count(1)
    expect(page.locator("#left")).to_contain_text("flipped labels")
    expect(page.locator("#left")).to_contain_text("150")
    for name in ("over-steps", "decisions", "attacks"):
        expect(page.locator(f"#{name}")).to_have_count(0)


def test_a_part_that_begins_is_shown_with_its_progress(airline, shows, visit):
    page = opened(visit, shows, airline)
    airline.event("part", 60, part="fitting the model")
    airline.status(state="training", part="fitting the model", done=40, total=160)
    expect(page.locator("#timeline tbody tr")).to_have_count(3)
    expect(page.locator(".finding .tiles")).to_contain_text("fitting the model · 25%")


def test_a_party_that_stopped_says_why(folder, shows, visit):
    one = folder(party="airport", role="features", mode="one_shot", part="decoders", done=1, total=4)
    one.status(state="stopped", limit=0.6, reason="the limit of 0.6 does not hold in any form")
    page = opened(visit, shows, one)
    expect(page.locator(".verdict")).to_contain_text("Nothing has left yet; the limit is 0.60.")
    expect(page.locator(".verdict")).to_contain_text("It has stopped: the limit of 0.6 does not hold in any form.")
    expect(page.locator(".finding .tiles")).to_contain_text("0.60")


def test_a_feature_party_has_no_figure_of_the_other_side(folder, shows, visit):
    release = {"form": "one of 8 groups", "worst": 0.31}
    one = folder(party="airport", role="features", mode="one_shot", release=release, part="sending", done=1, total=1)
    one.event("part", 0, part="<b>sending</b>")
    page = opened(visit, shows, one)
    expect(page.locator(".verdict")).to_contain_text("Decoders read 0.310 of what they read best")
    expect(page.locator("#timeline")).to_contain_text("<b>sending</b>")
    expect(page.locator(".finding .tiles")).not_to_contain_text("private")
    expect(page.locator("#left")).to_contain_text("Nothing has left yet")
