"""The codec: what is sent comes out bit for bit, and what does not fit is refused before memory is taken."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.contracts import Message
from tacit.errors import TensorError, UsageError
from tacit.wire.codec import (
    DTYPES,
    FRAME,
    HEADER,
    KINDS,
    Assembler,
    AtMost,
    Limit,
    encode,
)

ROWS = bytes(range(1, 17))
CHUNK = FRAME - HEADER


def exactly(message):
    """Limits that allow messages of this dtype and shape alone."""
    return {message.kind: Limit(message.payload.dtype, tuple(message.payload.shape))}


def bits(tensor):
    """All bits, in a way that has nothing in common with the codec's; bfloat16 fits into float32 exactly."""
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy().tobytes()


def assert_same(one, other):
    assert (one.step, one.kind, one.rows) == (other.step, other.kind, other.rows)
    assert one.payload.dtype is other.payload.dtype
    assert one.payload.shape == other.payload.shape
    assert bits(one.payload) == bits(other.payload)


def through(message, limits=None):
    assembler = Assembler(limits or exactly(message))
    *first, last = [assembler.feed(frame) for frame in encode(message)]
    assert first == [None] * len(first)
    return last


@st.composite
def tensors(draw):
    """A tensor of any dtype and shape that is allowed, contiguous or a view with any strides; all bits are random."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    seed = draw(st.integers(0, 2**32))
    generator = torch.Generator().manual_seed(seed)
    steps = [draw(st.integers(1, 3)) for _ in shape]
    wide = [side * step + 1 for side, step in zip(shape, steps, strict=True)]
    whole = torch.randint(0, 256, (*wide, dtype.itemsize), generator=generator, dtype=torch.uint8)
    whole = whole.view(dtype).squeeze(-1) if dtype.itemsize > 1 else whole.squeeze(-1)
    if dtype.is_floating_point:
        whole = torch.where(torch.isfinite(whole), whole, torch.zeros((), dtype=dtype))
    view = whole[tuple(slice(0, side * step, step) for side, step in zip(shape, steps, strict=True))]
    return view.permute(draw(st.permutations(range(len(shape)))))


@st.composite
def messages(draw):
    return Message(
        draw(st.integers(0, 2**64 - 1)),
        draw(st.sampled_from(KINDS)),
        draw(tensors()),
        draw(st.sampled_from([b"", ROWS])),
    )


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
