"""Reports and the page of `tacit choose` by the keyboard alone, and as a screen reader has them."""

import pytest

from tacit.views.report.rendering import render
from tests.views.exchanges import certified, released
from tests.views.keyboard import COVERED, check_reading, check_stops, reading, stops
from tests.views.report.test_browser import CHROMIUM
from tests.views.report.test_frontier import page as choose

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")


@pytest.fixture(scope="module", name="browser")
def _browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(name="opened", params=[1280, 390], ids=["wide", "phone"])
def _opened(request, browser, tmp_path):
    """Opens a page that is given as text."""
    context = browser.new_context(viewport={"width": request.param, "height": 900})

    def opened(text):
        (tmp_path / "page.html").write_text(text)
        page = context.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        return page

    yield opened
    context.close()


@pytest.mark.parametrize("name", ["full", "minimal", "broken", "features", "foreign", "certified", "released"])
def test_a_screen_reader_has_every_table_of_a_report_with_its_heads(reports, opened, name):
    exchanged = {"certified": certified, "released": released}
    page = opened(render(exchanged[name]() if name in exchanged else reports[name]))
    told = reading(page)
    check_reading(told)
    assert page.evaluate(COVERED) == []
    roles = [one["role"] for one in told]
    tables = page.locator("table").count()
    assert roles.count("table") == tables
    assert roles.count("columnheader") >= 2 * tables
    check_stops(stops(page))


def test_the_limits_of_a_choice_move_by_arrows_and_the_answer_is_told(opened):
    page = opened(choose())
    check_stops(stops(page))
    check_reading(reading(page))
    answer = page.locator("#answer")
    before = answer.inner_text()
    page.locator("#feature-limit").focus()
    page.keyboard.press("End")
    assert page.locator("#feature-limit").input_value() == "1"
    assert answer.inner_text() != before
    page.keyboard.press("ArrowLeft")
    assert page.locator("#feature-limit").input_value() == "0.99"
    assert answer.inner_text() == before
