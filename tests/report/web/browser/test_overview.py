"""All runs as cards, in a real browser over real folders."""

import json
import threading
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from tacit.report.web.serving import Dashboard

TOP = "() => window.seen.getBoundingClientRect().top"  # where a card is that was in sight
REST = """async () => {
    scrollTo(0, 900);
    const frame = () => new Promise(requestAnimationFrame);
    const top = () => window.seen.getBoundingClientRect().top;
    let last = null;
    for (let same = 0; same < 20; ) {
        await frame();
        window.seen = [...document.querySelectorAll("a.card")].find((card) => card.getBoundingClientRect().top > 100);
        same = top() === last ? same + 1 : 0;
        last = top();
    }
    return last;
}"""


def cards(page):
    return page.locator("a.card")


def card(page, name):
    return page.locator("a.card", has=page.get_by_role("heading", name=name, exact=True))


@pytest.fixture(name="states", scope="module")
def _states(tmp_path_factory, serving, Folder, finished):
    """A server over one run in each state."""
    root = tmp_path_factory.mktemp("states")
    finished(root, run="over")
    Folder(root, run="begun")
    moving = Folder(root, run="moving")
    moving.train(500)
    waiting = Folder(root, run="waiting")
    waiting.status(state="waiting", turn=10, epoch=0, peer="airport", waiting_seconds=60, why="no answer yet")
    held = Folder(root, run="held")
    held.decide(2, "pause", shift=0.1, reason="cosine passes the limit")
    held.status(state="paused", reason="cosine passes the limit")
    gone = Folder(root, run="gone")
    gone.status(pid=2**31 - 1)
    damaged = Folder(root, run="damaged")
    (damaged.path / "status.json").write_text('{"run": ')
    with serving(root) as client:
        yield client


def test_every_state_has_a_word_and_a_shape(states, visit):
    page = visit(states)
    expect(cards(page)).to_have_count(7)
    told = {"over": "Finished", "begun": "Training", "moving": "Training", "waiting": "Waiting", "held": "Paused",
            "gone": "Its process is gone", "damaged": "Can't be read"}  # fmt: skip
    shapes = {}
    for name, word in told.items():
        chip = card(page, name).locator(".chip").first
        expect(chip).to_have_text(word)
        shapes.setdefault(word, set()).add(chip.locator("path").get_attribute("d"))
    assert all(len(found) == 1 for found in shapes.values())
    assert len({next(iter(found)) for found in shapes.values()}) == len(shapes)  # never by colour alone
    expect(card(page, "held")).to_contain_text("Over the limit")
    expect(card(page, "held").locator(".leak")).to_contain_text("limit 0.60")
    expect(card(page, "damaged").locator(".trouble")).to_contain_text("status.json can't be read")
    expect(card(page, "over").locator(".trouble")).to_contain_text("1 alarm · 1 reconnect")
    reached = card(page, "over").locator(".leak b").inner_text()
    expect(card(page, "over").locator("svg.interval desc")).to_contain_text(f"{reached}, between 0.5")
    expect(card(page, "over").locator("svg.interval line.limit")).to_have_count(1)


def test_a_card_follows_its_run_and_keeps_the_focus(tmp_path, shows, folder, visit):
    first, second = folder(run="first"), folder(run="second")
    client = shows(tmp_path)
    page = visit(client)
    expect(cards(page)).to_have_count(2)
    card(page, "second").focus()
    node = card(page, "second").element_handle()
    second.train(300)
    second.status(state="paused", reason="somebody asked for it")
    expect(card(page, "second").locator(".chip").first).to_have_text("Paused")
    expect(page.locator("#told")).to_contain_text("second: Paused")
    assert node.evaluate("node => node === document.activeElement")  # the same card, changed in place
    folder(run="third")
    expect(cards(page)).to_have_count(3)
    (first.path / "status.json").unlink()
    expect(cards(page)).to_have_count(2)
    expect(page.locator("#link")).to_have_text("Live")


def test_no_run_yet(tmp_path, shows, folder, visit):
    client = shows(tmp_path)
    page = visit(client)
    expect(page.locator("main")).to_contain_text("There is no run here yet")
    folder()
    expect(cards(page)).to_have_count(1)


def test_a_hundred_runs_come_fast_and_stay_in_place(tmp_path, shows, Folder, visit):
    runs = [Folder(tmp_path, party=f"party{number % 7}", run=f"run-{number:03}") for number in range(100)]
    for number, run in enumerate(runs):
        lines = ({"step": step, "turn": step, "epoch": 0, "found": {"norm": 0.5 + number / 400}} for step in range(60))
        (run.path / "live.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    client = shows(tmp_path)
    client.cards()
    page = visit(client)
    expect(cards(page)).to_have_count(100)
    before = page.evaluate(REST)  # cards get their own heights when they come into sight
    nodes = page.evaluate("window.nodes = [...document.querySelectorAll('a.card')]; window.nodes.length")
    runs[40].status(state="finished")
    expect(card(page, "run-040").locator(".chip").first).to_have_text("Finished")
    assert page.evaluate("window.nodes.filter((node) => node.isConnected).length") == nodes
    assert page.evaluate(TOP) == pytest.approx(before, abs=1)


def test_a_lost_line_is_said_and_comes_back(tmp_path, folder, visit):
    run = folder()
    with running(Dashboard([tmp_path], port=0, every=0.15)) as server:
        page = visit(Away(server), wrong=["ERR_", "Failed to load resource"])
        expect(cards(page)).to_have_count(1)
    expect(page.locator("#banner")).to_contain_text("line to the server is lost")
    expect(page.locator("#link")).to_have_text("Not connected")
    expect(cards(page)).to_have_count(1)  # what was seen stays
    run.status(state="finished")
    with running(Dashboard([tmp_path], port=server.port, token=server.access.token, every=0.15)):
        expect(page.locator("#banner")).to_be_hidden()
        expect(card(page, "flights").locator(".chip").first).to_have_text("Finished")
    with running(Dashboard([tmp_path], port=server.port, every=0.15)):  # which has another token
        expect(page.locator("#banner")).to_contain_text("open the address that tacit dashboard has printed")
        page.close()


class Away:
    """What a window needs to know of a server."""

    def __init__(self, server):
        self.server = server


@contextmanager
def running(server):
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()
