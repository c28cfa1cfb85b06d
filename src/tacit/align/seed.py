"""A seed that nobody chose: every party commits to a nonce before any nonce is shown.

Whoever saw the others' nonces first could choose its own until the batches suit it. So each sends a hash of its nonce,
and only when every hash has arrived are the nonces revealed and checked against them. The label party, in the middle of
the star, passes on what the feature parties say; it has committed like everybody else, and a changed nonce or
commitment is noticed by the party it belongs to or by the one that it was shown to.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.align.control import decoded, expect, unhex
from tacit.contracts import Link
from tacit.errors import RefusedError, UsageError
from tacit.wire.codec import control

_SIZE = 32
_BLOCK = 1 << 16
_COMMIT = b"tacit seed commitment 1"
_SEED = b"tacit joint seed 1"
_KEY = b"tacit rows key 1"


@dataclass(frozen=True)
class Agreed:
    """Seed, key and commitments, which all parties of a run have in common."""

    seed: int  # draws the batches, at least 0 and below 2^63
    key: bytes  # for keyed digests, so that a digest of rows tells an outsider nothing
    commitments: Mapping[str, bytes]  # of every party, by its name; a restart shows that it means the same run

    def __repr__(self) -> str:
        return f"Agreed(parties={sorted(self.commitments)})"


def new_nonce() -> bytes:
    """A fresh share in the seed. Keep it to yourself until it is revealed."""
    return secrets.token_bytes(_SIZE)


def commit(name: str, nonce: bytes) -> bytes:
    """Commitment of a party to its nonce. The name is in it, so nobody can pass off another's as its own.

    >>> commit("clinic", bytes(32)) == commit("registry", bytes(32))
    False
    """
    if len(nonce) != _SIZE:
        raise UsageError(f"a nonce of {len(nonce)} bytes: pass {_SIZE}, as new_nonce() gives them")
    return hashlib.sha256(_joined(_COMMIT, name.encode(), nonce)).digest()


def check(name: str, commitment: bytes, nonce: bytes) -> None:
    """Refuse a nonce that is not the one this party committed to."""
    if not hmac.compare_digest(commit(name, nonce), commitment):
        raise RefusedError(
            "seed", f"{name} revealed another nonce than it had committed to: it may be choosing batches; do not go on"
        )


def joint_seed(nonces: Mapping[str, bytes]) -> int:
    """The seed of all nonces together, the same in whatever order they came.

    >>> joint_seed({"a": bytes(32), "b": bytes(32)}) == joint_seed({"b": bytes(32), "a": bytes(32)})
    True
    """
    return int.from_bytes(_mixed(_SEED, nonces)[:8], "big") >> 1


def as_label(links: Mapping[str, Link], name: str, nonce: bytes, *, patience: float = 600.0) -> Agreed:
    """Agree on a seed with every feature party, as the one in the middle, by a `new_nonce` that nobody was shown."""
    if name in links:
        raise UsageError(f"a peer has this party's own name, {name!r}: give every party another name")
    commitments = {name: commit(name, nonce)}
    for peer, link in links.items():
        theirs = decoded(expect(link, "commitment", 0, patience), {"name": str, "commitment": str})
        _same_name(peer, theirs["name"])
        commitments[peer] = unhex("commitment", theirs["commitment"], _SIZE)
    for link in links.values():
        link.send(control("commitment", 1, {"commitments": _hexed(commitments)}))
    nonces = {name: nonce}
    for peer, link in links.items():
        theirs = decoded(expect(link, "reveal", 0, patience), {"name": str, "nonce": str})
        _same_name(peer, theirs["name"])
        nonces[peer] = unhex("nonce", theirs["nonce"], _SIZE)
        check(peer, commitments[peer], nonces[peer])
    for link in links.values():
        link.send(control("reveal", 1, {"nonces": _hexed(nonces)}))
    return _agreed(commitments, nonces)


def as_features(link: Link, name: str, nonce: bytes, *, patience: float = 600.0) -> Agreed:
    """Agree on a seed through the label party, by a `new_nonce` that nobody was shown."""
    own = commit(name, nonce)
    link.send(control("commitment", 0, {"name": name, "commitment": own.hex()}))
    theirs = decoded(expect(link, "commitment", 1, patience), {"commitments": list})
    commitments = _unhexed("commitments", theirs["commitments"])
    if commitments.get(name) != own or link.peer not in commitments:
        raise RefusedError(
            "seed",
            f"{link.peer} passed on commitments that lack its own or this party's ({name}): the names of the parties "
            "differ, or it is choosing batches",
        )
    link.send(control("reveal", 0, {"name": name, "nonce": nonce.hex()}))
    theirs = decoded(expect(link, "reveal", 1, patience), {"nonces": list})
    nonces = _unhexed("nonces", theirs["nonces"])
    if nonces.keys() != commitments.keys():
        raise RefusedError("seed", f"{link.peer} revealed nonces of other parties than had committed to one")
    for peer, revealed in nonces.items():
        check(peer, commitments[peer], revealed)
    return _agreed(commitments, nonces)


def rows_digest(key: bytes, hashes: NDArray[np.uint8]) -> bytes:
    """A digest of the aligned ids in their order, under `Agreed.key`: equal where both parties mean the same rows."""
    digest = hmac.new(key, len(hashes).to_bytes(8, "big"), "sha256")
    for at in range(0, len(hashes), _BLOCK):
        digest.update(hashes[at : at + _BLOCK].tobytes())
    return digest.digest()


def _agreed(commitments: Mapping[str, bytes], nonces: Mapping[str, bytes]) -> Agreed:
    return Agreed(joint_seed(nonces), _mixed(_KEY, nonces), dict(sorted(commitments.items())))


def _mixed(tag: bytes, nonces: Mapping[str, bytes]) -> bytes:
    parts = [part for name, nonce in sorted(nonces.items()) for part in (name.encode(), nonce)]
    return hashlib.sha256(_joined(tag, *parts)).digest()


def _joined(*parts: bytes) -> bytes:
    """Parts with their lengths, so that no two lists of parts look alike."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _same_name(expected: str, name: str) -> None:
    if name != expected:
        raise RefusedError("name", f"the party at the link to {expected} calls itself {name!r}: compare the names")


def _hexed(values: Mapping[str, bytes]) -> list[list[str]]:
    return [[name, value.hex()] for name, value in sorted(values.items())]


def _unhexed(field: str, pairs: list[object]) -> dict[str, bytes]:
    found = {}
    for pair in pairs:
        match pair:
            case [str(name), str(text)] if name not in found:
                found[name] = unhex(field, text, _SIZE)
            case _:
                raise RefusedError(field, f"{field} are not pairs of different names with hex: compare the versions")
    return found
