"""A label party aligns with all feature parties at once: none waits for another, and who fails stops all."""

import functools
import threading

import numpy as np
import polars as pl
import pytest

from tacit.align import psi
from tacit.align.history import History
from tacit.company.align import align
from tacit.company.aligned import Log
from tacit.company.facts import ALIGNMENT
from tacit.company.folder import Folder, create
from tacit.errors import LinkError, RefusedError
from tests.at_once import at_once
from tests.torture.world import free_port

CONTRACT = """
run = "small"
label_party = "bank"
feature_parties = ["phone", "shop"]
loss = "binary"
epochs = 1
batch_size = 16
alignment.smallest_set = 10
cut.widths = { shop = 4, phone = 4 }
minimum.gradient.name = "none"
"""
IDS = {"bank": range(90), "phone": range(10, 120), "shop": range(79, -30, -1)}


LABEL = """
name = "{name}"
role = "label"
network.listen = "127.0.0.1:{port}"
data = {{ path = "data.parquet", ids = ["id"], label = "y" }}
protect.gradient.name = "none"
budget = 1
"""
FEATURES = """
name = "{name}"
role = "features"
network.connect = "127.0.0.1:{port}"
data = {{ path = "data.parquet", ids = ["id"], numeric = ["y"] }}
protect.embedding = []
"""


@pytest.fixture(name="three")
def _three(tmp_path):
    port, made = free_port(), {}
    for name, ids in IDS.items():
        role = "label" if name == "bank" else "features"
        folder = create(tmp_path / name, role=role, name=name)
        (folder.path / "contract.toml").write_text(CONTRACT)
        settings = LABEL if role == "label" else FEATURES
        (folder.path / "party.toml").write_text(settings.format(name=name, port=port))
        pl.DataFrame({"id": list(ids), "y": [i % 2 for i in ids]}).write_parquet(folder.path / "data.parquet")
        made[name] = folder
    for name in ("phone", "shop"):
        made["bank"].trust(made[name].path / f"{name}.crt")
        made[name].trust(made["bank"].path / "bank.crt")
    return {name: folder.path for name, folder in made.items()}


def together(three, **progress):
    """What each party has then, or its error."""

    def act(name):
        return align(Folder(three[name]), progress=progress.get(name, lambda *_: None))

    return dict(zip(three, at_once(*(functools.partial(act, name) for name in three)), strict=True))


def test_no_peer_waits_for_another(three):
    """Each of both goes on when the other one has been served, too: one after the other would never end."""
    met, told = threading.Barrier(2), []

    def wait_for_the_other():
        waited = threading.Event()

        def progress(what, done, total):
            if total and not waited.is_set():
                waited.set()
                met.wait(timeout=30)

        return progress

    found = together(three, phone=wait_for_the_other(), shop=wait_for_the_other(), bank=lambda *x: told.append(x))
    common = [np.array(IDS[name])[found[name].rows].tolist() for name in three]
    assert sorted(common[0]) == [*range(10, 80)]
    assert common[0] == common[1] == common[2]
    assert told[-1][0] in {"aligning with phone, shop", "aligning with shop, phone"}
    assert told[-1][1:] == (2 * 90 + 110 + 109,) * 2
    assert {line.peer for line in History(Log(Folder(three["bank"]), ALIGNMENT)).lines()} == {
        "phone",
        "shop",
    }


def test_who_is_refused_ends_it_for_all_and_the_reason_is_the_one_that_is_told(three):
    pl.DataFrame({"id": range(5), "y": [0] * 5}).write_parquet(three["shop"] / "data.parquet")
    found = together(three)
    assert isinstance(found["bank"], RefusedError), found
    assert "shop's set has 5 ids, the contract allows 10" in str(found["bank"])
    assert all(isinstance(found[name], RefusedError) for name in ("phone", "shop")), found
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tacit-peer")]


def test_a_link_that_breaks_after_an_answer_ends_it_for_all(three, monkeypatch):
    real = psi._confirm

    def hang_up(link, *arguments):
        if threading.current_thread().name.startswith("tacit-peer") and link.peer == "shop":
            link.close()
        return real(link, *arguments)

    monkeypatch.setattr(psi, "_confirm", hang_up)
    found = together(three)
    assert isinstance(found["bank"], LinkError)
    assert "had been answered" in str(found["bank"])
    assert all(isinstance(error, LinkError) for error in found.values()), found
