"""The page of `tacit choose` with both limits as sliders: every setting, its own script alone, the best one named."""

import base64
import hashlib
import re
import shutil
import subprocess

import pytest

from tacit.views.report.frontier import Measured, frontier
from tests.views.report.test_browser import CHROMIUM, QUIET

POINTS = [
    Measured("flips, trees, 1 number", 0.78, 0.9, 0.6, True),
    Measured("flips, trees, 8 numbers", 0.8, 1.0, 0.6, True),
    Measured("no partner", 0.64, 0.0, 0.5, True),
    Measured("split, <b>matched</b>", 0.81, 0.95, 0.55, False),
]


def page(**changes):
    return frontier(POINTS, **({"title": "flights", "label_limit": 0.6, "feature_limit": 0.9} | changes))


def test_every_setting_is_there_and_nothing_is_run_but_its_own_script():
    text = page()
    for point in POINTS[:3]:
        assert text.count(point.setting) == 2
    assert "<b>matched" not in text
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in text
    assert "http" not in text.replace("http-equiv", ""), "nothing comes from outside"


def test_one_setting_alone_can_be_drawn():
    assert "no partner" in frontier(POINTS[2:3], title="x", label_limit=0.6, feature_limit=None)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: install Debian's package chromium to run this test")
@pytest.mark.parametrize(
    ("limits", "best"),
    [
        ((0.6, 0.9), "flips, trees, 1 number"),
        ((0.6, 1.0), "flips, trees, 8 numbers"),
        ((0.55, 1.0), "no partner"),  # what has no bound does not count, whatever was measured
        ((1.0, 1.0), "split, &lt;b&gt;matched"),
    ],
)
def test_a_browser_names_the_best_setting(tmp_path, limits, best):
    path = tmp_path / "choose.html"
    path.write_text(page(label_limit=limits[0], feature_limit=limits[1]))
    command = [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", path.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    shutil.rmtree(tmp_path / "browser", ignore_errors=True)
    assert f"Best under both limits: {best}" in shown.stdout, shown.stderr[-2000:]
