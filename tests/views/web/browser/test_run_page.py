"""One run's page, in a real browser: what is going on in words, charts, the limit, coming closer, a million points."""

import json

import pytest
from playwright.sync_api import expect

# Whether pixels of a chart's canvas at a height of y are of the colour that stands for what is bad.
LIMIT_DRAWN = """([id, y]) => {
    const u = document.getElementById(id).chart.drawn;
    const row = Math.round(u.valToPos(y, "y", true));
    const { left, width } = u.bbox;
    let found = 0;
    for (const at of [row - 1, row, row + 1]) {
        const { data } = u.ctx.getImageData(left, at, width, 1);
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && data[i] > 150 && data[i + 2] < 60) found++;
    }
    return found / width;
}"""
POINTS = "document.getElementById('leak').chart.curves[0].x.length"
DRAWN = "document.getElementById('leak').chart.drawn?.data[0].length"
WINDOW = "document.getElementById('leak').chart.drawn.scales.x"


@pytest.fixture(name="run")
def _run(home, visit):
    """The page of a finished run."""
    page = visit(home, f"#/run/{home.ids['airline / flights']}")
    expect(page.get_by_role("heading", level=1, name="flights")).to_be_visible()
    return page


def test_it_says_what_is_going_on(run):
    expect(run.locator(".sentence")).to_contain_text("The worst attack reaches 0.5")
    expect(run.locator(".sentence")).to_contain_text("the limit is 0.60. The training is over")
    assert run.title() == "airline / flights · Tacit"
    expect(run.locator("#decisions tbody tr")).to_have_count(3)
    expect(run.locator("#decisions")).to_contain_text("the worst case of a row")
    expect(run.locator("#events")).to_contain_text("a different request for an answered step")
    expect(run.locator("#rate .told")).to_contain_text("It stood still once")
    expect(run.locator("#pace")).to_contain_text("waiting")
    expect(run.locator("#gate .told")).to_contain_text("two bars pause, a square stops")
    expect(run.locator("#attacks tbody tr")).to_have_count(12)
    expect(run.locator("#leak .legend li")).to_have_count(6)
    for name in ("leak", "gate", "quality", "loss", "rate", "journal-size", "norms-sent", "norms-clean"):
        assert run.evaluate("id => document.getElementById(id).chart.drawn.series.length", name) > 1, name


def test_the_limit_is_a_line(run):
    assert run.evaluate(LIMIT_DRAWN, ["leak", 0.6]) > 0.3  # dashes
    assert run.evaluate(LIMIT_DRAWN, ["gate", 0.6]) > 0.3
    assert run.evaluate(LIMIT_DRAWN, ["leak", 0.59]) < 0.05
    expect(run.locator("#leak .told")).to_contain_text("The limit is 0.60.")


def test_a_drag_comes_closer_and_two_clicks_show_all(run):
    whole = run.evaluate(POINTS)
    over = run.locator("#leak .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    with run.expect_response(lambda answer: "first=" in answer.url):
        run.mouse.move(box["x"] + box["width"] / 3, box["y"] + 60)
        run.mouse.down()
        run.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60, steps=4)
        run.mouse.up()
    expect(run.locator(".zoom")).to_be_visible()
    run.until(f"{POINTS} < {whole}")
    scale = run.evaluate(WINDOW)
    assert 900 < scale["min"] < 1100
    assert 1400 < scale["max"] < 1600
    loss = run.evaluate("document.getElementById('loss').chart.drawn.scales.x")
    assert (loss["min"], loss["max"]) == (scale["min"], scale["max"])  # all charts over steps come closer together
    over.dblclick()
    run.until(f"{POINTS} === {whole}")
    expect(run.locator(".zoom")).to_be_hidden()


def test_charts_can_be_read_and_zoomed_by_keyboard_and_as_tables(run):
    plot = run.locator("#leak .plot")
    plot.focus()
    run.keyboard.press("ArrowRight")
    run.keyboard.press("ArrowRight")
    expect(run.locator("#leak [aria-live]")).to_contain_text("step 20: norm 0.5")
    run.keyboard.press("+")
    expect(run.locator(".zoom")).to_be_visible()
    run.keyboard.press("0")
    expect(run.locator(".zoom")).to_be_hidden()
    run.locator("#leak figcaption button").click()
    assert 30 < run.locator("#leak tbody tr").count() < 45
    key = run.locator("#leak .legend button", has_text="norm")
    key.click()
    expect(key).to_have_attribute("aria-pressed", "false")
    assert run.evaluate("document.getElementById('leak').chart.drawn.series[1].show") is False
    expect(run.locator("#leak thead th")).to_have_count(6)  # the step, and five attacks


def test_norms_follow_the_slider(run):
    words = run.locator(".player output")
    expect(words).to_contain_text("(the last)")
    slider = run.locator("#norm-step")
    drawn = run.locator(".histogram path.area").first
    last = drawn.get_attribute("d")
    slider.focus()
    run.keyboard.press("Home")
    expect(words).to_contain_text("Step 0")
    assert drawn.get_attribute("d") != last
    run.locator("#norm-play").click()
    expect(run.locator("#norm-play")).to_have_text("Pause")
    expect(words).not_to_contain_text("Step 0:")
    run.locator("#norm-play").click()
    expect(run.locator("#norms-clean .told")).to_contain_text("2.4")
    expect(run.locator("#norms-sent .told")).to_contain_text("1.0")


def test_the_matrix_is_sorted_by_a_click(run):
    column = run.locator("#attacks thead button").nth(2)
    column.click()
    values = [float(text[:5]) for text in run.locator("#attacks tbody td:nth-child(3)").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    run.locator("#attacks thead button").nth(2).click()
    values = [float(text[:5]) for text in run.locator("#attacks tbody td:nth-child(3)").all_inner_texts()]
    assert values == sorted(values)
    expect(run.locator("#attacks th[aria-sort]")).to_have_attribute("aria-sort", "ascending")


def test_a_feature_party_has_shares_and_no_classes(home, visit):
    page = visit(home, f"#/run/{home.ids['airport / flights']}")
    expect(page.locator(".sentence")).to_contain_text("reads a share of 0.")
    expect(page.locator(".sentence")).to_contain_text("It waits for airline: no answer yet.")
    expect(page.locator("#norms")).to_contain_text("this party has no labels")
    assert page.evaluate("document.getElementById('leak').chart.drawn.scales.y.min") == 0


def test_a_run_is_followed_from_its_first_line_on(tmp_path, shows, folder, visit):
    run = folder()
    client = shows(tmp_path)
    page = visit(client, f"#/run/{client.json('/api/runs')['places'][0]['id']}")
    expect(page.locator("#leak")).to_contain_text("No look yet")
    expect(page.locator("#rate")).to_contain_text("No pace is on record")
    for step in range(0, 60, 10):
        run.look(step)
    run.decide(1)
    page.until(f"{DRAWN} === 6")
    page.evaluate("window.before = document.getElementById('leak').chart.drawn")
    for step in range(60, 120, 10):
        run.look(step)
    page.until(f"{DRAWN} === 12")
    assert page.evaluate("window.before === document.getElementById('leak').chart.drawn")  # new data, not a new chart
    run.status(state="paused", reason="<b>the limit</b> can't be held")
    expect(page.locator(".states")).to_contain_text("Paused")
    expect(page.locator(".sentence")).to_contain_text("It is paused (<b>the limit</b> can't be held).")
    expect(page.locator("#told")).to_contain_text("Paused")


def test_a_million_points(tmp_path, shows, folder, visit):
    run = folder(steps=100_000)
    usual = json.dumps(dict.fromkeys(map(str, range(10)), 0.51))
    lines = [f'{{"step": {step}, "turn": {step}, "epoch": 0, "found": {usual}}}\n' for step in range(100_000)]
    lines[54_321] = lines[54_321].replace("0.51", "0.59")
    (run.path / "live.jsonl").write_text("".join(lines))
    run.decide(1)
    client = shows(tmp_path)
    told = client.json("/api/runs")["places"][0]
    page = visit(client, f"#/run/{told['id']}")
    page.until("document.getElementById('leak')?.chart.drawn")
    assert client.json(f"/api/runs/{told['id']}")["total"] >= 1_000_000
    assert page.evaluate(POINTS) <= 2000
    looks = "Math.max(...document.getElementById('leak').chart.curves[0].looks)"
    assert page.evaluate(looks) == 0.59  # a single look among 100,000 is not lost
    took = page.evaluate(
        """() => {
            const { chart } = document.getElementById("leak");
            const began = performance.now();
            chart.update(chart.curves, chart.extra);
            chart.drawn.ctx.getImageData(0, 0, 1, 1);
            return performance.now() - began;
        }"""
    )
    assert took < 1000
