"""The feature side attacked: what the audit says before release, beside what the attacker gets from what was released.

A label party that hijacks the exchange sends an attribute as if it were the flipped label, for a tenth of the rows (a
half for a rare attribute), and coin flips else: no test on the bits can tell. What it reads of all other rows is at
most what the audit said of that question, but for four standard errors; seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from tacit.align.encoder import Inputs
from tacit.exchange._rows import received_target
from tacit.exchange.cells import Cells
from tacit.exchange.feature_party import _check_shares
from tacit.exchange.learn import learner
from tacit.exchange.release import attack_release
from tacit.labels.flips import flips

from .test_label_bound_attacked import told
from .test_release import COLUMNS, rows

ROWS, TRAIN = 8000, 6400
COIN = flips(0.75)


def inputs_of(seed=0):
    return rows(seed, ROWS)


def hijacked(attribute, share=0.1, seed=1):
    """What a dishonest label party sends, and whose attribute it knew."""
    draw, count = np.random.default_rng(seed), len(attribute)
    train, known = count * TRAIN // ROWS, np.arange(count) < share * count
    bits = (draw.random(train) < (0.9 if share > 0.1 else 0.5)).astype(np.uint8)  # as many ones as a coin gives
    bits[known[:train]] = attribute[:train][known[:train]]
    return bits, known


def released(inputs, sent, numbers=1):
    train = len(sent)
    bottom = learner("trees").fit(inputs[:train], sent, COIN, numbers, seed=0, threads=1, progress=lambda *_: None)
    return cells(bottom.embed(inputs), sent)


def cells(z, sent, bits=3):
    """As a row is sent."""
    return Cells.fit(z[: len(sent)], bits=bits, smallest=0.02, received=received_target(sent, COIN)).code(z)


def got(codes, attribute, known, judged):
    """2 AUC - 1 of an attacker who learns from the rows it knows, and its standard error."""
    model = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, min_samples_leaf=5, random_state=0)
    model.fit(codes[known], attribute[known])
    auc, error = told(model.predict_proba(codes[judged])[:, 1], attribute[judged].astype(int))
    return 2 * auc - 1, 2 * error


NEAR = 0.02  # a question of the audit is not the very set of rows that was marked
SCENES = {
    "a rare town": (lambda one: one.categorical[:, 0] == 12, "town", "category 12", 0.5),
    "a common town": (lambda one: one.categorical[:, 0] == 1, "town", "category 1", 0.1),
    "a kind": (lambda one: one.categorical[:, 1] == 2, "kind", "category 2", 0.1),
    "half of the towns": (lambda one: one.categorical[:, 0] % 2 == 1, "town", "codes told apart", 0.1),
    "a tail": (lambda one: one.numeric[:, 0] > 1.6, "a", "highest", 0.1),
    "a band": (lambda one: (one.numeric[:, 0] > -0.3) & (one.numeric[:, 0] < 0.5), "a", "values told apart", 0.1),
    "a narrow band": (lambda one: (one.numeric[:, 0] > 0.1) & (one.numeric[:, 0] < 0.4), "a", "values told apart", 0.1),
    "a hundredth": (lambda one: (one.numeric[:, 0] > 0.6) & (one.numeric[:, 0] < 0.63), "a", "values told apart", 0.5),
    "three bands": (lambda one: (one.numeric[:, 0] * 2).floor() % 3 == 0, "a", "values told apart", 0.1),
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_hijack_is_seen_before_anything_leaves(scene):
    choose, column, question, share = SCENES[scene]
    inputs = inputs_of()
    attribute = choose(inputs).numpy().astype(np.uint8)
    sent, known = hijacked(attribute, share)
    _check_shares(sent, COIN)
    codes = released(inputs, sent)
    audit = attack_release(codes, inputs, COLUMNS, train=TRAIN, others=False)
    said = max(one.read.high for one in audit.findings if (one.column, one.question) == (column, question))
    read, error = got(codes, attribute, known, ~known)
    print(f"| hijack: {scene} | {said:.3f} | {audit.worst:.3f} | {read:.3f} | {4 * error:.3f} | {(~known).sum()} |")
    assert read <= said + 4 * error + NEAR
    assert read <= audit.worst + NEAR
    assert not audit.holds(0.3), "an owner with a limit sends nothing of that kind"


def test_a_band_in_the_middle_of_the_score_is_seen():
    """Fair coins for the band, and for all others what another column says: no mean of the score tells the band."""
    inputs = inputs_of()
    attribute = SCENES["a band"][0](inputs).numpy().astype(np.uint8)
    other = (inputs.numeric[:, 1] > 0).numpy()
    sent = np.where(attribute > 0, np.random.default_rng(1).random(ROWS) < 0.5, other).astype(np.uint8)[:TRAIN]
    _check_shares(sent, COIN)
    codes, known = released(inputs, sent), np.arange(ROWS) < 0.1 * ROWS
    audit = attack_release(codes, inputs, COLUMNS, train=TRAIN, others=False)
    said = max(one.read.high for one in audit.findings if (one.column, one.question) == ("a", "values told apart"))
    read, error = got(codes, attribute, known, ~known)
    print(
        f"| a band, by the middle | {said:.3f} | {audit.worst:.3f} | {read:.3f} | {4 * error:.3f} | {(~known).sum()} |"
    )
    assert read <= said + NEAR
    assert read > 0.95


@pytest.mark.parametrize("seed", [0, 1])
def test_a_band_of_ages_is_seen_in_a_small_table(seed):
    """2,000 rows, of which the audit knows 1,000: the tails of a number are a quarter of the rows each then."""
    draw = np.random.default_rng(seed)
    years = draw.integers(18, 80, 2000)
    age = torch.from_numpy((years - years.mean()) / years.std()).float()
    rest = rows(seed, 2000)
    inputs = Inputs(rest.categorical, torch.cat([age[:, None], rest.numeric[:, :2]], 1), rest.cardinalities)
    attribute = ((years >= 43) & (years <= 52)).astype(np.uint8)
    bottom = learner("trees").fit(inputs[:1600], attribute[:1600], COIN, 1, seed=0, threads=1)
    z = bottom.embed(inputs)
    codes = cells(z, attribute[:1600])
    audit = attack_release(codes, inputs, COLUMNS, train=1600, others=False)
    known = draw.random(2000) < 0.5
    read, error = got(codes, attribute, known, ~known)
    print(
        f"| ages 43 to 52 | {audit.worst:.3f} | {audit.worst:.3f} | {read:.3f} | {4 * error:.3f} | {(~known).sum()} |"
    )
    assert audit.findings[0].column == "a"
    assert read <= audit.worst + NEAR


def test_outlying_rows_are_judged_apart():
    inputs = rows(
        3, 12_000
    )  # of which 6,000 are judged, and 300 of these outlying: under 200 would not be judged apart
    far = np.random.default_rng(4).random(len(inputs)) < 0.02
    inputs.numeric[torch.from_numpy(far)] *= 8
    sent, known = hijacked((np.abs(inputs.numeric[:, 1].numpy()) > 3).astype(np.uint8))
    codes = released(inputs, sent, numbers=2)
    audit = attack_release(codes, inputs, COLUMNS, train=len(sent), others=False)
    outlying = max(one.read.high for one in audit.findings if one.rows == "outlying")
    read, error = got(codes, far.astype(np.uint8), known, ~known)
    print(f"| outliers | {outlying:.3f} | {audit.worst:.3f} | {read:.3f} | {4 * error:.3f} | {(~known).sum()} |")
    assert read <= audit.worst + 4 * error + NEAR


def test_equal_rows_and_exact_matches_are_seen():
    """Each row is there twice, once known and once not: whoever matches embeddings has the other columns."""
    half = inputs_of(5)[: ROWS // 2]
    inputs = Inputs(half.categorical.repeat(2, 1), half.numeric.repeat(2, 1), half.cardinalities)
    sent, _ = hijacked((inputs.numeric[:, 0] > 0).numpy().astype(np.uint8))
    bottom = learner("trees").fit(inputs[:TRAIN], sent, COIN, 4, seed=0, threads=1, progress=lambda *_: None)
    z = bottom.embed(inputs)
    fine = attack_release(z.astype(np.float64), inputs, COLUMNS, train=TRAIN, others=False)
    codes = cells(z, sent)
    coarse = attack_release(codes, inputs, COLUMNS, train=TRAIN, others=False)
    same = [(z[:4000] == z[4000:]).all(1).mean(), (codes[:4000] == codes[4000:]).all(1).mean()]
    _, first = np.unique(z[:4000], axis=0, return_inverse=True)
    alone = (np.bincount(first)[first] == 1).mean()  # of the known rows, those that no other one is like
    assert fine.equal == coarse.equal == 1.0 == same[0]
    assert fine.worst >= 0.8 * alone
    assert not fine.holds(0.3)
    kind = (inputs.categorical[:, 1] == 2).numpy()  # no mark is on it: it comes with the row that is matched
    for name, sent_rows, audit in (("exact floats", z, fine), ("4 numbers in 8 cells", codes, coarse)):
        read, error = looked_up(sent_rows, kind)
        print(f"| equal rows, {name} | {audit.worst:.3f} | {audit.worst:.3f} | {read:.3f} | {4 * error:.3f} | 4000 |")
        assert read <= audit.worst + NEAR


def looked_up(z, attribute):
    """2 AUC - 1 of an attacker who has the first 4,000 rows, and takes the others' attribute from rows with equal z."""
    _, group = np.unique(z, axis=0, return_inverse=True)
    sums, counts = (np.bincount(group[:4000], weight, group.max() + 1) for weight in (attribute[:4000], None))
    belief = np.where(counts > 0, sums / np.maximum(counts, 1), attribute[:4000].mean())[group[4000:]]
    auc, error = told(belief, attribute[4000:].astype(int))
    return 2 * auc - 1, 2 * error
