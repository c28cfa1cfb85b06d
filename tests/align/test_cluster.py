"""Multiplications on a real Ray cluster of two workers, on this machine: the same bytes, whoever is killed."""

import functools
import os
import signal
import sys

import numpy as np
import pytest

from tacit.align import _worker
from tacit.align.cluster import cluster_engine
from tacit.align.curve import Engine
from tacit.company.align import align
from tacit.errors import ProtocolError, TacitError, UsageError
from tests.at_once import all_of
from tests.company.conftest import small_companies

KEY = bytes(range(32))


@pytest.mark.usefixtures("cluster")
def test_two_workers_give_the_bytes_of_one_process_though_one_is_killed(hashes, monkeypatch, tmp_path):
    given, died = hashes(range(60_000)), tmp_path / "died"
    victim, real = given[30_000:32_048].tobytes(), _worker.work_anywhere

    def dies_once(task, domain, block, key):
        if block == victim and not died.exists():
            died.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return real(task, domain, block, key)

    monkeypatch.setattr(_worker, "work_anywhere", dies_once)
    with Engine(workers=2) as here, cluster_engine("auto") as there:
        expected = here.blind(given, KEY, domain=b"d")
        chunks = (given[at : at + 10_000] for at in range(0, len(given), 10_000))
        assert np.array_equal(np.concatenate([*there.blind_each(chunks, KEY, domain=b"d")]), expected)
        assert np.array_equal(there.multiply(expected[:5000], KEY), here.multiply(expected[:5000], KEY))
    assert int(died.read_text()) != os.getpid(), "a worker was killed in the middle"


def test_companies_align_over_a_cluster(cluster, tmp_path):
    companies = small_companies(tmp_path)
    calls = [
        functools.partial(align, company.path, cluster=where)
        for company, where in zip(companies, ("auto", None), strict=True)
    ]
    airline, airport = all_of(*calls, patience=100.0)
    assert airline.count == 60
    assert np.array_equal(airline.rows, 59 - airport.rows)
    assert cluster.is_initialized(), "a connection that was there before is kept"


@pytest.mark.usefixtures("cluster")
def test_what_is_refused_here_is_refused_there(hashes):
    twist = np.frombuffer((2).to_bytes(32, "little"), np.uint8).reshape(1, 32)
    with cluster_engine("auto") as engine:
        with pytest.raises(ProtocolError, match="not on the curve"):
            engine.multiply(twist, KEY)
        with pytest.raises(UsageError, match="a key of 31 bytes"):
            engine.blind(hashes(range(3)), KEY[:31], domain=b"d")


@pytest.mark.usefixtures("cluster")
def test_an_error_of_a_worker_is_told_with_what_to_do(hashes, monkeypatch):
    monkeypatch.setattr(_worker, "work_anywhere", lambda *_: 1 / 0)
    with (
        cluster_engine("auto") as engine,
        pytest.raises(TacitError, match=r"could not multiply .*division.*align again"),
    ):
        engine.blind(hashes(range(3)), KEY, domain=b"d")


def test_no_ray_is_said_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'tacit\[cluster\]'"):
        align(small_companies(tmp_path)[0].path, cluster="auto")
