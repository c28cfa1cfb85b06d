"""Points on the curve, checked with plain integers; both engines against each other and against the RFC."""

import hashlib
import os
import select
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.align import _mb8, curve
from tacit.align._x25519 import LOW_ORDER
from tacit.align.curve import Engine, best_engine, byte_order, check_points, hash_to_points
from tacit.errors import ProtocolError, TacitError, UsageError

P = 2**255 - 19
A = 486662
ORDER = 2**252 + 27742317777372353535851937790883648493
mb8_only = pytest.mark.skipif(_mb8.unavailable() is not None, reason=f"no mb8 here: {_mb8.unavailable()}")
KINDS = ["cryptography", pytest.param("mb8", marks=mb8_only)]


def rows(numbers):
    return np.frombuffer(b"".join(n.to_bytes(32, "little") for n in numbers), np.uint8).reshape(-1, 32)


def numbers(points):
    return [int.from_bytes(point.tobytes(), "little") for point in points]


def ladder(scalar, u):
    """The u-coordinate of a multiple, by the textbook; None is the point at infinity."""
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in reversed(range(scalar.bit_length())):
        if scalar >> bit & 1:
            x2, x3, z2, z3 = x3, x2, z3, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        x3, z3 = (d * a + c * b) ** 2 % P, u * (d * a - c * b) ** 2 % P
        e = (a * a - b * b) % P
        x2, z2 = a * a * b * b % P, e * (a * a + 121665 * e) % P
        if scalar >> bit & 1:
            x2, x3, z2, z3 = x3, x2, z3, z2
    return None if z2 % P == 0 else x2 * pow(z2, P - 2, P) % P


def clamped(key):
    return int.from_bytes(key, "little") & ~7 & (2**255 - 1) & ~(1 << 255) | 1 << 254


def is_square(value):
    return pow(value % P, (P - 1) // 2, P) == 1


def elligator(digest, domain):
    """The map once more, in plain integers and with a division each."""
    prefix = len(domain).to_bytes(8, "little") + domain
    r = int.from_bytes(hashlib.blake2b(prefix + digest, digest_size=32).digest(), "little")
    v = -A * pow(1 + 2 * r * r, -1, P) % P
    both = [u for u in (v, (-A - v) % P) if is_square(u**3 + A * u**2 + u)]
    assert len(both) == 1
    return both[0]


# --- points ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=32, max_size=32), max_size=6), st.binary(max_size=20))
def test_points_are_what_plain_integers_say(digests, domain):
    hashes = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)
    assert numbers(hash_to_points(hashes, domain=domain)) == [elligator(digest, domain) for digest in digests]


def test_every_point_is_on_the_curve_and_never_on_the_twist(hashes):
    """Of 400 hashes taken as they are, about half would be on the twist."""
    found = numbers(hash_to_points(hashes(range(400)), domain=b"test"))
    assert all(u < P and is_square(u**3 + A * u**2 + u) for u in found)
    bare = [u % 2**255 for u in numbers(hashes(range(400)))]
    assert 100 < sum(is_square(u**3 + A * u**2 + u) for u in bare) < 300


def test_eight_times_a_point_has_the_prime_order(hashes):
    for u in numbers(hash_to_points(hashes(range(5)), domain=b"test")):
        assert ladder(8 * ORDER, u) is None
        assert ladder(8, u) is not None


def test_the_domain_and_the_hash_decide_nothing_else(hashes):
    one = hash_to_points(hashes(range(50)), domain=b"one")
    assert np.array_equal(one, hash_to_points(hashes(range(50)), domain=b"one"))
    assert np.array_equal(one[7:9], hash_to_points(hashes([7, 8]), domain=b"one"))
    assert not set(numbers(one)) & set(numbers(hash_to_points(hashes(range(50)), domain=b"two")))


# --- engines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_multiplies_as_the_textbook(kind, hashes):
    key = bytes(range(7, 39))
    points = hash_to_points(hashes(range(11)), domain=b"test")
    with Engine(kind) as engine:
        assert numbers(engine.multiply(points, key)) == [ladder(clamped(key), u) for u in numbers(points)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_the_vector_of_the_rfc_survives_a_thousand_rounds(kind, workers):
    """RFC 7748, section 5.2: each product is the next key, each key the next point."""
    key = point = (9).to_bytes(32, "little")
    with Engine(kind, workers=workers) as engine:
        for _ in range(1000 if workers == 0 else 1):
            product = engine.multiply(np.frombuffer(point, np.uint8).reshape(1, 32), key).tobytes()
            key, point = product, key
    expected = {
        0: "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51",
        2: "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079",
    }
    assert key.hex() == expected[workers]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 2049, 5000])
def test_workers_give_the_same_bytes_in_the_same_order(count, hashes):
    key = bytes(range(32))
    given_hashes = hashes(range(count))
    with Engine(workers=2) as engine, Engine() as alone:
        blinded = engine.blind(given_hashes, key, domain=b"d")
        assert np.array_equal(engine.multiply(hash_to_points(given_hashes, domain=b"d"), key), blinded)
        some = slice(0, 40)
        assert np.array_equal(alone.blind(given_hashes[some], key, domain=b"d"), blinded[some])
        assert len({row.tobytes() for row in blinded}) == count


@mb8_only
@pytest.mark.parametrize("count", [1, 7, 8, 9, 500])
def test_both_engines_give_the_same_bytes(count, hashes):
    key = hashlib.sha256(b"key").digest()
    with Engine("mb8", workers=2) as fast, Engine() as plain:
        blinded = fast.blind(hashes(range(count)), key, domain=b"d")
        assert np.array_equal(blinded, plain.blind(hashes(range(count)), key, domain=b"d"))
        assert np.array_equal(fast.multiply(blinded, key), plain.multiply(blinded, key))


def test_multiplications_commute(hashes):
    one, two = bytes(range(32)), bytes(range(32, 64))
    points = hash_to_points(hashes(range(20)), domain=b"test")
    with Engine() as engine:
        there = engine.multiply(engine.multiply(points, one), two)
        assert np.array_equal(there, engine.multiply(engine.multiply(points, two), one))


def test_chunks_come_back_in_order_while_later_ones_are_under_way(hashes):
    key = bytes(range(32))
    taken = []

    def chunks():
        for start in range(0, 60, 10):
            taken.append(start)
            yield hashes(range(start, start + 10))

    with Engine(workers=2) as engine:
        stream = engine.blind_each(chunks(), key, domain=b"d")
        first = next(stream)
        assert taken == [0, 10, 20]
        assert np.array_equal(np.concatenate([first, *stream]), engine.blind(hashes(range(60)), key, domain=b"d"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("low", LOW_ORDER)
def test_a_point_of_low_order_is_refused(kind, workers, low, hashes):
    points = hash_to_points(hashes(range(10)), domain=b"test").copy()
    points[6] = rows([low])[0]
    with Engine(kind, workers=workers) as engine, pytest.raises(ProtocolError, match="point 6 of 10 has low order"):
        engine.multiply(points, bytes(range(32)))


def test_the_points_of_low_order_are_those_that_eight_times_brings_to_nothing():
    assert all(ladder(8, u) is None for u in LOW_ORDER[1:])
    assert len(set(LOW_ORDER)) == 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 1])
def test_points_of_the_twist_are_refused(kind, workers, hashes):
    """Three of them share a group, and so stay unseen together, with a chance of about 2^-13."""
    points = hash_to_points(hashes(range(40)), domain=b"test").copy()
    twist = [u for u in range(2, 99) if not is_square(u**3 + A * u**2 + u)]
    points[[3, 17, 30]] = rows(twist[:3])
    with Engine(kind, workers=workers) as engine, pytest.raises(ProtocolError, match="not on the curve, or was chosen"):
        engine.multiply(points, bytes(range(32)))


@mb8_only
def test_points_that_the_fast_library_multiplies_wrongly_never_give_their_products_away(hashes):
    """The library loses carries for these; of their products about half are on the twist, so all are kept back."""
    chosen = [u for u in range(P - 1300, P - 1) if is_square(u**3 + A * u**2 + u)]
    key = hashlib.sha256(b"key").digest()
    plain, fast = curve._worker.multiplier("cryptography"), _mb8.multiplier()
    assert plain(rows(chosen).tobytes(), key) != fast(rows(chosen).tobytes(), key)
    with Engine("mb8") as engine, pytest.raises(ProtocolError, match="tell about the key"):
        engine.multiply(rows(chosen), key)


# --- what comes from the peer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [P, P + 1, P + 18, 2**255 - 1, 2**255, 2**255 + 9, 2**256 - 1])
def test_a_coordinate_with_a_second_spelling_is_refused(wrong):
    with pytest.raises(ProtocolError, match=r"point 1 of 3 is not below 2\^255 - 19"):
        check_points(rows([5, wrong, 9]))


def test_coordinates_below_the_prime_pass():
    words = [2**64 - 1, 2**192 - 1, 2**255 - 2**64, P - 2, P - 3, 2, 9, 1 << 64, 1 + (1 << 64), (2**255 - 2**192) | 5]
    check_points(rows(words))
    check_points(rows([]))


@pytest.mark.parametrize("wrong", [np.zeros((2, 31), np.uint8), np.zeros(32, np.uint8), np.zeros((2, 32), np.int64)])
def test_rows_of_another_shape(wrong):
    for use in (check_points, lambda points: hash_to_points(points, domain=b"")):
        with pytest.raises(UsageError, match=r"pass 32 bytes for each, uint8 \(count, 32\)"):
            use(wrong)


@given(st.lists(st.binary(min_size=16, max_size=16).map(lambda tail: b"same" * 2 + tail[:8]), max_size=12))
def test_the_order_of_bytes_is_that_of_python_and_keeps_equal_rows_in_place(values):
    rows_of_bytes = np.frombuffer(b"".join(values), np.uint8).reshape(-1, 16)
    assert byte_order(rows_of_bytes).tolist() == sorted(range(len(values)), key=values.__getitem__)


def test_the_order_of_bytes_with_and_without_ties():
    drawn = np.random.default_rng(1).integers(0, 256, (500, 32), dtype=np.uint8)
    for rows_of_bytes in (drawn, np.concatenate([drawn, drawn[::3]])):
        values = [row.tobytes() for row in rows_of_bytes]
        assert byte_order(rows_of_bytes).tolist() == sorted(range(len(values)), key=values.__getitem__)


# --- the pool --------------------------------------------------------------------------------------------------------


def test_a_worker_imports_neither_torch_nor_numpy():
    code = "import sys, tacit.align._worker; print(sorted({'torch', 'numpy', 'polars'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_worker_that_dies_is_an_error_and_not_a_hang(hashes):
    with Engine(workers=1) as engine:
        engine._processes[0].kill()
        with pytest.raises(TacitError, match="a worker process of the engine cryptography ended with code -9"):
            engine.blind(hashes(range(10)), bytes(32), domain=b"")


def test_closing_ends_the_processes_and_what_was_under_way(hashes):
    engine = Engine(workers=2)
    stream = engine.blind_each([hashes(range(4000))] * 3, bytes(range(32)), domain=b"")
    next(stream)
    engine.close()
    assert all(process.poll() is not None for process in engine._processes)
    with pytest.raises(UsageError, match="the engine was closed"):
        engine.blind(hashes(range(3)), bytes(32), domain=b"")


def test_a_worker_does_not_outlive_a_party_that_is_killed():
    code = (
        "import os, signal; from tacit.align.curve import Engine; "
        "engine = Engine(workers=1); engine.blind(__import__('numpy').zeros((1, 32), 'u1'), bytes(32), domain=b''); "
        "os.write(1, str(engine._processes[0].pid).encode()); os.kill(os.getpid(), signal.SIGKILL)"
    )
    party = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=False)
    assert party.returncode == -9, party.stderr
    try:
        worker = os.pidfd_open(int(party.stdout))
    except ProcessLookupError:
        return  # gone already
    ended, _, _ = select.select([worker], [], [], 20.0)
    os.close(worker)
    assert ended


@pytest.mark.parametrize("options", [{"kind": "gpu"}, {"workers": -1}, {"workers": True}, {"workers": 1.5}])
def test_an_engine_that_does_not_exist(options):
    with pytest.raises(UsageError, match=r"no engine is called 'gpu'|workers="):
        Engine(**options)


def test_a_key_of_another_length(hashes):
    with Engine() as engine, pytest.raises(UsageError, match="a key of 31 bytes"):
        engine.blind(hashes([1]), bytes(31), domain=b"")


def test_without_the_fast_library_the_plain_engine_is_chosen(monkeypatch):
    monkeypatch.setattr(curve._mb8, "unavailable", lambda: "not today")
    with best_engine(workers=0) as engine:
        assert engine.kind == "cryptography"
        assert engine.note == "not today"
    with pytest.raises(UsageError, match="mb8 can't be used: not today"):
        Engine("mb8")


def test_a_library_that_multiplies_wrongly_is_not_trusted(monkeypatch):
    wrong = bytes(32)
    monkeypatch.setattr(_mb8, "_PRODUCT", wrong)
    _mb8._load.cache_clear()
    try:
        assert _mb8.unavailable() is not None
    finally:
        monkeypatch.undo()
        _mb8._load.cache_clear()
