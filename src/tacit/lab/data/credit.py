"""UCI default of credit card clients in the two files by which the field splits it between two companies.

The host (feature party) knows ten columns: the limit, who the client is, and five months of payment delays. The guest
(label party) knows who failed to pay in the next month, and thirteen columns of its own: the sixth delay, the bills and
the payments. Both files come with FATE (`examples/data` of github.com/FederatedAI/FATE), with numbers that were
standardised over all clients; the data is CC BY 4.0 (archive.ics.uci.edu, data set 350).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tacit.align.tables import Columns
from tacit.errors import DataError, UsageError
from tacit.lab.data.delimited import Text, found, read
from tacit.lab.data.faults import Faults
from tacit.lab.data.joined import Joint
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


def load(
    folder: str | Path, *, rows: int | None = None, seed: int = 0, test_share: float = 0.2, bad: str = "raise"
) -> Data:
    """The clients that both files have, joined by `id` in the clear.

    Args:
        folder: holds both files.
    """
    faults = Faults(bad)
    texts = (
        _file(Path(folder), GUEST, ("id", "y"), faults).truth("y", {"1": True, "0": False}, _LABEL),
        _file(Path(folder), HOST, ("id",), faults),
    )
    parties = [text.numbers(("id",), integer=True).unique("id").numbers(_features(text)) for text in texts]
    own, features = (text.table.rename({name: f"{prefix}_{name}" for name in _features(text)})
                     for text, prefix in zip(parties, ("guest", "host"), strict=True))  # fmt: skip
    table = features.join(own, on="id", how="inner", maintain_order="left")
    if not len(table):
        raise DataError(f"{parties[0].name} and {parties[1].name} have no id in common: {_REMEDY}")
    host, guest = (
        Columns(numeric=tuple(name for name in table.columns if name.startswith(party)))
        for party in ("host_", "guest_")
    )
    return Joint(table, host, guest, label=_LABEL).data(
        "credit",
        read=(
            f"{len(table):,} clients of UCI default credit were joined by id in the clear: {len(features):,} of the "
            f"host (feature party) and {len(own):,} of the guest (label party).",
            "The label says who failed to pay in the next month.",
        ),
        faults=faults,
        rows=rows,
        seed=seed,
        test_share=test_share,
    )


def write_generated(folder: str | Path, rows: int, seed: int) -> None:
    """Made-up clients in the same two files; late payments in the past and a low limit foretell the label."""
    if rows < 2:
        raise UsageError(f"rows is {rows}: choose a number of clients from 2 on")
    draw = np.random.default_rng(seed)
    limit, delay, bill = draw.normal(size=(3, rows))
    host = draw.normal(size=(rows, 10))
    host[:, 0] = limit
    host[:, 1] = np.where(draw.random(rows) < 0.6, 0.810161, -1.234323)
    host[:, 5:] = 0.8 * delay[:, None] + 0.6 * host[:, 5:]
    guest = draw.normal(size=(rows, 13))
    guest[:, 0] = 0.8 * delay + 0.6 * guest[:, 0]
    guest[:, 1:7] = 0.95 * bill[:, None] + 0.3 * guest[:, 1:7]
    guest[:, 7:] = np.exp(0.7 * guest[:, 7:] + 0.3 * bill[:, None]) - 1.3
    late = 1.2 * delay - 0.6 * limit - 0.3 * guest[:, 7] + draw.logistic(size=rows) > 1.9
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, head, columns in ((GUEST, "id,y", guest), (HOST, "id", host)):
        header = ",".join([head, *(f"x{column}" for column in range(columns.shape[1]))])
        lines = [
            ",".join([str(row), *([str(int(late[row]))] if name == GUEST else []), *(f"{x:.6f}" for x in columns[row])])
            for row in draw.permutation(rows)
        ]
        (folder / name).write_text("\n".join([header, *lines]) + "\n")


def _file(folder: Path, name: str, wanted: tuple[str, ...], faults: Faults) -> Text:
    path = found(folder, [name])
    if path is None:
        raise DataError(f"{folder / name} is missing, packed (.gz) or not: {_REMEDY}")
    return read(path, wanted, faults, remedy=_REMEDY)


def _features(text: Text) -> list[str]:
    return [name for name in text.table.columns if name not in ("id", "y", _LABEL)]
