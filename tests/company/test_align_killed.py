"""Two real processes align: killed anywhere, they begin anew and end with the same rows."""

import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl

from benchmarks._companies import contract, two_companies
from tacit.align.history import History
from tacit.company.aligned import Log, aligned
from tacit.company.facts import ALIGNMENT
from tacit.company.folder import Folder
from tests.torture.world import free_port

# Aligns as `tacit align --again` does, in small chunks, and kills itself when so much is done.
PROGRAM = """
import json, os, sys
from tacit.align import _exchange, psi
from tacit.company.aligned import aligned
from tacit.company.align import align

for module in (_exchange, psi):
    module.CHUNK = 1 << 10

def note(what, done, total):
    if total and done >= float(sys.argv[2]) * total:
        os.kill(os.getpid(), 9)

print(json.dumps(align(sys.argv[1], again=True, progress=note).id))
"""
NEVER = 2.0
COUNT = 20_000
MOST = 12  # starts of one side: some of them end since the other side was killed
KILLS = {"airline": [0.01, 0.97], "airport": [0.5]}  # at these shares of the multiplications


def start(company, killed_at):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(company.path), str(killed_at)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def companies_with(root):
    """Half of the ids are common; each has them in an order of its own."""
    draw = np.random.default_rng(3)
    tables = []
    for start_at in (0, COUNT // 2):
        ids = draw.permutation(np.arange(start_at, start_at + COUNT))
        tables.append(pl.DataFrame({"id": ids, "y": ids % 2, "x": ids / 10}))
    companies = two_companies(root, tables, port=free_port(), text=contract())
    for company in companies:
        settings = company.path / "party.toml"
        settings.write_text(settings.read_text() + f"align.runs_a_month = {2 * MOST}\n")
    return companies, tables


def check(companies, tables):
    """Both hold the common ids in the order of their hashes, worked out here; and nothing else is left."""
    by_hash = sorted(range(COUNT // 2, COUNT), key=lambda n: hash_of(str(n)))
    for company, table in zip(companies, tables, strict=True):
        where = company.path / "runs" / "small"
        rows = aligned(Folder(where.parents[1])).rows
        assert table["id"].to_numpy()[rows].tolist() == by_hash
        assert not (where / "aligning").exists()


def hash_of(text):
    """As the page about the protocol says."""
    return hashlib.blake2b(
        len(text).to_bytes(8, "little") + text.encode(), digest_size=32, person=b"tacit id 1"
    ).digest()


def test_killed_anywhere_both_begin_anew_and_end_with_the_same_rows(tmp_path):
    companies, tables = companies_with(tmp_path)
    started = []

    def lives(company):
        """One start after the other, until all kills have been, and the last one to the end."""
        left = [*KILLS[company.path.name], NEVER]
        try:
            for _ in range(MOST):
                process = start(company, left[0])
                started.append(process)
                said, wrong = process.communicate(timeout=200)
                if process.returncode == 0:
                    assert left == [NEVER], "it was not killed"
                    return json.loads(said)
                if process.returncode == -9:
                    del left[0]
                else:  # the other side was killed: people decide to begin anew
                    assert "LinkError" in wrong, wrong
            raise AssertionError(f"{MOST} times it came to nothing")
        except BaseException:
            for each in started:  # the other one would wait for this one
                each.kill()
            raise

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lives, companies))
    assert ends[0] == ends[1]
    check(companies, tables)
    for company in companies:
        results = [line.result for line in History(Log(Folder(company.path), ALIGNMENT)).lines()]
        assert results[-1] == "done"
        assert results.count("done") == 1
        assert results.count("begun") > len(KILLS[company.path.name]), "each of them counts"
