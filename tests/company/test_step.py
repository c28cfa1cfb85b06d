"""One training step of both sides, watched: how many files it passes, and that the walk in CONTRIBUTING names them."""

import os
import re
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import tacit
from benchmarks._companies import align_rows
from tacit.split.run import silent
from tacit.split.train import train

ROOT = Path(tacit.__file__).parent
OURS = f"{ROOT}{os.sep}"
MOST = 25
QUIET = "record = { last = 4, follow = 8 }\nlive.every = 0\n"  # every step is recorded, none is attacked
NOISE = (
    'protect.gradient = { name = "matched", leak_auc = 0.9 }', 'protect.embedding = [{ name = "gaussian", snr = 4.0 }]'
)  # fmt: skip
ROWS = (np.arange(60), 59 - np.arange(60))


def passed(companies):
    """The files that run in each turn of the label party, whichever thread of whichever side they run in."""
    files, turn = defaultdict(set), [0]

    def watch(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            files[turn[0]].add(frame.f_code.co_filename.removeprefix(OURS))

    def count(done, *_):
        turn[0] = done

    def trained(folder):
        sys.setprofile(watch)
        try:
            train(folder, progress=count if folder.config.role == "label" else silent)
        finally:
            sys.setprofile(None)

    threading.setprofile(watch)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(trained, companies))
    finally:
        threading.setprofile(None)
    return files


def test_a_step_passes_few_files_and_the_walk_names_them(companies):
    for folder, role, protect, rows in zip(companies, ("label", "features"), NOISE, ROWS, strict=True):
        settings = folder.path / "party.toml"
        kept = [line for line in settings.read_text().splitlines() if not line.startswith("protect.")]
        settings.write_text("\n".join([*kept, protect, QUIET]))
        agreed = folder.path / "contract.toml"
        agreed.write_text(re.sub(r"batch_size = \d+", "batch_size = 4", agreed.read_text()))  # many steps before a test
        assert folder.config.role == role
        align_rows(folder, rows, id="00", seed=1, digest="00")
    files = passed(companies)
    step = files[2] | files[3] | files[4]  # one side may be in the next one while the other is at the end of its own
    assert len(step) <= MOST, f"{len(files)} turns: {', '.join(sorted(step))}"
    walk = (ROOT.parents[1] / "CONTRIBUTING.md").read_text().partition("## Read this first")[2].partition("\n## ")[0]
    named = ("contracts/", "split/models/", "split/protect/")  # of these, the ones that a run has chosen
    assert not {file for file in step if not file.startswith(named) and f"`{file}`" not in walk}
