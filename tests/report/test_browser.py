"""A real browser shows the page and prints it, wherever one is found."""

import re
import shutil
import subprocess

import pytest

from tacit.report.rendering import write

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-pdf-header-footer",
]


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: install Debian's package chromium to run this test")
def test_a_browser_prints_the_page(reports, tmp_path):
    _, page = write(reports["full"], tmp_path)
    printed = tmp_path / "report.pdf"
    command = [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / 'browser'}", f"--print-to-pdf={printed}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert printed.exists(), done.stderr[-2000:]
    content = printed.read_bytes()
    assert content.startswith(b"%PDF")
    sheets = len(re.findall(rb"/Type\s*/Page\b", content))
    assert 4 <= sheets <= 12
    width, height = map(float, re.search(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)", content).groups())
    assert (width, height) == (pytest.approx(595, abs=2), pytest.approx(842, abs=2))  # A4
    assert "Refused to" not in done.stderr  # the page's own policy stops nothing that it needs
