"""Both proofs checked by hand: every equation of the papers by itself, in integers of Python, with nothing of ours.

Code that makes proofs and code that checks them may agree on the same mistake. Here points, hashes, generators and
equations are written down once more, as slowly as it gets: Cramer, Damgard and Schoenmakers' proof of each label, and
`CheckShuffleProof` of Haenni, Locher, Koenig and Dubuis (2017), in a group that is added.
"""

import hashlib

import numpy as np
import pytest

from tacit.hidden_sums.encryption import encrypt
from tacit.hidden_sums.points import encode
from tacit.hidden_sums.shuffle import gen_shuffle
from tests.hidden_sums.sides import FEATURE_SECRET, LABEL_SECRET, some_input, some_labels

FIELD = 2**256 - 2**32 - 977
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
CONTEXT = b"context"
ROWS = 5


def plus(*points):
    """The sum of affine points; None is the neutral element."""
    total = None
    for point in points:
        if total is None or point is None:
            total = total or point
        elif total[0] == point[0] and (total[1] + point[1]) % FIELD == 0:
            total = None
        else:
            if total == point:
                slope = 3 * total[0] ** 2 * pow(2 * total[1], -1, FIELD)
            else:
                slope = (point[1] - total[1]) * pow(point[0] - total[0], -1, FIELD)
            x = (slope**2 - total[0] - point[0]) % FIELD
            total = (x, (slope * (total[0] - x) - total[1]) % FIELD)
    return total


def times(number, point):
    result, number = None, number % ORDER
    while number:
        if number & 1:
            result = plus(result, point)
        point, number = plus(point, point), number >> 1
    return result


def point_of(raw):
    x = int.from_bytes(raw[1:], "big")
    y = pow(x**3 + 7, (FIELD + 1) // 4, FIELD)
    if (y * y - x**3 - 7) % FIELD or raw[0] not in (2, 3):
        return None
    return (x, y if y & 1 == raw[0] & 1 else FIELD - y)


def points(rows):
    return [point_of(bytes(row)) for row in rows]


def numbers(rows):
    return [int.from_bytes(bytes(row), "big") for row in rows]


def coded(each):
    return b"".join(bytes([2 + (y & 1)]) + x.to_bytes(32, "big") for x, y in each)


def generators(count, domain):
    found = []
    for place in range(count):
        point, tries = None, 0
        while point is None:
            text = b"tacit hidden sums generators 1" + len(domain).to_bytes(8, "big") + domain
            text += place.to_bytes(8, "big") + tries.to_bytes(8, "big")
            point, tries = point_of(b"\x02" + hashlib.sha256(text).digest()), tries + 1
        found.append(point)
    return found


class Hash:
    """All that was said, each part with its name, both with their lengths."""

    def __init__(self, proof):
        self.said = b"tacit hidden sums transcript 1"
        self.add("proof", proof)
        self.add("context", CONTEXT)

    def add(self, name, value):
        for part in (name.encode(), value):
            self.said += len(part).to_bytes(8, "big") + part

    def out(self, kind, name, size):
        self.add(kind, name.encode())
        return hashlib.shake_256(self.said).digest(size)


@pytest.fixture(name="of", scope="module")
def _of():
    return some_input(some_labels(ROWS), CONTEXT)


def test_every_equation_of_every_label_holds():
    made = encrypt(some_labels(ROWS), LABEL_SECRET, CONTEXT)
    said = Hash(b"labels")
    for name in ("pk", "a", "b", "t"):
        said.add(name, getattr(made, name).tobytes())
    c = int.from_bytes(said.out("challenge", "c", 64), "big") % ORDER
    (pk,), a, b = points(made.pk), points(made.a), points(made.b)
    c0, s, t = numbers(made.c0), [numbers(each) for each in made.s], [points(each) for each in made.t]
    for row in range(ROWS):
        for branch, part in ((0, c0[row]), (1, c - c0[row])):
            less = plus(b[row], times(-branch, G))
            assert times(s[branch][row], G) == plus(t[2 * branch][row], times(part, a[row]))
            assert times(s[branch][row], pk) == plus(t[2 * branch + 1][row], times(part, less))


def shuffle_holds(of_points, sent):
    """`CheckShuffleProof`: whether t1 to t4 and every t_hat come out as they were committed to."""
    pk, e_a, e_b = of_points
    h, (h_chain,) = generators(ROWS, b"shuffle"), generators(1, b"chain")
    said = Hash(b"shuffle")
    for name, each in (("pk", [pk]), ("e a", e_a), ("e b", e_b)):
        said.add(name, coded(each))
    for name in ("a", "b", "c"):
        said.add(name, getattr(sent, name).tobytes())
    raw = said.out("challenges", "u", 16 * ROWS)
    u = [int.from_bytes(raw[16 * row : 16 * row + 16], "big") for row in range(ROWS)]
    for name in ("c_hat", "t_hat", "t"):
        said.add(name, getattr(sent, name).tobytes())
    c = int.from_bytes(said.out("challenge", "c", 64), "big") % ORDER
    a, b, com, c_hat, t_hat, t = (points(getattr(sent, name)) for name in ("a", "b", "c", "c_hat", "t_hat", "t"))
    (s1, s2, s3, s4), s_hat, s_prime = numbers(sent.s), numbers(sent.s_hat), numbers(sent.s_prime)
    product = 1
    for each in u:
        product = product * each % ORDER
    c_bar = plus(*com, *(times(-1, each) for each in h))
    c_star = plus(c_hat[-1], times(-product, h_chain))
    weighed = [plus(*(times(n, point) for n, point in zip(u, each, strict=True))) for each in (com, e_a, e_b)]
    again = [plus(*(times(n, point) for n, point in zip(s_prime, each, strict=True))) for each in (h, a, b)]
    expected = [
        plus(times(-c, c_bar), times(s1, G)),
        plus(times(-c, c_star), times(s2, G)),
        plus(times(-c, weighed[0]), times(s3, G), again[0]),
        plus(times(-c, weighed[1]), times(-s4, G), again[1]),
        plus(times(-c, weighed[2]), times(-s4, pk), again[2]),
    ]
    before = [h_chain, *c_hat[:-1]]
    chain = [plus(times(-c, c_hat[row]), times(s_hat[row], G), times(s_prime[row], before[row])) for row in range(ROWS)]
    return expected == t and chain == t_hat


def test_every_equation_of_a_shuffle_holds_and_no_other_input_will_do(of):
    sent = gen_shuffle(of, np.array([3, 1, 4, 0, 2]), FEATURE_SECRET)
    (pk,), a, b = (points(encode(each)) for each in (of.pk, of.a, of.b))
    assert shuffle_holds((pk, a, b), sent)
    assert not shuffle_holds((pk, a[::-1], b[::-1]), sent)
    assert not shuffle_holds((pk, a, [*b[:-1], plus(b[-1], G)]), sent)
