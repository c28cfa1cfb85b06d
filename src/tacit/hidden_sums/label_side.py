"""The label party: encrypts its labels once, checks each partition's shuffle, and answers with noisy sums, once each.

::

    nothing --> asked --> checked --> answered        each step is on the disk before the next one begins
                  |
                  +----> dead                         and whoever is killed goes on to the same bytes

The hash of the first batch of a partition is written down before anything of it is looked at: another batch for this
partition is refused for good. A batch is checked whole, against nothing but public values, before any label or secret
key is touched. Whatever is wrong with it, the answer is one fixed refusal, no noise is drawn, and the partition is
dead. The budget is charged before an answer is computed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.disk import held, make_folder, read_json, write, write_json
from tacit.errors import ProtocolError, RefusedError, StorageError, UsageError
from tacit.hidden_sums.encryption import EncryptedLabels, decrypt_sums, encrypt, secret_key
from tacit.hidden_sums.messages import Agreement, arrays_of, bytes_of, size_of
from tacit.hidden_sums.points import Points, decode
from tacit.hidden_sums.scalars import keyed
from tacit.hidden_sums.shuffle import Input, Shuffle, check_shuffle_proof, shuffle_generators

# noise from a partition's number, the hash of its batch, and a number of groups: the same for the same
Noise = Callable[[int, bytes, int], NDArray[np.int64]]

_BACK = "bring it back as it was, or start a new run"


@dataclass(frozen=True)
class _State:
    """Where a partition stands."""

    name: str  # "asked", "checked", "answered" or "dead"
    batch: str  # hash of its one batch
    sums: tuple[int, ...] = ()  # the answer, when there is one
    why: str = ""  # for the owner, why it is dead; nobody else hears of it


def rows_of_units(units: NDArray[Any], partition: int, secret: bytes, context: bytes) -> NDArray[np.bool_]:
    """Which rows take part in a partition: of each unit one, chosen by key, whatever its label is.  (rows,)"""
    numbers = keyed(secret, len(units), b"rows of units", context, partition.to_bytes(8, "big"))
    lot = numbers[:, :8].copy().view(">u8")[:, 0]
    whose = np.unique(units, return_inverse=True)[1]
    order = np.lexsort((lot, whose))
    first = np.concatenate([[True], whose[order][1:] != whose[order][:-1]])
    chosen: NDArray[np.bool_] = np.zeros(len(units), np.bool_)
    chosen[order[first]] = True
    return chosen


class LabelSide:
    """See this module.

    Args:
        folder: where states are kept; nobody else writes there.
        secret: of the party, at least 32 bytes.
        agreement: with the feature party.
        labels: 0 or 1 for each row, as they were frozen: another call with others is refused.
        noise: of each answer.
        charge: enters a partition, and the hash of its batch, into the party's book before the answer is computed, and
            again after a kill; it may refuse another batch than it has.
        units: whose row each is, where the agreement says that there are units.
        trace: told which state was written, for tests.
    """

    def __init__(
        self,
        folder: Path,
        secret: bytes,
        agreement: Agreement,
        labels: NDArray[Any],
        noise: Noise,
        *,
        charge: Callable[[int, bytes], None] = lambda *_: None,
        units: NDArray[Any] | None = None,
        trace: Callable[[str], None] = lambda _: None,
    ) -> None:
        if len(labels) != agreement.rows or (units is None) == agreement.units:
            raise UsageError(
                f"{len(labels)} labels for {agreement.rows} rows, or units where the agreement says otherwise"
            )
        if units is not None and len(units) != agreement.rows:
            raise UsageError(f"{len(units)} units for {agreement.rows} rows: pass one for each")
        self._folder, self._secret, self._agreement = folder, secret, agreement
        self._labels, self._units, self._noise, self._charge, self._trace = labels, units, noise, charge, trace
        self._points: tuple[Points, Points, Points, Points] | None = None
        make_folder(folder)

    # --- labels, once ------------------------------------------------------------------------------------------------

    def commitment(self) -> bytes:
        """The encrypted labels with their proofs, the same bytes whenever it is asked for."""
        with self._alone():
            return self._commitment()

    def _commitment(self) -> bytes:
        path, seal = self._folder / "labels", self._folder / "labels.json"
        facts = self._facts()
        if seal.exists():
            if read_json(seal, _BACK) != facts:
                raise UsageError(
                    f"{seal}: other labels, or another agreement, were encrypted for this run: they are encrypted once;"
                    " put them back as they were, or agree on a new run"
                )
        else:
            write_json(seal, facts)
            self._trace("labels sealed")
        if not path.exists():
            made = encrypt(self._labels, self._secret, self._agreement.context("labels"))
            write(path, bytes_of(made) + self._masks())
            self._trace("labels written")
        return path.read_bytes()

    def _facts(self) -> dict[str, str]:
        """Of everything that the commitment is made of; without the secret no label can be tried."""
        whole = hashlib.sha256(self._agreement.context("facts"))
        whole.update(np.asarray(self._labels).astype("<i8").tobytes())
        whole.update(self._masks())
        return {"labels": hmac.digest(self._secret, b"tacit hidden sums labels 1" + whole.digest(), "sha256").hex()}

    def _masks(self) -> bytes:
        """Which rows take part in each partition, where there are units: a bit for each row."""
        if self._units is None:
            return b""
        return np.packbits(
            [self._taking_part(number) for number in range(self._agreement.partitions)], axis=1
        ).tobytes()

    def _taking_part(self, partition: int) -> NDArray[np.bool_]:
        if self._units is None:
            return np.ones(self._agreement.rows, np.bool_)
        return rows_of_units(self._units, partition, self._secret, self._agreement.context("units"))

    # --- answers, once each ------------------------------------------------------------------------------------------

    def answer(self, partition: int, batch: bytes) -> bytes:
        """A noisy sum for each of a batch's groups, in its order: whole numbers of 8 bytes, least significant first.

        A `RefusedError` where anything about the batch is wrong, or another one came first; it never says what.
        """
        try:
            self._agreement.check_partition(partition)
        except ProtocolError:
            raise refusal() from None
        with self._alone():
            return self._answer(partition, batch)

    def _answer(self, partition: int, batch: bytes) -> bytes:
        digest = hashlib.sha256(batch).hexdigest()
        state = self._read(partition)
        if state is None:
            state = self._enter(partition, _State("asked", digest))
        if state.batch != digest or state.name == "dead":
            raise refusal()
        if state.name != "answered":
            state = self._answered(partition, batch, state)
        return np.array(state.sums, "<i8").tobytes()

    def _answered(self, partition: int, batch: bytes, state: _State) -> _State:
        digest = bytes.fromhex(state.batch)
        try:
            shuffled = self._checked(partition, batch)
            if state.name == "asked":
                self._enter(partition, _State("checked", state.batch))
            self._charge(partition, digest)
        except ProtocolError as error:
            self._enter(partition, _State("dead", state.batch, why=str(error)))
            raise refusal() from None
        sk = secret_key(self._secret, self._agreement.context("labels"))
        sums = decrypt_sums(*shuffled, sk, self._agreement.group)
        noisy = sums + self._noise(partition, digest, len(sums))
        return self._enter(partition, _State("answered", state.batch, tuple(noisy.tolist())))

    def _checked(self, partition: int, batch: bytes) -> tuple[Points, Points]:
        """The shuffled ciphertexts of a batch; a `ProtocolError` if they are not proven."""
        pk, a, b, h = self._known_points()
        rows = self._taking_part(partition)
        of = Input(pk, a[rows], b[rows], self._agreement.context("shuffle", partition), h)
        shuffle = Shuffle(**arrays_of(Shuffle.shapes(int(rows.sum())), batch))
        shuffled = check_shuffle_proof(of, shuffle, self._secret)
        if shuffled is None:
            raise ProtocolError(f"the batch of partition {partition} is not proven to be a shuffle of the labels")
        return shuffled

    def _known_points(self) -> tuple[Points, Points, Points, Points]:
        """Key, both halves of the ciphertexts, and generators."""
        if self._points is None:
            shapes = EncryptedLabels.shapes(self._agreement.rows)
            made = EncryptedLabels(**arrays_of(shapes, self._commitment()[: size_of(shapes)]))
            self._points = (
                decode(made.pk), decode(made.a), decode(made.b), shuffle_generators(self._agreement.rows)
            )  # fmt: skip
        return self._points

    def _alone(self) -> AbstractContextManager[None]:
        """Nobody else answers from this folder meanwhile: of two batches at a time both could be the first."""
        return held(self._folder / "lock")

    # --- on the disk -------------------------------------------------------------------------------------------------

    def _read(self, partition: int) -> _State | None:
        path = self._path(partition)
        if not path.exists():
            return None
        content = read_json(path, _BACK)
        try:
            return _State(**{**content, "sums": tuple(content["sums"])})
        except (TypeError, KeyError) as error:
            raise StorageError(f"{path} can't be read ({error}): {_BACK}") from None

    def _enter(self, partition: int, state: _State) -> _State:
        write_json(self._path(partition), asdict(state))
        self._trace(f"partition {partition} {state.name}")
        return state

    def _path(self, partition: int) -> Path:
        return self._folder / f"partition-{partition}.json"


def refusal() -> RefusedError:
    """The one refusal that there is, for whatever reason."""
    return RefusedError("hidden sums", "this batch is refused, and its partition is closed")
