"""The worst case over many visits, against brute force and against formulas written down another way."""

import functools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score

from tacit.errors import LabelsError, TensorError, UsageError
from tacit.ledger.moments import Moments
from tacit.ledger.worst_case import (
    PRECISE,
    auc_of,
    enough,
    forecast,
    rows_needed,
    sum_kl_of,
    unseen,
    worst_case,
)

WIDTH = 6


def root(matrix):
    variances, axes = np.linalg.eigh(matrix)
    return axes * np.sqrt(np.maximum(variances, 0)) @ axes.T


class World:
    """Two classes of Gaussian rows, and Gaussian noise for each."""

    def __init__(self, seed, *, gap=0.4, noise=2.0, alike=False, width=WIDTH):
        self.draw = np.random.default_rng(seed)
        shapes = self.draw.standard_normal((4, width, width)) * np.exp(-np.arange(width) / 2)
        self.clean = [shape.T @ shape / width + 0.01 * np.eye(width) for shape in shapes[:2]]
        self.noise = [noise * (shape.T @ shape / width + 0.5 * np.eye(width)) for shape in shapes[2:]]
        if alike:
            self.clean[1], self.noise[1] = self.clean[0], self.noise[0]
        self.gap = gap * self.draw.standard_normal(width) / math.sqrt(width)
        self.width = width

    def rows(self, count, share=0.3):
        """Clean rows and labels."""
        labels = (self.draw.random(count) < share).astype(int)
        normal = self.draw.standard_normal((count, self.width))
        clean = np.where(labels[:, None] == 1, normal @ root(self.clean[1]) + self.gap, normal @ root(self.clean[0]))
        return clean, labels

    def sent(self, clean, labels, power=1.0):
        """One visit: the rows with fresh noise."""
        normal = self.draw.standard_normal(clean.shape) * math.sqrt(power)
        return clean + np.where(labels[:, None] == 1, normal @ root(self.noise[1]), normal @ root(self.noise[0]))

    def epoch(self, count=40_000, power=1.0):
        """The moments of an epoch."""
        clean, labels = self.rows(count)
        sent = self.sent(clean, labels, power)
        return Moments.empty(self.width).add(*(torch.from_numpy(part) for part in (clean, sent, labels)))

    def joint(self, k, powers):
        """Mean and covariance of all visits of an example of class k, one after the other."""
        many = len(powers)
        mean = np.tile(self.gap if k else np.zeros(self.width), many)
        return mean, np.kron(np.ones((many, many)), self.clean[k]) + np.kron(np.diag(powers), self.noise[k])

    def exact(self, powers):
        """The sumKL by the textbook: KL of Gaussians both ways, of all visits kept apart."""
        found = 0.0
        for k in (0, 1):
            (mean, here), (other, there) = self.joint(k, powers), self.joint(1 - k, powers)
            inverse, apart = np.linalg.inv(there), other - mean
            logs = np.linalg.slogdet(there)[1] - np.linalg.slogdet(here)[1]
            found += (np.trace(inverse @ here) - len(here) + logs + apart @ inverse @ apart) / 2
        return found

    def attacked(self, visits, count=40_000):
        """The AUC of the likelihood ratio of all visits together, each kept apart: nothing is averaged by formula."""
        clean, labels = self.rows(count, share=0.5)
        seen = np.stack([self.sent(clean, labels) for _ in range(visits)], axis=1)  # (rows, visits, width)
        scores = []
        for k in (1, 0):
            model = stats.multivariate_normal(*self.joint(k, [1.0] * visits))
            scores.append(model.logpdf(seen.reshape(count, -1)))
        return roc_auc_score(labels, scores[0] - scores[1])


# --- against brute force ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("visits", [1, 2, 15])
@pytest.mark.parametrize("alike", [True, False], ids=["a shift alone", "other covariances"])
def test_the_figure_is_at_or_above_the_best_attack_on_all_visits(visits, alike):
    world = World(3, alike=alike, gap=0.6)
    found = worst_case([world.epoch() for _ in range(visits)])
    assert found == pytest.approx(world.exact([1.0] * visits), rel=0.06, abs=0.004)
    best = world.attacked(visits)
    assert auc_of(found) > best - 0.012  # four standard errors of the attack's AUC and of the moments
    if alike:
        assert auc_of(found) == pytest.approx(best, abs=0.015), "for a shift alone the formula is exact"


def test_what_matched_once_comes_apart_over_visits():
    """Noise that lifts both classes to one covariance hides nothing of it once it is averaged away."""
    world = World(5, gap=0.05)
    total = world.clean[0] + world.clean[1] + np.eye(WIDTH)
    world.noise = [total - clean for clean in world.clean]
    one, many = (worst_case([world.epoch() for _ in range(visits)]) for visits in (1, 15))
    assert one < 0.01
    assert many == pytest.approx(world.exact([1.0] * 15), rel=0.06)
    assert many > 15 * max(one, 0.01), "adding up the figures of each visit is no bound"
    assert auc_of(many) > world.attacked(15) - 0.012


def test_noise_that_differs_between_the_classes_tells_by_its_scatter():
    """Each visit and their mean hide the class; the differences between visits are the noise itself."""
    world = World(6, gap=0.0, alike=True)
    world.noise[1] = 1.3 * world.noise[0]
    world.clean = [clean + 100 * np.eye(WIDTH) for clean in world.clean]
    once, often = (worst_case([world.epoch() for _ in range(visits)]) for visits in (1, 15))
    assert once < 0.005
    assert often == pytest.approx(world.exact([1.0] * 15), rel=0.1)
    best = world.attacked(15)
    assert best > 0.8
    assert auc_of(often) > best - 0.012


@pytest.mark.parametrize("rows", [300, 3000], ids=["few", "many"])
def test_errors_of_estimation_are_not_counted_as_leak(rows):
    """Two classes that are alike: a plain estimate finds a difference in every sample, most of all in small ones."""
    world = World(8, gap=0.0, alike=True, width=16)
    found, plain = [], []
    for _ in range(30):
        moments = world.epoch(rows)
        found.append(worst_case([moments]))
        total = (moments.covariances + moments.noises).numpy()
        apart = total[1] - total[0]
        plain.append(np.trace(np.linalg.solve(total[0], apart) @ np.linalg.solve(total[1], apart)) / 2)
    assert np.mean(found) < 0.25 * np.mean(plain)
    assert np.mean(found) < 150 / rows


def test_precisions_add_up_where_the_noise_changes():
    world = World(9)
    powers = [4.0, 1.0, 2.0, 8.0]
    found = worst_case([world.epoch(power=power) for power in powers])
    assert found == pytest.approx(world.exact(powers), rel=0.06)


def test_the_worst_epoch_counts_where_the_gap_changes():
    quiet, loud = World(10, gap=0.1, alike=True), World(10, gap=1.0, alike=True)
    both = worst_case([quiet.epoch(), loud.epoch()])
    assert both == pytest.approx(loud.exact([1.0, 1.0]), rel=0.12)
    assert both > 5 * worst_case([quiet.epoch(), quiet.epoch()])


def test_visits_that_were_not_measured_count_as_the_last():
    world = World(11)
    first, last = world.epoch(power=9.0), world.epoch()
    assert worst_case([first, last], 4) == pytest.approx(world.exact([9.0, 1.0, 1.0, 1.0]), rel=0.06)
    assert worst_case([first, last], 1) == worst_case([first])
    assert worst_case([first, last], 0) == 0.0


def test_a_forecast_is_what_comes_true():
    world = World(12, alike=True)
    so_far = [world.epoch(power=2.0) for _ in range(2)]
    for left, factor in ((0, 1.0), (3, 1.0), (3, 4.0)):
        powers = [2.0, 2.0] + [2.0 * factor] * left
        assert forecast(so_far, left, factor) == pytest.approx(world.exact(powers), rel=0.06)
    assert forecast(so_far, 0) == worst_case(so_far)
    with pytest.raises(UsageError, match="forecast"):
        forecast(so_far, 3, 0.0)


def test_small_epochs_are_taken_together():
    world = World(13)
    small = [world.epoch(40) for _ in range(40)]
    with pytest.raises(UsageError, match="too few"):
        worst_case(small[:1])
    assert worst_case(small) == pytest.approx(world.exact([1.0] * 40), rel=0.5)


def test_a_figure_is_known_precisely_or_as_large_for_certain():
    """The stated error is that of many repetitions; few rows give no figure, unless it is beyond doubt."""
    same, apart = (World(14, gap=gap, alike=True, width=16, noise=9.0) for gap in (0.0, 30.0))
    assert not enough([same.epoch(2000)])
    assert enough([same.epoch(2000) for _ in range(4)])
    assert enough([same.epoch(8000)])
    needed = rows_needed(16, 0.3)
    assert not enough([same.epoch(int(0.9 * needed))])
    assert enough([same.epoch(int(1.1 * needed))])
    assert enough([apart.epoch(300)])
    assert not enough([apart.epoch(60)])
    spread = np.std([worst_case([same.epoch(8000)]) for _ in range(40)])
    assert 0.3 * PRECISE < spread < PRECISE
    assert unseen([same.epoch(8000)], 15) == pytest.approx(15 * 2 * 0.7 * PRECISE, rel=0.4)


@pytest.mark.parametrize("rank", [0, 2])
def test_directions_without_noise_or_without_anything(rank):
    """Noise in some directions alone leaves the others bare; where nothing ever is, nothing is told."""
    draw = np.random.default_rng(1)
    labels = draw.random(4000) < 0.4
    clean = np.zeros((4000, WIDTH))
    clean[:, :3] = draw.standard_normal((4000, 3))
    clean[:, 0] += 3.0 * labels
    noise = np.zeros_like(clean)
    noise[:, :rank] = 30 * draw.standard_normal((4000, rank))
    moments = Moments.empty(WIDTH).add(*(torch.from_numpy(part) for part in (clean, clean + noise, labels)))
    found = worst_case([moments])
    if rank:
        assert found == pytest.approx(9 / 901, rel=0.5)
    else:
        assert found == pytest.approx(9.0, rel=0.1)


def test_figures_and_their_sum_kl():
    for auc in (0.5, 0.6, 0.93):
        assert auc_of(sum_kl_of(auc)) == pytest.approx(auc)
    assert (sum_kl_of(1.0), auc_of(math.inf), auc_of(0.0)) == (math.inf, 1.0, 0.5)
    assert auc_of(0.3) == pytest.approx(stats.norm.cdf(math.sqrt(0.15)))
    with pytest.raises(UsageError, match=r"between 0\.5"):
        sum_kl_of(0.4)


# --- moments ---------------------------------------------------------------------------------------------------------


def test_moments_are_those_of_numpy_in_units_of_each_batch():
    world = World(20)
    batches = []
    for size in (3.0, 0.01):
        clean, labels = world.rows(500)
        sent = world.sent(clean, labels)
        batches.append((size * clean, size * sent, labels))
    moments = Moments.empty(WIDTH)
    for batch in batches:
        moments = moments.add(*(torch.from_numpy(part) for part in batch))
    scaled = [(clean / np.sqrt((clean**2).mean()), sent / np.sqrt((clean**2).mean())) for clean, sent, _ in batches]
    clean, sent = (np.concatenate(parts) for parts in zip(*scaled, strict=True))
    labels = np.concatenate([labels for _, _, labels in batches])
    for k in (0, 1):
        own = clean[labels == k]
        np.testing.assert_allclose(moments.covariances[k], np.cov(own.T), rtol=1e-9, atol=1e-12)
        noise, weight = np.zeros((WIDTH, WIDTH)), 0.0
        for (bare, left), (_, _, y) in zip(scaled, batches, strict=True):
            for half in (0, 1):
                rows = [np.flatnonzero(y == each)[half::2] for each in (0, 1)]
                counts = 1 / sum(1 / len(each) for each in rows) / ((left - bare) ** 2).mean()
                noise += counts * np.mean([np.outer(row, row) for row in (left - bare)[rows[k]]], axis=0)
                weight += counts
        np.testing.assert_allclose(moments.noises[k], noise / weight, rtol=1e-9)
        assert moments.counts[k] == len(own)
    np.testing.assert_allclose(moments.gap, clean[labels == 1].mean(0) - clean[labels == 0].mean(0), atol=1e-12)
    halves = [moments.rows(half) for half in (0, 1)]
    assert (halves[0] + halves[1] == moments.rows(None)).all()
    assert (abs(halves[0] - halves[1]) <= 2).all()


def test_noise_that_changes_between_batches_of_other_shares_is_no_difference_between_the_classes():
    draw = np.random.default_rng(5)
    width, moments = 32, Moments.empty(32)
    for step in range(60):
        labels = (draw.random(400) < draw.choice([0.03, 0.12])).astype(int)
        clean = draw.standard_normal((400, width))
        loud = np.where(np.arange(width) % 8 == step % 8, 60.0, 2.0) if step else np.full(width, 1000.0)
        sent = clean + loud * draw.standard_normal((400, width))
        moments = moments.add(*(torch.from_numpy(part) for part in (clean, sent, labels)))
    assert auc_of(worst_case([moments], 10)) < 0.53


def test_moments_add_up_and_come_back_from_a_file():
    one, two = World(21).epoch(200), World(22).epoch(300)
    both = one.merged(two)
    assert both.counts == tuple(a + b for a, b in zip(one.counts, two.counts, strict=True))
    again = Moments.of(both.tensors())
    for name in ("count", "total", "square", "noise"):
        assert torch.equal(getattr(again, name), getattr(both, name)), name
    with pytest.raises(UsageError, match="different cuts"):
        one.merged(Moments.empty(3))


def test_moments_refuse_what_does_not_belong_together():
    clean = torch.randn(8, 2, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1] * 4)
    moments = Moments.empty(6)
    assert moments.add(clean, clean + 1, labels).counts == (4, 4)
    assert moments.add(torch.zeros_like(clean), clean, labels).counts == (0, 0), "a batch of zeros has no units"
    for wrong in ((clean[:7], clean, labels), (clean, clean[:, :1], labels), (clean, clean, labels[:7])):
        with pytest.raises(TensorError, match="same rows"):
            moments.add(*wrong)
    with pytest.raises(LabelsError, match="0 or 1"):
        moments.add(clean, clean, labels + 1)
    with pytest.raises(TensorError, match="not finite"):
        moments.add(clean, clean * math.nan, labels)
    for width in (0, 5000):
        with pytest.raises(UsageError, match=f"of {width} numbers"):
            Moments.empty(width)


def test_a_few_very_loud_batches_do_not_drown_the_others():
    """As at the beginning of a training: what they add to the picture is that a visit in them told nothing."""
    world = World(17, alike=True, width=16)
    plain = [world.epoch(2000) for _ in range(10)]
    loud = world.epoch(100, power=1e5)
    assert worst_case([functools.reduce(Moments.merged, [loud, *plain])], 4) == pytest.approx(
        worst_case([functools.reduce(Moments.merged, plain)], 4), rel=0.05
    )


def test_epochs_of_other_noise_add_up_by_their_precisions_also_where_they_are_taken_together():
    world = World(18, alike=True, width=16)
    powers = [1.0, 4.0, 4.0, 64.0] * 4
    together = functools.reduce(Moments.merged, [world.epoch(2500, power=power) for power in powers])
    assert worst_case([together], len(powers)) == pytest.approx(world.exact(powers), rel=0.1)
