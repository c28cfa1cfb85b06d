"""Hidden sums with the noise of open ones: the same answers, the same bound, whatever the groups are."""

import hashlib

import numpy as np
import pytest

from tacit.one_shot.sums import sums
from tests.hidden_sums.sides import LABEL_SECRET, Pair, agreed, some_groups

RUN = "r1, hidden"


@pytest.fixture(name="mechanism", scope="module")
def _mechanism():
    return sums(0.6, groups=8, partitions=3)


def paired(folder, mechanism, rows=40, **options):
    def noise(partition, batch, count):
        return mechanism.noise(LABEL_SECRET, batch, (count,), number=partition, run=RUN)

    agreement = agreed(
        rows=rows,
        group=mechanism.groups,
        partitions=mechanism.partitions,
        mechanism=mechanism.series,
        reach=mechanism.reach,
    )
    return Pair(folder, agreement, noise=noise, **options).meet()


def test_an_answer_is_the_sum_and_the_noise_of_its_batch(tmp_path, mechanism):
    pair, groups = paired(tmp_path, mechanism), some_groups()
    batch = pair.features.batch(1, groups)
    answer = pair.label.answer(1, batch)
    found = pair.features.read(1, groups, answer)
    order, _ = pair.features._shuffled(1, groups)
    noise = mechanism.noise(LABEL_SECRET, hashlib.sha256(batch).digest(), (5,), number=1, run=RUN)
    wanted = np.bincount(groups[groups >= 0], weights=pair.labels[groups >= 0])
    assert (found - wanted)[order].tolist() == noise.tolist()


def test_the_same_groups_in_two_partitions_have_noise_of_their_own(tmp_path, mechanism):
    pair, groups = paired(tmp_path, mechanism), some_groups()
    answers = [pair.features.read(n, groups, pair.label.answer(n, pair.features.batch(n, groups))) for n in range(3)]
    assert len({tuple(answer) for answer in answers}) == 3


def test_crafted_groups_tell_no_more_than_is_certified(tmp_path, mechanism):
    """One unknown label in each group, the same in all partitions, all others known: the worst that groups can do.

    The leak AUC that the three answers have for 40 such labels, half of them 1, is at most the certificate, within what
    chance does once in a million times.
    """
    rows, canaries = 320, 40
    labels = np.zeros(rows, int)
    labels[: canaries // 2] = 1
    pair = paired(tmp_path, mechanism, rows=rows, labels=labels)
    groups = np.concatenate([np.arange(canaries), np.repeat(np.arange(canaries), 7)])
    told = np.zeros(canaries)
    for number in range(3):
        told += pair.features.read(number, groups, pair.label.answer(number, pair.features.batch(number, groups)))
    ones, zeros = told[: canaries // 2, None], told[None, canaries // 2 :]
    auc = float((ones > zeros).mean() + (ones == zeros).mean() / 2)
    deviation = ((canaries + 1) / (12 * (canaries / 2) ** 2)) ** 0.5  # of Mann and Whitney's statistic
    assert auc < mechanism.auc + 4.9 * deviation
