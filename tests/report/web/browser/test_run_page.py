"""One run's page, in a real browser: what is going on in words, charts, the limit, coming closer, a million points."""

import json

import pytest
from playwright.sync_api import expect

# The share of a chart's width in which pixels at a height of y are of the colour that stands for what is bad.
LIMIT_DRAWN = """([id, y]) => {
    const u = drawn.get(id).plot;
    const row = Math.round(u.valToPos(y, "y", true));
    const { left, width } = u.bbox;
    let found = 0;
    for (const at of [row - 1, row, row + 1]) {
        const { data } = u.ctx.getImageData(left, at, width, 1);
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && data[i] > 150 && data[i + 2] < 60) found++;
    }
    return found / width;
}"""
POINTS = "drawn.get('leak')?.data.curves[0].x.length"
DRAWN = "drawn.get('leak')?.plot.data[0].length"
CHARTS = ("leak", "gate", "quality", "loss", "rate", "journal-size")


@pytest.fixture(name="run")
def _run(home, visit):
    """The page of a finished run."""
    page = visit(home, f"/run/{home.ids['airline / flights']}")
    expect(page.get_by_role("heading", level=1, name="flights")).to_be_visible()
    expect(page.locator("#link")).to_have_text("Live")  # its scripts have come
    page.until("drawn.size === 6")
    return page


def test_it_says_what_is_going_on(run):
    expect(run.locator(".verdict")).to_contain_text("The worst attack reaches 0.5")
    expect(run.locator(".verdict")).to_contain_text("the limit is 0.60. The training is over")
    assert run.title() == "airline / flights · Tacit"
    expect(run.locator("#decisions tbody tr")).to_have_count(3)
    expect(run.locator("#decisions")).to_contain_text("the worst case of a row")
    expect(run.locator("#events")).to_contain_text("a different request for an answered step")
    expect(run.locator("#rate-told")).to_contain_text("It stood still once")
    expect(run.locator("#rate-told")).to_contain_text("the connection came back once")
    expect(run.locator("#pace")).to_contain_text("waiting")
    expect(run.locator("#gate-told")).to_contain_text("Upright lines are where it paused")
    expect(run.locator("#attacks tbody tr")).to_have_count(12)
    expect(run.locator("#leak .key tbody tr")).to_have_count(6)
    for name in CHARTS:
        assert run.evaluate("id => drawn.get(id).plot.series.length", name) > 1, name


def test_the_limit_is_a_line(run):
    assert run.evaluate(LIMIT_DRAWN, ["leak", 0.6]) > 0.3  # dashes
    assert run.evaluate(LIMIT_DRAWN, ["gate", 0.6]) > 0.3
    assert run.evaluate(LIMIT_DRAWN, ["leak", 0.59]) < 0.05
    expect(run.locator("#leak-told")).to_contain_text("The limit is 0.60.")


def test_a_drag_comes_closer_and_two_clicks_show_all(run):
    window = "(({ min, max }) => [min, max])(drawn.get('leak').plot.scales.x)"
    whole = run.evaluate(window)
    over = run.locator("#leak .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    run.mouse.move(box["x"] + box["width"] / 3, box["y"] + 60)
    run.mouse.down()
    run.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60, steps=4)
    run.mouse.up()
    least, most = run.evaluate(window)
    assert 900 < least < 1100
    assert 1400 < most < 1600
    over.dblclick()
    assert run.evaluate(window) == whole


def test_charts_can_be_read_by_keyboard_and_as_tables(run):
    plot = run.locator("#leak .drawing")
    plot.focus()
    run.keyboard.press("ArrowRight")
    run.keyboard.press("ArrowRight")
    expect(run.locator("#leak output")).to_contain_text("step 20: cosine 0.5")
    expect(run.locator("#leak output")).to_have_attribute("aria-live", "polite")
    run.keyboard.press("Shift+ArrowRight")
    expect(run.locator("#leak output")).to_contain_text("step 220: ")
    names = [row.split("\t")[0].strip() for row in run.locator("#leak .key tbody tr").all_inner_texts()]
    assert set(names) == {"norm", "cosine", "hint", "majority", "top_share", "residual"}


def test_the_attack_that_reached_most_stands_first(run):
    rows = [
        max(float(text[:5]) for text in row.locator("td").all_inner_texts() if text[:1] == "0")
        for row in run.locator("#attacks tbody tr").all()
    ]
    assert len(rows) == 12
    assert rows == sorted(rows, reverse=True)


def test_a_feature_party_has_shares_and_no_classes(home, visit):
    page = visit(home, f"/run/{home.ids['airport / flights']}")
    expect(page.locator(".verdict")).to_contain_text("reads a share of 0.")
    expect(page.locator(".verdict")).to_contain_text("It waits for airline: no answer yet.")
    page.until("drawn.get('leak')?.plot.scales.y.min === 0")


def test_a_run_is_followed_from_its_first_line_on(tmp_path, shows, folder, visit):
    run = folder()
    client = shows(tmp_path)
    page = visit(client, f"/run/{client.cards()['airline / flights']['id']}")
    expect(page.locator("#leak")).to_contain_text("No look yet")
    expect(page.locator("#rate")).to_contain_text("No pace is on record")
    for step in range(0, 60, 10):
        run.look(step)
    run.decide(1)
    page.until(f"{DRAWN} === 6")
    page.evaluate("window.before = drawn.get('leak').plot")
    for step in range(60, 120, 10):
        run.look(step)
    page.until(f"{DRAWN} === 12")
    run.status(state="paused", reason="<b>the limit</b> can't be held")
    expect(page.locator(".states")).to_contain_text("Paused")
    expect(page.locator(".verdict")).to_contain_text("It is paused (<b>the limit</b> can't be held).")
    expect(page.locator("#told")).to_contain_text("Paused")


def test_a_chart_that_gets_more_figures_is_not_made_anew(tmp_path, shows, folder, visit):
    run = folder()
    for step in range(0, 60, 10):
        run.look(step, norm=0.55)
    client = shows(tmp_path)
    page = visit(client, f"/run/{client.cards()['airline / flights']['id']}")
    page.until(f"{DRAWN} === 6")
    page.evaluate("window.before = drawn.get('loss').plot")
    run.look(60)
    page.until(f"{DRAWN} === 7")
    assert page.evaluate("window.before === drawn.get('loss').plot")


def test_a_million_points(tmp_path, shows, folder, visit):
    run = folder(steps=100_000)
    usual = json.dumps(dict.fromkeys(map(str, range(10)), 0.51))
    lines = [f'{{"step": {step}, "turn": {step}, "epoch": 0, "found": {usual}}}\n' for step in range(100_000)]
    lines[54_321] = lines[54_321].replace("0.51", "0.59")
    (run.path / "live.jsonl").write_text("".join(lines))
    run.decide(1)
    client = shows(tmp_path)
    place = client.server.shelf.places()[0]
    page = visit(client, f"/run/{place.id}")
    page.until("drawn.get('leak')")
    with client.server.shelf.reading(place) as reader:
        assert reader.detail()["total"] >= 1_000_000
    assert page.evaluate(POINTS) <= 2000
    assert page.evaluate("Math.max(...drawn.get('leak').data.curves[0].y)") == 0.59  # one of 100,000 is not lost
    took = page.evaluate(
        """() => {
            const { plot } = drawn.get("leak");
            const began = performance.now();
            plot.redraw();
            plot.ctx.getImageData(0, 0, 1, 1);
            return performance.now() - began;
        }"""
    )
    assert took < 1000
