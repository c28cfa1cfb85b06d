"""The codec: what is sent comes out bit for bit, and what does not fit is refused before memory is taken."""

import hashlib
import importlib.util
import math
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings

from tacit.contracts import Message
from tacit.errors import ProtocolError, TensorError, UsageError
from tacit.wire import codec
from tacit.wire.codec import (
    CONTROL,
    DTYPES,
    FRAME,
    HEADER,
    KINDS,
    Assembler,
    AtMost,
    Limit,
    control,
    encode,
    kept,
    read_kept,
)  # fmt: skip
from tests.wire.any_message import ROWS, assert_same, bits, exactly, messages, through

CHUNK = FRAME - HEADER


@given(messages())
@settings(max_examples=300, deadline=None)
def test_what_is_sent_comes_out_bit_for_bit(message):
    before = bits(message.payload)
    found = through(message)
    assert_same(found, message)
    assert found.payload.is_contiguous()
    assert found.payload.data_ptr() % 64 == 0
    assert bits(message.payload) == before
    most = Limit(message.payload.dtype, tuple(AtMost(side) for side in message.payload.shape))
    assert_same(through(message, {message.kind: most}), message)


def test_what_comes_out_is_no_view_of_the_frame():
    frame = bytearray(encode(Message(0, "embedding", torch.ones(4), b""))[0])
    found = Assembler({"embedding": Limit(torch.float32, (4,))}).feed(frame)
    frame[HEADER:] = bytes(16)
    assert found.payload.tolist() == [1.0] * 4


@pytest.mark.parametrize("count", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 5])
def test_frames_are_full_but_the_last(count):
    payload = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
    sent = Message(3, "points", payload, ROWS)
    found = encode(sent)
    assert len(found) == max(1, math.ceil(count / CHUNK))
    assert [len(frame) for frame in found[:-1]] == [FRAME] * (len(found) - 1)
    assert sum(len(frame) - HEADER for frame in found) == count
    assert_same(through(sent), sent)


def test_a_parameter_a_slice_and_a_negated_view_can_be_sent():
    parameter = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    assert through(Message(0, "embedding", parameter, b"")).payload.tolist() == parameter.tolist()
    negated = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert negated.is_neg()
    assert through(Message(0, "embedding", negated, b"")).payload.tolist() == [-2.0, 4.0]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"kind": "loss"}, UsageError, "no message is of kind 'loss'"),
        ({"step": -1}, UsageError, "step -1"),
        ({"step": 2**64}, UsageError, "step 18446744073709551616"),
        ({"step": True}, UsageError, "step True"),
        ({"rows": b"short"}, UsageError, "rows are 5 bytes"),
        ({"payload": torch.zeros(1, dtype=torch.complex64)}, TensorError, "complex64 does not cross"),
        ({"payload": torch.zeros(1, dtype=torch.bool)}, TensorError, "bool does not cross"),
        ({"payload": torch.zeros(1, 1, 1, 1, 1)}, TensorError, "no place in a header"),
        ({"payload": torch.zeros(2, device="meta")}, TensorError, "send a dense one"),
        ({"payload": torch.zeros(2).to_sparse()}, TensorError, "send a dense one"),
    ],
)
def test_what_can_not_be_sent_says_so(change, error, words):
    fields = {"step": 0, "kind": "embedding", "payload": torch.zeros(2), "rows": b"", **change}
    with pytest.raises(error, match=words):
        encode(Message(**fields))


# --- what is refused -------------------------------------------------------------------------------------------------


def refuses(assembler, frame, words=""):
    with pytest.raises(ProtocolError, match=words):
        assembler.feed(frame)
    with pytest.raises(ProtocolError, match="nothing more is read after what was refused before"):
        assembler.feed(encode(Message(0, "embedding", torch.zeros(2, 3), b""))[0])


def sample(dtype=torch.float32, rows=ROWS):
    return Message(9, "embedding", torch.arange(6).reshape(2, 3).to(dtype), rows)


@pytest.mark.parametrize("rows", [b"", ROWS])
@pytest.mark.parametrize("exact", [True, False])
def test_every_flipped_bit_of_a_header_is_refused_or_changes_step_or_rows_alone(rows, exact):
    sent = sample(rows=rows)
    frame = encode(sent)[0]
    limits = exactly(sent) if exact else {"embedding": Limit(torch.float32, (AtMost(10**6), AtMost(10**6)))}
    accepted = Counter()
    for bit in range(8 * HEADER):
        bent = bytearray(frame)
        bent[bit // 8] ^= 1 << bit % 8
        try:
            found = Assembler(limits).feed(bytes(bent))
        except ProtocolError:
            continue
        assert (found.kind, found.payload.dtype, found.payload.shape) == ("embedding", torch.float32, (2, 3))
        assert bits(found.payload) == bits(sent.payload)
        assert (found.step != sent.step) != (found.rows != sent.rows)
        accepted["step" if found.step != sent.step else "rows"] += 1
    assert accepted == {"step": 64, "rows": 128 if rows else 1}  # the one: sixteen zeros in the place of none


def test_every_truncation_and_extension_is_refused():
    frame = encode(sample())[0]
    for length in range(len(frame)):
        with pytest.raises(ProtocolError):
            Assembler(exactly(sample())).feed(frame[:length])
    for more in (b"\0", b"\0" * 4, frame):
        with pytest.raises(ProtocolError):
            Assembler(exactly(sample())).feed(frame + more)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, "embedding of step 9: not expected at this point, where nothing may come"),
        ({"gradient": CONTROL, "hello": CONTROL}, "embedding of step 9: not expected .* gradient, hello may come"),
        (
            {"embedding": Limit(torch.float64, (2, 3))},
            r"embedding of step 9: float32 \(2, 3\) came, float64 \(2, 3\) is",
        ),
        ({"embedding": Limit(torch.float32, (2, 4))}, r"\(2, 3\) came, float32 \(2, 4\) is agreed"),
        ({"embedding": Limit(torch.float32, (AtMost(1), 3))}, r"\(2, 3\) came, float32 \(<=1, 3\) is agreed"),
        ({"embedding": Limit(torch.float32, (6,))}, r"\(2, 3\) came, float32 \(6\) is agreed"),
        ({"embedding": Limit(torch.float32, ())}, r"\(2, 3\) came, float32 \(\) is agreed"),
    ],
)
def test_what_was_not_agreed_is_refused_by_name(limits, words):
    refuses(Assembler(limits), encode(sample())[0], words)


def header(**changes):
    names = ("magic", "kind", "dtype", "ndim", "rows_length", "step", "rows", "s0", "s1", "s2", "s3", "total", "offset")
    fields = dict(zip(names, codec.LAYOUT.unpack_from(encode(sample())[0]), strict=True))
    return codec.LAYOUT.pack(*(fields | changes).values())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"magic": b"TAC\x01"}, "begins with .* another program or version"),
        ({"kind": len(KINDS)}, f"kind {len(KINDS)}, .* no such message"),
        ({"dtype": len(DTYPES)}, f"dtype {len(DTYPES)}, .* no such message"),
        ({"ndim": 5}, "5 dimensions"),
        ({"rows_length": 8}, "rows of 8 bytes"),
        ({"rows_length": 0}, "bytes set that mean nothing"),
        ({"s2": 1}, "bytes set that mean nothing"),
        ({"total": 25}, r"25 bytes are announced for float32 \(2, 3\)"),
        ({"total": 2**64 - 1}, "bytes are announced"),
        ({"offset": 4}, "begins at byte 4: its first frames are missing"),
    ],
)
def test_a_header_that_does_not_add_up_is_refused(changes, words):
    refuses(Assembler(exactly(sample())), header(**changes) + bytes(24), words)


@pytest.mark.parametrize("limit", [(2, 3), (AtMost(1000), AtMost(1000))])
def test_huge_sizes_are_refused_before_memory_is_taken(limit, monkeypatch):
    monkeypatch.setattr(torch, "empty", None)  # nothing may be asked for at all
    claims = [(2**32 - 1, 3), (2, 2**32 - 1), (2**31, 2**31), (1001, 1000)]
    tracemalloc.start()
    for rows, columns in claims:
        frame = header(s0=rows, s1=columns, total=(4 * rows * columns) % 2**64) + bytes(24)
        with pytest.raises(ProtocolError, match="is agreed"):
            Assembler({"embedding": Limit(torch.float32, limit)}).feed(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.is_floating_point], ids=str)
@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("length", [1, 3, 16, 67])
def test_numbers_that_are_not_finite_are_refused_wherever_they_are(dtype, value, length):
    for place in range(length):
        payload = torch.ones(length, dtype=dtype)
        payload[place] = value
        sent = Message(4, "gradient", payload, b"")
        with pytest.raises(ProtocolError, match=f"gradient of step 4: 1 of {length} numbers are not finite"):
            through(sent)


def test_the_largest_finite_numbers_and_both_zeros_pass():
    for dtype in (dtype for dtype in DTYPES if dtype.is_floating_point):
        info = torch.finfo(dtype)
        sent = Message(0, "gradient", torch.tensor([info.max, info.min, info.tiny, -0.0, 0.0], dtype=dtype), b"")
        assert_same(through(sent), sent)


def test_numbers_that_are_too_large_are_refused():
    limits = {"gradient": Limit(torch.float32, (2,), largest=1e6)}
    for value in (2e6, -2e6):
        with pytest.raises(ProtocolError, match=r"gradient of step 0: it holds numbers beyond 1e\+06: look at inputs"):
            Assembler(limits).feed(*encode(Message(0, "gradient", torch.tensor([0.0, value]), b"")))
    assert Assembler(limits).feed(*encode(Message(0, "gradient", torch.tensor([1e6, -1e6]), b""))) is not None


def test_what_a_journal_keeps_is_read_back_and_is_what_the_fingerprint_is_of():
    limits = {"gradient": Limit(torch.float32, (AtMost(9), 3))}
    for payload in (torch.randn(2, 3), torch.randn(3, 2).T, torch.empty(0, 3)):
        message = Message(3, "gradient", payload, ROWS)
        parts = kept(message)
        assert hashlib.sha256(b"".join(parts)).digest() == message.fingerprint
        found = read_kept(parts, limits)
        assert_same(found, message)
        assert found.fingerprint == message.fingerprint
    with pytest.raises(ProtocolError, match="is not what was agreed"):
        read_kept(kept(Message(3, "embedding", payload, ROWS)), limits)


def test_what_is_given_away_as_a_tensor_is_not_copied():
    given = [torch.tensor(list(frame), dtype=torch.uint8) for frame in encode(sample())]
    found = Assembler({"embedding": Limit(torch.float32, (2, 3))}).feed(*given)
    assert_same(found, sample())
    assert encode(found) == encode(sample())
    assert found.payload.data_ptr() == given[0].data_ptr() + codec.HEADER
    assert found.payload.data_ptr() % 64 == 0, "as torch aligns it"


def test_what_came_in_one_frame_keeps_it():
    (frame,) = encode(Message(3, "gradient", torch.ones(2, 3), ROWS))
    assert encode(through(Message(3, "gradient", torch.ones(2, 3), ROWS))) == [frame]
    sent, many = chunks()
    assert encode(through(sent)) == many


def chunks():
    payload = torch.arange(2 * CHUNK + 9).remainder(251).to(torch.uint8)
    sent = Message(1, "points", payload, b"")
    return sent, encode(sent)


@pytest.mark.parametrize(
    ("order", "fails"),
    [((1,), 0), ((2,), 0), ((0, 2), 1), ((0, 0), 1), ((0, 1, 1), 2), ((0, 1, 0), 2), ((0, 1, 2, 2), 3)],
)
def test_frames_out_of_order_missing_or_twice_are_refused(order, fails):
    sent, right = chunks()
    assembler = Assembler(exactly(sent))
    for place in order[:fails]:
        found = assembler.feed(right[place])
    if fails == 3:
        assert_same(found, sent)
    refuses(assembler, right[order[fails]], "first frames are missing|must come next")


def test_messages_do_not_interleave():
    sent, right = chunks()
    other = encode(Message(2, "points", sent.payload, b""))
    for intruder in (other[0], other[1], encode(sample())[0]):
        assembler = Assembler(exactly(sent) | exactly(sample()))
        assembler.feed(right[0])
        refuses(assembler, intruder, "must come next, and another frame came")


def test_frames_are_not_cut_elsewhere():
    sent, right = chunks()
    assembler = Assembler(exactly(sent))
    refuses(assembler, right[0][:-1], "frames must be full but for the last")
    assembler = Assembler(exactly(sent))
    assembler.feed(right[0])
    assembler.feed(right[1])
    refuses(assembler, right[2] + b"\0", "frames must be full")
    refuses(Assembler(exactly(sent)), right[0] + b"\0", f"a frame of {FRAME + 1} bytes")


def test_limits_can_be_replaced_between_messages():
    assembler = Assembler({"hello": CONTROL})
    assembler.feed(encode(control("hello", 0, {}))[0])
    assembler.limits = exactly(sample())
    assert_same(assembler.feed(encode(sample())[0]), sample())
    refuses(assembler, encode(control("hello", 0, {}))[0], "hello of step 0: not expected .* embedding may come")


def test_limits_that_nothing_could_meet_are_refused():
    with pytest.raises(UsageError, match="no message is of kind loss"):
        Assembler({"loss": CONTROL})
    for dtype, shape in ((torch.bool, (1,)), (torch.float32, (1,) * 5)):
        with pytest.raises(UsageError, match="no such message can be sent"):
            Limit(dtype, shape)
    for shape in ((-1,), (AtMost(2**30), AtMost(2**30)), (0, AtMost(2**32), 2**32)):
        with pytest.raises(UsageError, match="no memory holds that"):
            Limit(torch.float32, shape)


def test_a_short_run_of_the_fuzzer_finds_nothing():
    spec = importlib.util.spec_from_file_location("fuzz_codec", Path(__file__).parents[2] / "scripts" / "fuzz_codec.py")
    fuzzer = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_codec"] = fuzzer  # where its dataclasses look for their names
    spec.loader.exec_module(fuzzer)
    tally = fuzzer.fuzz(20_000, seed=7)
    assert tally.frames.total() >= 20_000
    assert tally.messages > 5_000
    assert all(tally.refused[bend.__name__] > 0 for bend in fuzzer.BENDS if bend is not fuzzer.untouched)
    assert codec.FRAME == FRAME
