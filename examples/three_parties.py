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
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

import tacit
from tacit.party.folder import create

CONTRACT = """
run = "unpaid"
label_party = "bank"
feature_parties = ["phone", "shop"]
loss = "binary"
epochs = {epochs}
batch_size = 128
cut.widths = {{ phone = 16, shop = 16 }}
minimum.gradient = {{ name = "matched", leak_auc = 0.65 }}
share.metrics = ["test_auc"]
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
    home.train(tacit.LabelParty(top=top, labels=labels, optimizer=optimizer, protect=protect))


def feature_party(out: str, name: str, columns: list[str]) -> None:
    """What the phone company and the shop run."""
    home = tacit.Folder(f"{out}/{name}")
    features = home.align().table(home.data, columns).to_torch().float()
    bottom = nn.Sequential(nn.Linear(len(columns), 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh())
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
    own = {"bank": ["unpaid"], "phone": ["a", "b"], "shop": ["c", "d"]}
    for i, (name, columns) in enumerate(own.items()):
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


def together(jobs: list[tuple[Callable[..., None], tuple[object, ...]]]) -> None:
    """Run all, each in a process of its own; where one fails, the others are not left waiting for it."""
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=job, args=arguments, daemon=True) for job, arguments in jobs]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=300)
        if process.exitcode != 0:
            raise SystemExit(f"{process.name} ended with {process.exitcode}")


def main() -> None:
    """Set up, train in three processes, and show what the bank has found out about itself."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rows", type=int, default=6_000)
    options.add_argument("--epochs", type=int, default=4)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as out:
        prepare(Path(out), chosen.rows, chosen.epochs)
        together(
            [
                (bank, (out,)),
                (feature_party, (out, "phone", ["a", "b"])),
                (feature_party, (out, "shop", ["c", "d"])),
            ]
        )
        home = tacit.Folder(f"{out}/bank")
        report = home.audit()  # every attack on what the bank recorded of its run; also in runs/unpaid/report.html
        print(f"three processes trained on {home.align().count:,} customers that all of them have")
        print(f"test AUC of the model: {report.moments[-1].figures['test_auc']:.3f}")
        assert report.worst is not None  # attacks could run
        print(f"worst of all attacks on the labels: {report.worst.attack}, leak AUC {report.worst.value:.3f}")


if __name__ == "__main__":
    main()
