"""The proof of a shuffle: complete, sound against provers that cheat as well as they can, and empty of knowledge."""

from dataclasses import fields, replace

import numpy as np
import pytest

from tacit.errors import UsageError
from tacit.hidden_sums import points as p
from tacit.hidden_sums.encryption import decrypt_sums, secret_key
from tacit.hidden_sums.scalars import ORDER, ints_of, keyed, scalars_of
from tacit.hidden_sums.shuffle import Input, Prover, Shuffle, check_shuffle_proof, gen_shuffle
from tests.hidden_sums.sides import FEATURE_SECRET, LABEL_SECRET, some_input, some_labels

ROWS = 9
PSI = np.array([3, 1, 4, 0, 5, 8, 2, 6, 7])


def accepted(of, shuffle):
    return check_shuffle_proof(of, shuffle, LABEL_SECRET) is not None


@pytest.fixture(name="of", scope="module")
def _of():
    return some_input(some_labels(ROWS))


@pytest.fixture(name="shuffle", scope="module")
def _shuffle(of):
    return gen_shuffle(of, PSI, FEATURE_SECRET)


@pytest.mark.parametrize("rows", [1, 2, 3, 40])
def test_a_shuffle_is_accepted_and_permutes_what_is_encrypted(rows):
    labels = some_labels(rows, seed=1)
    of = some_input(labels)
    psi = np.random.default_rng(2).permutation(rows)
    a, b = check_shuffle_proof(of, gen_shuffle(of, psi, FEATURE_SECRET), LABEL_SECRET)
    assert decrypt_sums(a, b, secret_key(LABEL_SECRET, b"context"), 1).tolist() == labels[psi].tolist()
    assert not set(map(bytes, p.encode(a))) & set(map(bytes, p.encode(of.a)))


def test_the_same_again_and_other_numbers_for_another_permutation(of, shuffle):
    again = gen_shuffle(of, PSI, FEATURE_SECRET)
    assert all(np.array_equal(getattr(shuffle, f.name), getattr(again, f.name)) for f in fields(Shuffle))
    other = gen_shuffle(of, PSI[::-1].copy(), FEATURE_SECRET)
    for name in ("a", "c", "c_hat", "t_hat", "s_hat"):
        assert not (getattr(shuffle, name) == getattr(other, name)).all(axis=1).any()


@pytest.mark.parametrize("psi", [[0] * ROWS, list(range(ROWS - 1)), [*range(1, ROWS), ROWS]])
def test_what_is_no_permutation_is_refused_at_home(of, psi):
    with pytest.raises(UsageError, match="permutation"):
        gen_shuffle(of, np.array(psi), FEATURE_SECRET)


def changed(value, place):
    """A valid value of the same kind in one place: a point and G, or a number and 1."""
    flat = value.copy()
    if value.shape[1] == p.ENCODED:
        flat[place] = p.encode(p.total(np.concatenate([p.decode(value[place : place + 1]), p.base()])))[0]
    else:
        flat[place] = scalars_of([(ints_of(value[place : place + 1])[0] + 1) % ORDER])[0]
    return flat


@pytest.mark.parametrize("name", [f.name for f in fields(Shuffle)])
def test_every_part_of_a_proof_counts(of, shuffle, name):
    value = getattr(shuffle, name)
    places = range(len(value)) if name in ("t", "s") else (0, 4, ROWS - 1)
    for place in places:
        assert not accepted(of, replace(shuffle, **{name: changed(value, place)}))


def test_rows_can_not_change_places_after_the_proof(of, shuffle):
    order = np.array([1, 0, *range(2, ROWS)])
    assert not accepted(of, replace(shuffle, a=shuffle.a[order], b=shuffle.b[order]))


def test_a_proof_is_for_its_context_key_and_input(of, shuffle):
    assert accepted(of, shuffle)
    assert not accepted(Input(of.pk, of.a, of.b, b"another", of.h), shuffle)
    assert not accepted(Input(p.base(), of.a, of.b, of.context, of.h), shuffle)
    order = np.arange(ROWS)[::-1]
    assert not accepted(Input(of.pk, of.a[order], of.b[order], of.context, of.h), shuffle)


def test_what_is_no_point_or_scalar_is_refused(of, shuffle):
    for name, wrong in (("c", 0), ("s_hat", 255)):
        value = getattr(shuffle, name).copy()
        value[2] = wrong
        assert not accepted(of, replace(shuffle, **{name: value}))


def test_every_equation_is_computed_whatever_is_wrong(of, shuffle, monkeypatch):
    sums = []
    honest = p.weighted_sum
    monkeypatch.setattr("tacit.hidden_sums.shuffle.weighted_sum", lambda *args: sums.append(0) or honest(*args))
    counts = set()
    for name, wrong in (("t", None), ("a", 0), ("c_hat", 0), ("s", 255), ("s_prime", 255), ("s_hat", 1)):
        value = getattr(shuffle, name).copy()
        if wrong is not None:
            value[1] = wrong
        sums.clear()
        accepted(of, replace(shuffle, **{name: value}))
        counts.add(len(sums))
    assert counts == {8}


# --- a prover that cheats, and does everything else as the pseudo-code says, challenges included  ---


class Cheat(Prover):
    """Commits to any matrix of whole numbers: output i is the sum of inputs k, each matrix[i][k] times."""

    def __init__(self, of, matrix):
        super().__init__(of, np.arange(len(matrix)), FEATURE_SECRET)
        self.matrix = matrix

    def re_encrypted(self):
        made = []
        for points, table in ((self.of.a, self.of_g), (self.of.b, self.of_pk)):
            again = table.products(self.drawn.r_prime)
            mixed = [p.weighted_sum(points, scalars_of([int(n) % ORDER for n in row])) for row in self.matrix]
            made.append(np.concatenate([p.total(np.stack([m[0], r])) for m, r in zip(mixed, again, strict=True)]))
        return made[0], made[1]

    def permutation_commitment(self):
        blind = self.of_g.products(self.drawn.r)
        held = [p.weighted_sum(self.of.h, scalars_of([int(n) % ORDER for n in column])) for column in self.matrix.T]
        return np.concatenate([p.total(np.stack([h[0], r])) for h, r in zip(held, blind, strict=True)])

    def proof(self, a_prime, b_prime):
        matrix, honest = self.matrix, Input.u

        def u(of, shuffle):
            transcript, challenges = honest(of, shuffle)
            numbers = ints_of(challenges)
            mixed = [sum(int(n) * x for n, x in zip(row, numbers, strict=True)) % ORDER for row in matrix]
            return transcript, _Both(challenges, scalars_of(mixed))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Input, "u", u)
            return super().proof(a_prime, b_prime)


class _Both:
    """The challenges of the inputs, which give those of the outputs where a permutation is applied to them."""

    def __init__(self, u, u_prime):
        self._u, self._u_prime = u, u_prime
        self.shape = u.shape

    def tobytes(self):
        return self._u.tobytes()

    def __getitem__(self, psi):
        return self._u_prime


def matrix_of(*changes):
    matrix = np.eye(ROWS, dtype=int)
    for row, column, number in changes:
        matrix[row, column] = number
    return matrix


def test_the_cheats_tools_work_for_an_honest_matrix(of):
    cheat = Cheat(of, np.eye(ROWS, dtype=int)[PSI])
    assert accepted(of, cheat.proof(*cheat.re_encrypted()))


@pytest.mark.parametrize(
    "matrix",
    {
        "repeats a row": matrix_of((0, 0, 0), (0, 1, 1)),
        "drops a row": matrix_of((0, 0, 0)),
        "merges two rows": matrix_of((0, 0, 0), (1, 0, 1)),
        "weighs a row twice": matrix_of((0, 0, 2)),
        "weighs by opposite signs": matrix_of((0, 0, 2), (1, 0, -1), (0, 1, -1), (1, 1, 2)),
        "takes a row away": matrix_of((0, 0, -1)),
        "weighs a row for another": matrix_of((0, 0, 3), (1, 1, 0)),
    }.items(),
    ids=lambda item: item[0],
)  # fmt: skip
def test_a_matrix_that_is_no_permutation_is_refused(of, matrix):
    cheat = Cheat(of, matrix[1])
    assert not accepted(of, cheat.proof(*cheat.re_encrypted()))


def test_ciphertexts_that_are_not_those_of_the_committed_permutation_are_refused(of):
    prover = Prover(of, PSI, FEATURE_SECRET)
    a, b = prover.re_encrypted()
    forged = b.copy()
    forged[0] = p.total(np.concatenate([b[:1], p.base()]))[0]  # a label more in one row
    assert not accepted(of, prover.proof(a, forged))
    moved = b.copy()
    moved[0], moved[1] = forged[0], p.total(np.concatenate([b[1:2], p.negated(p.base())]))[0]  # from one row to another
    assert not accepted(of, prover.proof(a, moved))
    fresh = prover.of_g.products([5]), prover.of_pk.products([5])
    a, b = a.copy(), b.copy()
    a[0], b[0] = fresh[0][0], fresh[1][0]  # of one's own making: a zero
    assert not accepted(of, prover.proof(a, b))


def test_the_signs_of_two_generators_do_not_cancel(of):
    # both rows committed with the wrong sign: the product of the challenges is the same, the sum of commitments is not
    cheat = Cheat(of, matrix_of((0, 0, -1), (1, 1, -1)))
    assert not accepted(of, cheat.proof(*cheat.re_encrypted()))


# --- nothing is shown -------------------------------------------------------------------------------------------------


def simulated(of, ch, challenges):
    """A proof made without any permutation, by someone who knows the challenge beforehand: the simulator."""
    count = len(of.a)
    number = iter(ints_of(keyed(b"s" * 32, 7 * count + 20, b"simulator")))
    draw = lambda how_many: [next(number) % ORDER for _ in range(how_many)]  # noqa: E731
    some = lambda: p.products_of_base(scalars_of(draw(count)))  # noqa: E731
    a, b, c, c_hat = some(), some(), some(), some()
    s, s_hat, s_prime = draw(4), draw(count), draw(count)
    u = ints_of(challenges)
    plus = lambda *points: p.total(np.concatenate(points))  # noqa: E731
    minus_ch = -ch
    c_bar = plus(p.total(c), p.negated(p.total(of.h)))
    product = 1
    for each in u:
        product = product * each % ORDER
    c_star = plus(c_hat[-1:], p.negated(p.product(of.h_chain, product)))
    weights = scalars_of(s_prime)
    t = [
        plus(p.product(p.base(), s[0]), p.product(c_bar, minus_ch)),
        plus(p.product(p.base(), s[1]), p.product(c_star, minus_ch)),
        plus(p.product(p.base(), s[2]), p.weighted_sum(of.h, weights),
             p.product(p.weighted_sum(c, challenges), minus_ch)),
        plus(p.product(p.base(), -s[3]), p.weighted_sum(a, weights),
             p.product(p.weighted_sum(of.a, challenges), minus_ch)),
        plus(p.product(of.pk, -s[3]), p.weighted_sum(b, weights),
             p.product(p.weighted_sum(of.b, challenges), minus_ch)),
    ]  # fmt: skip
    before = np.concatenate([of.h_chain, c_hat[:-1]])
    t_hat = [
        plus(p.product(p.base(), s_hat[i]), p.product(before[i : i + 1], s_prime[i]),
             p.product(c_hat[i : i + 1], minus_ch))
        for i in range(count)
    ]  # fmt: skip
    points = [p.encode(each) for each in (a, b, c, c_hat, np.concatenate(t_hat), np.concatenate(t))]
    return Shuffle(*points, *map(scalars_of, (s, s_hat, s_prime)))


def test_whoever_knows_the_challenges_beforehand_needs_no_permutation(of, monkeypatch):
    ch, challenges = 1234567, keyed(b"u" * 32, ROWS, b"u")[:, :16]
    made = simulated(of, ch, challenges)
    assert not accepted(of, made)
    honest = Input.u
    monkeypatch.setattr(Input, "u", lambda self, shuffle: (honest(self, shuffle)[0], challenges))
    monkeypatch.setattr(Input, "challenge", lambda self, transcript, shuffle: ch)
    assert accepted(of, made)  # so a proof alone tells nothing: its ciphertexts here are random points
