"""Sums over hidden groups in an exchange: what both sides agree on, and the conversation about them."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.contracts import Message
from tacit.errors import ProtocolError
from tacit.hidden_sums.feature_side import FeatureSide
from tacit.hidden_sums.label_side import Noise
from tacit.hidden_sums.messages import Agreement
from tacit.one_shot.exchange import Asking
from tacit.one_shot.sums import Sums

__all__ = ["agreement", "hidden_answers", "noise_of"]


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
