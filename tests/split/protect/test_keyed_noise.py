"""Keyed noise: the right bytes, the right distribution, and nothing that gives the key away.

Each statistical check raises a false alarm with a probability of at most 1e-6 over the choice of the key; the keys are
fixed, so what passes once passes always.
"""

import copy
import hashlib
import hmac
import math
import pickle
import subprocess
import sys

import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from tacit.contracts import NoiseSource, noise_source
from tacit.errors import UsageError
from tacit.split.protect.gradient.iso import iso
from tacit.split.protect.keyed_noise import KeyedNoise

CPU = torch.device("cpu")
SECRET = hashlib.sha256(b"a secret of the tests").digest()
ALARM = 1e-6
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FINE = [torch.float32, torch.float64]
KNOWN = [7499664496610971, 7904747265696105, 1427882368506478, 5735649891649220]
KNOWN_NORMALS = [1.0405484437942505, 0.10886503756046295, 0.13708080351352692]


def source(step=0, *context, secret=SECRET, purpose="tests"):
    return KeyedNoise(secret, purpose).at(step, *context)


def normal(*shape, dtype=torch.float32, of=None):
    return (of or source()).normal(shape, dtype=dtype, device=CPU)


def uniform(*shape, dtype=torch.float32, of=None):
    return (of or source()).uniform(shape, dtype=dtype, device=CPU)


# --- the stream ---


def framed(part):
    return len(part).to_bytes(8, "big") + part


def key_stream(count, step, *context, secret=SECRET, purpose=b"tests"):
    """The key stream, derived by hand."""
    text = b"tacit noise 1" + framed(purpose) + step.to_bytes(8, "big") + b"".join(framed(each) for each in context)
    cipher = Cipher(algorithms.AES(hmac.digest(secret, text, hashlib.sha256)), modes.CTR(bytes(16))).encryptor()
    return cipher.update(bytes(count))


@pytest.mark.parametrize("context", [(), (b"",), (b"", b""), (b"ab", b"c"), (b"a" * 1000,)])
@pytest.mark.parametrize("step", [0, 1, 2**63 - 1])
def test_uniforms_are_the_bits_of_the_key_stream(step, context):
    words = torch.frombuffer(bytearray(key_stream(8 * 100, step, *context)), dtype=torch.int64)
    expected = [(word % 2**53) / 2**53 for word in words.tolist()]
    assert uniform(100, dtype=torch.float64, of=source(step, *context)).tolist() == expected


def test_normals_are_box_and_muller_of_the_key_stream():
    stream = key_stream(12 * 50, 3, b"request")
    radii = [
        math.sqrt(-2 * math.log((int.from_bytes(stream[8 * i : 8 * i + 8], "little") % 2**63) / 2**63 + 2.0**-64))
        for i in range(50)
    ]
    angles = torch.frombuffer(bytearray(stream[400:]), dtype=torch.int32).tolist()
    turns = [2 * math.pi * angle / 2**32 for angle in angles]
    expected = [r * math.cos(a) for r, a in zip(radii, turns, strict=True)]
    expected += [r * math.sin(a) for r, a in zip(radii, turns, strict=True)]
    torch.testing.assert_close(normal(100, of=source(3, b"request")), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_known_answer():
    """The format is part of a run: noise that changes with a version would break the recovery of a run."""
    drawn = source(5, b"context", secret=bytes(range(32)), purpose="known answer")
    bits = drawn.uniform((4,), dtype=torch.float64, device=CPU) * 2**53
    assert [int(each) for each in bits.tolist()] == KNOWN
    torch.testing.assert_close(drawn.normal((3,), dtype=torch.float32, device=CPU), torch.tensor(KNOWN_NORMALS))


def test_calls_go_on_in_the_stream_and_begin_again_with_the_step():
    noise = KeyedNoise(SECRET, "tests")
    first, again = noise.at(4, b"x"), noise.at(4, b"x")
    calls = [(first.normal, again.normal), (first.uniform, again.uniform), (first.normal, again.normal)]
    drawn = [
        (one((7, 3), dtype=torch.float32, device=CPU), two((7, 3), dtype=torch.float32, device=CPU))
        for one, two in calls
    ]
    assert all(torch.equal(one, two) for one, two in drawn)
    assert not torch.equal(drawn[0][0], drawn[2][0])


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (source(1), source(2)),
        (source(1, b"ab", b"c"), source(1, b"a", b"bc")),
        (source(1), source(1, b"")),
        (source(1, b"x"), source(1, b"x", purpose="other")),
        (source(1, b"x"), source(1, b"x", secret=SECRET[::-1])),
        (source(0, purpose="a" + "\0" * 8), source(0, bytes(0), purpose="a")),
    ],
    ids=["step", "split", "empty", "purpose", "secret", "frame"],
)
def test_whatever_differs_gives_another_stream(one, two):
    a, b = normal(20_000, of=one), normal(20_000, of=two)
    limit = stats.norm.isf(ALARM / 2) / math.sqrt(20_000)
    assert abs((a * b).mean().item()) < limit


@pytest.mark.parametrize("dtype", FINE)
def test_the_number_of_threads_does_not_matter(dtype):
    before = torch.get_num_threads()
    try:
        drawn = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            drawn.append((normal(1000, 301, dtype=dtype), uniform(1000, 301, dtype=dtype)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for each in drawn[1:] for a, b in zip(drawn[0], each, strict=True))


def test_another_process_draws_the_same_bytes():
    code = (
        "import hashlib, sys, torch; from tacit.split.protect.keyed_noise import KeyedNoise; "
        "s = KeyedNoise(hashlib.sha256(b'a secret of the tests').digest(), 'tests').at(9, b'x'); "
        "x = s.normal((333, 101), dtype=torch.float32, device=torch.device('cpu')); "
        "print(hashlib.sha256(x.numpy().tobytes()).hexdigest())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert told.strip() == hashlib.sha256(normal(333, 101, of=source(9, b"x")).numpy().tobytes()).hexdigest()


# --- the distribution ---

MANY = 400_000


@pytest.mark.parametrize("dtype", DTYPES)
def test_normals_have_mean_0_and_variance_1(dtype):
    x = normal(MANY, dtype=dtype).double()
    wide = 1 + torch.finfo(dtype).eps  # what rounding to the dtype can add
    assert abs(x.mean().item()) < wide * stats.norm.isf(ALARM / 2) / math.sqrt(MANY)
    low, high = stats.chi2.ppf(ALARM / 2, MANY) / MANY, stats.chi2.isf(ALARM / 2, MANY) / MANY
    assert low / wide < x.square().mean().item() < high * wide


@pytest.mark.parametrize("dtype", FINE)
def test_normals_and_uniforms_pass_kolmogorov_and_smirnov(dtype):
    assert stats.kstest(normal(MANY, dtype=dtype).numpy(), "norm").pvalue > ALARM
    assert stats.kstest(uniform(MANY, dtype=dtype).numpy(), "uniform").pvalue > ALARM


def test_neighbours_and_pairs_are_independent():
    x = normal(MANY).double()
    limit = stats.norm.isf(ALARM / 2) / math.sqrt(MANY)
    for lag in (1, 2, MANY // 2, 1 << 14):  # the two of a pair lie 2^14 apart
        product = x * x.roll(lag)
        assert abs(product.mean().item()) < limit
        squares = (x.square() - 1) * (x.roll(lag).square() - 1) / 2
        assert abs(squares.mean().item()) < 2 * limit  # heavier tails than a normal: a wider limit


def test_the_tail_is_as_heavy_as_it_should_be():
    x = normal(5_000_000).abs()
    for beyond in (3.0, 4.0, 4.5, 5.0):
        expected = len(x) * 2 * stats.norm.sf(beyond)
        count = int((x > beyond).sum())
        assert stats.poisson.cdf(count, expected) > ALARM / 2
        assert stats.poisson.sf(count - 1, expected) > ALARM / 2


class _Fixed:
    """A cipher whose key stream is one byte, over and over."""

    def __init__(self, byte):
        self.byte = byte

    def update_into(self, data, buffer):
        buffer[: len(data)] = bytes([self.byte]) * len(data)


@pytest.mark.parametrize("byte", [0, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_key_stream_gives_anything_but_finite_numbers_in_range(dtype, byte):
    stream = source()
    stream._cipher = _Fixed(byte)
    x, u = normal(40, dtype=dtype, of=stream), uniform(40, dtype=dtype, of=stream)
    assert x.isfinite().all()
    assert ((u >= 0) & (u < 1)).all()
    if byte == 0:
        assert x.abs().max().item() == pytest.approx(math.sqrt(128 * math.log(2)), rel=1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_uniforms_of_every_dtype_stay_below_one(dtype):
    u = uniform(MANY, dtype=dtype)
    assert u.dtype == dtype
    assert 0 <= u.min() < 0.01
    assert 0.99 < u.max() < 1
    assert abs(u.double().mean().item() - 0.5) < 0.5 / 2**7  # bfloat16 has only multiples of 2^-8


# --- as an object ---


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5,), (2, 3, 7), (1 << 15, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_shape(shape, dtype):
    for draw in (source().normal, source().uniform):
        drawn = draw(shape, dtype=dtype, device=CPU)
        assert (drawn.shape, drawn.dtype, drawn.device) == (torch.Size(shape), dtype, CPU)
        assert drawn.is_contiguous()


def test_a_protection_draws_from_it():
    grad, labels = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0.0, 1.0] * 4)
    assert isinstance(source(), NoiseSource)
    assert noise_source(source()) is not None
    one, two = (iso(1.0)(grad, labels, source(3)).value for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, iso(1.0)(grad, labels, source(4)).value)


@pytest.mark.parametrize("thing", [KeyedNoise(SECRET, "tests"), source()], ids=["noise", "source"])
def test_the_key_stays_where_it_is(thing):
    for text in (repr(thing), str(thing), repr(vars(thing))):
        assert SECRET.hex() not in text
        assert repr(SECRET)[2:-1] not in text
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds a key"):
            act(thing)


@pytest.mark.parametrize("secret", [b"", b"x" * 31, "x" * 32, None])
def test_a_weak_secret_is_refused(secret):
    with pytest.raises(UsageError, match="at least 32 random bytes"):
        KeyedNoise(secret, "tests")


@pytest.mark.parametrize("step", [-1, 1.0, True, 2**63, None])
def test_a_step_is_a_whole_number(step):
    with pytest.raises(UsageError, match="a step is a whole number"):
        KeyedNoise(SECRET, "tests").at(step)


def test_other_dtypes_are_refused():
    for draw in (source().normal, source().uniform):
        with pytest.raises(UsageError, match="int64"):
            draw((2,), dtype=torch.int64, device=CPU)
