"""Small objects as messages: they come back as they were, and what is not plain is refused on both sides."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.contracts import Message
from tacit.errors import ProtocolError, UsageError
from tacit.wire.codec import CONTROL, Assembler, control, encode, read_control

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), plain, max_size=5))
@settings(max_examples=150, deadline=None)
def test_objects_come_back_as_they_were(mapping):
    sent = control("hello", 3, mapping)
    (frame,) = encode(sent)
    found = read_control(Assembler({"hello": CONTROL}).feed(frame))
    assert found == mapping
    assert encode(control("hello", 3, found)) == [frame]


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"a": math.nan}, "nan is not finite"),
        ({"a": [math.inf]}, "inf is not finite"),
        ({"a": {1: 2}}, r"keys must be text, not \[1\]"),
        ({"a": b"bytes"}, "a bytes is no plain value"),
        ({"a": (1, 2)}, "a tuple is no plain value"),
        ({"a": 2**63}, "more than 64 bits"),
        ({"a": "\ud800"}, "half a character"),
        ({"a": "x" * 65_536}, "65544 bytes of JSON: 65536 are the most"),
    ],
)
def test_objects_that_are_not_plain_are_not_sent(mapping, words):
    with pytest.raises(UsageError, match=rf"hello of step 3: .*{words}"):
        control("hello", 3, mapping)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "can't be read"),
        (b"[1]", "is a list, not an object"),
        (b"7", "is a int, not an object"),
        (b'{"a":1,"a":2}', "a key is there twice"),
        (b'{"b":{"a":1,"a":1}}', "a key is there twice"),
        (b'{"a":NaN}', "NaN is not a number"),
        (b'{"a":-Infinity}', "-Infinity is not a number"),
        (b'{"a":1e999}', "inf is not finite"),
        (b'{"a":' + b"9" * 5000 + b"}", "can't be read|64 bits"),
        (b'{"a":9223372036854775808}', "64 bits"),
        (b'{"a":"\\ud800"}', "half a character"),
        (b'{"\\udfff":1}', "half a character"),
        (b'{"a":"\xff"}', "can't be read"),
        (b"\xef\xbb\xbf{}", "can't be read"),
        (b"{} {}", "can't be read"),
        (b'{"a":' + b"[" * 60_000, "nested too deeply|can't be read"),
        (b'{"a":' + b"[" * 20 + b"]" * 20 + b"}", "nested more than 16"),
    ],
)
def test_bytes_that_are_no_plain_object_are_refused(text, words):
    message = Message(2, "refusal", torch.tensor(list(text), dtype=torch.uint8), b"")
    with pytest.raises(ProtocolError, match=f"refusal of step 2: .*({words})"):
        read_control(message)


def test_tensors_that_are_no_bytes_are_no_object():
    for payload in (torch.zeros(2), torch.zeros(2, 2, dtype=torch.uint8), torch.zeros(65_537, dtype=torch.uint8)):
        with pytest.raises(ProtocolError, match="is no object in JSON"):
            read_control(Message(0, "hello", payload, b""))
