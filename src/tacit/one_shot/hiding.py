"""Sums over hidden groups in an exchange: what both sides agree on, groups of equal size, and what sums tell a row."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.align.encoder import Inputs
from tacit.contracts import Message
from tacit.errors import ProtocolError
from tacit.hidden_sums.feature_side import FeatureSide
from tacit.hidden_sums.label_side import Noise
from tacit.hidden_sums.messages import Agreement
from tacit.one_shot.exchange import Asking
from tacit.one_shot.floor import pca
from tacit.one_shot.sums import Sums

__all__ = ["agreement", "averages_of_equal", "equal_partitions", "hidden_answers", "noise_of"]

_DIRECTIONS = 24  # of the rows that are cut along


def agreement(mechanism: Sums, contract: str, run: str, rows: int) -> Agreement:
    """What keys, proofs and noise are bound to.

    Args:
        mechanism: the label party's, as both sides know it.
        contract: its digest.
        run: of this contract over this alignment, and with whom: other feature parties have other keys.
        rows: that are trained on.
    """
    return Agreement(
        contract=contract,
        run=run,
        mechanism=json.dumps(mechanism.parameters(), sort_keys=True),
        rows=rows,
        group=mechanism.groups,
        partitions=mechanism.partitions,
        reach=mechanism.reach,
    )


def noise_of(mechanism: Sums, secret: bytes, run: str) -> Noise:
    """The noise of hidden sums: keyed by the mechanism's name too, it has nothing to do with that of open ones.

    Args:
        mechanism: that is certified.
        secret: of the label party.
        run: as of `agreement`.
    """
    return lambda number, batch, count: mechanism.noise(secret, batch, (count,), number=number, run=run)


def hidden_answers(
    asking: Asking, side: Callable[[Sums], FeatureSide], groups: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """The sum of labels of each group with its noise, for each partition, from a label party that sees no groups.

    Args:
        asking: the conversation with it.
        side: of the feature party, for the label party's mechanism.
        groups: the number of each row's group; -1 for those left over.  (rows, partitions)
    """
    sent = asking.ask(Message(0, "ciphertexts", torch.empty(0, dtype=torch.uint8), b""), "ciphertexts")
    if not isinstance(asking.mechanism, Sums):
        raise ProtocolError(f"{asking.line.peer} flips labels, and hidden sums were agreed on")
    mine = side(asking.mechanism)
    mine.accept(sent.payload.numpy().tobytes())
    found = []
    for number, partition in enumerate(np.ascontiguousarray(groups.T)):
        batch = torch.frombuffer(bytearray(mine.batch(number, partition)), dtype=torch.uint8)
        answer = asking.ask(Message(number, "batch", batch, b""), "sums")
        found.append(mine.read(number, partition, answer.payload.numpy().astype("<i8").tobytes()))
    return found


def equal_partitions(inputs: Inputs, size: int, count: int, *, seed: int) -> NDArray[np.int64]:
    """The number of each row's group in each of some partitions, all groups of one size; -1 for rows left over.

    Rows that are alike are cut in two again and again, as for open sums.  (rows, count)

    Args:
        inputs: the rows.
        size: of a group.
        count: of partitions.
        seed: of the directions.
    """
    z = pca(inputs, min(_DIRECTIONS, sum(inputs.cardinalities) + inputs.numeric.shape[1]), seed=seed).embed(inputs)
    spread = z.std(axis=0)
    z = (z / np.where(spread > 0, spread, 1.0)).astype(np.float32)
    draw = np.random.default_rng(seed)
    return np.stack([_partition(z, size, draw) for _ in range(count)], axis=1)


def _partition(z: NDArray[np.float32], size: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """Groups of exactly so many rows; which rows are left over is drawn."""
    whole = len(z) // size
    found = np.full(len(z), -1, np.int64)
    waiting = [(draw.permutation(len(z))[: whole * size], whole)]
    number = 0
    while waiting:
        rows, groups = waiting.pop()
        if groups == 1:
            found[rows] = number
            number += 1
            continue
        directions = draw.normal(size=(z.shape[1], 3)).astype(np.float32) ** 3  # near to single axes
        along = z[rows] @ (directions / np.linalg.norm(directions, axis=0))
        order = rows[np.argsort(along[:, along.var(axis=0).argmax()], kind="stable")]
        half = groups // 2
        waiting += [(order[: half * size], half), (order[half * size :], groups - half)]
    return found


def averages_of_equal(
    groups: NDArray[np.int64], answers: Sequence[NDArray[np.int64]], size: int
) -> NDArray[np.float64]:
    """For each row the mean, over all partitions, of its groups' averages; of all groups where it was left over.

    Groups are of one size, so all averages have the same variance, and their plain mean the least.

    Args:
        groups: as they were asked for.  (rows, partitions)
        answers: the noisy sum of each group, for each partition.
        size: of a group.
    """
    each = [
        np.where(partition >= 0, sums[partition], sums.mean()) / size
        for partition, sums in zip(groups.T, answers, strict=True)
    ]
    found: NDArray[np.float64] = np.mean(each, axis=0)
    return found
