"""The tables of `docs/ref-protocol.md`: what another implementation would have to match, out of the code itself."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence

from docs_tables import attributes, cell, grid
from tacit.align import psi
from tacit.align.ids import LONGEST
from tacit.split import checkpoint, handshake, journal
from tacit.split.handshake import Hello
from tacit.wire import codec, network
from tacit.wire.codec import short_name
from tacit.wire.network_link import BEAT_SECONDS, SILENCE_SECONDS

_KINDS = {
    "hello": ("both", "control", "0", "the first word of a connection"),
    "refusal": (
        "both",
        "control",
        "0, or request",
        "`field` and `reason`; the connection ends, or a service's request",
    ),
    "commitment": ("both", "control", "0, 1", "alignment: sizes and nonces, then proofs; commitments to the seed"),
    "reveal": ("both", "control", "0, 1", "alignment: the nonces that were committed to"),
    "points": ("both", "uint8 (rows, 32)", "chunk", "alignment: ids as points, times the sender's key"),
    "matches": (
        "both",
        "uint8 (rows, 16)",
        "chunk",
        "alignment: the peer's points times one's key; a mask of rows",
    ),
    "embedding": ("features", "float32 (batch, *cut)", "training step", "a request: the batch's embeddings"),
    "gradient": ("label", "float32 (batch, *cut)", "training step", "its answer: the protected gradients"),
    "evaluation": ("features", "float32 (rows, *cut)", "evaluation", "a request: embeddings of rows for testing"),
    "figures": ("label", "float64 (figures,)", "evaluation", "its answer: empty, or the shared figures of the epoch"),
    "done": ("both", "uint8 (0,), or control", "0, 1", "the last turn; then the word that all of it has arrived"),
    "flips": (
        "both",
        "uint8 (bytes,)",
        "0",
        "one-shot: asked for with none; what is sent of each training row's label",
    ),
    "tokens": (
        "label",
        "uint8 (up to 4096, 16)",
        "part, or request",
        "predictions by key, and services: tokens of the ids that are asked for; embeddings answer",
    ),
    "acknowledgement": (
        "label",
        "control",
        "part",
        "one-shot: the digest of an embedding's bytes, before they are opened",
    ),
}

_HEADER = (
    ("magic", "4 bytes, the version of this layout in the last"),
    ("kind", "its number, below"),
    ("dtype", "its number, below"),
    ("dimensions", "how many of the four sides are used"),
    ("length of rows", "0 or 16"),
    ("step", "of the message"),
    ("rows", "BLAKE2b-128 of the batch's row numbers in order, 8 bytes each, little endian; zeros where there is none"),
    ("shape", "four sides; those not used are 0"),
    ("bytes in all", "of the whole tensor"),
    ("offset", "of this frame's piece in the tensor"),
)

_HEAD = ("magic", "version", "unused", "mark", "first turn", "stale", "chain")
_RECORD = ("mark", "kind", "parts", "peer's length", "unused", "turn", "durable", "digest", "chain")


def tables() -> dict[str, str]:
    """Every table of the page, by its name."""
    kinds = [
        (str(number), f"`{kind}`", *map(cell, _KINDS[kind][:3]), cell(_KINDS[kind][3]))
        for number, kind in enumerate(codec.KINDS)
    ]
    return {
        "versions": grid(("what", "value"), _versions()),
        "limits": grid(("what", "value"), _bounds()),
        "header": grid(("field", "at", "bytes", "meaning"), _layout(codec.LAYOUT, _HEADER)),
        "kinds": grid(("number", "kind", "sent by", "payload", "step", "what it is"), kinds),
        "dtypes": grid(
            ("number", "dtype"), [(str(number), short_name(one)) for number, one in enumerate(codec.DTYPES)]
        ),
        "hello": grid(
            ("field", "type", "must be equal", "meaning"),
            [
                (f"`{name}`", str(Hello.__annotations__[name]), "yes" if name in handshake._EQUAL else "", cell(said))
                for name, said in attributes(Hello).items()
            ],
        ),
        "segment": grid(("field", "at", "bytes"), _places(journal.HEAD, _HEAD)),
        "record": grid(("field", "at", "bytes"), _places(journal.FIXED, _RECORD)),
    }


def _versions() -> list[tuple[str, str]]:
    return [
        ("protocol, in every hello", str(codec.PROTOCOL)),
        ("magic of a frame", f"`{_spelled(codec.MAGIC)}`"),
        ("alignment, in its first commitment", f'`"{psi._PROTOCOL}"`'),
        ("magic and version of a journal's segment", f"`{_spelled(journal.MAGIC)}`, {journal.VERSION}"),
        ("format of a checkpoint", f'`"{checkpoint._FORMAT}"`'),
        ("listener's first frame", f'`"{network.WELCOME.decode()}"`'),
    ]


def _bounds() -> list[tuple[str, str]]:
    return [
        ("header of a frame", f"{codec.HEADER} bytes"),
        ("longest frame, header included", f"{codec.FRAME:,} bytes"),
        ("longest control message", f"{codec.LONGEST:,} bytes of JSON, nested at most {codec.DEPTH} deep"),
        ("largest number in an embedding or gradient", f"{codec.LARGEST:,.0f} either way, and finite"),
        ("dimensions of a tensor", str(codec.DIMENSIONS)),
        ("rows of a full chunk of points", f"{psi.CHUNK:,}"),
        ("chunks of points without their products", str(psi.WINDOW)),
        ("bytes that are kept of a product", str(psi.SHORT)),
        ("longest id", f"{LONGEST:,} bytes"),
        (
            "connections at a time, of anybody",
            f"{network.CONNECTIONS:,}, or half of the files that may be open",
        ),
        ("time to show a certificate", f"{network.HANDSHAKE_SECONDS:g} s"),
        ("links of one peer at a time", str(network.STREAMS)),
        ("heartbeat, and how long a peer may be silent", f"{BEAT_SECONDS:g} s, {SILENCE_SECONDS:g} s"),
        ("parts of a journal's record, at most", str(journal.MAX_PARTS)),
        ("peer's name, at most", f"{journal.MAX_PEER} bytes in the journal, 63 characters in a certificate"),
    ]


def _spelled(raw: bytes) -> str:
    return repr(raw)[2:-1]


def _sizes(layout: struct.Struct) -> Iterator[int]:
    for count, letter in re.findall(r"(\d*)([a-zA-Z])", layout.format):
        if letter in "sx":
            yield int(count or 1)
        else:
            yield from [struct.calcsize(f"<{letter}")] * int(count or 1)


def _spans(layout: struct.Struct, fields: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Each field with its place; the four sides of a shape are one field."""
    at, sizes = 0, list(_sizes(layout))
    for name in fields:
        size = sum(sizes.pop(0) for _ in range(codec.DIMENSIONS if name == "shape" else 1))
        yield name, str(at), str(size)
        at += size
    if sizes or at != layout.size:
        raise ValueError(f"the layout {layout.format} has other fields than {fields}: mend this script")


def _layout(layout: struct.Struct, fields: Sequence[tuple[str, str]]) -> list[tuple[str, ...]]:
    spans = _spans(layout, [name for name, _ in fields])
    return [(*span, cell(said)) for span, (_, said) in zip(spans, fields, strict=True)]


def _places(layout: struct.Struct, fields: Sequence[str]) -> list[tuple[str, str, str]]:
    return list(_spans(layout, fields))
