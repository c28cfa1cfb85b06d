"""The site: it builds without a warning, asks nothing of other machines, and can be searched, from a disk as well."""

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent.parent
CHROMIUM = shutil.which("chromium")
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc\s*=\s*["']?([^"'\s>]+)"""
    r"""|<link\b[^>]*?\bhref\s*=\s*["']?([^"'\s>]+)"""
    r"""|url\(\s*["']?([^"')\s]+)|@import\s+["']([^"']+)"""
    r"""|\b(?:fetch|importScripts)\(\s*["']([^"']+)"""
)
without_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", out / "trees"]
    done = subprocess.run([*command, ROOT / "docs", out / "html"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return out / "html"


def loaded(text):
    return [next(filter(None, found)) for found in LOADED.findall(text)]


def test_what_is_loaded_is_seen():
    text = '<img alt="a" src="https://a/b.png"><link rel=x href="//c/d.css"> url(http://e/f) <a href="https://no"></a>'
    assert loaded(text) == ["https://a/b.png", "//c/d.css", "http://e/f"]


def test_every_page_is_on_the_site(site):
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").stat().st_size > 1000, page.name


def test_nothing_is_loaded_from_elsewhere(site):
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".js")]
    assert len(files) > 20
    for path in files:
        for address in loaded(path.read_text()):
            away = re.match(r"(https?:)?//", address)
            assert not away or path.suffix == ".js", f"{path.name} loads {address}"


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module", params=["disk", "server"])
def address(request, site):
    if request.param == "disk":
        yield site.as_uri()
        return
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=str(site)))
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_address[1]}"
    served.shutdown()
    served.server_close()


@without_chromium
@pytest.mark.parametrize("width", [390, 1440], ids=["phone", "wide"])
def test_a_search_finds_and_asks_nobody_else(browser, address, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    asked, wrong = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    try:
        page.goto(f"{address}/index.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.goto(f"{address}/search.html?q=marvell")
        page.wait_for_selector("#search-results li a", timeout=60_000)
        assert "marvell" in page.inner_text("#search-results").lower()
        found = page.evaluate(
            "document.querySelector('#search-results li a').href"
        )  # more results push it while one clicks
        page.goto(found)
        page.wait_for_selector("article h1", timeout=60_000)
    finally:
        page.close()
    assert not wrong
    assert asked
    assert all(url.startswith((address, "data:")) for url in asked), asked


@without_chromium
def test_no_page_is_wider_than_a_phone(browser, site):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    try:
        for path in sorted(site.glob("*.html")):
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path.name
    finally:
        page.close()


@without_chromium
def test_readme_fits_a_phone_and_its_picture_can_be_read_there(browser, tmp_path):
    """As repositories' pages show it: pictures at most as wide as the page, tables and code scrolled by themselves."""
    made = MarkdownIt().enable("table").render((ROOT / "README.md").read_text())
    style = "img { max-width: 100% } table, pre { display: block; overflow-x: auto } body { margin: 16px }"
    (tmp_path / "readme.html").write_text(
        f'<meta charset="utf-8"><base href="{ROOT.as_uri()}/"><style>{style}</style>{made}'
    )
    page = browser.new_page(viewport={"width": 390, "height": 800})
    try:
        page.goto((tmp_path / "readme.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        sizes = page.evaluate("[...document.images].map(one => [one.naturalWidth, one.clientWidth, one.clientHeight])")
        assert len(sizes) == 1
        assert all(natural > 0 and wide <= 358 and high <= 700 for natural, wide, high in sizes), sizes
        assert page.locator("table").count() == 1
    finally:
        page.close()
