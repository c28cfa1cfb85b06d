"""One label party and two feature parties over mutual TLS; tables of other formats, ids of two columns."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from safetensors.torch import load_file

from tacit.audit import standard
from tacit.company.align import align
from tacit.company.aligned import aligned as of_alignment
from tacit.company.audit import audit_run
from tacit.company.folder import create
from tacit.serve.conversation import Telling
from tacit.serve.halves import load_embedder, load_scorer
from tacit.serve.predict import predict
from tacit.split.train import train
from tests.torture.world import free_port

CONTRACT = """
run = "flights"
label_party = "bank"
feature_parties = ["phone", "shop"]
loss = "binary"
epochs = 6
batch_size = 64
alignment.smallest_set = 100
cut.widths = { shop = 8, phone = [2, 6] }
minimum.gradient = { name = "marvell", scale = 2.0 }
"""

FACTORY = """
import torch


def make(half):
    return Bottom(half.numeric, half.cuts[0])


def make_joined(half):
    return Top(sum(torch.Size(cut).numel() for cut in half.cuts))


class Bottom(torch.nn.Linear):
    def __init__(self, inputs, shape):
        super().__init__(inputs, torch.Size(shape).numel())
        self.shape = shape

    def forward(self, categorical, numeric):
        return super().forward(numeric).tanh().unflatten(1, self.shape)


class Top(torch.nn.Linear):
    def __init__(self, width):
        super().__init__(width, 1)

    def forward(self, phone, shop, categorical, numeric):
        return super().forward(torch.cat([phone.flatten(1), shop], dim=1)).squeeze(1)
"""


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    """1,500 people, of which each party knows some; bank and shop spell ids as text, the phone company as numbers."""
    out, port = tmp_path_factory.mktemp("three"), free_port()
    draw = np.random.default_rng(4)
    x = draw.normal(size=(1500, 2))
    people = pl.DataFrame({"branch": draw.integers(0, 5, 1500), "number": np.arange(1500), "a": x[:, 0], "b": x[:, 1]})
    people = people.with_columns(y=pl.Series((x.sum(1) + draw.normal(size=1500) > 0.5).astype(int)))
    tables = {
        "bank": (people.select("branch", "number", "y").filter(pl.col("number") % 7 != 0), "bank.csv"),
        "phone": (people.select("branch", "number", "a").filter(pl.col("number") % 11 != 0), "phone.parquet"),
        "shop": (people.select("branch", "number", "b").filter(pl.col("number") % 13 != 0), "shop.tsv"),
    }
    settings = {
        "bank": f'role = "label"\nnetwork.listen = "127.0.0.1:{port}"\ndata.label = "y"\n'
        'model.factory = "model:make_joined"\nprotect.gradient = { name = "marvell", scale = 4.0 }\nbudget = 1',
        "phone": f'role = "features"\nnetwork.connect = "127.0.0.1:{port}"\ndata.numeric = ["a"]\n'
        'model.factory = "model:make"\nprotect.embedding = [{ name = "gaussian", snr = 20.0, clip = 8.0 }]',
        "shop": f'role = "features"\nnetwork.connect = "127.0.0.1:{port}"\ndata.numeric = ["b"]\n'
        "protect.embedding = []",
    }
    made = {}
    for name, (table, file) in tables.items():
        made[name] = create(out / name, role="label" if name == "bank" else "features", name=name)
        if file.endswith(".parquet"):
            table.write_parquet(out / name / file)
        else:
            table.sample(fraction=1.0, shuffle=True, seed=1).write_csv(
                out / name / file, separator="\t" if file.endswith(".tsv") else ","
            )
        (out / name / "model.py").write_text(FACTORY)
        (out / name / "contract.toml").write_text(CONTRACT)
        (out / name / "party.toml").write_text(
            f'name = "{name}"\n{settings[name]}\ndata.path = "{file}"\ndata.ids = ["branch", "number"]\n'
            "training.threads = 1\ntraining.learning_rate = 0.01\n"
        )
    for name in ("phone", "shop"):
        made["bank"].trust(out / name / f"{name}.crt")
        made[name].trust(out / "bank" / "bank.crt")
    common = people.filter((pl.col("number") % 7 != 0) & (pl.col("number") % 11 != 0) & (pl.col("number") % 13 != 0))
    return {name: out / name for name in tables}, len(common)


class LeftAloneError(Exception):
    """A party waits for one that has failed."""


def together(folders, act):
    """All act at the same time, each over its own sockets; what each returns. Who would wait in vain is stopped."""
    failed = threading.Event()

    def waiting(peer, seconds, why):
        if failed.is_set():
            raise LeftAloneError(why)

    def one(folder):
        try:
            return act(folder, waiting=waiting)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(len(folders)) as pool:
        futures = {name: pool.submit(one, folder) for name, folder in folders.items()}
        errors = {name: future.exception(timeout=150) for name, future in futures.items()}
        assert errors == dict.fromkeys(folders)
        return {name: future.result() for name, future in futures.items()}


def test_three_companies_align_train_and_predict(parties, monkeypatch, tmp_path):
    folders, common = parties
    aligned = together(folders, align)
    assert {found.count for found in aligned.values()} == {common}
    rows = {}
    for name, folder in folders.items():
        file = folder / {"bank": "bank.csv", "phone": "phone.parquet", "shop": "shop.tsv"}[name]
        table = (
            pl.read_parquet(file) if file.suffix == ".parquet" else
            pl.read_csv(file, separator="\t" if file.suffix == ".tsv" else ",")
        )  # fmt: skip
        rows[name] = table["number"].to_numpy()[of_alignment(folder).rows]
    assert np.array_equal(rows["bank"], rows["phone"])
    assert np.array_equal(rows["bank"], rows["shop"])

    histories = {name: trained.history for name, trained in together(folders, train).items()}
    assert histories["phone"] == histories["shop"]
    assert histories["phone"] == [{"epoch": epoch} for epoch in range(6)]
    assert histories["bank"][-1]["test_auc"] > 0.7  # neither feature alone reaches it
    bank = folders["bank"] / "runs" / "flights"
    assert load_file(bank / "model.safetensors")["weight"].shape == (1, 20)

    monkeypatch.setattr(standard, "ATTACKS", ("norm", "likelihood", "spectral"))  # networks say nothing new here
    monkeypatch.setattr(standard, "JOINED", ())
    report = audit_run(bank)
    assert report.subject.peers == ("phone", "shop")
    assert report.worst.value > 0.5

    files = {folders["bank"]: (folders["bank"] / "bank.csv", tmp_path / "scores.csv")}

    def score(folder, waiting):
        return predict(folder, *files.get(folder, ()), match="keyed", telling=Telling(waiting=waiting))

    done = together(folders, score)["bank"]
    assert (done.joint, done.fallback, done.joint + done.none) == (common, 0, done.rows)
    scores = pl.read_csv(tmp_path / "scores.csv").filter(pl.col("basis") == "joint").sort("number")
    ids, embeddings = scores.select("branch", "number"), {}
    for name, table in (("phone", pl.read_parquet(folders["phone"] / "phone.parquet")),
                        ("shop", pl.read_csv(folders["shop"] / "shop.tsv", separator="\t"))):  # fmt: skip
        mine = ids.join(table, on=["branch", "number"], how="left", maintain_order="left")
        embeddings[name] = load_embedder(folders[name], "test").embed(mine)
    own = load_scorer(folders["bank"], "test").score(ids, embeddings)
    # they were text on the way
    assert scores["score"].to_list() == pytest.approx(own[:, 0].tolist(), rel=1e-12)
