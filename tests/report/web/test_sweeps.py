"""Sweeps over a real port: their points, one training of them, and everything side by side."""

import json
import re

import pytest

from tacit.lab.sweeping.results import as_table, write


def rows(replica, protection, strength, leak):
    own = {"replica": replica, "protection": protection, "knob": strength and "scale", "strength": strength, "seed": 0}
    for step in (10, 20):
        yield {**own, "part": "stretch", "step": step, "test_auc": 0.6 + step / 1000, "norm@cut": leak,
               "norm@cut low": leak - 0.1, "norm@cut high": leak + 0.1}  # fmt: skip
    yield {**own, "part": "whole", "step": 20, "test_auc": 0.62, "norm@cut": leak, "norm@cut low": leak - 0.1,
           "norm@cut high": leak + 0.1, "worst": leak, "worst low": leak - 0.1, "worst high": leak + 0.1,
           "worst attack": "norm@cut"}  # fmt: skip


@pytest.fixture(name="swept", scope="module")
def _swept(tmp_path_factory, serving, make_run):
    """A server that shows a sweep and a run."""
    root = tmp_path_factory.mktemp("swept")
    table = as_table([*rows(0, "none", None, 0.9), *rows(1, "iso", 2.0, 0.6)])
    write(root / "sweep" / "results.parquet", table, {"data": "flights"})
    make_run(root / "a" / "runs" / "b")
    with serving(root) as client:
        client.id = next(card["id"] for card in client.cards().values() if card["kind"] == "sweep")
        yield client


def test_a_sweep_and_one_of_its_trainings(swept):
    page = swept.page(f"/sweep/{swept.id}")
    assert "2 of 2 settings done." in page
    listed = re.findall(rf'<a href="/sweep/{swept.id}/(\d)">(.*?)</a>.*?data-label="Leak">(.*?)<', page)
    assert listed == [("1", "iso scale=2", "0.600"), ("0", "none", "0.900")]
    assert page.count('tabindex="-1"') == 2 + 1  # its points, and the page itself
    charts = swept.charts(f"/sweep/{swept.id}/1")
    assert charts["leak"]["curves"][0]["x"] == [10, 20]
    assert charts["quality"]["curves"][0]["y"] == [pytest.approx(0.61), pytest.approx(0.62)]


def test_a_protection_that_is_hidden_has_no_points(swept):
    page = swept.page(f"/sweep/{swept.id}?hide=iso")
    assert f'/sweep/{swept.id}/0"' in page
    assert f'/sweep/{swept.id}/1"' not in page
    assert "iso (hidden)" in page


@pytest.mark.parametrize("number", ["2", "99999999999999999999999", "-1", "x", "1.5", ""])
def test_a_training_that_is_not_there(swept, number):
    answer = swept.get(f"/sweep/{swept.id}/{number}")
    assert answer.status == 404
    assert json.loads(answer.content)["error"]


def test_a_sweep_is_no_run(swept):
    for path in ("", "/report", "/figures.parquet"):
        assert swept.get(f"/run/{swept.id}{path}").status == 404


def test_attacks_and_protections_side_by_side(swept):
    page = swept.page("/matrix")
    heads = re.findall(r"data-in-place>(.*?)</a>", page)
    assert heads == ["Attack", "none", "iso scale=2"]
    assert re.findall(r'<td class="n h\d+">([0-9.]+)', page) == ["0.900", "0.600"]


def test_a_sweep_is_no_run_for_prometheus(swept):
    assert swept.id not in swept.get("/metrics").content.decode()
