"""One party of a timed training between two processes: it goes on for so many steps each time it is told to.

    python -m benchmarks._two_processes FOLDER ROLE PROTECTION JOURNAL NETWORK

The feature party sets the pace: for each line that it reads it trains as many steps as the line says, and prints the
seconds. JOURNAL is "journal", or "none" for a journal that forgets, to see what writing costs. NETWORK is "plain",
"wide_deep" or "criteo", which has all of the papers' columns and codes.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from benchmarks import _plain
from benchmarks.step import BATCH, ROWS, data, models
from tacit.align.ids import read_ids
from tacit.company.aligned import aligned, store
from tacit.company.folder import Folder, create
from tacit.lab.data.generated import CRITEO
from tacit.split import run as split_run
from tacit.split.feature_party import FeatureParty
from tacit.split.journal import Journal, Place, Record
from tacit.split.label_party import LabelParty
from tacit.split.models import adam, wide_deep
from tacit.split.protect.gradient import protection
from tacit.split.train import train

__all__ = ["NOTHING", "WIDTH", "party", "set_up", "weights"]

WIDTH = 128
_STEPS = 10**6  # far more than are ever asked for
_STRENGTHS = {"marvell": "scale", "matched": "leak_auc"}

NOTHING = "record = { last = 0, follow = 0 }\nlive.every = 0"
"""Settings of a party that does not look at what it sends."""

_CONTRACT = f"""\
run = "bench"
label_party = "label"
feature_parties = ["features"]
loss = "binary"
epochs = {{epochs}}
batch_size = {BATCH}
test_share = 0.0
cut.widths.features = {WIDTH}
minimum.gradient.name = "none"
"""

_PARTY = """\
name = "{name}"
role = "{role}"
network.{where} = "{address}"
{protect}
training = {{ checkpoint_every = 200, threads = {threads}, device = "{device}" }}
{settings}
"""


def set_up(
    folder: Path,
    listen: int,
    connect: int,
    *,
    rows: int,
    threads: int,
    device: str = "cpu",
    epochs: int | None = None,
    settings: str = NOTHING,
) -> None:
    """Two folders with keys, trust and a contract, as if their ids had been aligned; the ports may be a relay's."""
    epochs = min(-(-_STEPS // (rows // BATCH)), 100_000) if epochs is None else epochs
    made: dict[str, Folder] = {}
    for name, role, where, port in (("label", "label", "listen", listen), ("features", "features", "connect", connect)):
        made[name] = create(folder / name, role=role, name=name)  # type: ignore[arg-type]
        (folder / name / "party.toml").write_text(
            _PARTY.format(
                name=name,
                role=role,
                where=where,
                address=f"127.0.0.1:{port}",
                threads=threads,
                device=device,
                protect='protect.gradient.name = "none"\nbudget = 1' if role == "label" else "protect.embedding = []",
                settings=settings,
            )
        )
        (folder / name / "contract.toml").write_text(_CONTRACT.format(epochs=epochs))
        ids = read_ids(pl.DataFrame({"id": np.arange(rows)}), "id")
        store(Folder(folder / name), ids, np.arange(rows), id="00", seed=0, digest="00", columns=["id"])
    made["label"].trust(folder / "features" / "features.crt")
    made["features"].trust(folder / "label" / "label.crt")


def party(role: str, protect: str, rows: int = ROWS, network: str = "plain") -> LabelParty | FeatureParty:
    """Either half of a plain network, or of the papers' Wide&Deep over Criteo's columns, which both parties have."""
    features: tuple[Tensor, ...]
    own: tuple[Tensor, ...]
    bottom: nn.Module
    top: nn.Module
    if network == "plain":
        (bottom, top), (table, labels) = _plain.halves(), _plain.table(rows)
        features, own = (table,), ()
    else:
        if network == "criteo":
            (bottom, top), (codes, numbers, labels) = _criteo(rows)
        else:
            (bottom, top), (codes, numbers, labels) = models(), data(rows)
        features, own = (codes, numbers), (codes, numbers)
    if role == "features":
        return FeatureParty(bottom=bottom, features=features, optimizer=adam(bottom))
    name, _, strength = protect.partition("=")
    options = {_STRENGTHS[name]: float(strength)} if strength else {}
    return LabelParty(top=top, labels=labels, features=own, optimizer=adam(top), protect=protection(name, **options))


def _criteo(rows: int) -> tuple[tuple[nn.Module, nn.Module], tuple[Tensor, Tensor, Tensor]]:
    """The papers' network over Criteo's 26 categories and 13 numbers, which both parties see; rows are made up."""
    torch.manual_seed(0)
    halves = wide_deep(CRITEO, 13, own_cardinalities=CRITEO, own_numeric=13)
    generator = torch.Generator().manual_seed(0)
    codes = torch.stack(
        [torch.rand(rows, generator=generator).square().mul(count).long().clamp(max=count - 1) for count in CRITEO], 1
    )
    labels = (torch.rand(rows, generator=generator) < 0.256).float()
    return halves, (codes, torch.rand(rows, 13, generator=generator), labels)


def weights(model: nn.Module) -> str:
    """A digest of a model's weights, to see whether two trainings came to the same."""
    found = hashlib.sha256()
    for value in model.state_dict().values():
        found.update(value.cpu().numpy().tobytes())
    return found.hexdigest()


class Forgetful(Journal):
    """A journal that writes nothing down and remembers one turn."""

    def __init__(self, folder: str | Path, **_: object) -> None:
        super().__init__(folder, sync=False)
        self._kept: dict[Place, Record] = {}

    def append(self, record: Record) -> Place:
        """Remember a record until the next turn."""
        self._kept = {place: old for place, old in self._kept.items() if old.turn >= record.turn - 1}
        place = Place(record.turn, len(self._kept))
        self._kept[place] = record
        return place

    def read(self, place: Place) -> Record:
        """What was remembered."""
        return self._kept[place]

    def sync(self) -> None:
        """Nothing."""

    def rotate(self, turn: int) -> None:
        """Nothing."""

    def records(self, from_turn: int = 0) -> Iterator[tuple[Place, Record]]:
        """Nothing."""
        yield from ()


def main(folder: Path, role: str, protect: str, journal: str, network: str) -> None:
    """Train until the reader of the times has enough."""
    if journal == "none":
        vars(split_run)["Journal"] = Forgetful
    half = party(role, protect, aligned(Folder(folder / role)).count, network)
    trained = half.bottom if isinstance(half, FeatureParty) else half.top
    left = [0]
    started = [0.0]

    def pace(turn: int, turns: int, figures: Mapping[str, float]) -> None:
        if role == "label":
            return
        left[0] -= 1
        if left[0] <= 0:
            print(time.perf_counter() - started[0], weights(trained), flush=True)
            line = sys.stdin.readline()
            if not line.strip():
                sys.exit()
            left[0] = int(line)
            started[0] = time.perf_counter()

    train(folder / role, half, progress=pace)


if __name__ == "__main__":
    torch.manual_seed(0)
    main(Path(sys.argv[1]), *sys.argv[2:])
