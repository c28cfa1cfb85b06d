"""Every page by the keyboard alone, and as a screen reader has it: wide and on a phone."""

import pytest

from tests.views.keyboard import stops, unnamed
from tests.views.web.browser.test_page import addresses, go

SIZES = {"wide": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 800}}


@pytest.fixture(params=SIZES)
def page(request, home, visit):
    page = visit(home)
    page.set_viewport_size(SIZES[request.param])
    return page


@pytest.mark.parametrize("place", range(6), ids=["runs", "label run", "feature run", "sweep", "setting", "matrix"])
def test_the_tab_key_goes_through_the_page_and_everything_has_a_name(home, page, place):
    go(page, addresses(home)[place])
    page.wait_for_timeout(300)  # charts are drawn
    found = stops(page)
    assert len(found) > 3
    assert all(one["name"] and one["ring"] for one in found), found
    assert unnamed(page) == []


def test_the_step_of_the_norms_moves_by_arrows(home, visit):
    page = visit(home, addresses(home)[1])
    slider = page.locator("#norm-step")
    slider.focus()
    page.keyboard.press("Home")
    first = slider.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") != first
    assert slider.input_value() == "1"
