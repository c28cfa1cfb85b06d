"""Two small companies whose folders are ready to align."""

import polars as pl
import pytest

from tacit.company.folder import Folder, create
from tests.torture.world import free_port

CONTRACT = """
run = "small"
label_party = "airline"
feature_parties = ["airport"]
loss = "binary"
epochs = 1
batch_size = 16
alignment.smallest_set = 10
cut.widths.airport = 4
minimum.gradient.name = "none"
"""
PARTY = """
name = "{name}"
role = "{role}"
network.{where} = "127.0.0.1:{port}"
data = {{ path = "data.parquet", ids = ["id"], {more} }}
training.threads = 1
"""


@pytest.fixture(name="companies")
def _companies(tmp_path):
    return small_companies(tmp_path)


def small_companies(tmp_path):
    """The airline, which has the labels, and the airport."""
    port = free_port()  # none that the system gives to connections meanwhile
    for name, role, where, more in (
        ("airline", "label", "listen", 'label = "y"'),
        ("airport", "features", "connect", 'numeric = ["x"]'),
    ):
        path = create(tmp_path / name, role=role, name=name).path
        protect = 'protect.gradient.name = "none"\nbudget = 1\n' if role == "label" else "protect.embedding = []\n"
        (path / "party.toml").write_text(
            PARTY.format(name=name, role=role, where=where, port=port, more=more) + protect
        )
        (path / "contract.toml").write_text(CONTRACT)
        ids = range(0, 60) if role == "label" else range(59, -11, -1)
        table = {"id": list(ids), "y": [i % 2 for i in ids], "x": [i / 10 for i in ids]}
        pl.DataFrame(table).write_parquet(path / "data.parquet")
    airline, airport = Folder(tmp_path / "airline"), Folder(tmp_path / "airport")
    airline.trust(airport.path / "airport.crt")
    airport.trust(airline.path / "airline.crt")
    return airline, airport
