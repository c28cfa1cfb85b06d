"""Two sides that agree, on small tables."""

import numpy as np

from tacit.hidden_sums.encryption import check_labels, encrypt
from tacit.hidden_sums.feature_side import FeatureSide
from tacit.hidden_sums.label_side import LabelSide
from tacit.hidden_sums.messages import Agreement
from tacit.hidden_sums.points import decode
from tacit.hidden_sums.shuffle import Input, shuffle_generators

LABEL_SECRET, FEATURE_SECRET = b"l" * 32, b"f" * 32


def agreed(rows=40, group=8, partitions=3, **others):
    return Agreement(
        **{
            "contract": "c0ffee", "run": "r1", "mechanism": "none", "rows": rows, "group": group,
            "partitions": partitions, "reach": 100, **others,
        }
    )  # fmt: skip


def no_noise(partition, batch, count):
    return np.zeros(count, np.int64)


def some_labels(rows=40, seed=0):
    return np.random.default_rng(seed).integers(0, 2, rows)


def some_groups(rows=40, group=8, seed=0):
    """Groups of equal size, the remainder left over."""
    groups = np.full(rows, -1)
    whole = rows // group
    groups[np.random.default_rng(seed).permutation(rows)[: whole * group]] = np.repeat(np.arange(whole), group)
    return groups


def some_input(labels, context=b"context"):
    """Labels encrypted and checked, ready to be shuffled."""
    made = encrypt(labels, LABEL_SECRET, context)
    a, b = check_labels(made, FEATURE_SECRET, context)
    return Input(decode(made.pk), a, b, context, shuffle_generators(len(labels)))


class Pair:
    """Both sides of a run, each with a folder of its own."""

    def __init__(self, folder, agreement=None, labels=None, noise=no_noise, **options):
        self.agreement = agreement or agreed()
        self.labels = some_labels(self.agreement.rows) if labels is None else labels
        self.label = LabelSide(folder / "label", LABEL_SECRET, self.agreement, self.labels, noise, **options)
        self.features = FeatureSide(folder / "features", FEATURE_SECRET, self.agreement)

    def meet(self):
        self.features.accept(self.label.commitment())
        return self
