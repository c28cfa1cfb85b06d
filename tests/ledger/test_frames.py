"""How records lie in bytes: what is read is what was written, or nothing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import StorageError
from tacit.ledger import log as frames
from tacit.ledger.book import Answer, chained, encode_fact, read_fact
from tacit.ledger.run import ANSWERS

NUMBER = st.integers(0, 2**32 - 1)
ANSWER = st.builds(
    Answer,
    kind=st.sampled_from(ANSWERS),
    run=NUMBER,
    step=NUMBER,
    turn=NUMBER,
    rows=st.binary(min_size=16, max_size=16),
    event=st.integers(0, 2**16 - 1),
    form=st.integers(0, 255),
    figures=st.lists(st.floats(allow_nan=False), max_size=6).map(tuple),
)
FACT = st.dictionaries(st.text(max_size=8), st.one_of(st.none(), st.integers(), st.text(max_size=20)), max_size=4)


def written(things):
    """The beginning of a file and all of it, with the chain after the beginning and where each record ends."""
    raw, start = frames.begin(b"s" * 16)
    chain, ends = start, [len(raw)]
    for thing in things:
        body = thing.encoded() if isinstance(thing, Answer) else encode_fact("event", thing)
        chain = chained(chain, body)
        raw += body + chain
        ends.append(len(raw))
    return raw, start, ends


def read(raw, chain):
    found = frames.records(raw[frames.HEAD_SIZE :], frames.HEAD_SIZE, chain)
    return [Answer.decoded(frame.body) if frame.kind in ANSWERS else read_fact(frame.body) for frame in found]


@given(st.lists(st.one_of(ANSWER, FACT), max_size=5))
def test_what_was_written_is_read(things):
    raw, chain, ends = written(things)
    assert frames.read_head(None, raw) == (b"s" * 16, chain)
    assert read(raw, chain) == things
    frames_read = list(frames.records(raw[frames.HEAD_SIZE :], frames.HEAD_SIZE, chain))
    assert [frame.start for frame in frames_read] + [ends[-1]] == ends


@given(st.lists(st.one_of(ANSWER, FACT), min_size=1, max_size=4), st.data())
def test_cut_or_changed_at_any_byte_only_what_stands_before_is_read(things, data):
    raw, chain, ends = written(things)
    place = data.draw(st.integers(frames.HEAD_SIZE, len(raw) - 1))
    whole = sum(end <= place for end in ends) - 1
    assert read(raw[:place], chain) == things[:whole]
    changed = bytearray(raw)
    changed[place] ^= data.draw(st.integers(1, 255))
    assert read(bytes(changed), chain) == things[:whole]


@given(st.lists(ANSWER, min_size=2, max_size=4, unique=True), st.data())
def test_a_record_left_out_moved_or_repeated_breaks_the_chain(things, data):
    raw, chain, ends = written(things)
    place = data.draw(st.integers(0, len(things) - 2))
    pieces = [raw[start:end] for start, end in pairwise(ends)]
    for order in (
        [*pieces[:place], *pieces[place + 1 :]],
        [*pieces[:place], pieces[place + 1], pieces[place], *pieces[place + 2 :]],
        [*pieces[: place + 1], pieces[place], *pieces[place + 1 :]],
    ):
        said = read(raw[: frames.HEAD_SIZE] + b"".join(order), chain)
        assert said == things[: len(said)]
        assert len(said) <= place + 1


def test_every_byte_of_the_beginning_counts(tmp_path):
    raw, _, _ = written([])
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1
        with pytest.raises(StorageError, match=r"damaged at byte 0|version"):
            frames.read_head(tmp_path / "log", bytes(changed))
    with pytest.raises(StorageError, match="does not begin"):
        frames.read_head(tmp_path / "log", raw[:-1])
