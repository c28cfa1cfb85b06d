"""Two real processes align sets that lie on disk: killed anywhere they go on, and memory does not grow with the ids."""

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest

from tacit.align.history import History
from tests.companies import contract, two_companies
from tests.torture.world import free_port

# Aligns as `tacit align` does, with everything large, and kills itself when so much is done; tells its own memory.
PROGRAM = """
import json, os, re, sys, threading
from pathlib import Path
from tacit.align import _exchange, arrays, kept, parts, psi, sorted_ids
from tacit.company.align import align

psi.LARGE, sorted_ids.HELD, parts._WAITING, _exchange.WINDOW = 0, 20_000, 1 << 20, 8
for module in (arrays, kept, psi):
    module.BLOCK = 1 << 12
most, over = 0, threading.Event()

def watch():
    global most
    while not over.wait(0.005):
        most = max(most, int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)

def note(what, done, total):
    if total and done >= float(sys.argv[2]) * total:
        os.kill(os.getpid(), 9)

watching = threading.Thread(target=watch)
watching.start()
try:
    found = align(sys.argv[1], progress=note)
finally:
    over.set()
    watching.join()
print(json.dumps({"id": found.id, "memory": most}))
"""
NEVER = 2.0


def start(company, killed_at=NEVER):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(company.path), str(killed_at)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},  # else threads that happen to meet make heaps of their own
    )


def ended(process):
    said, wrong = process.communicate(timeout=200)
    assert process.returncode == 0, wrong
    return json.loads(said)


def companies_with(root, count):
    """Half of the ids are common; each has them in an order of its own."""
    draw = np.random.default_rng(3)
    tables = []
    for start_at in (0, count // 2):
        ids = draw.permutation(np.arange(start_at, start_at + count))
        tables.append(pl.DataFrame({"id": ids, "y": ids % 2, "x": ids / 10}))
    return two_companies(root, tables, port=free_port(), text=contract()), tables


def check(companies, tables, count):
    """Both hold the common ids in the order of their hashes, worked out here; and nothing else is left."""
    common = range(count // 2, count)
    by_hash = sorted(common, key=lambda n: hash_of(str(n)))
    for company, table in zip(companies, tables, strict=True):
        where = company.path / "runs" / "small"
        rows = np.load(where / "rows.npy")
        assert table["id"].to_numpy()[rows].tolist() == by_hash
        assert not (where / "aligning").exists()


def hash_of(text):
    """As the page about the protocol says."""
    return hashlib.blake2b(
        len(text).to_bytes(8, "little") + text.encode(), digest_size=32, person=b"tacit id 1"
    ).digest()


@pytest.mark.parametrize(
    "kills", [{"airline": [0.01, 0.5], "airport": [0.01]}, {"airline": [0.3, 0.97], "airport": [0.1, 0.6]}]
)
def test_killed_anywhere_both_end_with_the_same_rows(kills, tmp_path):
    count = 60_000
    companies, tables = companies_with(tmp_path, count)

    started = []

    def lives(company):
        """One start after the other, each killed at its time, and the last one to the end."""
        try:
            for killed_at in [*kills[company.path.name], NEVER]:
                process = start(company, killed_at)
                started.append(process)
                said, wrong = process.communicate(timeout=200)
                assert process.returncode == (0 if killed_at == NEVER else -9), wrong
        except BaseException:
            for each in started:  # the other one would wait for this one
                each.kill()
            raise
        return json.loads(said)

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lives, companies))
    assert ends[0]["id"] == ends[1]["id"]
    check(companies, tables, count)
    for company in companies:
        lines = History(company.path / "runs" / "alignments.jsonl").lines()
        assert [line.result for line in lines] == ["begun", "done"], "it is one alignment"


def test_memory_does_not_grow_with_the_ids(tmp_path):
    """Without files 200,000 ids more took 40 MB more; what is left are chunks on the way, as many as the window has."""
    most = []
    for count in (50_000, 250_000):
        root = tmp_path / str(count)
        root.mkdir()
        companies, tables = companies_with(root, count)
        most.append([ended(process)["memory"] for process in [start(company) for company in companies]])
        check(companies, tables, count)
    few, many = np.array(most)
    assert (many - few < 20).all(), most  # MB
