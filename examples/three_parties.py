"""Three companies, three processes: a bank knows who did not pay, a phone company and a shop know their customers.

Each has a folder with keys and a table of its own. They pin each other's certificates, find the customers that all
three have, and train over mutual TLS. Between three machines, each runs its own `bank()` or `feature_party()` and
changes the address. The customers are made up here.

    python examples/three_parties.py
    python examples/three_parties.py --rows 1500 --epochs 2      # in about ten seconds
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import tempfile
import time
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

import tacit
from tacit.company.folder import create

OWN = {"bank": ["unpaid"], "phone": ["a", "b"], "shop": ["c", "d"]}  # the columns of each

CONTRACT = """
run = "unpaid"
label_party = "bank"
feature_parties = ["phone", "shop"]
loss = "binary"
epochs = {epochs}
batch_size = 128
cut.widths = {{ phone = 16, shop = 16 }}
minimum.gradient = {{ name = "matched", leak_auc = 0.65 }}
"""

PARTY = {
    "label": """
name = "{name}"
role = "label"
network.listen = "{address}"
data = {{ path = "own.parquet", ids = ["id"], label = "unpaid" }}
protect.gradient = {{ name = "matched", leak_auc = 0.65 }}
""",
    "features": """
name = "{name}"
role = "features"
network.connect = "{address}"
data = {{ path = "own.parquet", ids = ["id"], numeric = {columns} }}
protect.embedding = [{{ name = "gaussian", snr = 4.0, clip = 4.0 }}]
""",
}


class Top(nn.Module):
    """The bank's half: it takes one embedding of each feature party, in the order of the contract."""

    def __init__(self) -> None:
        super().__init__()
        self.logit = nn.Linear(32, 1)

    def forward(self, phone: Tensor, shop: Tensor) -> Tensor:
        """Two embeddings (batch, 16) to logits (batch,)."""
        logits: Tensor = self.logit(torch.cat([phone, shop], dim=1)).squeeze(1)
        return logits


def bank(out: str) -> None:
    """What the bank runs. The noise is drawn once for both cuts, so the two others gain nothing by comparing."""
    home = tacit.Folder(f"{out}/bank")
    labels = home.align().table(home.data, ["unpaid"])["unpaid"].to_torch().float()
    top = Top()
    optimizer = torch.optim.Adam(top.parameters(), lr=1e-2)
    protect = tacit.matched(leak_auc=0.65, visits=home.contract.epochs)
    trained = home.train(tacit.LabelParty(top=top, labels=labels, optimizer=optimizer, protect=protect))
    worst = home.audit().worst  # of every attack on what the bank has recorded of its run
    assert worst is not None  # attacks could run
    print(f"three processes trained on {len(labels):,} customers that all of them have")
    print(f"test AUC of the model: {trained.history[-1]['test_auc']:.3f}")
    print(f"worst of all attacks on the labels: {worst.attack}, leak AUC {worst.value:.3f}")


def feature_party(out: str, name: str) -> None:
    """What the phone company and the shop run."""
    home = tacit.Folder(f"{out}/{name}")
    features = home.align().table(home.data, OWN[name]).to_torch().float()
    bottom = nn.Sequential(nn.Linear(len(OWN[name]), 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh())
    optimizer = torch.optim.Adam(bottom.parameters(), lr=1e-2)
    protect = [tacit.gaussian(snr=4.0, clip=4.0)]  # at least what party.toml promises
    home.train(tacit.FeatureParty(bottom=bottom, features=features, optimizer=optimizer, protect=protect))


def prepare(out: Path, rows: int, epochs: int) -> None:
    """Three folders, as the three companies would make them; `tacit init`, `tacit trust` do the same."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(rows, 4))
    unpaid = x @ [1.0, -1.0, 1.0, 0.5] + draw.normal(size=rows) > 1.5
    people = pl.DataFrame({"id": np.arange(rows), "unpaid": unpaid, **dict(zip("abcd", x.T, strict=True))})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for i, (name, columns) in enumerate(OWN.items()):
        role: Literal["label", "features"] = "label" if name == "bank" else "features"
        create(out / name, role=role)
        known = people.filter(pl.col("id") % 10 != i)  # nobody has all customers, and nobody learns who is missing
        known.select("id", *columns).sample(fraction=1.0, shuffle=True, seed=i).write_parquet(
            out / name / "own.parquet"
        )
        (out / name / "contract.toml").write_text(CONTRACT.format(epochs=epochs))
        (out / name / "party.toml").write_text(PARTY[role].format(name=name, address=address, columns=columns))
    for name in ("phone", "shop"):
        tacit.Folder(out / "bank").trust(out / name / f"{name}.crt")
        tacit.Folder(out / name).trust(out / "bank" / "bank.crt")


def main() -> None:
    """Set the three up and let them train, each in a process of its own."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rows", type=int, default=6_000)
    options.add_argument("--epochs", type=int, default=4)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as out:
        prepare(Path(out), chosen.rows, chosen.epochs)
        spawn = multiprocessing.get_context("spawn")
        companies = [spawn.Process(target=bank, args=(out,), daemon=True)]
        companies += [spawn.Process(target=feature_party, args=(out, name), daemon=True) for name in ("phone", "shop")]
        for company in companies:
            company.start()
        while any(company.is_alive() for company in companies) and not any(company.exitcode for company in companies):
            time.sleep(0.1)
        if any(company.exitcode for company in companies):
            raise SystemExit("one of the three has failed, and the others would wait for it")


if __name__ == "__main__":
    main()
