"""A real browser, and folders as runs write them, through the very code that writes them."""

import json
import math
import os
import random
import shutil
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial

import pytest

from tacit.disk import append_line, replaced
from tacit.report import seals

NOW = 1_763_200_000.0  # seconds since 1970 at which written runs began
WAIT = 15  # seconds: far more than anything here takes
ATTACKS = {"norm": 0.52, "cosine": 0.545, "hint": 0.51, "majority": 0.5, "top_share": 0.505, "residual": 0.53}
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip


def when(seconds):
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat(timespec="seconds")


class Folder:
    """A run's folder that a test adds to, as a training would."""

    def __init__(self, root, party="airline", run="flights", role="label", steps=1000, epochs=3, **changes):
        self.path = root / party / "runs" / run
        self.path.mkdir(parents=True)
        (root / party / "keys").mkdir(exist_ok=True)
        (root / party / "keys" / "secret").write_bytes(b"s" * 32)
        self.source = random.Random(f"{party}/{run}")
        self.steps = steps
        self.told = {"run": run, "party": party, "role": role, "turns": epochs * steps + epochs, "steps": steps,
                     "epochs": epochs, "pid": os.getpid(), "history": []}  # fmt: skip
        self.status(state="training", turn=0, epoch=0, journal_bytes=0, **changes)

    def status(self, **changes):
        self.told |= {"time": when(self.told.get("turn", 0)), **changes}
        replaced(self.path / "status.json", lambda file: file.write(json.dumps(self.told).encode()), durable=False)

    def look(self, step, shift=0.0, **found):
        """One look, with its loss."""
        noise = self.source.gauss
        if self.told["role"] == "features":
            told = {"linear_decoder": 0.35 + 0.05 * math.tanh(step / 900) + noise(0, 0.01)}
            append_line(self.path / "live.jsonl", {"step": step, "turn": step, "epoch": 0, "found": found or told})
            return
        told = {name: mean + shift + noise(0, 0.012) for name, mean in ATTACKS.items()}
        line = {"step": step, "turn": step, "epoch": step // self.steps, "found": {**told, **found},
                "figures": {"loss": 0.25 + 0.4 * math.exp(-step / 700) + noise(0, 0.01)}}  # fmt: skip
        append_line(self.path / "live.jsonl", line)

    def pace(self, time, turn, state="training"):
        append_line(
            self.path / "pace.jsonl",
            {"time": NOW + time, "turn": turn, "state": state, "journal_bytes": 900_000 * turn},
        )

    def decide(self, epoch, decision="keep", reason="the limit 0.6 holds", limit=0.6, shift=0.0, **changes):
        measured = []
        if epoch > 1:
            for name, mean in ATTACKS.items():
                for on, more in (("batches", 0.0), ("visits", 0.02)):
                    value = mean + more + shift + self.source.gauss(0, 0.004)
                    attack = name if on == "batches" else f"accumulated({name})"
                    ends = {"low": max(0.5, value - 0.015), "upper": value + 0.015, "limit": None}
                    measured.append({"attack": attack, "on": on, "value": value, **ends})
        worst = max(measured, key=lambda one: one["value"], default=None)
        told = {"time": when(epoch * self.steps), "epoch": epoch, "turn": 0, "decision": decision,
                "strength": "matched(leak_auc=0.6, visits=3)", "limit": limit, "reason": reason,
                "broken": False, "measured": measured, "worst": worst, "foreseen": None}  # fmt: skip
        seals.append(self.path / "gate.jsonl", told | changes)

    def event(self, event, seconds=0, **details):
        append_line(self.path / "log.jsonl", {"time": when(seconds), "event": event, **details})

    def epoch(self, epoch, **figures):
        told = {"epoch": epoch, "test_auc": 0.6 + 0.02 * epoch, "test_loss": 0.3 - 0.01 * epoch, "train_loss": 0.31}
        self.status(history=[*self.told["history"], told | figures])

    def train(self, upto, every=20, shift=0.0):
        """Looks and pace up to a step, with a stall and a new connection on the way."""
        for step in range(0, upto, every):
            self.look(step, shift)
        stall = 90 if upto > 1500 else 0
        for turn in range(0, upto, max(every, upto // 80)):
            late = stall if turn > 1200 else 0
            self.pace(turn / 8 + late, turn, "waiting" if stall and 1180 <= turn <= 1200 else "training")
        self.status(turn=upto, epoch=upto // self.steps, journal_bytes=900_000 * upto)


def finished(root, party="airline", run="flights", **changes):
    """A run that is over, with everything that one writes but a report."""
    one = Folder(root, party, run, **changes)
    one.event("connected", peer="airport", turn=0)
    reason = "the limit 0.6 can't be held: the worst case of a row over all visits: 0.622, at most 0.622"
    one.decide(1, "pause", reason=reason)
    one.train(3000)
    for epoch in range(3):
        one.epoch(epoch)
    one.decide(2, reason="the limit 0.6 holds: accumulated(cosine) over all visits: 0.547, at most 0.569")
    one.decide(3, reason="the limit 0.6 holds: accumulated(cosine) over all visits: 0.543, at most 0.566")
    one.event("refused", 1200, peer="airport", field="step", why="a different request for an answered step")
    one.event("connected", 1240, peer="airport", turn=1200)
    one.status(state="finished", turn=one.told["turns"], epoch=3)
    return one


def until(page, expression):
    """Wait until an expression holds in the page. Playwright's own way needs an `eval` that the page does not allow."""
    deadline = time.monotonic() + WAIT
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(20)


@pytest.fixture(scope="module", name="browser")
def _browser():
    """One browser for all tests of a file: while it is there, its thread can run no other event loop."""
    where = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if where is None:
        pytest.skip("no chromium here, so nothing is seen of the live page: `apt-get install chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=where, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(name="shows")
def _shows(serving):
    """Serves a folder until the test is over and its windows are closed."""
    with ExitStack() as stack:
        yield lambda root: stack.enter_context(serving(root))


@pytest.fixture(name="visit")
def _visit(browser, shows):
    """Opens the page of a server in a window of its own. At the end no window may have met an error or left home."""
    opened = []

    def visit(client, address="", *, wrong=(), **options):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        context.set_default_timeout(1000 * WAIT)
        page = context.new_page()
        page.home, page.asked, page.errors, page.expected = f"http://127.0.0.1:{client.server.port}/", [], [], wrong
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda said: page.errors.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.until = partial(until, page)
        opened.append((context, page))
        page.goto(f"{page.home}?token={client.server.access.token}")
        if address:
            page.goto(page.home + address.removeprefix("/"))
        if options.get("java_script_enabled", True):
            page.until("document.readyState === 'complete'")  # its scripts have come
        return page

    yield visit
    for context, page in opened:
        expected = ("willReadFrequently", *page.expected)  # a test that looks at pixels is told how to do it faster
        errors = [one for one in page.errors if not any(known in one for known in expected)]
        away = [url for url in page.asked if not url.startswith((page.home, "data:"))]
        context.close()
        assert errors == []
        assert away == []


@pytest.fixture(name="folder")
def _folder(tmp_path):
    return lambda **options: Folder(tmp_path, **options)


@pytest.fixture(name="finished", scope="session")
def _finished():
    return finished


@pytest.fixture(name="Folder", scope="session")
def _folder_class():
    return Folder


@pytest.fixture(name="home", scope="session")
def _home(tmp_path_factory, serving):
    """A server over one finished run and one of the other side, for tests that only look."""
    root = tmp_path_factory.mktemp("home")
    finished(root)
    other = Folder(root, "airport", "flights", role="features")
    for step in range(0, 3000, 40):
        other.look(step)
    other.status(state="waiting", turn=1500, epoch=1, peer="airline", waiting_seconds=40, why="no answer yet")
    with serving(root) as client:
        client.ids = {name: one["id"] for name, one in client.cards().items()}
        yield client
