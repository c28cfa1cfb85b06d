"""Reports by the keyboard alone, and as a screen reader has them."""

import pytest

from tacit.report.rendering import render
from tests.report.exchanges import bounded, released
from tests.report.keyboard import COVERED, check_reading, check_stops, reading, stops
from tests.report.test_browser import CHROMIUM

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


@pytest.mark.parametrize("name", ["full", "minimal", "broken", "features", "foreign", "bounded", "released"])
def test_a_screen_reader_has_every_table_of_a_report_with_its_heads(reports, opened, name):
    exchanged = {"bounded": bounded, "released": released}
    page = opened(render(exchanged[name]() if name in exchanged else reports[name]))
    told = reading(page)
    check_reading(told)
    assert page.evaluate(COVERED) == []
    roles = [one["role"] for one in told]
    tables = page.locator("table").count()
    assert roles.count("table") == tables
    assert roles.count("columnheader") >= 2 * tables
    check_stops(stops(page))
