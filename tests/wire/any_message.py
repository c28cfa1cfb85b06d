"""Messages of any kind, dtype, shape and strides, and what becomes of one that goes through the codec."""

import torch
from hypothesis import strategies as st

from tacit.contracts import Message
from tacit.wire.codec import DTYPES, KINDS, Assembler, Limit, encode

ROWS = bytes(range(1, 17))


def exactly(message):
    """Limits that allow messages of this dtype and shape alone."""
    return {message.kind: Limit(message.payload.dtype, tuple(message.payload.shape))}


def bits(tensor):
    """All bits, in a way that has nothing in common with the codec's."""
    return tensor.numpy().tobytes()


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
