"""The feature party: takes encrypted labels once, hides its groups in shuffles, and reads noisy sums.

Groups and rows are ordered anew for every partition: the label party could open single ciphertexts, and must learn
nothing from the order. All of a batch follows from secret, labels and groups: after a kill it has the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.disk import make_folder, read_json, write_json
from tacit.errors import ProtocolError, RefusedError, UsageError
from tacit.hidden_sums.encryption import EncryptedLabels, check_labels
from tacit.hidden_sums.messages import Agreement, arrays_of, bytes_of, masks_shape
from tacit.hidden_sums.points import Points, decode
from tacit.hidden_sums.scalars import keyed
from tacit.hidden_sums.shuffle import Input, gen_shuffle, shuffle_generators

_BACK = "bring it back as it was, or start a new run"


class FeatureSide:
    """See this module."""

    def __init__(
        self, folder: Path, secret: bytes, agreement: Agreement, *, trace: Callable[[str], None] = lambda _: None
    ) -> None:
        self._folder, self._secret, self._agreement, self._trace = folder, secret, agreement, trace
        self._points: tuple[Points, Points, Points, Points] | None = None
        self._masks: NDArray[np.bool_] | None = None
        self._labels = b""  # a digest of what was accepted
        make_folder(folder)

    def accept(self, commitment: bytes) -> None:
        """Take the encrypted labels, once for good; others than before, or ones without proof, are a `RefusedError`."""
        path, digest = self._folder / "labels.json", hashlib.sha256(commitment).hexdigest()
        known = read_json(path, _BACK) if path.exists() else None
        if known is not None and known != {"sha256": digest}:
            raise RefusedError("labels", "the label party encrypted other labels before: labels are committed to once")
        labels, masks = self._read(commitment)
        checked = check_labels(labels, self._secret, self._agreement.context("labels"))
        if checked is None:
            raise RefusedError("labels", "the label party's ciphertexts are not proven to be labels under its one key")
        self._points = (decode(labels.pk), *checked, shuffle_generators(self._agreement.rows))
        self._masks, self._labels = masks, bytes.fromhex(digest)
        if known is None:
            write_json(path, {"sha256": digest})
            self._trace("labels taken")

    def _read(self, commitment: bytes) -> tuple[EncryptedLabels, NDArray[np.bool_]]:
        rows, partitions = self._agreement.rows, self._agreement.partitions
        shapes = EncryptedLabels.shapes(rows) | (masks_shape(rows, partitions) if self._agreement.units else {})
        arrays = arrays_of(shapes, commitment)
        packed = arrays.pop("masks", None)
        if packed is None:
            return EncryptedLabels(**arrays), np.ones((partitions, rows), np.bool_)
        masks = np.unpackbits(packed, axis=1, count=rows).astype(np.bool_)
        counts = masks.sum(axis=1)
        if (counts != counts[0]).any() or counts[0] < self._agreement.group:
            raise ProtocolError("as many rows take part in one partition as in the other, and enough for a group")
        return EncryptedLabels(**arrays), masks

    @property
    def labels(self) -> bytes:
        """A digest of the encrypted labels that were taken."""
        return self._labels

    def taking_part(self, partition: int) -> NDArray[np.bool_]:
        """Which rows take part in a partition; all of them where each is its own unit.  (rows,)"""
        self._agreement.check_partition(partition)
        if self._masks is None:
            raise UsageError("no labels were accepted yet: call accept first")
        return np.asarray(self._masks[partition])

    def batch(self, partition: int, groups: NDArray[Any]) -> bytes:
        """The rows that take part, encrypted again and shuffled into their groups, with the proof.

        `groups` are of each row that takes part, from 0 on; -1 for those that are left over, fewer than a group.
        """
        _, psi = self._shuffled(partition, groups)
        path, digest = self._folder / f"partition-{partition}.json", _digest(groups)
        if path.exists() and read_json(path, _BACK)["groups"] != digest:
            raise UsageError(f"{path}: other groups were asked about in this partition: it is answered once")
        if not path.exists():
            write_json(path, {"groups": digest})
            self._trace(f"partition {partition} asked")
        assert self._points is not None
        pk, a, b, h = self._points
        rows = self.taking_part(partition)
        of = Input(pk, a[rows], b[rows], self._agreement.context("shuffle", partition), h)
        return bytes_of(gen_shuffle(of, psi, self._secret))

    def read(self, partition: int, groups: NDArray[Any], answer: bytes) -> NDArray[np.int64]:
        """The noisy sum of each group, by its number; a `ProtocolError` where no labels and no noise give them."""
        order, _ = self._shuffled(partition, groups)
        if len(answer) != 8 * len(order):
            raise ProtocolError(f"an answer of {len(answer)} bytes for {len(order)} groups")
        sums = np.frombuffer(answer, "<i8").astype(np.int64)
        if (sums < -self._agreement.reach).any() or (sums > self._agreement.group + self._agreement.reach).any():
            raise ProtocolError("the label party sent sums that no labels and no noise of the agreed kind give")
        by_number = np.empty_like(sums)
        by_number[order] = sums
        return by_number

    def _shuffled(self, partition: int, groups: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The order in which groups are sent, and the permutation of the rows."""
        count, size = int(self.taking_part(partition).sum()), self._agreement.group
        whole = count // size
        groups = np.asarray(groups)
        if groups.shape != (count,) or groups.dtype.kind != "i" or ((groups < -1) | (groups >= whole)).any():
            raise UsageError(
                f"groups: a whole number from 0 to {whole - 1} for each of {count} rows, or -1 if left over"
            )
        if (np.bincount(groups[groups >= 0], minlength=whole) != size).any():
            raise UsageError(f"groups: each of {whole} groups has {size} rows, {count - whole * size} are left over")
        context = self._agreement.context("order", partition)
        drawn = keyed(self._secret, whole + count, b"order", context, self._labels, _digest(groups).encode())
        lots = drawn[:, :8].copy().view(">u8")[:, 0]
        order = np.argsort(lots[:whole], kind="stable").astype(np.int64)
        place = np.full(whole + 1, whole, np.int64)  # the last one is that of -1: after all groups
        place[order] = np.arange(whole)
        return order, np.lexsort((lots[whole:], place[groups])).astype(np.int64)


def _digest(groups: NDArray[Any]) -> str:
    return hashlib.sha256(np.asarray(groups).astype("<i8").tobytes()).hexdigest()
