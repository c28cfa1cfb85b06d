"""Sweeps and the table of all attacks, in a real browser."""

import pytest
from playwright.sync_api import expect


@pytest.fixture(name="trade")
def _trade(home, visit):
    """The page of a sweep that is over."""
    page = visit(home, f"/sweep/{home.ids['sweeps / done']}")
    expect(page.locator(".points tbody tr")).to_have_count(19)
    return page


def test_a_click_on_a_point_opens_its_training(trade):
    assert trade.locator("#trade-off svg.plot a").count() == 19
    point = trade.locator('#trade-off svg.plot a[href$="/3"] circle')
    box = point.bounding_box()
    trade.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(trade.get_by_role("heading", level=1)).to_have_text("matched leak_auc=0.9")
    assert trade.url.endswith("/3")
    expect(trade.locator("#leak .key tbody tr")).to_have_count(3)
    assert trade.evaluate("drawn.get('quality').data.curves[0].x.length") == 20
    expect(trade.locator(".verdict")).to_contain_text("leak 0.750 (0.730 to 0.770) by cosine@cut, test AUC 0.785")
    expect(trade.locator("#link")).to_have_text("Live")  # its script has come
    trade.keyboard.press("Escape")
    expect(trade.locator("#trade-off")).to_be_visible()


def test_a_setting_by_keyboard(trade):
    trade.locator(".points a").first.focus()
    trade.keyboard.press("Enter")
    expect(trade.get_by_role("link", name="Back to the trade-off")).to_be_visible()
    expect(trade.locator("#link")).to_have_text("Live")  # its script has come
    trade.keyboard.press("Escape")
    expect(trade.locator(".points tbody tr")).to_have_count(19)


def test_the_list_and_the_picture_have_the_same_points(trade):
    best = trade.locator(".points .tag", has_text="unbeaten").count()
    assert 5 < best < 19
    leaks = [float(text) for text in trade.locator(".points tbody td:nth-child(2)").all_inner_texts()]
    assert leaks == sorted(leaks)
    assert len(leaks) == 19
    trade.locator(".families a", has_text="iso").click()
    expect(trade.locator(".points tbody tr")).to_have_count(13)
    expect(trade.locator("#trade-off svg.plot a")).to_have_count(13)
    trade.locator(".families a", has_text="iso").click()
    expect(trade.locator(".points tbody tr")).to_have_count(19)
    dashes = {
        one.evaluate("node => getComputedStyle(node).strokeDasharray") for one in trade.locator(".families line").all()
    }
    assert len(dashes) == 4  # not by colour alone


def test_half_a_sweep(home, visit):
    page = visit(home, f"/sweep/{home.ids['sweeps / half']}")
    expect(page.locator(".states")).to_have_text("Under way")
    expect(page.locator(".verdict")).to_contain_text("7 of 19 settings done")


def test_all_attacks_against_all_protections(home, visit):
    page = visit(home)
    expect(page.locator("a.card")).to_have_count(4)
    expect(page.locator("#link")).to_have_text("Live")
    page.keyboard.press("m")
    expect(page.get_by_role("heading", level=1)).to_have_text("Attacks and protections")
    expect(page.locator("table.grid tbody tr")).to_have_count(3)
    expect(page.locator("table.grid thead th")).to_have_count(27)
    tone = "node => Number(getComputedStyle(node).getPropertyValue('--heat').replace('%', ''))"
    assert page.locator("table.grid td").first.evaluate(tone) > page.locator("table.grid td").last.evaluate(tone)
    page.locator("table.grid thead a.about").first.click()
    expect(page.locator("#trade-off")).to_be_visible()
