"""The certificate of sums over hidden groups, attacked on canaries as the others are.

The answers are those that tests/hidden_sums/test_noise.py shows to be what comes out.
"""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from tacit.one_shot.hiding import noise_of
from tacit.one_shot.sums import sums

from .test_certificate_attacked import SECRET, coins, holds


def hidden_answers_of(mechanism, moved, canaries):
    """Answers for groups of one canary and rows known to be 0; canaries move on by so many groups each time."""
    noise = noise_of(mechanism, SECRET, "r airport")
    return [
        np.roll(canaries, step) + noise(number, hashlib.sha256(bytes([number])).digest(), len(canaries))
        for number, step in enumerate(moved)
    ]


@pytest.mark.parametrize("partitions", [1, 4, 64])
def test_hidden_groups_of_one_unknown_row(partitions):
    mechanism = sums(0.6, groups=2, partitions=partitions, hidden=True)
    canaries = coins(8000 if partitions < 64 else 4000, seed=16)
    answers = hidden_answers_of(mechanism, [0] * partitions, canaries)
    holds(f"hidden sums, one row alone, {partitions}", np.sum(answers, axis=0), canaries, mechanism.auc)


def test_hidden_groups_that_differ_by_one_row():
    mechanism, canaries = sums(0.8, groups=2, partitions=2, hidden=True), coins(8000, seed=17)
    one, two = hidden_answers_of(mechanism, [0, 1], canaries)
    holds("hidden sums, groups subtracted", one - two, canaries, mechanism.auc, reached=False)
    holds("hidden sums, groups added up", one + np.roll(two, -1), canaries, mechanism.auc)


def test_noise_for_one_partition_in_all_four_would_be_noticed():
    certified, canaries = sums(0.6, groups=2, partitions=4, hidden=True), coins(8000, seed=18)
    answers = hidden_answers_of(replace(certified, scaled=certified.scaled // 4), [0] * 4, canaries)
    with pytest.raises(AssertionError):
        holds("hidden sums, too little noise", np.sum(answers, axis=0), canaries, certified.auc)
