"""Sweeps and the table of all attacks, in a real browser."""

import pytest
from playwright.sync_api import expect


@pytest.fixture(name="trade")
def _trade(home, visit):
    """The page of a sweep that is over."""
    page = visit(home, f"#/sweep/{home.ids['sweeps / done']}")
    expect(page.locator("a.point")).to_have_count(19)
    return page


def test_a_click_on_a_point_opens_its_training(trade):
    point = trade.locator('a.point[data-replica="3"]')
    assert "matched leak_auc=0.9" in point.get_attribute("aria-label")
    point.click()
    expect(trade.get_by_role("heading", level=1)).to_have_text("matched leak_auc=0.9")
    assert trade.url.endswith("/3")
    expect(trade.locator("#leak .legend li")).to_have_count(3)
    assert trade.evaluate("document.getElementById('quality').chart.curves[0].x.length") == 20
    expect(trade.locator(".sentence")).to_contain_text("leak 0.750 (0.730 to 0.770) by cosine@cut, test AUC 0.785")
    trade.keyboard.press("Escape")
    expect(trade.locator("#trade-off")).to_be_visible()


def test_points_by_keyboard(trade):
    trade.locator('a.point[tabindex="0"]').focus()
    first = trade.evaluate("document.activeElement.dataset.replica")
    trade.keyboard.press("ArrowRight")
    second = trade.evaluate("document.activeElement.dataset.replica")
    assert first != second
    left, right = (
        trade.locator(f'a.point[data-replica="{one}"] .shape').bounding_box()["x"] for one in (first, second)
    )
    assert right > left
    expect(trade.locator(".reading")).to_contain_text("test AUC")
    trade.keyboard.press("Enter")
    expect(trade.get_by_role("link", name="Back to the trade-off")).to_be_visible()
    assert trade.url.endswith(f"/{second}")
    trade.keyboard.press("Escape")
    expect(trade.locator("a.point")).to_have_count(19)


def test_the_front_and_the_list_say_the_same(trade):
    best = trade.locator("a.point.best").count()
    assert 5 < best < 19
    expect(trade.locator(".points .tag", has_text="unbeaten")).to_have_count(best)
    leaks = [float(text) for text in trade.locator(".points tbody td:nth-child(2)").all_inner_texts()]
    assert leaks == sorted(leaks)
    assert len(leaks) == 19
    trade.locator(".legend button", has_text="iso").click()
    expect(trade.locator("a.point")).to_have_count(13)
    expect(trade.locator(".points tbody tr")).to_have_count(13)
    shapes = {one.get_attribute("d") for one in trade.locator(".legend path").all()}
    assert len(shapes) == 4  # not by colour alone


def test_half_a_sweep(home, visit):
    page = visit(home, f"#/sweep/{home.ids['sweeps / half']}")
    expect(page.locator(".states")).to_have_text("Under way")
    expect(page.locator(".sentence")).to_contain_text("7 of 19 settings done")


def test_all_attacks_against_all_protections(home, visit):
    page = visit(home)
    expect(page.locator("a.card")).to_have_count(4)
    page.keyboard.press("m")
    expect(page.get_by_role("heading", level=1)).to_have_text("Attacks and protections")
    expect(page.locator("table.grid tbody tr")).to_have_count(3)
    expect(page.locator("table.grid thead th")).to_have_count(27)
    darkest, lightest = page.locator("td.heat").first, page.locator("td.heat").last
    tones = [one.evaluate("node => getComputedStyle(node).getPropertyValue('--heat')") for one in (darkest, lightest)]
    assert int(tones[0].rstrip("%")) > int(tones[1].rstrip("%"))
    page.locator("table.grid thead a").first.click()
    expect(page.locator("#trade-off")).to_be_visible()
