"""Sums over hidden groups in an exchange: what both sides agree on, the conversation, and what it shows of groups."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.contracts import Message
from tacit.errors import ProtocolError, UsageError
from tacit.hidden_sums.feature_side import FeatureSide
from tacit.hidden_sums.label_side import Noise
from tacit.hidden_sums.messages import Agreement
from tacit.one_shot.exchange import Asking
from tacit.one_shot.sums import Sums

Leaving = Callable[[NDArray[np.int64], bytes, int], None]

_ODD = 8.0  # deviations between the totals of two partitions before a label party's word is doubted


def agreement(mechanism: Sums, contract: str, run: str, rows: int, *, units: bool = False) -> Agreement:
    """What keys, proofs and noise are bound to.

    `contract` is its digest; `run` is of this contract over this alignment, and with whom: other feature parties have
    other keys.
    """
    return Agreement(
        contract=contract, run=run, mechanism=json.dumps(mechanism.parameters(), sort_keys=True), rows=rows,
        group=mechanism.groups, partitions=mechanism.partitions, reach=mechanism.reach, units=units,
    )  # fmt: skip


def check_enough_rows(size: int, count: int, what: str) -> None:
    """See that there is a group at all, before anybody connects."""
    if count < size:
        raise UsageError(
            f"hidden sums: {count} {what} to train on make no group of {size}: agree on a lower group_size"
        )


def noise_of(mechanism: Sums, secret: bytes, run: str) -> Noise:
    """The noise of hidden sums: keyed by the mechanism's name too, it has nothing to do with that of open ones."""
    return lambda number, batch, count: mechanism.noise(secret, batch, (count,), number=number, run=run)


def hidden_answers(
    asking: Asking,
    side: Callable[[Sums], FeatureSide],
    grouped: Callable[[NDArray[np.bool_]], NDArray[np.int64]],
    leaving: Leaving,
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Groups and their sums of labels with noise, for each partition, from a label party that sees no groups.

    `grouped` makes groups of the rows that take part in each partition, as `partitions` does; `leaving` is told before
    each batch leaves: the groups, a digest of the labels that are shuffled, and how many bytes all batches have.
    """
    sent = asking.ask(Message(0, "ciphertexts", torch.empty(0, dtype=torch.uint8), b""), "ciphertexts")
    if not isinstance(asking.mechanism, Sums):
        raise ProtocolError(f"{asking.line.peer} flips labels, and hidden sums were agreed on")
    mine = side(asking.mechanism)
    mine.accept(sent.payload.numpy().tobytes())
    masks = np.stack([mine.taking_part(number) for number in range(asking.mechanism.partitions)], axis=1)
    groups, found = grouped(masks), list[NDArray[np.int64]]()
    for number, partition in enumerate(groups.T):
        mine_of = partition[masks[:, number]]
        batch = torch.frombuffer(bytearray(mine.batch(number, mine_of)), dtype=torch.uint8)
        leaving(groups, mine.labels, len(batch) * len(masks.T))
        answer = asking.ask(Message(number, "batch", batch, b""), "sums")
        found.append(mine.read(number, mine_of, answer.payload.numpy().astype("<i8").tobytes()))
        _check_totals(groups, found, asking.mechanism)
    return groups, found


def _check_totals(groups: NDArray[np.int64], answers: Sequence[NDArray[np.int64]], mechanism: Sums) -> None:
    """Refuse totals that no labels have: partitions are of the same labels, but for rows that are not in both."""
    last = len(answers) - 1
    total, inside = int(answers[last].sum()), groups[:, last] >= 0
    slack = _ODD * math.sqrt(2 * len(answers[last]) * mechanism.variance)
    wrong = not -slack <= total <= int(inside.sum()) + slack
    for before, sums in enumerate(answers[:last]):
        other, more = groups[:, before] >= 0, total - int(sums.sum())
        wrong |= not -int((other & ~inside).sum()) - slack <= more <= int((inside & ~other).sum()) + slack
    if wrong:
        raise ProtocolError("the label party sent sums whose total no labels and no noise of the agreed kind give")


def bits_shown(rows: int, size: int, partitions: int) -> float:
    """At most so many bits about all rows together does a label party learn from nameless sums, whatever it encrypts.

    Of a partition it learns how many of the groups have which sum: one of as many cases as there are ways to give the
    sums 0, 1, ..., size to all groups, whose order and rows are drawn by lot.
    """
    return partitions * math.log2(math.comb(rows // size + size, size))
