"""What a peer says reaches terminals and logs as plain characters, and not without end."""

import pytest

from benchmarks._memory_links import links
from tacit.align.control import decoded, expect
from tacit.errors import ProtocolError, RefusedError
from tacit.wire.codec import control
from tacit.wire.line import refused_by

NASTY = "a\x1b[2J\x1b]0;title\x07b\nc\rd\x00e\x9bf\u202eg\u2028h"


def from_line(message):
    return refused_by(message, "airport")


def from_alignment(message):
    said, heard = links(names=("airport", "airline"))
    said.send(message)
    with pytest.raises(RefusedError) as caught:
        expect(heard, "commitment", 0, patience=1.0)
    return caught.value


@pytest.mark.parametrize("read", [from_line, from_alignment])
def test_a_refusal_in_control_characters(read):
    error = read(control("refusal", 0, {"field": NASTY, "reason": NASTY}))
    assert str(error).isprintable()
    assert error.field.isprintable()
    assert str(error).endswith("a?[2J?]0;title?b?c?d?e?f?g?h")


@pytest.mark.parametrize("read", [from_line, from_alignment])
def test_a_refusal_in_good_words_stays_as_it_is(read):
    error = read(control("refusal", 0, {"field": "rows", "reason": "nicht dieselben Zeilen: zwölf, [/a]"}))
    assert error.field == "rows"
    assert str(error).endswith("nicht dieselben Zeilen: zwölf, [/a]")


@pytest.mark.parametrize("read", [from_line, from_alignment])
def test_a_refusal_without_end(read):
    error = read(control("refusal", 0, {"field": "f" * 9000, "reason": "r" * 9000}))
    assert len(error.field) == 100
    assert len(str(error)) < 2300


def test_names_of_fields_that_nobody_asked_for():
    with pytest.raises(ProtocolError) as caught:
        decoded(control("count", 0, {NASTY: 1, "x" * 9000: 2}), {"count": int})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
