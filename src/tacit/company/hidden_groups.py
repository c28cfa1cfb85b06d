"""A feature party asks for sums over groups that nobody sees; what they can show of its rows is in its book before."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.align.encoder import Inputs
from tacit.company.departures import counted_book
from tacit.company.folder import Folder
from tacit.company.one_shot_common import ExchangeTelling, seed_of
from tacit.hidden_sums.feature_side import FeatureSide
from tacit.hidden_sums.points import base
from tacit.one_shot.exchange import Asking
from tacit.one_shot.grouping import averages, partitions
from tacit.one_shot.hiding import agreement, bits_shown, check_enough_rows, hidden_answers
from tacit.one_shot.mechanisms import check_agreed
from tacit.one_shot.parts import store_array
from tacit.one_shot.shipments import Shipment, version_of
from tacit.one_shot.sums import Sums


def hidden_sums(
    asking: Asking,
    folder: Folder,
    run: str,
    seen: Inputs,
    telling: ExchangeTelling,
    part: Callable[[str, Callable[[Path], None]], Path],
) -> NDArray[np.float64]:
    """What sums over groups that nobody sees tell about each training row.  (rows,)"""
    contract, exchange = folder.one_shot, folder.one_shot.exchange
    base()  # the library is there, or its absence is told before anybody is asked
    check_enough_rows(exchange.group_size, len(seen), "rows")

    def mine(mechanism: Sums) -> FeatureSide:
        check_agreed(mechanism, exchange)
        units = exchange.unit != "row"
        agreed = agreement(mechanism, contract.digest, f"{run} {folder.config.name}", len(seen), units=units)
        return FeatureSide(folder.run_folder(contract) / "hidden", folder.secret, agreed, trace=telling.trace)

    def grouped(taking_part: NDArray[np.bool_]) -> NDArray[np.int64]:
        def make(path: Path) -> None:
            telling.part("grouping rows that are alike")
            size, count, seed = exchange.group_size, exchange.partitions, seed_of(folder)
            store_array(path / "groups.npy", partitions(seen, size, count, seed=seed, taking_part=taking_part))

        groups: NDArray[np.int64] = np.load(part("hidden groups", make) / "groups.npy")
        telling.part("asking for sums of hidden groups")
        return groups

    def leaving(groups: NDArray[np.int64], labels: bytes, size: int) -> None:
        _enter(folder, run, groups, labels)
        telling.trace("sums entered")
        telling.left("shuffled ciphertexts", asking.line.peer, len(seen), size)

    telling.part("asking for encrypted labels")
    return averages(*hidden_answers(asking, mine, grouped, leaving))


def _enter(folder: Folder, run: str, groups: NDArray[np.int64], labels: bytes) -> None:
    """Write down, before a batch leaves, what its sums can show; once for the labels that were encrypted."""
    contract, count = folder.one_shot, int(groups[:, 0].max() + 1)
    size, partitions_of = contract.exchange.group_size, contract.exchange.partitions
    bits = math.ceil(bits_shown(count * size, size, partitions_of))
    shipment = Shipment(
        contract.run, contract.label_party, version_of(run, np.frombuffer(labels, np.uint8)),
        f"sums of {count:,} hidden groups in {partitions_of} partitions: of all rows together {bits:,} bits at most",
        len(groups), 0.0, kind="hidden sums",
    )  # fmt: skip
    with counted_book(folder) as book:
        book.enter(run, np.zeros((0, 16), np.uint8), shipment, groups[:0])
