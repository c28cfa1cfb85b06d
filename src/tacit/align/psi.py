"""Private set intersection by Diffie and Hellman: which ids both parties have, and nothing about the others.

Each party makes a point of every id, multiplies it by its own secret key and sends it, in a random order. It multiplies
what the peer sends by its own key too and sends that back. (P a) b = (P b) a, so an id that both have gives the same
product on both sides, and without the other's key a point says nothing about its id.

What each party learns: the size of the other's set and the common ids. Keys are new in every run, and never stored:
after a kill it begins anew.

A liar need not multiply. It may hand this party's own products back as those of other rows, or multiples of the one id
that it knows, and those rows would look common. So both show in the end that they know the *ids* of all common rows:
they make a base point of them and agree on a Diffie-Hellman key over it (SPEKE). This party takes its own ids, those of
the rows that it would return. Whoever lacks one of them does not know the base and can't show the key, whatever it has
heard or echoed. Nor is this party an oracle: what it sends is its base times a secret, so an id can't be looked for in
a dictionary afterwards. A liar can try one guess in each alignment, as if it had put that id into its set.

What no such protocol prevents: a peer may put any id into its set, knows the answer as soon as it has this party's
products, and may then hide it or hang up. The cap bounds how many ids it asks about, `tacit.align.history` how often.
The minimum is a promise about what is *returned*: rows of at least so many ids that both know. It does not bound what a
liar learns before it is refused.

Products come back shortened to 16 bytes. Nobody can compute one without the other's key, so there is no searching for
two that agree: they do so by chance alone, for two sets of 10^8 ids with a probability of about 2^-75.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.align._exchange import CHUNK, DOMAIN, SHORT, WINDOW, Exchange, Held, rows_of
from tacit.align.control import decoded, expect, unhex
from tacit.align.curve import Engine, Points
from tacit.contracts import Link, Message
from tacit.errors import ProtocolError, RefusedError, UsageError
from tacit.progress import Count
from tacit.wire.codec import control

__all__ = ["CHUNK", "DOMAIN", "SHORT", "WINDOW", "Matched", "common", "intersect", "recv_mask", "send_mask"]

_PROTOCOL = "tacit psi 4"
_AGREEMENT = b"tacit psi agreement 2"
_NONCE = 16
_COMPARED = 100_000  # ids of both that a slow machine sorts and compares in a second, at the least
_HELLO = {"protocol": str, "count": int, "cap": int, "minimum": int, "nonce": str}


@dataclass(frozen=True)
class Matched:
    """Ids of a party that the peer has as well."""

    # into the hashes that were passed, in the order of those hashes' bytes. Both parties have this order and neither
    # chose it, and it stays common to all parties when some of the rows are left out. (matches,) int64
    positions: NDArray[np.int64]
    peer_count: int  # how many ids the peer had in all

    def __len__(self) -> int:
        return len(self.positions)


def intersect(  # all that one side of the protocol needs, by name
    link: Link,
    hashes: Points,
    *,
    engine: Engine,
    cap: int,
    minimum: int,
    admit: Callable[[int], None] | None = None,
    progress: Count | None = None,
    patience: float = 600.0,
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> Matched:
    """The ids that both parties have; the peer calls this at the same time with its own.

    After an error close the link: a thread may still wait to send on it.

    Args:
        link: to the peer.
        hashes: of the ids, no two alike, as `read_ids` gives them.  (count, 32)
        engine: multiplies.
        cap: no set may be larger, by the contract: the size of a set is how much it can ask.
        minimum: no set may be smaller, by the contract, and no intersection that is returned: a tiny one asks about
            single people. A peer that lies has learned about them by then.
        admit: called with the size of the peer's set before anything is computed; it may raise a `RefusedError`, as
            `History.begin` does.
        progress: called with the multiplications done and to do, by one thread at a time.
        patience: how many seconds the peer may be silent, beside what so many ids take to be compared.
        random: gives that many secret random bytes: a nonce, an order and the keys are made of them.
    """
    if not 0 <= minimum <= cap:
        raise UsageError(f"minimum = {minimum} and cap = {cap}: choose 0 <= minimum <= cap, as in the contract")
    nonce = random(_NONCE)
    hello = {"protocol": _PROTOCOL, "count": len(hashes), "cap": cap, "minimum": minimum, "nonce": nonce.hex()}
    link.send(control("commitment", 0, hello))
    peer_count, peer_nonce = _peer_hello(link, hello, patience)
    if admit is not None:
        admit(peer_count)
    patience += (len(hashes) + peer_count) // _COMPARED  # while it sorts and compares, a peer is silent
    order = np.argsort(np.frombuffer(random(8 * len(hashes)), dtype=np.uint64))  # (count,)
    stock = Held(hashes, order, peer_count)
    Exchange(link, stock, engine, random(32), progress, patience).run()
    positions = stock.matches(link.peer)
    _confirm(link, np.take(hashes, positions, axis=0), engine, random(32), nonce, peer_nonce, patience)
    if len(positions) < minimum:
        raise RefusedError(
            "minimum",
            f"{len(positions)} ids are common with {link.peer}, fewer than the {minimum} that the contract asks for "
            "([alignment] smallest_set): nothing is returned; check that both mean the same ids, spelled alike",
        )
    return Matched(positions, peer_count)


def common(matches: Sequence[Matched]) -> tuple[NDArray[np.int64], Iterator[NDArray[np.bool_]]]:
    """Rows that a label party has in common with all its peers, from those in common with each.

    Returns its positions in the common order, and for each peer which of the matches with that peer stay. Once each
    peer has got its mask (`send_mask`), all parties hold the same rows in the same order.

    Args:
        matches: one for each peer, all of the same hashes.

    >>> one, two = Matched(np.array([5, 2, 9]), 4), Matched(np.array([5, 7, 9]), 3)
    >>> positions, masks = common([one, two])
    >>> positions.tolist(), [mask.tolist() for mask in masks]
    ([5, 9], [[True, False, True], [True, False, True]])
    """
    if not matches:
        raise UsageError("common() of no matches: pass one for each peer")
    first, *others = matches
    if not others:
        return first.positions, iter([np.broadcast_to(np.True_, len(first))])
    stay = np.ones(1 + max(int(each.positions.max(initial=-1)) for each in matches), np.bool_)  # of all ids
    for each in matches:
        here = np.zeros_like(stay)
        here[each.positions] = True
        stay &= here
    return first.positions[stay[first.positions]], (stay[each.positions] for each in matches)


def send_mask(link: Link, mask: NDArray[np.bool_]) -> None:
    """Tell a peer which of the common rows stay, as bits in rows of the width that "matches" have."""
    for step, rows in enumerate(_mask_chunks(len(mask))):
        at = step * CHUNK * SHORT * 8
        bits = np.packbits(mask[at : at + rows * SHORT * 8], bitorder="little")
        padded = np.zeros(rows * SHORT, np.uint8)
        padded[: len(bits)] = bits
        link.send(Message(step, "matches", torch.from_numpy(padded.reshape(rows, SHORT)), b""))


def recv_mask(link: Link, count: int, *, patience: float = 86_400.0) -> NDArray[np.bool_]:
    """Receive which of the `count` rows in common with this peer stay; it may be busy with the others' for hours."""
    parts = []
    for step, rows in enumerate(_mask_chunks(count)):
        message = expect(link, "matches", step, patience)
        parts.append(rows_of(message, (rows, SHORT), step * CHUNK, -(-count // (SHORT * 8))).reshape(-1))
    bits = np.unpackbits(np.concatenate([np.empty(0, np.uint8), *parts]), bitorder="little").view(np.bool_)
    if bits[count:].any():
        raise ProtocolError(f"{link.peer} sent a mask for more than the {count} rows in common: start both anew")
    return bits[:count]


def _mask_chunks(count: int) -> list[int]:
    """Rows of bits in each message of a mask."""
    rows = -(-count // (SHORT * 8))
    return [min(CHUNK, rows - at) for at in range(0, rows, CHUNK)]


def _peer_hello(link: Link, own: Mapping[str, Any], patience: float) -> tuple[int, bytes]:
    """Receive the number of the peer's ids, and its nonce; refuse what can be refused before the work."""
    theirs = decoded(expect(link, "commitment", 0, patience), _HELLO)
    for name in ("protocol", "cap", "minimum"):
        if theirs[name] != own[name]:
            raise RefusedError(
                name, f"{name} is {own[name]!r} here and {theirs[name]!r} at {link.peer}: agree on one contract"
            )
    for whose, count in (("this party's", own["count"]), (f"{link.peer}'s", theirs["count"])):
        if not theirs["minimum"] <= count <= theirs["cap"]:
            name = "cap" if count > theirs["cap"] else "minimum"
            raise RefusedError(
                name,
                f"{whose} set has {count} ids, the contract allows {theirs['minimum']} to {theirs['cap']}: nothing was "
                f"computed; change the set, or {name} in the contract on both sides",
            )
    nonce = unhex("nonce", theirs["nonce"], _NONCE)
    if theirs["nonce"] == own["nonce"]:
        raise RefusedError("nonce", f"{link.peer} sent this party's own message back: it is no second party")
    return theirs["count"], nonce


def _confirm(
    link: Link,
    ids: Points,
    engine: Engine,
    key: bytes,
    nonce: bytes,
    peer_nonce: bytes,
    patience: float,
) -> None:
    """Have the peer show that it knows the ids of all common rows, and show it the same; an echo will not do.

    The nonces keep out what was said in other alignments, and tell who says it.
    """
    own = engine.blind(_base(ids, nonce, peer_nonce), key, domain=_AGREEMENT)
    link.send(control("commitment", 1, {"share": own.tobytes().hex()}))
    share = unhex("share", decoded(expect(link, "commitment", 1, patience), {"share": str})["share"], 32)
    secret = engine.multiply(np.frombuffer(share, np.uint8).reshape(1, -1), key).tobytes()
    link.send(control("commitment", 2, {"agreement": _proof(secret, nonce, peer_nonce).hex()}))
    theirs = decoded(expect(link, "commitment", 2, patience), {"agreement": str})
    if not hmac.compare_digest(unhex("agreement", theirs["agreement"], 32), _proof(secret, peer_nonce, nonce)):
        raise RefusedError(
            "alignment",
            f"{link.peer} does not know the ids of the {len(ids)} rows that its products make common: one of the two "
            "did not multiply as the protocol says; nothing is returned, and the alignment counts",
        )


def _base(ids: Points, *nonces: bytes) -> Points:
    """The hash that a base point is made of: of these ids, in this alignment.  (1, 32)"""
    digest = hashlib.sha256(b"".join(sorted(nonces)))
    digest.update(np.ascontiguousarray(ids).data)
    return np.frombuffer(digest.digest(), np.uint8).reshape(1, -1)


def _proof(secret: bytes, sender: bytes, receiver: bytes) -> bytes:
    return hmac.new(secret, _AGREEMENT + sender + receiver, "sha256").digest()
