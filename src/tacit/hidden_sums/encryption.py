"""Labels encrypted once, each with a proof that it is a label; sums of them opened, single ones never.

ElGamal in the exponent: a label y of 0 or 1 becomes (a, b) = (r G, y G + r PK) for the label party's key PK = sk G.
That y is 0 or 1, under this key and no other, is shown by the proof of Cramer, Damgard and Schoenmakers (Proofs of
partial knowledge, 1994) for two pairs of logarithms: branch j claims that (a, b - j G) = r (G, PK), one branch is done
and the other one simulated, and nobody can tell which. All rows share one challenge c, each splits it into c0 + c1.
Without these proofs a label party could mark a row by a number that is no label, or by another key, and know it again
after it was shuffled.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import LabelsError, TacitError
from tacit.hidden_sums._library import ENCODED, library
from tacit.hidden_sums.points import (
    Encoded,
    Points,
    addresses_of,
    base,
    decode_any,
    encode,
    is_zero,
    negated,
    product,
    products_of_base,
    sums_of_each,
    total,
    weighted_sum,
)
from tacit.hidden_sums.scalars import (
    ORDER,
    SHORT,
    Scalars,
    Transcript,
    added,
    below_order,
    ints_of,
    keyed,
    multiplied,
    negatives,
    scalars_of,
)

_MARKS = np.zeros((2, 32), np.uint8)  # the scalars 0 and 1
_MARKS[1, 31] = 1


@dataclass(frozen=True)
class EncryptedLabels:
    """What the label party sends once."""

    pk: Encoded  # its public key. (1, 33)
    a: Encoded  # (rows, 33)
    b: Encoded  # (rows, 33)
    t: Encoded  # commitments of the proofs: two points of branch 0, two of branch 1. (4, rows, 33)
    c0: Scalars  # of the challenge what branch 0 takes. (rows, 32)
    s: Scalars  # responses of both branches. (2, rows, 32)

    @staticmethod
    def shapes(rows: int) -> dict[str, tuple[int, ...]]:
        """Of each part, in the order in which they are sent."""
        points = (rows, ENCODED)
        return {"pk": (1, ENCODED), "a": points, "b": points, "t": (4, *points), "c0": (rows, 32), "s": (2, rows, 32)}

    def challenge(self, context: bytes) -> int:
        """That all rows share: a hash of everything that is claimed and committed to."""
        transcript = Transcript("labels", context)
        for name in ("pk", "a", "b", "t"):
            transcript.add(name, getattr(self, name))
        return transcript.challenge("c")


def secret_key(secret: bytes, context: bytes) -> Scalars:
    """The label party's secret key sk of a context, never used in another one.  (1, 32)"""
    return keyed(secret, 1, b"sk", context)


def encrypt(labels: NDArray[Any], secret: bytes, context: bytes) -> EncryptedLabels:
    """Encrypt labels and prove that they are labels; the same again from the same secret, labels and context.

    Both labels cost the same work: which branch is simulated is a choice between two rows of bytes. Other labels must
    never be encrypted with this secret in this context: randomness depends on the labels too, but the key does not.
    """
    y = np.asarray(labels)
    if y.ndim != 1 or y.dtype.kind not in "iu" or not len(y) or ((y < 0) | (y > 1)).any():
        raise LabelsError("hidden sums are of labels that are 0 or 1, one for each row")
    y = y.astype(np.intp)
    every = np.arange(len(y))
    drawn = [keyed(secret, len(y), name, context, y.astype(np.uint8).tobytes()) for name in (b"r", b"w", b"c", b"s")]
    r, w, c_other, s_other = drawn
    sk = secret_key(secret, context)
    # the true branch commits to w (G, PK); the other one is s' (G, PK) - c' (a, b - (1 - y) G), as multiples of G
    blinded = multiplied(r, sk)
    simulated = added(s_other, negatives(multiplied(c_other, r)))
    sign = np.stack([c_other, negatives(c_other)])[y, every]
    t_first = np.stack([encode(products_of_base(scalars)) for scalars in (w, simulated)])
    t_second = np.stack(
        [encode(products_of_base(scalars)) for scalars in (multiplied(w, sk), added(multiplied(simulated, sk), sign))]
    )
    places = np.stack([y, 1 - y])  # of branches 0 and 1 in what was done first and what was simulated
    t = np.stack([kind[places[branch], every] for branch in (0, 1) for kind in (t_first, t_second)])
    made = EncryptedLabels(
        pk=encode(products_of_base(sk)),
        a=encode(products_of_base(r)),
        b=encode(products_of_base(added(blinded, _MARKS[y]))),
        t=t,
        c0=np.zeros_like(r),
        s=np.zeros((2, len(y), 32), np.uint8),
    )
    c = scalars_of([made.challenge(context)])
    c_true = added(negatives(c_other), c)
    s_true = added(w, multiplied(c_true, r))
    return EncryptedLabels(
        made.pk, made.a, made.b, made.t, c0=np.stack([c_true, c_other])[places[0], every],
        s=np.stack([np.stack([s_true, s_other])[places[branch], every] for branch in (0, 1)]),
    )  # fmt: skip


def check_labels(labels: EncryptedLabels, weights: bytes, context: bytes) -> tuple[Points, Points] | None:
    """The points a and b of a label party's rows, or None if anything about them is not proven.

    For every row and branch j: s_j G = t_j + c_j a and s_j PK = t_j' + c_j (b - j G). All of them are weighed by random
    numbers of the feature party's secret, which the label party does not know, and added up; one that is wrong is
    missed once in 2**128 times.
    """
    count = len(labels.a)
    points = [decode_any(each) for each in (labels.pk, labels.a, labels.b, *labels.t)]
    scalars = [below_order(each) for each in (labels.c0, *labels.s)]
    good = all(is_good for _, is_good in (*points, *scalars))
    pk, a, b, *t = (each for each, _ in points)
    c0, *s = (each for each, _ in scalars)
    c = labels.challenge(context)
    c_branch = [c0, [(c - each) % ORDER for each in c0]]
    seen = Transcript("labels seen", labels.c0.tobytes() + labels.s.tobytes() + c.to_bytes(32, "big")).digest()
    drawn = keyed(weights, 4 * count, b"rho", context, seen)[:, :SHORT]
    rho = [ints_of(part) for part in np.split(drawn, 4)]
    for_a = [-(rho0 * c_0 + rho2 * c_1) % ORDER for rho0, rho2, c_0, c_1 in zip(rho[0], rho[2], *c_branch, strict=True)]
    for_b = [-(rho1 * c_0 + rho3 * c_1) % ORDER for rho1, rho3, c_0, c_1 in zip(rho[1], rho[3], *c_branch, strict=True)]
    for_g = sum(rho[2 * j][i] * s[j][i] for j in (0, 1) for i in range(count))
    for_g += sum(x * c_1 for x, c_1 in zip(rho[3], c_branch[1], strict=True))
    for_pk = sum(rho[2 * j + 1][i] * s[j][i] for j in (0, 1) for i in range(count))
    sums = [
        weighted_sum(a, scalars_of(for_a)),
        weighted_sum(b, scalars_of(for_b)),
        product(base(), for_g),
        product(pk, for_pk),
        negated(weighted_sum(np.concatenate(t), drawn)),
    ]
    return (a, b) if good and is_zero(total(np.concatenate(sums)))[0] else None


def decrypt_sums(a: Points, b: Points, sk: Scalars, group: int) -> NDArray[np.int64]:
    """The sum of the labels of each group of a shuffled order; rows after the last whole group are left out.

    (A, B) = the sum of a group's ciphertexts, and B = m G + sk A. The library multiplies sk and A in constant time, and
    hands out a hash of the product; it is compared with that of B - m G for all m, the right one or not.
    """
    count = len(a) // group
    steps = np.concatenate([product(negated(base()), m) for m in range(1, group + 1)])
    sums = np.full(count, -1, np.int64)
    for place in range(count):
        rows = slice(group * place, group * (place + 1))
        shared, whole = _hashed_product(total(a[rows]), sk), total(b[rows])
        less = sums_of_each(np.repeat(addresses_of(whole), group, axis=0), addresses_of(steps))
        rests = np.concatenate([whole, less])
        possible = np.flatnonzero(~is_zero(rests))  # sk A is a point
        for m, rest in zip(possible.tolist(), encode(rests[possible]), strict=True):  # all of them, whichever it is
            if hashlib.sha256(rest.tobytes()).digest() == shared:
                sums[place] = m
    if (sums < 0).any():
        raise TacitError("a group's sum is none that labels have, though all was proven: report this, and stop the run")
    return sums


def _hashed_product(point: Points, sk: Scalars) -> bytes:
    """SHA-256 of sk times a point, encoded: what the library calls a Diffie-Hellman secret."""
    loaded, result, rows = library(), np.zeros(32, np.uint8), np.ascontiguousarray(point)
    null = loaded.ffi.NULL
    key = sk.tobytes()
    if is_zero(rows)[0] or not loaded.lib.secp256k1_ecdh(
        loaded.context, loaded.bytes(result), loaded.points(rows), key, null, null
    ):
        raise TacitError("a group's ciphertexts add up to nothing, which chance does once in 2**256: do it again")
    return result.tobytes()
