"""A sweep on a real Ray cluster of two workers, on this machine."""

import socket
import sys

import pytest
from polars.testing import assert_frame_equal

from tacit.errors import LinkError, UsageError
from tacit.lab import sweep
from tacit.lab.data import generated
from tacit.lab.sweeping.cluster import Cluster, connected
from tacit.lab.sweeping.settings import Setting

OPTIONS = {
    "epochs": 1, "batch_size": 64, "network": {"width": 8, "layers": 4}, "points": 2, "thorough": False,
    "settings": [Setting("none"), Setting("iso", "t", 4.0), Setting("none", seed=1), Setting("iso", "t", 4.0, seed=1)],
}  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return generated.table(500, (6, 9), 3, 0.35, 0)


@pytest.mark.usefixtures("seeds_stay")
def test_two_workers_find_what_one_process_finds(cluster, data, tmp_path):
    told = []
    alone = sweep(data, **OPTIONS)
    shared = sweep(data, cluster="auto", out=tmp_path, progress=lambda *x: told.append(x), **OPTIONS)
    assert shared.metadata["waves"] == [2, 2]
    assert shared.metadata["machines"] == 2
    assert [one[0] for one in told] == ["0 of 2 waves on 2 workers", "1 of 2 waves on 2 workers"]
    assert_frame_equal(alone.table.drop("seconds"), shared.table.drop("seconds"), rel_tol=1e-3, abs_tol=1e-3)
    assert cluster.is_initialized(), "a connection that was there before is kept"
    again = sweep(data, out=tmp_path, **OPTIONS)
    assert_frame_equal(again.table, shared.table)


def test_an_error_on_a_worker_is_the_error_it_would_be_here(cluster, data):
    with pytest.raises(UsageError, match="no layer layer9"):
        sweep(data, cluster="auto", layers=("layer9",), **OPTIONS)
    with pytest.raises(UsageError, match="the cluster has no GPU"):
        sweep(data, cluster="auto", device="cuda", **OPTIONS)


def test_what_a_cluster_can_do(cluster):
    with connected("auto") as found:
        assert isinstance(found, Cluster)
        assert found.workers == 2
        assert found.device("auto") == "cpu"


def test_no_ray_is_said_with_what_to_install(monkeypatch, data):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'tacit\[cluster\]'"):
        sweep(data, cluster="auto", **OPTIONS)


def test_no_cluster_is_said_with_how_to_start_one(monkeypatch, data):
    """The real Ray, and a port that was free a moment ago."""
    ray = pytest.importorskip("ray", reason="many machines need the extra `cluster`")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(LinkError, match=rf"no cluster answers at '127.0.0.1:{port}' .*refused.*ray start --head"):
        sweep(data, cluster=f"127.0.0.1:{port}", **OPTIONS)
