"""What holds on every page: the keyboard, both themes, a phone's width, text that stays text, the token."""

import pytest
from playwright.sync_api import expect

EVIL = "<img src=x onerror=\"document.title='stolen'\"><script>document.title='stolen'</script>"
NARROW = "[document.documentElement.scrollWidth, innerWidth]"


def addresses(home):
    ids = home.ids
    return ["/", *(f"/run/{ids[name]}" for name in ("airline / flights", "airport / flights"))]


def go(page, address):
    page.goto(page.home + address.removeprefix("/"))


def test_the_keyboard_alone(home, visit):
    page = visit(home)
    expect(page.locator("a.card")).to_have_count(2)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Keys").press("Enter")
    page.get_by_role("button", name="Close").press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.locator("a.card").first.focus()
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.getAttribute('href')")
    assert second == page.locator("a.card").nth(1).get_attribute("href")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"  # the focus is seen
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{second}")
    live = page.locator("#link")
    expect(live).to_have_text("Live")  # the page's script has come
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    expect(live).to_have_text("Live")
    page.locator("a.card").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/*")
    expect(live).to_have_text("Live")
    page.keyboard.press("o")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")


# Whether any pixel of the leak chart has a colour of the theme's variable.
PAINTED = """(name) => {
    const chart = drawn.get("leak");
    const [r, g, b] = colour(chart, name).match(/\\d+/g).map(Number);
    const { ctx } = chart.plot;
    const { data } = ctx.getImageData(0, 0, ctx.canvas.width, ctx.canvas.height);
    for (let i = 0; i < data.length; i += 4) {
        if (data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] > 200) return `${r} ${g} ${b}`;
    }
    return null;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_themes_follow_the_system_and_can_be_chosen(home, visit, scheme):
    page = visit(home, color_scheme=scheme)
    paper = "getComputedStyle(document.body).backgroundColor"
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}
    assert page.evaluate(paper) == colours[scheme]
    go(page, addresses(home)[1])
    page.until("window.uPlot && drawn.get('leak')?.plot")
    before = page.evaluate(PAINTED, "s1")
    assert before
    other = "dark" if scheme == "light" else "light"
    for _ in range(2 if other == "dark" else 1):
        page.keyboard.press("t")
    assert page.evaluate(paper) == colours[other]
    page.until(f"({PAINTED})('s1')")  # charts too
    assert page.evaluate(PAINTED, "s1") != before
    page.reload()
    assert page.evaluate(paper) == colours[other]


CONTRAST = """() => {
    const light = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).map((one) => one / 255)
            .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const probe = document.body.appendChild(document.createElement("span"));
    const of = (name) => { probe.style.color = `var(--${name})`; return light(getComputedStyle(probe).color); };
    const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const names = ["ink", "soft", "good", "bad", "open", "s1", "s2", "s3", "s4", "s5"];
    const least = (one) => Math.min(ratio(one, of("paper")), ratio(one, of("wash")));
    return Object.fromEntries(names.map((name) => [name, least(of(name))]));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(home, visit, scheme):
    found = visit(home, color_scheme=scheme).evaluate(CONTRAST)
    assert min(found[name] for name in ("ink", "soft", "good", "bad", "open")) >= 4.5, found
    assert min(found.values()) >= 3, found  # of lines and shapes


@pytest.mark.parametrize("width", [360, 2560])
def test_no_page_is_wider_than_the_screen(home, visit, width):
    page = visit(home)
    page.set_viewport_size({"width": width, "height": 800})
    for address in addresses(home):
        go(page, address)
        inner, outer = page.evaluate(NARROW)
        assert inner <= outer, address
    go(page, addresses(home)[1])
    columns = page.evaluate("getComputedStyle(document.querySelector('.charts')).gridTemplateColumns.split(' ').length")
    assert columns == 1 if width == 360 else columns >= 3


def test_what_runs_say_stays_text(tmp_path, shows, folder, visit):
    run = folder()
    run.told |= {"run": EVIL, "party": EVIL}
    run.look(10, **{EVIL: 0.7})
    run.decide(1, "pause", reason=EVIL, strength=EVIL)
    run.decide(2, reason=EVIL)
    run.event("refused", peer=EVIL, why=EVIL)
    run.status(state="paused", reason=EVIL)
    client = shows(tmp_path)
    page = visit(client)
    expect(page.locator("a.card h2")).to_have_text(EVIL)
    page.keyboard.press("Tab")
    page.locator("a.card").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(EVIL)
    expect(page.locator("#leak .key")).to_contain_text(EVIL)
    page.locator("#leak .drawing").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#leak output")).to_contain_text(EVIL)
    expect(page.locator("#events")).to_contain_text(EVIL)
    assert page.locator("main img, main script:not([type='application/json'])").count() == 0
    assert "stolen" not in page.title()


def test_a_token_is_needed_and_does_not_stay_in_the_address(home, visit, browser):
    page = visit(home)
    assert "token" not in page.url
    assert page.evaluate("document.cookie") == ""  # no script can read it
    stranger = browser.new_context()
    try:
        answer = stranger.new_page().goto(page.home)
        assert answer.status == 401
        assert stranger.request.get(page.home + "metrics").status == 401
    finally:
        stranger.close()


@pytest.mark.parametrize("address", ["/run/000000000000", "/run/%", "/run/%E0%A4%A/1", "/nothing"])
def test_a_run_that_is_not_there(home, visit, address):
    page = visit(home, address, wrong=["404"])
    expect(page.get_by_role("heading", level=1)).to_have_text("Not here")
    page.get_by_role("link", name="All runs").click()
    expect(page.locator("a.card")).to_have_count(2)


HIDE = """Object.defineProperty(document, "hidden", { value: true, configurable: true });
document.dispatchEvent(new Event("visibilitychange"))"""
SEE = "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"


def test_many_pages_of_one_browser_are_live(home, visit):
    """A browser has six lines to a server, and no page may hold one for itself."""
    page = visit(home)
    for _ in range(7):
        expect(page.locator("a.card")).to_have_count(2)
        expect(page.locator("#link")).to_have_text("Live")
        page.evaluate(HIDE)
        context, where = page.context, page.url
        page = context.new_page()
        page.goto(where)


def test_a_page_that_is_seen_again_shows_what_it_missed(tmp_path, shows, folder, visit):
    run, client = folder(), shows(tmp_path)
    page = visit(client)
    chip = page.locator("a.card .chip").first
    expect(chip).to_have_text("Training")
    expect(page.locator("#link")).to_have_text("Live")
    page.evaluate(HIDE)
    page.wait_for_timeout(100)
    page.asked.clear()
    page.wait_for_timeout(1200)  # longer than the pause between two looks
    assert page.asked == [], "what nobody sees asks nothing"
    run.status(state="finished")
    page.evaluate(SEE)
    expect(chip).to_have_text("Finished")


def test_all_of_it_can_be_read_without_a_script(home, visit):
    page = visit(home, java_script_enabled=False)
    expect(page.locator("a.card")).to_have_count(2)
    go(page, addresses(home)[1])
    expect(page.locator("#leak .key tbody tr")).to_have_count(6)
    expect(page.locator("#decisions tbody tr")).to_have_count(3)
