"""A shuffle of encrypted labels, and the proof that it is one.

The proof of Terelius and Wikstroem (Proofs of restricted shuffles, 2010), after the pseudo-code of Haenni, Locher,
Koenig and Dubuis (Pseudo-code algorithms for verifiable re-encryption mix-nets, 2017; the same in the CHVote
specification, ePrint 2017/325): `GenShuffle`, `GenPermutationCommitment`, `GenCommitmentChain`, `GenShuffleProof` and
`CheckShuffleProof`, with its names, written for a group that is added: a power there is a product here. What the
pseudo-code leaves open, or is done otherwise:

- the group is secp256k1, the hash SHAKE256; a ciphertext is (r G, m + r PK), so its two halves change places;
- the challenges u are 128 bits long, the challenge c is a number below the order of the group;
- commitments t are sent along with the responses, so that the last equations, one for each row, can be checked
  together, each weighed by a random number of the verifier (the small exponents of Bellare, Garay and Rabin);
- all random numbers of the prover are keyed by its secret and by everything that they are used on.

Sound: under the discrete logarithm in this group, in the random oracle model, whoever proves it knows a permutation and
random numbers that give these ciphertexts. Nothing shown: ciphertexts and commitments hide the permutation from
everybody, from the owner of the secret key and from unlimited computers too, but for the labels themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tacit.errors import UsageError
from tacit.hidden_sums._library import ENCODED
from tacit.hidden_sums.points import (
    Encoded,
    Points,
    Table,
    addresses_of,
    base,
    decode_any,
    encode,
    generators,
    is_zero,
    negated,
    product,
    sums_of_each,
    total,
    weighted_sum,
)
from tacit.hidden_sums.scalars import ORDER, SHORT, Scalars, Transcript, below_order, ints_of, keyed, scalars_of


def _nothing_yet() -> NDArray[np.uint8]:
    return np.zeros((0, 32), np.uint8)


@dataclass(frozen=True)
class Shuffle:
    """What the feature party sends of a partition: shuffled ciphertexts, and the proof."""

    a: Encoded  # first halves of the shuffled ciphertexts. (rows, 33)
    b: Encoded  # second halves. (rows, 33)
    c: Encoded  # the permutation, committed to. (rows, 33)
    c_hat: Encoded = field(default_factory=_nothing_yet)  # the chain of commitments. (rows, 33)
    t_hat: Encoded = field(default_factory=_nothing_yet)  # (rows, 33)
    t: Encoded = field(default_factory=_nothing_yet)  # t1, t2, t3, and t4 of both halves. (5, 33)
    s: Scalars = field(default_factory=_nothing_yet)  # s1 to s4. (4, 32)
    s_hat: Scalars = field(default_factory=_nothing_yet)  # (rows, 32)
    s_prime: Scalars = field(default_factory=_nothing_yet)  # (rows, 32)

    @staticmethod
    def shapes(rows: int) -> dict[str, tuple[int, ...]]:
        """Of each part, in the order in which they are sent."""
        points, scalars = (rows, ENCODED), (rows, 32)
        return {
            **dict.fromkeys(("a", "b", "c", "c_hat", "t_hat"), points),
            "t": (5, ENCODED),
            "s": (4, 32),
            **dict.fromkeys(("s_hat", "s_prime"), scalars),
        }


def shuffle_generators(count: int) -> Points:
    """`GetGenerators`: of the commitments, one for each row; nobody knows a relation between them."""
    return generators(count, b"shuffle")


class Input:
    """Encrypted labels that are shuffled (1, 64), (rows, 64), (rows, 64), and all that both sides derive from them.

    A proof for one context is none for another; h are at least as many `shuffle_generators` as rows.
    """

    def __init__(self, pk: Points, a: Points, b: Points, context: bytes, h: Points) -> None:
        if not len(a) or a.shape != b.shape or len(h) < len(a):
            raise UsageError("a shuffle takes at least one ciphertext, in two halves, and a generator for each")
        self.pk, self.a, self.b, self.context, self.h = pk, a, b, context, h[: len(a)]
        self.h_chain = generators(1, b"chain")

    def u(self, shuffle: Shuffle) -> tuple[Transcript, NDArray[np.uint8]]:
        """`GetChallenges`: the transcript up to the permutation's commitment, and a challenge for each row."""
        transcript = Transcript("shuffle", self.context)
        for name, points in (("pk", self.pk), ("e a", self.a), ("e b", self.b)):
            transcript.add(name, encode(points))
        for name in ("a", "b", "c"):
            transcript.add(name, getattr(shuffle, name))
        return transcript, transcript.challenges("u", len(self.a))

    def challenge(self, transcript: Transcript, shuffle: Shuffle) -> int:
        """The challenge c, after everything that is committed to."""
        for name in ("c_hat", "t_hat", "t"):
            transcript.add(name, getattr(shuffle, name))
        return transcript.challenge("c")


# --- the prover ------------------------------------------------------------------------------------------------------


class _Drawn:
    """All random numbers of a proof: keyed by the prover's secret and by everything that they are used on."""

    def __init__(self, of: Input, psi: NDArray[np.int64], secret: bytes) -> None:
        seen = Transcript("prover", of.context)
        for name, points in (("pk", of.pk), ("a", of.a), ("b", of.b)):
            seen.add(name, encode(points))
        seen.add("psi", psi.astype("<i8").view(np.uint8))
        drawn = keyed(secret, 5 * len(psi) + 4, b"shuffle", seen.digest())
        self.w = ints_of(drawn[:4])
        parts = (ints_of(part) for part in np.split(drawn[4:], 5))
        self.r, self.r_prime, self.r_hat, self.w_hat, self.w_prime = parts


def gen_shuffle(of: Input, psi: NDArray[np.int64], secret: bytes) -> Shuffle:
    """`GenShuffle` and `GenShuffleProof`: row i of the result is row psi[i] of the input, encrypted again.

    With the same secret, input and psi the result is the same again.
    """
    count = len(of.a)
    if psi.shape != (count,) or not np.array_equal(np.sort(psi), np.arange(count)):
        raise UsageError(f"a shuffle takes a permutation of {count} rows")
    prover = Prover(of, psi, secret)
    return prover.proof(*prover.re_encrypted())


class Prover:
    """The steps of `gen_shuffle`, one by one: a test that cheats puts another one in the place of one of them."""

    def __init__(self, of: Input, psi: NDArray[np.int64], secret: bytes) -> None:
        self.of, self.psi, self.drawn = of, psi, _Drawn(of, psi, secret)
        self.of_g, self.of_pk, self.of_h = (Table(point, len(psi)) for point in (base(), of.pk, of.h_chain))

    def re_encrypted(self) -> tuple[Points, Points]:
        """`GenShuffle`: both halves of the shuffled ciphertexts."""
        a, b = self.of.a[self.psi], self.of.b[self.psi]
        a_prime = sums_of_each(addresses_of(a), self.of_g.addresses(self.drawn.r_prime))
        b_prime = sums_of_each(addresses_of(b), self.of_pk.addresses(self.drawn.r_prime))
        return a_prime, b_prime

    def permutation_commitment(self) -> Points:
        """`GenPermutationCommitment`: c_{psi(i)} = r_{psi(i)} G + h_i."""
        h = np.empty_like(self.of.h)
        h[self.psi] = self.of.h
        return sums_of_each(addresses_of(h), self.of_g.addresses(self.drawn.r))

    def proof(self, a_prime: Points, b_prime: Points) -> Shuffle:
        """`GenShuffleProof`: what is sent, with the proof."""
        of, drawn = self.of, self.drawn
        made = Shuffle(encode(a_prime), encode(b_prime), encode(self.permutation_commitment()))
        transcript, challenges = of.u(made)
        u, u_prime = ints_of(challenges), ints_of(challenges[self.psi])
        c_hat, t_hat = self._chained(u_prime)
        made = replace(made, c_hat=c_hat, t_hat=t_hat, t=self._commitments(a_prime, b_prime))
        ch = of.challenge(transcript, made)
        v = list(accumulate(reversed(u_prime[1:]), _times, initial=1))[::-1]  # for each row the product of all after it
        known = [sum(drawn.r), _dot(drawn.r_hat, v), _dot(drawn.r, u), _dot(drawn.r_prime, u_prime)]
        return replace(
            made,
            s=_responses(drawn.w, known, ch),
            s_hat=_responses(drawn.w_hat, drawn.r_hat, ch),
            s_prime=_responses(drawn.w_prime, u_prime, ch),
        )

    def _chained(self, u_prime: list[int]) -> tuple[Encoded, Encoded]:
        """`GenCommitmentChain`, c_hat_i = r_hat_i G + u'_i c_hat_{i-1}; and t_hat_i, the same with w for r and u'.

        Without powers of powers: c_hat_i = R_i G + U_i h; R and U from i = 0 on.
        """
        drawn, big_r, big_u = self.drawn, [0], [1]
        for hat, prime in zip(drawn.r_hat, u_prime, strict=True):
            big_r.append((hat + prime * big_r[-1]) % ORDER)
            big_u.append(prime * big_u[-1] % ORDER)
        c_hat = sums_of_each(self.of_g.addresses(big_r[1:]), self.of_h.addresses(big_u[1:]))
        for_g = [
            (hat + prime * before) % ORDER
            for hat, prime, before in zip(drawn.w_hat, drawn.w_prime, big_r[:-1], strict=True)
        ]
        for_h = [prime * before % ORDER for prime, before in zip(drawn.w_prime, big_u[:-1], strict=True)]
        return encode(c_hat), encode(sums_of_each(self.of_g.addresses(for_g), self.of_h.addresses(for_h)))

    def _commitments(self, a_prime: Points, b_prime: Points) -> Encoded:
        """t1, t2, t3, and t4 of both halves."""
        w, weights = self.drawn.w, scalars_of([each % ORDER for each in self.drawn.w_prime])
        t = [
            self.of_g.products(w[:2]),
            _plus(self.of_g.products(w[2:3]), weighted_sum(self.of.h, weights)),
            _plus(self.of_g.products([-w[3]]), weighted_sum(a_prime, weights)),
            _plus(self.of_pk.products([-w[3]]), weighted_sum(b_prime, weights)),
        ]
        return encode(np.concatenate(t))


def _times(left: int, right: int) -> int:
    return left * right % ORDER


def _dot(left: list[int], right: list[int]) -> int:
    return sum(one * other for one, other in zip(left, right, strict=True)) % ORDER


def _responses(w: list[int], secrets: list[int], ch: int) -> Scalars:
    return scalars_of([(blind + ch * known) % ORDER for blind, known in zip(w, secrets, strict=True)])


def _plus(*points: Points) -> Points:
    return total(np.concatenate(points))


# --- the verifier ----------------------------------------------------------------------------------------------------


def check_shuffle_proof(of: Input, shuffle: Shuffle, weights: bytes) -> tuple[Points, Points] | None:
    """`CheckShuffleProof`: the shuffled ciphertexts, or None if they are not proven to be a shuffle of the input.

    All equations are computed, whatever came out of those before, and whatever was no point or no scalar; nothing of it
    depends on a secret of the label party's but for the weights, random numbers that the prover does not know.
    """
    points = [decode_any(each) for each in (shuffle.a, shuffle.b, shuffle.c, shuffle.c_hat, shuffle.t_hat, shuffle.t)]
    scalars = [below_order(each) for each in (shuffle.s, shuffle.s_hat, shuffle.s_prime)]
    good = all(is_good for _, is_good in (*points, *scalars))
    a_prime, b_prime, c, c_hat, t_hat, t = (each for each, _ in points)
    s, s_hat, s_prime = (each for each, _ in scalars)
    transcript, u = of.u(shuffle)
    ch = of.challenge(transcript, shuffle)
    c_bar = _plus(total(c), negated(total(of.h)))
    u_all = reduce(_times, ints_of(u))
    c_star = _plus(c_hat[-1:], negated(product(of.h_chain, u_all)))
    c_tilde, a_tilde, b_tilde = (weighted_sum(each, u) for each in (c, of.a, of.b))
    t_prime = [
        _plus(product(base(), s[0]), product(c_bar, -ch)),
        _plus(product(base(), s[1]), product(c_star, -ch)),
        _plus(product(base(), s[2]), weighted_sum(of.h, shuffle.s_prime), product(c_tilde, -ch)),
        _plus(product(base(), -s[3]), weighted_sum(a_prime, shuffle.s_prime), product(a_tilde, -ch)),
        _plus(product(of.pk, -s[3]), weighted_sum(b_prime, shuffle.s_prime), product(b_tilde, -ch)),
    ]
    differences = [_plus(mine, negated(theirs[None])) for mine, theirs in zip(t_prime, t, strict=True)]
    seen = Transcript("shuffle seen", shuffle.s.tobytes() + shuffle.s_hat.tobytes() + shuffle.s_prime.tobytes())
    seen.add("c", ch.to_bytes(32, "big"))
    rho = keyed(weights, len(of.a), b"rho", of.context, seen.digest())[:, :SHORT]
    differences.append(_chain_difference(of, c_hat, t_hat, (s_hat, s_prime), ch, rho))
    holds = bool(is_zero(np.concatenate(differences)).all())
    return (a_prime, b_prime) if good and holds else None


def _chain_difference(
    of: Input, c_hat: Points, t_hat: Points, s: tuple[list[int], list[int]], ch: int, rho: NDArray[np.uint8]
) -> Points:
    """t_hat_i = s_hat_i G + s'_i c_hat_{i-1} - c c_hat_i for all i, each times rho_i, added up: what is missing."""
    s_hat, s_prime = s
    numbers = ints_of(rho)
    ahead = [one * other for one, other in zip(numbers, s_prime, strict=True)]  # how often c_hat_{i-1} is in it
    of_chain = [(later - ch * own) % ORDER for later, own in zip([*ahead[1:], 0], numbers, strict=True)]
    return _plus(
        product(base(), _dot(numbers, s_hat)),
        product(of.h_chain, ahead[0]),
        weighted_sum(c_hat, scalars_of(of_chain)),
        negated(weighted_sum(t_hat, rho)),
    )
