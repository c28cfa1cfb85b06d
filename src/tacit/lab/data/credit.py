"""UCI default of credit card clients in the two files by which the field splits it between two companies.

The host (feature party) knows ten columns: the limit, who the client is, and five months of payment delays. The guest
(label party) knows who failed to pay in the next month, and thirteen columns of its own: the sixth delay, the bills and
the payments. Both files come with FATE (`examples/data` of github.com/FederatedAI/FATE), with numbers that were
standardised over all clients; the data is CC BY 4.0 (archive.ics.uci.edu, data set 350).
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tacit.align.tables import Columns
from tacit.errors import DataError
from tacit.lab.data.joined import Joint, read, refuse, refuse_twice, truth
from tacit.lab.data.reading import ROW, Text, header, packed, require
from tacit.lab.data.rows import Data

GUEST = "default_credit_hetero_guest.csv"
"""The label party's file, packed (`.gz`) or not: `id`, `y`, and a number in every other column."""

HOST = "default_credit_hetero_host.csv"
"""The feature party's file, packed or not: `id`, and a number in every other column."""

_LABEL = "tacit label"  # no file has a column of that name
_REMEDY = (
    f"take {GUEST} and {HOST} from examples/data of github.com/FederatedAI/FATE and pass their folder (folder=, "
    "--folder)"
)


def load(folder: str | Path, *, rows: int | None = None, sample: float = 1.0, seed: int = 0) -> Data:
    """The clients that both files have, joined by `id` in the clear.

    Args:
        folder: holds both files.
    """
    own, features = _file(Path(folder), GUEST, ("id", "y")), _file(Path(folder), HOST, ("id",))
    table = features.join(own, on="id", how="inner", maintain_order="left")
    if not len(table):
        raise DataError(f"{GUEST} and {HOST} in {folder} have no id in common: {_REMEDY}")
    host, guest = (
        Columns(numeric=tuple(name for name in table.columns if name.startswith(party)))
        for party in ("host_", "guest_")
    )
    return Joint(table, host, guest, label=_LABEL).data("credit", rows, seed, sample=sample)


def _file(folder: Path, name: str, wanted: tuple[str, ...]) -> pl.DataFrame:
    """A party's clients: their ids, labels and numbers, whose names begin with the party's."""
    path = packed(folder / name)
    if path is None:
        raise DataError(f"{folder / name} is missing, packed (.gz) or not: {_REMEDY}")
    names = header(path, ",", _REMEDY)
    require(path, names, wanted, _REMEDY)
    numbers = [column for column in names if column not in wanted]
    kinds = {"id": "integer", "y": "category"} | dict.fromkeys(numbers, "number")
    source = Text(path, names, {column: kinds[column] for column in names}, quoted=True, remedy=_REMEDY)
    table = read(source)
    refuse(source, table, table["id"].is_null(), "id", "and must not be")
    refuse_twice(source, table, "id")
    if "y" in wanted:
        table = table.with_columns(truth(source, table, "y", {"1": True, "0": False}).alias(_LABEL))
    party = "guest" if name == GUEST else "host"
    return table.drop(ROW, "y", strict=False).rename({column: f"{party}_{column}" for column in numbers})
