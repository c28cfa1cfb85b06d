"""A message's fingerprint: everything that it says, and the same for ever."""

import hashlib

import torch
from hypothesis import given, settings

from tacit.contracts import Message
from tacit.wire.codec import encode
from tests.wire.any_message import ROWS, messages, through


@given(messages(), messages())
@settings(max_examples=200, deadline=None)
def test_fingerprints_are_equal_for_equal_messages_alone(one, other):
    same = encode(one) == encode(other)
    assert (one.fingerprint == other.fingerprint) == same
    assert through(one).fingerprint == one.fingerprint


def test_everything_that_a_message_says_is_in_its_fingerprint():
    zeros = torch.zeros(2, 2)
    variants = [
        Message(0, "embedding", zeros, ROWS),
        Message(1, "embedding", zeros, ROWS),
        Message(256, "embedding", zeros, ROWS),
        Message(0, "gradient", zeros, ROWS),
        Message(0, "embedding", zeros, b""),
        Message(0, "embedding", zeros, bytes(16)),
        Message(0, "embedding", zeros, ROWS[:-1] + b"\0"),
        Message(0, "embedding", -zeros, ROWS),
        Message(0, "embedding", zeros.reshape(4), ROWS),
        Message(0, "embedding", zeros.reshape(1, 4), ROWS),
        Message(0, "embedding", zeros.reshape(4, 1), ROWS),
        Message(0, "embedding", zeros.reshape(2, 2, 1), ROWS),
        Message(0, "embedding", torch.zeros(2, 1, dtype=torch.float64), ROWS),
        Message(0, "embedding", torch.zeros(2, 4, dtype=torch.float16), ROWS),
        Message(0, "embedding", torch.zeros(2, 4, dtype=torch.bfloat16), ROWS),
        Message(0, "embedding", torch.zeros(0, 2), ROWS),
        Message(0, "embedding", torch.zeros(2, 0), ROWS),
        Message(0, "embeddin", zeros, b"g" + ROWS),  # bytes may not move between neighbours either
        Message(0, "embedding", torch.zeros(0), ROWS + bytes(16)),
        Message(0, "embedding", torch.zeros(4), ROWS),
    ]
    assert len({variant.fingerprint for variant in variants}) == len(variants) - 1  # reshape(4) is there twice


def test_a_fingerprint_by_hand():
    """Journals keep fingerprints, so they may not change with the code."""
    message = Message(258, "done", torch.tensor([[1, 2, 3]], dtype=torch.uint8), ROWS)
    whole = f"4 done 258 {ROWS.hex()} torch.uint8 (1 3)\n".encode() + b"\1\2\3"
    assert message.fingerprint == hashlib.sha256(whole).digest()
