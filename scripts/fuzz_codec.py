"""Throws valid, bent and random frames at the codec, and judges what it does by what may never happen.

    python scripts/fuzz_codec.py --frames 1000000 --seed 1

For every frame: no exception but ProtocolError, and an answer in bounded time. For every accepted message: its own
encoding is, byte for byte, what was fed. For every refusal: what was delivered before is untouched, the assembler is
dead and holds nothing, and the right frames up to there and after it are taken by another one as if nothing had been.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from tacit.contracts import Message
from tacit.errors import ProtocolError
from tacit.wire import codec
from tacit.wire.codec import CONTROL, Assembler, AtMost, Limit

LIMITS = {
    "embedding": Limit(torch.float32, (8, 4)),
    "gradient": Limit(torch.float64, (AtMost(9), 7)),
    "evaluation": Limit(torch.float64, (AtMost(5), AtMost(4), 3, 2)),
    "points": Limit(torch.uint8, (AtMost(40), 32)),
    "matches": Limit(torch.uint8, (AtMost(64),)),
    "figures": Limit(torch.float64, ()),
    "hello": CONTROL,
}
SLOWEST = 1.0  # seconds that one frame may take; they take microseconds
EDGES = [0, 1, 2, 4, 5, 15, 16, 17, 32, 63, 64, 127, 128, 255, 2**16, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
WIDTHS = (None, 8, 8, 8, 8, 64, None, 32, 32, 32, 32, 64, 64)  # bits of the header's fields, those that are numbers
TEXTS = ['{"a":1}', '{"a":{"b":[1,2.5,null,true,"x"]}}', '{"a":NaN}', '{"a":1e999}', '{"a":1,"a":2}', "[1]", "[" * 500]
TEXTS += ['"\\ud800"', '{"\\ud800":1}', "", "{", "nul", '{"a":' * 300, "9" * 5000, '{"a":' + "9" * 30 + "}", "\ufeff{}"]


@dataclass
class Tally:
    """What was done, and what came of it."""

    frames: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    slowest: float = 0.0


@contextmanager
def short_frames(length: int = 320) -> Iterator[None]:
    """Frames of a few bytes, so that messages of several are as cheap as those of one."""
    before = codec.FRAME, codec.CHUNK
    codec.FRAME, codec.CHUNK = length, length - codec.HEADER
    try:
        yield
    finally:
        codec.FRAME, codec.CHUNK = before


def message(rng: random.Random) -> Message:
    """A message that the limits allow."""
    kind = rng.choice(list(LIMITS))
    rows = rng.choice([b"", rng.randbytes(16)])
    step = rng.choice([0, 1, rng.randrange(2**64)])
    if kind == "hello":
        return codec.control(kind, step, {"name": "x" * rng.randrange(400), "step": rng.randrange(99)})
    limit = LIMITS[kind]
    shape = [rng.randrange(side.count + 1) if isinstance(side, AtMost) else side for side in limit.shape]
    generator = torch.Generator().manual_seed(rng.randrange(2**32))
    payload = torch.randint(0, 100, shape, generator=generator, dtype=torch.int64).to(limit.dtype)
    return Message(step, kind, payload, rows)


# --- what is bent: each takes the right frames and a place, and returns the frames to feed ---------------------------


def flip(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    bent = bytearray(frames[place])
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        at = rng.randrange(min(len(bent), rng.choice([codec.HEADER, len(bent)])))
        bent[at] ^= 1 << rng.randrange(8)
    return [*frames[:place], bytes(bent), *frames[place + 1 :]]


def set_field(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    fields = list(codec.LAYOUT.unpack_from(frames[place]))
    which = rng.randrange(len(fields))
    width = WIDTHS[which]
    if width is None:
        fields[which] = rng.randbytes(len(fields[which]))
    else:
        fields[which] = rng.choice([*EDGES, fields[which] + 1, fields[which] - 1, rng.randrange(2**64)]) % 2**width
    return [*frames[:place], codec.LAYOUT.pack(*fields) + frames[place][codec.HEADER :], *frames[place + 1 :]]


def huge(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    """Dimensions and a length that agree with each other and with nothing that was allowed."""
    fields = list(codec.LAYOUT.unpack_from(frames[place]))
    shape = [rng.choice([1, 2**20, 2**31, 2**32 - 1]) for _ in range(4)]
    fields[3], fields[7:11] = 4, shape
    fields[11] = (shape[0] * shape[1] * shape[2] * shape[3] * rng.choice([1, 2, 4, 8])) % 2**64
    return [*frames[:place], codec.LAYOUT.pack(*fields) + frames[place][codec.HEADER :], *frames[place + 1 :]]


def resize(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    frame = frames[place]
    cut = rng.choice([frame[: rng.randrange(len(frame))], frame + rng.randbytes(rng.choice([1, 8, 500]))])
    return [*frames[:place], cut, *frames[place + 1 :]]


def drop(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    return frames[:place] + frames[place + 1 :]


def repeat(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    return frames[: place + 1] + frames[place:]


def swap(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    other = rng.randrange(len(frames))
    bent = list(frames)
    bent[place], bent[other] = bent[other], bent[place]
    return bent


def interleave(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    return [*frames[:place], *codec.encode(message(rng)), *frames[place:]]


def noise(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    return [*frames[:place], rng.randbytes(rng.choice([0, 1, 63, 64, 65, 320, 321])), *frames[place:]]


def not_finite(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    at = codec.HEADER + 8 * rng.randrange(3)
    value = struct.pack("<d", rng.choice([float("nan"), float("inf"), float("-inf")]))
    bent = frames[place][:at] + value + frames[place][at + 8 :]
    return [*frames[:place], bent[: len(frames[place])], *frames[place + 1 :]]


def untouched(rng: random.Random, frames: list[bytes], place: int) -> list[bytes]:
    return frames


BENDS = (untouched, flip, set_field, huge, resize, drop, repeat, swap, interleave, noise, not_finite)


# --- what is judged --------------------------------------------------------------------------------------------------


def feed(assembler: Assembler, frame: bytes, tally: Tally) -> Message | None:
    begun = time.perf_counter()
    try:
        return assembler.feed(frame)
    finally:
        took = time.perf_counter() - begun
        tally.slowest = max(tally.slowest, took)
        assert took < SLOWEST, f"a frame took {took:.2f} s"


def run(frames: list[bytes], tally: Tally) -> tuple[list[tuple[Message, list[bytes]]], int | None]:
    """Feed all frames: what was delivered with the frames that it came from, and the place of the refusal."""
    assembler, delivered, since = Assembler(LIMITS), [], []
    for place, frame in enumerate(frames):
        try:
            found = feed(assembler, frame, tally)
        except ProtocolError:
            assert assembler._pending is None
            for later in (frame, frames[0]):
                try:
                    assembler.feed(later)
                except ProtocolError:
                    continue
                raise AssertionError("an assembler took a frame after a refusal") from None
            return delivered, place
        since.append(frame)
        if found is not None:
            delivered.append((found, since))
            since = []
    return delivered, None


def check_frames(rng: random.Random, tally: Tally) -> int:
    right = [frame for _ in range(rng.choice([1, 1, 2, 3])) for frame in codec.encode(message(rng))]
    bend = rng.choice(BENDS)
    bent = bend(rng, right, rng.randrange(len(right)))
    delivered, refused = run(bent, tally)
    fed = len(bent) if refused is None else refused + 1
    for found, came_from in delivered:  # looked at after everything that came later, refused or not
        assert codec.encode(found) == came_from, f"{bend.__name__}: delivered is not what was fed"
        assert LIMITS[found.kind].fits(found.payload.dtype, tuple(found.payload.shape))
        assert bool(torch.isfinite(found.payload.double()).all())
    if bend is untouched:
        assert refused is None, "what is right was refused"
    if refused is not None and bent[:refused] == right[:refused]:
        again, stop = run(right, tally)
        assert stop is None, "the right frames were refused"
        assert [came for _, came in again][: len(delivered)] == [came for _, came in delivered]
    tally.frames[bend.__name__] += fed
    tally.refused[bend.__name__] += refused is not None
    tally.messages += len(delivered)
    return fed


def check_control(rng: random.Random, tally: Tally) -> int:
    text = bytearray(rng.choice(TEXTS).encode(errors="surrogatepass"))
    for _ in range(rng.choice([0, 0, 1, 3])):
        text[rng.randrange(len(text) + 1) : 0] = rng.choice([rng.randbytes(1), b"{", b'"', b"\\", b",", b"1", b":"])
    payload = torch.tensor(list(text), dtype=torch.uint8)
    (frame,) = codec.encode(Message(0, "hello", payload, b""))[:1]
    found = feed(Assembler(LIMITS), frame, tally)
    tally.frames["control"] += 1
    try:
        value = codec.read_control(found or Message(0, "hello", payload, b""))
    except ProtocolError:
        tally.refused["control"] += 1
    else:
        again = codec.read_control(codec.control("hello", 0, value))
        assert json.dumps(again, sort_keys=True) == json.dumps(value, sort_keys=True)
    return 1


def fuzz(frames: int, seed: int) -> Tally:
    """Feed so many frames. An `AssertionError`, or any other exception, is a finding."""
    rng, tally, fed = random.Random(seed), Tally(), 0
    with short_frames():
        while fed < frames:
            fed += (check_control if rng.random() < 0.1 else check_frames)(rng, tally)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.perf_counter()
    tally = fuzz(options.frames, options.seed)
    print("| what was done | frames | sequences refused |\n|---|---|---|")
    for name, count in tally.frames.most_common():
        print(f"| {name} | {count:,} | {tally.refused[name]:,} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{tally.frames.total():,} frames in {time.perf_counter() - begun:.0f} s, {tally.messages:,} messages out, "
        f"slowest frame {1e3 * tally.slowest:.1f} ms, peak memory {peak} MiB, no finding"
    )


if __name__ == "__main__":
    main()
