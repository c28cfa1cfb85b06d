"""Everything that the label party sees, and whether it can tell by it which of two groupings it was.

The two differ in which of two rows of equal label are together, so that all sums are the same. The label party has its
secret key, opens every single ciphertext, and knows every challenge. Stated test: a logistic regression on all of that
learns from 200 runs and guesses 200 others, whose groupings are fair coins; the hits are compared with chance by the
exact binomial test, at a false-alarm rate of 1 in a million. The same test notices a prover with short random numbers.

Then the same of a feature party as it runs, over two partitions of one commitment: whether the two are of the same
groups or of others. That test notices an order of groups and rows that is not drawn.
"""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression

from tacit.hidden_sums import shuffle
from tacit.hidden_sums.encryption import decrypt_sums, secret_key
from tacit.hidden_sums.feature_side import FeatureSide
from tacit.hidden_sums.label_side import LabelSide
from tacit.hidden_sums.messages import arrays_of
from tacit.hidden_sums.points import Table, decode
from tacit.hidden_sums.scalars import ORDER, ints_of
from tacit.hidden_sums.shuffle import Prover, Shuffle
from tests.hidden_sums.sides import LABEL_SECRET, agreed, no_noise, some_input

LABELS = np.array([1, 1, 1, 0, 0, 0])
WORLDS = np.array([[0, 0, 1, 0, 1, 1], [0, 1, 0, 0, 1, 1]])  # row 0 is with row 1, or with row 2: the same sums
RUNS = 400


def features(of, sent):
    """What the label party knows of a run, in numbers: bytes, opened labels, and how well each row fits each place."""
    labels = decrypt_sums(decode(sent.a), decode(sent.b), secret_key(LABEL_SECRET, of.context), 1)
    transcript, challenges = of.u(sent)
    ch = of.challenge(transcript, sent)
    u, s_prime = ints_of(challenges), ints_of(sent.s_prime)
    gap = np.array([[(s - ch * each) % ORDER / ORDER for each in u] for s in s_prime])  # (place, row): w' if it is this
    near = -np.log2(gap + 2.0**-200) > 40  # too near to be chance
    together = [
        max((near[group, one].any() & near[group, other].any()) for group in (slice(0, 3), slice(3, 6)))
        for one in range(6)
        for other in range(one)
    ]
    raw = [getattr(sent, name)[:, -2:].reshape(-1) / 255 for name in ("a", "b", "c", "c_hat", "t_hat", "s_hat")]
    return np.concatenate([*raw, labels, gap.reshape(-1), np.array(together, float)])


@pytest.fixture(autouse=True)
def _tables_once(monkeypatch):
    """Tables are made once for all runs: they depend on public points alone."""
    known = {}

    def table(point, count):
        if point.tobytes() not in known:
            known[point.tobytes()] = Table(point, count)
        return known[point.tobytes()]

    monkeypatch.setattr(shuffle, "Table", table)


def guesses(runs=RUNS):
    """How many of the second half's groupings are guessed right."""
    draw = np.random.default_rng(5)
    of = some_input(LABELS)
    worlds, seen = draw.integers(0, 2, runs), []
    for number, world in enumerate(worlds):
        groups = WORLDS[world]
        order = draw.permutation(2)
        psi = np.lexsort((draw.random(6), order[groups]))
        prover = Prover(of, psi, b"distinguished" + number.to_bytes(19, "big"))
        seen.append(features(of, prover.proof(*prover.re_encrypted())))
    half = runs // 2
    model = LogisticRegression(max_iter=500, C=0.1).fit(seen[:half], worlds[:half])
    return int((model.predict(seen[half:]) == worlds[half:]).sum()), runs - half


def test_the_label_party_guesses_at_chance():
    hits, of = guesses()
    assert binomtest(hits, of).pvalue > 1e-6


def test_a_prover_with_short_random_numbers_is_noticed(monkeypatch):
    honest = shuffle._Drawn.__init__

    def short(self, *args):
        honest(self, *args)
        self.w_prime = [number >> 128 for number in self.w_prime]

    monkeypatch.setattr(shuffle._Drawn, "__init__", short)
    hits, of = guesses(100)
    assert binomtest(hits, of, alternative="greater").pvalue < 1e-6


@pytest.mark.parametrize("world", [0, 1])
def test_the_two_groupings_have_the_same_sums(world):
    assert np.bincount(WORLDS[world], weights=LABELS).tolist() == [2, 1]


# --- a feature party as it runs, two partitions ----------------------------------------------------------------------

BITS = np.array([1, 1, 0, 1, 0, 0])
SAME = np.array([[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1]])
OTHER = np.array([[0, 0, 0, 1, 1, 1], [0, 1, 0, 0, 1, 1]])  # sums are 2 and 1 in all of them


def seen_of(context, batch):
    """Bytes, and labels opened one by one, in the order in which they came."""
    sent = Shuffle(**arrays_of(Shuffle.shapes(6), batch))
    labels = decrypt_sums(decode(sent.a), decode(sent.b), secret_key(LABEL_SECRET, context), 1)
    raw = [
        getattr(sent, name)[:, -2:].reshape(-1) / 255 for name in ("a", "b", "c", "c_hat", "t_hat", "s_hat", "s_prime")
    ]
    return np.concatenate([*raw, labels])


def guessed_sides(folder, runs):
    draw, seen = np.random.default_rng(6), []
    worlds = draw.integers(0, 2, runs)
    agreement = agreed(rows=6, group=3, partitions=2)
    commitment = LabelSide(folder / "label", LABEL_SECRET, agreement, BITS, no_noise).commitment()
    for number, world in enumerate(worlds):
        side = FeatureSide(folder / str(number), b"distinguished" + number.to_bytes(19, "big"), agreement)
        side.accept(commitment)
        batches = [side.batch(place, groups) for place, groups in enumerate((SAME, OTHER)[world])]
        both = [seen_of(agreement.context("labels"), batch) for batch in batches]
        labels = [one[-6:] for one in both]
        seen.append(np.concatenate([*both, np.outer(*labels).reshape(-1)]))  # what is at which places in both
    half = runs // 2
    model = LogisticRegression(max_iter=500, C=0.1).fit(seen[:half], worlds[:half])
    return int((model.predict(seen[half:]) == worlds[half:]).sum()), runs - half


def test_two_partitions_do_not_tell_whether_their_groups_are_the_same(tmp_path):
    hits, of = guessed_sides(tmp_path, 120)
    assert binomtest(hits, of).pvalue > 1e-6


def test_an_order_that_is_not_drawn_is_noticed(tmp_path, monkeypatch):
    def in_order(self, partition, groups):
        return np.arange(2), np.lexsort((np.arange(6), groups)).astype(np.int64)

    monkeypatch.setattr(FeatureSide, "_shuffled", in_order)
    hits, of = guessed_sides(tmp_path, 80)
    assert binomtest(hits, of, alternative="greater").pvalue < 1e-6
