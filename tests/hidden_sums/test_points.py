"""Points against OpenSSL, against published multiples, and at the edges that someone may choose."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256K1, derive_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ProtocolError, TacitError, UsageError
from tacit.hidden_sums import points as p
from tacit.hidden_sums.scalars import ORDER, added, below_order, ints_of, keyed, multiplied, negatives, scalars_of

# Multiples of G that are published with SEC 2's curve, compressed: k, and k G.
PUBLISHED = {
    1: "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798",
    2: "02c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5",
    3: "02f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9",
    ORDER - 1: "0379be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798",
}
numbers = st.integers(1, ORDER - 1)


def reference(number):
    key = derive_private_key(number, SECP256K1()).public_key()
    return key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def encoded(points):
    return [row.tobytes() for row in p.encode(points)]


def rows(*hexes):
    return np.frombuffer(bytes.fromhex("".join(hexes)), np.uint8).reshape(-1, p.ENCODED)


def test_published_multiples():
    assert encoded(p.products_of_base(scalars_of(list(PUBLISHED)))) == [bytes.fromhex(x) for x in PUBLISHED.values()]


@settings(max_examples=15)
@given(st.lists(numbers, min_size=1, max_size=5))
def test_products_are_those_of_openssl(some):
    wanted = [reference(number) for number in some]
    assert encoded(p.products_of_base(scalars_of(some))) == wanted
    assert encoded(p.Table(p.base(), 1).products(some)) == wanted
    assert [encoded(p.product(p.base(), number))[0] for number in some] == wanted


@pytest.mark.parametrize("count", [1, 1001, 20_001])
def test_tables_of_all_sizes_give_the_same(count):
    some = [1, 2, ORDER - 1, ORDER // 3, 2**255 + 12345]
    assert encoded(p.Table(p.base(), count).products(some)) == [reference(number) for number in some]


@pytest.mark.parametrize("way", [p.weighted_sum, p._sum_by_digits])
@settings(max_examples=15)
@given(terms=st.lists(st.tuples(numbers, st.integers(0, ORDER - 1)), min_size=1, max_size=8))
def test_weighted_sums_are_those_of_openssl(way, terms):
    points = p.products_of_base(scalars_of([point for point, _ in terms]))
    result = way(points, scalars_of([weight for _, weight in terms]))
    wanted = sum(point * weight for point, weight in terms) % ORDER
    assert encoded(result) == [reference(wanted)] if wanted else p.is_zero(result)[0]


def test_a_weighted_sum_of_many_points_and_short_weights():
    some, weights = keyed(b"k" * 32, 3000, b"points"), keyed(b"k" * 32, 3000, b"weights")[:, :16]
    found = p.weighted_sum(p.products_of_base(some), weights)
    wanted = sum(one * other for one, other in zip(ints_of(some), ints_of(weights), strict=True)) % ORDER
    assert encoded(found) == [reference(wanted)]


def test_sums_through_the_neutral_element():
    three = p.products_of_base(scalars_of([3, 3, 5]))
    three[1:2] = p.negated(three[:1])
    assert encoded(p.total(three)) == [reference(5)]
    assert p.is_zero(p.total(three[:2]))[0]
    assert p.is_zero(p.total(np.zeros((2, 64), np.uint8)))[0]
    assert encoded(p.total(np.concatenate([three, np.zeros((1, 64), np.uint8)]))) == [reference(5)]
    same = scalars_of([7, 7, 7])  # both of a pair in one bucket
    for way in (p.weighted_sum, p._sum_by_digits):
        assert encoded(way(three, same)) == [reference(35)]
        assert p.is_zero(way(three[:2], same[:2]))[0]
        assert p.is_zero(way(three, np.zeros((3, 32), np.uint8)))[0]
    assert p.is_zero(p.product(p.base(), ORDER))[0]
    with pytest.raises(TacitError, match="neutral"):
        p.encode(np.zeros((1, 64), np.uint8))


@pytest.mark.parametrize(
    "wrong",
    [
        "00" * 33,  # no prefix
        "02" + "00" * 32,  # x = 0 is on no curve point
        "02" + "ff" * 32,  # x above p
        "02fffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc30",  # x = p + 1, a second spelling of 1
        "0479be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798",  # the prefix of another form
        "0679be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798",
    ],
)
def test_what_is_no_point_is_refused(wrong):
    with pytest.raises(ProtocolError, match="points"):
        p.decode(rows(PUBLISHED[1], wrong, PUBLISHED[2]))
    points, good = p.decode_any(rows(PUBLISHED[2], wrong, PUBLISHED[3]))
    assert not good
    assert encoded(points) == [reference(2), reference(1), reference(3)]


def test_generators_are_points_fewer_are_the_first_of_more_and_domains_differ():
    some = encoded(p.generators(20, b"one"))
    assert encoded(p.generators(5, b"one")) == some[:5]
    assert len({*some, *encoded(p.generators(20, b"two"))}) == 40
    assert {each[0] for each in some} == {2}
    assert encoded(p.decode(rows(some[0].hex()))) == some[:1]


@given(numbers, numbers)
def test_secret_scalars_are_computed_with_as_numbers_are(one, other):
    left, right = scalars_of([one]), scalars_of([other])
    assert ints_of(multiplied(left, right)) == [one * other % ORDER]
    assert ints_of(negatives(left)) == [ORDER - one]
    if (one + other) % ORDER:
        assert ints_of(added(left, right)) == [(one + other) % ORDER]


def test_scalars_at_their_ends():
    assert ints_of(added(scalars_of([5]), scalars_of([0]))) == [5]
    with pytest.raises(TacitError, match="scalar"):
        added(scalars_of([5]), scalars_of([ORDER - 5]))
    with pytest.raises(TacitError, match="scalar"):
        p.products_of_base(scalars_of([0]))
    assert below_order(scalars_of([0, ORDER - 1])) == ([0, ORDER - 1], True)
    assert below_order(scalars_of([1, ORDER]))[1] is False


def test_keyed_numbers_depend_on_all_parts_and_their_borders():
    one, other = b"k" * 32, b"K" * 32
    drawn = [keyed(one, 1, b"ab", b"c"), keyed(one, 1, b"a", b"bc"), keyed(one, 1, b"abc"), keyed(other, 1, b"abc")]
    seen = {numbers.tobytes() for numbers in drawn}
    assert len(seen) == 4
    assert keyed(b"k" * 32, 3, b"x")[:2].tobytes() == keyed(b"k" * 32, 2, b"x").tobytes()
    with pytest.raises(UsageError, match="too short"):
        keyed(b"short", 1)
