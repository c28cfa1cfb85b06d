"""Hidden sums with the noise of open ones: the same answers, the same bound, whatever the groups are."""

import hashlib

import numpy as np
import pytest

from tacit.errors import RefusedError
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


def test_crafted_groups_get_the_same_noise_as_any(tmp_path):
    """A row alone with one whose label is known, in as many partitions as can be agreed on: sums and noise, no less.

    What such answers tell of 8,000 labels is held against the certificate in one_shot/test_certificate_attacked.py.
    """
    mechanism = sums(0.6, groups=2, partitions=64)
    labels = np.array([1, 0, 1, 0, 0, 0, 0, 0])
    pair = paired(tmp_path, mechanism, rows=8, labels=labels)
    groups = np.array([0, 1, 2, 3, 3, 2, 1, 0])
    for number in (0, 1, 62, 63):
        batch = pair.features.batch(number, groups)
        found = pair.features.read(number, groups, pair.label.answer(number, batch))
        order, _ = pair.features._shuffled(number, groups)
        noise = mechanism.noise(LABEL_SECRET, hashlib.sha256(batch).digest(), (4,), number=number, run=RUN)
        assert (found - [1, 0, 1, 0])[order].tolist() == noise.tolist()
    with pytest.raises(RefusedError):
        pair.label.answer(64, batch)
