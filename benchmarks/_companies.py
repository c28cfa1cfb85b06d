"""Two small companies, the airline with the labels and the airport, whose folders are ready to align."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tacit.align.ids import read_ids
from tacit.company.aligned import Aligned, store
from tacit.company.folder import Folder, create

Role = Literal["label", "features"]

CONTRACT = """
run = "{run}"
label_party = "airline"
feature_parties = ["airport"]
loss = "binary"
epochs = {epochs}
batch_size = {batch_size}
alignment.smallest_set = 10
cut.widths.airport = 4
minimum.gradient.name = "none"
"""
PARTY = """
name = "{name}"
role = "{role}"
network.{where} = "127.0.0.1:{port}"
data = {{ path = "data.parquet", ids = ["id"], {columns} }}
{protect}
{settings}
"""
BARE = 'protect.gradient.name = "none"\nbudget = 1'


def contract(run: str = "small", epochs: int = 1, batch_size: int = 16) -> str:
    """What the two agree on."""
    return CONTRACT.format(run=run, epochs=epochs, batch_size=batch_size)


def two_companies(
    root: Path,
    tables: Iterable[pl.DataFrame],
    *,
    port: int,
    text: str | None = None,
    protect: str = BARE,
    numeric: str = '["x"]',
    settings: str = "training.threads = 1",
) -> tuple[Folder, Folder]:
    """Make both folders below a folder; they trust each other, and send everything bare.

    Args:
        root: where they are made.
        tables: of the airline and of the airport.
        port: where the airline listens.
        text: of the contract.
        protect: what the airline does, and may spend.
        numeric: columns of the airport.
        settings: more lines of party.toml.
    """
    parties: tuple[tuple[str, Role, str, str, str], ...] = (
        ("airline", "label", "listen", 'label = "y"', protect),
        ("airport", "features", "connect", f"numeric = {numeric}", "protect.embedding = []"),
    )
    for (name, role, where, columns, protected), table in zip(parties, tables, strict=True):
        path = create(root / name, role=role, name=name).path
        (path / "party.toml").write_text(
            PARTY.format(
                name=name, role=role, where=where, port=port, columns=columns, protect=protected, settings=settings
            )
        )
        (path / "contract.toml").write_text(text or contract())
        table.write_parquet(path / "data.parquet")
    airline, airport = Folder(root / "airline"), Folder(root / "airport")
    airline.trust(airport.path / "airport.crt")
    airport.trust(airline.path / "airline.crt")
    return airline, airport


def align_rows(
    folder: Folder, rows: NDArray[np.int64], *, id: str = "00", seed: int = 1, digest: str = "00"
) -> Aligned:
    """As if these rows of the company's table had been aligned, in this order."""
    own = read_ids(folder.data, folder.table.ids)
    assert np.isin(rows, own.rows).all()
    positions = np.searchsorted(own.rows, rows)
    return store(folder, own, positions, id=id, seed=seed, digest=digest, columns=folder.table.ids)
