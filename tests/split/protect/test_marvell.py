import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from tacit.audit.metrics.leak_auc import auc
from tacit.errors import UsageError
from tacit.split.protect.gradient.marvell import Solution, marvell, solve
from tests.split.protect.marvell_batches import ALARM, batch, by_hand, chi_square


def statistics(grad: Tensor, labels: Tensor) -> tuple[float, float, int, float, float, Tensor]:
    """U, v, d, gap, p of a batch as in the paper's algorithm, and the direction of the gap."""
    positive, negative = grad[labels == 1], grad[labels == 0]
    w = positive.mean(0) - negative.mean(0)
    u, v = (float(((part - part.mean(0)) ** 2).sum(1).mean() / grad.shape[1]) for part in (negative, positive))
    gap = float(w @ w)
    return u, v, grad.shape[1], gap, float(labels.double().mean()), w / w.norm()


# --- the noise --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knob", [{"scale": 4.0}, {"sum_kl": 0.16}, {"leak_auc": 0.6}, {"detection_error": 0.3}])
@pytest.mark.parametrize("width", [1, 6])
def test_the_noise_is_what_the_solver_says_of_the_batch(replay, knob, width):
    grad, labels = batch(1, 60, width)
    u, v, d, gap, p, e = statistics(grad, labels)
    budget = {"power": 4.0 * gap} if "scale" in knob else {"sum_kl": marvell(**knob).sum_kl}
    s = solve(u, v, d, gap, p, **budget)
    normal = torch.randn(60, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    protected = marvell(**knob)(grad, labels, replay(normal))
    torch.testing.assert_close(protected.value, by_hand(grad, labels, s, e, normal), rtol=1e-9, atol=1e-9)
    assert protected.report["stateless"] == 0
    assert protected.report["power"].item() == pytest.approx(s.power, rel=1e-9)
    assert protected.report["sum_kl"].item() == pytest.approx(s.sum_kl, rel=1e-9)


@pytest.mark.parametrize(("u", "v", "scale"), [(1.0, 0.4, 4.0), (0.3, 2.0, 4.0), (0.1, 0.1, 0.5), (2.0, 0.5, 30.0)])
def test_covariance_mean_and_power_of_many_draws(seeded, u, v, scale):
    grad, labels = batch(3, 500, 6, u=u, v=v)
    *moments, e = statistics(grad, labels)
    s = solve(*moments, power=scale * moments[3])
    repeats = 40
    stack, y = grad.expand(repeats, -1, -1), labels.expand(repeats, -1)
    protected = marvell(scale=scale)(stack, y, seeded(4))
    noise = protected.value - stack  # (repeats, batch, width)
    along = noise @ e
    across = noise - along[..., None] * e
    for name, variances in ((1, (s.along_pos, s.across_pos)), (0, (s.along_neg, s.across_neg))):
        mine = labels == name
        count = repeats * int(mine.sum())
        for part, variance, freedom in zip((along[..., None], across), variances, (1, 5), strict=True):
            part = part[:, mine]
            if variance == 0:
                assert part.abs().max() < 1e-12
                continue
            chi_square((part**2).sum() / variance, freedom * count)
            mean = part.sum((0, 1)) / math.sqrt(count * variance)  # unbiased; projected, so `freedom` of its squares
            chi_square((mean**2).sum(), freedom)
        if min(variances) > 0:  # along and across know nothing of each other
            linked = torch.einsum("rb,rbw->w", along[:, mine], across[:, mine]) / math.sqrt(
                count * math.prod(variances)
            )
            chi_square((linked**2).sum(), 5)
    weight = torch.where(labels == 1, torch.tensor(s.along_pos), s.along_neg) ** 2
    weight = weight + 5 * torch.where(labels == 1, torch.tensor(s.across_pos), s.across_neg) ** 2
    error = math.sqrt(2 * float(weight.sum()) / repeats) / 500
    measured = float((noise**2).sum(-1).mean())
    power = protected.report["power"]
    assert power.shape == (repeats,)
    assert abs(measured - power[0].item()) < norm.isf(ALARM / 2) * error
    assert power[0].item() == pytest.approx(scale * moments[3], rel=1e-9)


def test_the_reported_divergence_is_that_of_the_two_gaussians(seeded):
    grad, labels = batch(5, 300, 7, u=0.3, v=1.1)
    *moments, _ = statistics(grad, labels)
    u, v, d, gap, _ = moments
    report = marvell(scale=2.0)(grad, labels, seeded(0)).report
    s = solve(*moments, power=2.0 * gap)
    X, Y, Z, W = u + s.along_neg, v + s.along_pos, u + s.across_neg, v + s.across_pos
    line = torch.zeros(d, dtype=torch.float64)
    line[0] = math.sqrt(gap)

    def normal(mean: Tensor, along: float, across: float) -> torch.distributions.MultivariateNormal:
        variances = torch.full((d,), across, dtype=torch.float64)
        variances[0] = along
        return torch.distributions.MultivariateNormal(mean, torch.diag(variances))

    a, b = normal(torch.zeros_like(line), X, Z), normal(line, Y, W)
    both = torch.distributions.kl_divergence(a, b) + torch.distributions.kl_divergence(b, a)
    assert report["sum_kl"].item() == pytest.approx(both.item(), rel=1e-9)
    k = both.item()
    assert report["model_auc_theorem_1"].item() == pytest.approx(0.5 + math.sqrt(k) / 2 - k / 8, rel=1e-9)
    assert report["model_auc_gaussian"].item() == pytest.approx(norm.cdf(math.sqrt(k / 2)), rel=1e-9)


def test_a_class_that_gets_no_noise_is_counted(seeded):
    grad, labels = batch(6, 400, 12, u=0.01, v=4.0, gap=0.5)
    protected = marvell(scale=0.5)(grad, labels, seeded(0))
    same = (protected.value == grad).all(-1)
    assert torch.equal(same, labels == 1)
    assert protected.report["untouched_rows"].item() == int(labels.sum())
    grad, labels = batch(6, 400, 12, u=1.0, v=1.0)
    protected = marvell(scale=4.0)(grad, labels, seeded(0))
    assert protected.report["untouched_rows"].item() == 0
    assert (protected.value != grad).all()


def test_four_spellings_of_one_strength(replay):
    grad, labels = batch(7)
    normal = torch.randn(grad.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    first = marvell(sum_kl=0.16)(grad, labels, replay(normal))
    *moments, _ = statistics(grad, labels)
    scale = solve(*moments, sum_kl=0.16).power / moments[3]
    for knob in ({"detection_error": 0.4}, {"leak_auc": norm.cdf(math.sqrt(0.08))}, {"scale": scale}):
        other = marvell(**knob)(grad, labels, replay(normal))
        torch.testing.assert_close(other.value, first.value, rtol=1e-7, atol=1e-7)
        for figure in ("power", "sum_kl", "model_auc_gaussian"):
            assert other.report[figure].item() == pytest.approx(first.report[figure].item(), rel=1e-7)
    assert first.report["sum_kl"].item() == pytest.approx(0.16, rel=1e-9)
    assert first.event.mechanism == "marvell"
    assert first.event.parameters["sum_kl"] == 0.16


def test_no_other_allocation_of_this_power_leaves_less(seeded):
    grad, labels = batch(9, 300, 10, u=0.2, v=0.9, gap=1.0)
    *moments, _ = statistics(grad, labels)
    u, v, d, gap, p = moments
    report = marvell(scale=3.0)(grad, labels, seeded(0)).report
    power = report["power"].item()
    parts = torch.rand(4, 20_000, generator=seeded(10), dtype=torch.float64).log() ** 2
    parts = parts / parts.sum(0) * power
    X, Y = u + parts[0] / (1 - p), v + parts[1] / p
    Z, W = u + parts[2] / (1 - p) / (d - 1), v + parts[3] / p / (d - 1)
    left = ((d - 1) * (Z - W) ** 2 / (Z * W) + (X - Y) ** 2 / (X * Y) + gap / X + gap / Y) / 2
    assert report["sum_kl"].item() <= left.min().item()
    assert left.min().item() < 1.2 * report["sum_kl"].item()  # they come close, so the comparison says something


# --- what it promises about attackers ---------------------------------------------------------------------------------


def likelihood_ratio_auc(u, v, d, gap, s, rows, rng) -> Tensor:
    """AUC of the exact likelihood ratio on fresh Gaussian rows, through its two sufficient figures.

    Along the line each class is normal; across it the squared norm is a chi-square with d - 1 degrees of freedom.
    """
    X, Y, Z, W = u + s.along_neg, v + s.along_pos, u + s.across_neg, v + s.across_pos
    n = (len(u), rows)
    energy = [torch.from_numpy(rng.chisquare((d - 1).clamp(min=1)[:, None], n)) * (d > 1)[:, None] for _ in range(2)]
    along = [torch.from_numpy(rng.standard_normal(n)) for _ in range(2)]
    t = torch.cat([along[0] * X.sqrt()[:, None], gap.sqrt()[:, None] + along[1] * Y.sqrt()[:, None]], dim=1)
    r = torch.cat([energy[0] * Z[:, None], energy[1] * W[:, None]], dim=1)
    ratio = t**2 / X[:, None] - (t - gap.sqrt()[:, None]) ** 2 / Y[:, None] + r / Z[:, None] - r / W[:, None]
    labels = torch.cat([torch.zeros(n), torch.ones(n)], dim=1)
    return auc(ratio, labels)


def test_the_best_attacker_stays_under_both_bounds(seeded):
    g, rng = seeded(20), np.random.default_rng(20)
    count, rows = 250, 6000

    def between(low: float, high: float) -> Tensor:
        return 10 ** (low + (high - low) * torch.rand(count, generator=g, dtype=torch.float64))

    u, v, gap, d = between(-2, 1), between(-2, 1), between(-2, 1), between(0, 3).floor()
    p = 0.01 + 0.98 * torch.rand(count, generator=g, dtype=torch.float64)
    k = between(-2, 0.6)
    s = solve(u, v, d, gap, p, sum_kl=k)
    left = s.sum_kl
    measured = likelihood_ratio_auc(u, v, d, gap, s, rows, rng)
    slack = norm.isf(ALARM) * 0.5 / math.sqrt(rows)  # the variance of an AUC is at most a (1 - a) / rows of a class
    gaussian = torch.special.ndtr((left / 2).sqrt())
    theorem = 0.5 + left.sqrt() / 2 - left / 8
    assert (measured < gaussian + slack).all(), (measured - gaussian).max()
    assert (measured < theorem + slack).all(), (measured - theorem).max()
    assert ((gaussian - measured) < 0.02).sum() > 50  # the bound is close, so noise that is too weak would show
    weaker = likelihood_ratio_auc(u, v, d, gap, Solution(*(x / 4 for x in s)), rows, rng)
    assert (weaker > gaussian + slack).sum() > 50


@pytest.mark.parametrize("width", [2, 32])
@pytest.mark.parametrize(("u", "v", "share"), [(1.0, 1.0, 0.5), (0.2, 1.0, 0.1), (1.0, 0.05, 0.3)])
def test_a_promise_of_060_is_kept_on_gaussian_rows(seeded, width, u, v, share):
    grad, labels = batch(30 + width, 20_000, width, u=u, v=v, share=share, gap=1.5)
    bare = marvell(leak_auc=0.6)(grad, labels, seeded(31))
    y = bare.value.double()
    positive, negative = y[labels == 1], y[labels == 0]
    # the attacker knows both Gaussians exactly: here from the noise that was solved for
    *moments, e = statistics(grad, labels)
    s = solve(*moments, sum_kl=bare.report["sum_kl"].item())
    ratio = torch.zeros(len(y), dtype=torch.float64)
    for sign, mean, along, across in (
        (1, negative.mean(0), u + s.along_neg, u + s.across_neg),
        (-1, positive.mean(0), v + s.along_pos, v + s.across_pos),
    ):
        centred = y - mean
        t = centred @ e
        ratio += sign * (t**2 / along + ((centred**2).sum(1) - t**2) / across)
    error = 0.5 / math.sqrt(min(len(positive), len(negative)))  # the variance of an AUC is at most a (1 - a) / rows
    # means that are fitted on the same rows flatter the attacker by at most about 2 width / rows of squared distance
    assert auc(ratio, labels).item() < 0.6 + norm.isf(ALARM) * error + 0.005
    clean = auc(((grad - grad[labels == 0].mean(0)) @ e), labels).item()
    assert clean > 0.75


# --- the papers' search of the power ----------------------------------------------------------------------------------


def papers_loop(u, v, d, gap, p, *, sum_kl):
    """Report 2020a to the letter: P is the squared distance of the means, and times 1.5 while sumKL* is too large."""
    power = gap
    while solve(u, v, d, gap, p, power=power).sum_kl > sum_kl:
        power *= 1.5
    return power


@pytest.mark.parametrize("knob", [{"sum_kl": 3.6}, {"sum_kl": 0.01}, {"detection_error": 0.4}, {"leak_auc": 0.7}])
@pytest.mark.parametrize(("u", "v", "width"), [(0.3, 1.1, 7), (1.0, 0.4, 128), (5.0, 5.0, 3), (0.2, 0.2, 1)])
def test_the_papers_search_spends_what_their_loop_does(seeded, knob, u, v, width):
    grad, labels = batch(8, 200, width, u=u, v=v)
    *problem, _ = statistics(grad, labels)
    protect = marvell(**knob, search="papers")
    wanted = papers_loop(*problem, sum_kl=protect.sum_kl)
    exact = marvell(**knob)(grad, labels, seeded(0)).report["power"].item()
    for report in (
        protect(grad, labels, seeded(0)).report,
        {k: x[0] for k, x in protect(grad.expand(3, -1, -1), labels.expand(3, -1), seeded(0)).report.items()},
    ):
        assert report["power"].item() == pytest.approx(wanted, rel=1e-9)
        assert report["sum_kl"].item() <= protect.sum_kl * (1 + 1e-9)
        assert report["sum_kl"].item() == pytest.approx(solve(*problem, power=wanted).sum_kl, rel=1e-9)
    assert wanted >= exact * (1 - 1e-9), "the exact search spends the least"
    assert wanted <= max(1.5 * exact, problem[3]) * (1 + 1e-9)


def test_the_search_is_part_of_what_is_said_and_only_where_it_is_not_the_usual_one():
    assert "search" not in marvell(sum_kl=0.1).event.parameters
    assert marvell(sum_kl=0.1, search="exact") == marvell(sum_kl=0.1)
    assert marvell(sum_kl=0.1, search="papers").event.parameters["search"] == "papers"
    with pytest.raises(UsageError, match="nothing to search"):
        marvell(scale=4.0, search="papers")
    with pytest.raises(UsageError, match="'exact' or 'papers'"):
        marvell(sum_kl=0.1, search="fast")
