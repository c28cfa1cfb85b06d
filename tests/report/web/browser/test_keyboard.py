"""Every page by the keyboard alone, and as a screen reader has it: wide and on a phone."""

import pytest
from playwright.sync_api import expect

from tacit.report.seals import write_report
from tests.report.exchanges import bounded, released
from tests.report.keyboard import COVERED, check_reading, check_seen, check_stops, reading, stops, walked
from tests.report.web.browser.test_page import addresses, go

SIZES = ((1280, 900), (2560, 1300), (390, 800))  # the last is a phone's
SPLIT = [
    "1 flights", "2 Over steps", "3 Leak while training runs", "3 How good the model is", "3 What the gate measured",
    "3 Loss", "2 What the gate decided", "2 Every attack, before each epoch",
    "2 Pace and journal",
    "3 Turns a second", "3 Journal on the disk, MiB", "3 When it stood still", "2 Events",
]  # fmt: skip
SENT = ["2 What was measured", "2 Everything sent", "2 Events"]
HEADINGS = {
    "label run": SPLIT,
    "exchange, label": ["1 flights", "2 The exchange", "2 Label bound", "3 What that means for one row",
                        "3 By row, over all exchanges", "2 What it does not cover", *SENT],
    "exchange, features": ["1 flights", "2 The exchange", "2 Column by column", "2 What was sent",
                           "2 Rows that stand out", *SENT],
}  # fmt: skip
PAGES = ["runs", "label run", "feature run"]


@pytest.fixture(name="exchanges", scope="module")
def _exchanges(tmp_path_factory, serving, Folder):
    """A server over both sides of a training in one exchange that is over, with their reports."""
    root = tmp_path_factory.mktemp("exchanges")
    for party, role, report in (("airline", "label", bounded()), ("airport", "features", released())):
        one = Folder(root, party, role=role, mode="one_shot", part="done", done=1, total=1)
        one.event("part", 0, part="preparing")
        one.event("connected", 2, peer="the other")
        one.event("left", 3, what="something", to="the other", rows=1200, bytes=150)
        one.status(state="finished")
        write_report(report, one.path)
    with serving(root) as client:
        client.ids = {one["party"]: one["id"] for one in client.cards().values()}
        yield client


@pytest.fixture(name="opened", params=[*PAGES, "exchange, label", "exchange, features"])
def _opened(request, home, exchanges, visit):
    """A page, with its name."""
    if request.param in PAGES:
        address, client = addresses(home)[PAGES.index(request.param)], home
    else:
        party = {"label": "airline", "features": "airport"}[request.param.split()[-1]]
        address, client = f"/run/{exchanges.ids[party]}", exchanges
    page = visit(client)
    go(page, address)
    page.wait_for_timeout(300)  # charts are drawn
    return request.param, page


def test_the_tab_key_goes_through_the_page_in_the_order_of_reading(opened):
    _, page = opened
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(100)  # charts are drawn anew
        found = stops(page)
        assert len(found) > 3
        check_stops(found)
    back = walked(page, "Shift+Tab")  # on a phone, where first columns that stick take much of the width
    assert len(back) == len(found)
    check_seen(back)


def test_a_screen_reader_has_the_order_that_eyes_have(opened):
    name, page = opened
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(100)
        found = reading(page)
        check_reading(found)
        assert page.evaluate(COVERED) == []
        said = [f"{one['level']} {one['name']}" for one in found if one["role"] == "heading"]
        assert said == HEADINGS.get(name, said)
    charts = [one for one in found if "Arrow keys read it" in one["name"]]
    assert len(charts) == page.locator(".drawing:visible").count()
    assert all(any(letter.isdigit() for letter in one["description"]) for one in charts)  # each says what it shows


HEARD = """() => {
    window.heard = 0;
    const live = "[aria-live]:not([aria-live=off]), [role=log], [role=status], [role=alert], output:not([aria-live])";
    const watch = new MutationObserver((news) => news.forEach((one) => {
        const node = one.target.nodeType === 1 ? one.target : one.target.parentElement;
        if (node?.closest(live)?.hidden === false) window.heard += 1;
    }));
    watch.observe(document.body, { subtree: true, childList: true, characterData: true, attributeFilter: ["hidden"] });
}"""


def test_nothing_is_told_but_what_is_news(tmp_path, shows, folder, visit):
    """Figures that come each second would never let a screen reader say anything else."""
    run = folder()
    run.train(400)
    client = shows(tmp_path)
    page = visit(client, f"/run/{client.cards()['airline / flights']['id']}")
    page.until("drawn.get('leak') && document.getElementById('link').dataset.state")
    page.evaluate(HEARD)
    before = page.evaluate("drawn.get('leak').data.curves[0].x.length")
    for step in range(400, 600, 20):
        run.look(step)
    page.until(f"drawn.get('leak').data.curves[0].x.length > {before}")
    assert page.evaluate("window.heard") == 0
    run.status(state="paused", reason="somebody asked for it")
    expect(page.locator("#told")).to_contain_text("Paused")
    assert page.evaluate("window.heard") == 1
