"""Running class covariances and the plan made from them: what is kept, and that the plan's noise matches.

Statistical checks run with fixed seeds; the false-alarm rate in a comment is that of a fresh seed.
"""

import pytest
import torch
from torch import Tensor

from tacit.protect.gradient._base import Batch, read_batch
from tacit.protect.gradient._covariance import FULL_WIDTH, RANK, Covariances
from tacit.protect.gradient._match import COVARIANCE_SHARE, Classes, along_gap, plan
from tacit.protect.gradient._moments import DECAY


def rows_of(seed: int, size: int, width: int, stack: int | None = None) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    lead = (size,) if stack is None else (stack, size)
    grad = torch.randn(*lead, width, generator=g, dtype=torch.float64) @ torch.randn(
        width, width, generator=g, dtype=torch.float64
    )
    labels = (torch.rand(*lead, generator=g) < 0.3).long()
    return grad + labels[..., None], labels


def in_units(batch: Batch) -> tuple[Batch, Tensor]:
    """A batch with a unit such that its covariances come out in the gradient's own units."""
    return batch, 1 / batch.scale


def matrices_by_hand(batches: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Decayed sums of centred outer products over decayed degrees of freedom, in plain loops."""
    out = []
    for k in (0, 1):
        scatter, freedom = 0.0, 0.0
        for grad, labels in batches:
            x = grad[labels == k]
            x = x - x.mean(0)
            scatter, freedom = DECAY * scatter + x.T @ x, DECAY * freedom + len(x) - 1
        out.append((scatter, freedom))
    return out


def test_sums_are_decayed_within_class_scatter():
    batches = [rows_of(seed, 40, 5) for seed in range(4)]
    kept = None
    for grad, labels in batches:
        batch, unit = in_units(read_batch(grad, labels))
        kept, _ = (kept or Covariances.start(batch)).add(batch, unit)
    for k, (scatter, freedom) in enumerate(matrices_by_hand(batches)):
        torch.testing.assert_close(kept.scatter[0, k], scatter, rtol=1e-10, atol=1e-10)
        assert float(kept.freedom[0, k]) == pytest.approx(freedom)
    weights = [DECAY ** (3 - i) for i in range(4)]
    share = sum(w * int(y.sum()) for w, (_, y) in zip(weights, batches, strict=True))
    assert float(kept.share) == pytest.approx(share / sum(w * 40 for w in weights))
    mean = sum(w * g[y == 1].sum(0) for w, (g, y) in zip(weights, batches, strict=True)) / share
    torch.testing.assert_close(kept.mean[0, 1], mean, rtol=1e-10, atol=1e-10)


def test_shrinkage_keeps_each_class_its_size_and_vanishes_with_many_rows():
    grad, labels = rows_of(3, 60, 6)
    batch, unit = in_units(read_batch(grad, labels))
    few, _ = Covariances.start(batch).add(batch, unit)
    matrices, _ = few.matrices()
    for k in (0, 1):
        own = torch.cov(grad[labels == k].T)
        assert float(matrices[0, k].trace()) == pytest.approx(float(own.trace()))
        n = int((labels == k).sum()) - 1
        off = (matrices[0, k] - own).norm() / own.norm()
        assert 0 < off < 6 / (n + 6) * 2
        assert torch.linalg.eigvalsh(matrices[0, k]).min() > 0
    grad, labels = rows_of(3, 60_000, 6)
    batch, unit = in_units(read_batch(grad, labels))
    many, _ = Covariances.start(batch).add(batch, unit)
    for k in (0, 1):
        own = torch.cov(grad[labels == k].T)
        torch.testing.assert_close(many.matrices()[0][0, k], own, rtol=0, atol=2e-3 * float(own.trace()))


def test_a_class_of_three_rows_has_a_covariance_of_full_rank():
    grad, _ = rows_of(5, 80, 30)
    labels = torch.zeros(80)
    labels[:3] = 1
    batch, unit = in_units(read_batch(grad, labels))
    kept, _ = Covariances.start(batch).add(batch, unit)
    assert bool(kept.defined)
    assert torch.linalg.eigvalsh(kept.matrices()[0][0, 1]).min() > 0


@pytest.mark.parametrize("ones", [0, 1, 19, 20])
def test_a_class_without_two_rows_is_not_defined_until_a_batch_brings_them(ones):
    grad, _ = rows_of(6, 20, 4)
    labels = (torch.arange(20) < ones).long()
    batch, unit = in_units(read_batch(grad, labels))
    kept, _ = Covariances.start(batch).add(batch, unit)
    assert not bool(kept.defined)
    more, unit = in_units(read_batch(grad, (torch.arange(20) < 8).long()))
    assert bool(kept.add(more, unit)[0].defined)


def test_the_size_of_a_batch_does_not_weigh():
    """Each batch in its own unit, a batch of zeros not at all."""
    kept = [None, None]
    for seed, factor in enumerate([1.0, 1e-6, 30.0]):
        grad, labels = rows_of(seed, 40, 5)
        for which, rows in enumerate((grad, factor * grad)):
            batch = read_batch(rows, labels)
            unit = batch.squares.mean(-1).sqrt()
            kept[which], _ = (kept[which] or Covariances.start(batch)).add(batch, unit)
    torch.testing.assert_close(kept[0].scatter, kept[1].scatter, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(kept[0].mean, kept[1].mean, rtol=1e-9, atol=1e-12)
    zeros = read_batch(torch.zeros(40, 5, dtype=torch.float64), labels)
    same, _ = kept[0].add(zeros, zeros.squares.mean(-1).sqrt())
    for name in ("count", "freedom", "total", "scatter", "rest"):
        assert torch.equal(getattr(same, name), getattr(kept[0], name))


def test_a_narrow_cut_is_kept_whole_and_a_wide_one_in_its_leading_coordinates():
    for width, rank in ((FULL_WIDTH, None), (FULL_WIDTH + 1, RANK)):
        grad, labels = torch.randn(2 * RANK, width, generator=torch.Generator().manual_seed(1)), torch.ones(2 * RANK)
        kept = Covariances.start(read_batch(grad, labels))
        assert (kept.basis is None) == (rank is None)
        assert kept.scatter.shape[-1] == (rank or width)


def wide(seed: int, size: int = 128, width: int = 400, leading: int = 10) -> tuple[Tensor, Tensor]:
    """Much in ten fixed directions, a little everywhere, and more of both for positives."""
    fixed = torch.Generator().manual_seed(99)
    axes = torch.linalg.qr(torch.randn(width, leading, generator=fixed, dtype=torch.float64)).Q
    g = torch.Generator().manual_seed(seed)
    labels = (torch.rand(size, generator=g) < 0.3).long()
    inside = torch.randn(size, leading, generator=g, dtype=torch.float64) @ axes.T * 3
    outside = torch.randn(size, width, generator=g, dtype=torch.float64) * 0.05
    return (inside + outside) * (1 + labels[:, None]), labels


def test_a_wide_cut_loses_no_energy_when_its_coordinates_are_renewed():
    """Inside and outside together hold the trace of each class, before and after, to rounding."""
    kept, energy = None, torch.zeros(2, dtype=torch.float64)
    for seed in range(6):
        grad, labels = wide(seed)
        batch, unit = in_units(read_batch(grad, labels))
        kept, _ = (kept or Covariances.start(batch)).add(batch, unit)
        for k in (0, 1):
            x = grad[labels == k]
            energy[k] = DECAY * energy[k] + (x - x.mean(0)).square().sum()
        held = kept.scatter.diagonal(dim1=-2, dim2=-1).sum(-1)[0] + kept.rest[0]
        torch.testing.assert_close(held, energy, rtol=1e-9, atol=0)
        kept = kept.renew(batch, unit)
        held = kept.scatter.diagonal(dim1=-2, dim2=-1).sum(-1)[0] + kept.rest[0]
        torch.testing.assert_close(held, energy, rtol=1e-9, atol=0)
        eye = torch.eye(kept.basis.shape[-1], dtype=torch.float64)
        torch.testing.assert_close(kept.basis[0].T @ kept.basis[0], eye, rtol=0, atol=1e-10)
    matrices, rest = kept.matrices()
    # Ten directions of variance 9 and 36 lie inside, and what is left in each other coordinate is the small variance.
    top = torch.linalg.eigvalsh(matrices[0])[:, -10:].mean(-1)
    assert float(top[1] / top[0]) == pytest.approx(4, rel=0.15)
    assert float(rest[0, 0]) == pytest.approx(0.0025, rel=0.5)


# --- the plan --------------------------------------------------------------------------------------------------------


def some_classes(width: int = 8, stack: int = 3, others: int = 0, seed: int = 0) -> Classes:
    """Full covariances with axes of their own (they do not commute), very different spectra, and a gap."""
    g = torch.Generator().manual_seed(seed)

    def covariance(size: float) -> Tensor:
        axes = torch.linalg.qr(torch.randn(stack, width, width, generator=g, dtype=torch.float64)).Q
        return (axes * (size * torch.logspace(0, -3, width, dtype=torch.float64))) @ axes.mT

    return Classes(
        torch.stack([covariance(1.0), covariance(3.0)], dim=1),
        torch.tensor([[0.01, 0.05]], dtype=torch.float64).expand(stack, 2),
        others,
        torch.randn(stack, width, generator=g, dtype=torch.float64),
        torch.full((stack,), 0.2, dtype=torch.float64),
    )


@pytest.mark.parametrize("visits", [1, 2, 5, 15])
@pytest.mark.parametrize("sum_kl", [0.03, 0.5, None])
def test_both_classes_get_one_covariance_and_noise_is_positive(visits, sum_kl):
    classes = some_classes(others=5)
    a, b = classes.covariance[:, 0], classes.covariance[:, 1]
    assert (a @ b - b @ a).norm() > 0.1  # they do not commute, or this test would say little
    made = plan(classes, visits=visits, smooth=4.0 * visits, floor=1.0 * visits, sum_kl=sum_kl)
    sent = classes.covariance + made.covariance
    torch.testing.assert_close(sent[:, 0], sent[:, 1], rtol=1e-9, atol=1e-9)
    sent_rest = classes.rest + made.rest
    torch.testing.assert_close(sent_rest[:, 0], sent_rest[:, 1], rtol=1e-12, atol=0)
    assert (torch.linalg.eigvalsh(made.covariance) > 0).all()
    assert (made.rest > 0).all()
    trace = made.covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(made.power(5), trace + 5 * made.rest)


@pytest.mark.parametrize("visits", [2, 5, 15])
def test_the_covariances_spend_a_small_share_of_the_budget_over_all_visits(visits):
    """Against divergences computed here, from matrix inverses: of the mean, and of the differences."""
    classes = some_classes(others=5)
    made = plan(classes, visits=visits, smooth=4.0 * visits, floor=1.0 * visits, sum_kl=0.1)

    def divergence(matrices: Tensor) -> Tensor:
        a, b = matrices.unbind(1)
        both = torch.linalg.solve(b, a) + torch.linalg.solve(a, b)
        return (both.diagonal(dim1=-2, dim2=-1).sum(-1) - 2 * a.shape[-1]) / 2

    mean = classes.covariance + made.covariance / visits
    mean_rest = (classes.rest + made.rest / visits)[..., None, None]
    leak = divergence(mean) + 5 * divergence(mean_rest)
    leak = leak + (visits - 1) * (divergence(made.covariance) + 5 * divergence(made.rest[..., None, None]))
    torch.testing.assert_close(made.leak, leak, rtol=1e-6, atol=1e-9)
    assert (leak <= 0.1 * COVARIANCE_SHARE * (1 + 1e-9)).all()
    assert COVARIANCE_SHARE <= 1 / 2  # the rest is for the gap
    torch.testing.assert_close(made.seen, mean)


@pytest.mark.parametrize("visits", [1, 4])
def test_noise_along_the_gap_brings_the_shift_down_to_the_budget(visits):
    """By Sherman and Morrison's formula undone: with the noise in place, w^T M^-1 w is what is left."""
    classes = some_classes()
    made = plan(classes, visits=visits, smooth=4.0, floor=1.0, sum_kl=0.1)
    w = classes.gap
    pull = torch.stack([(w * torch.linalg.solve(made.seen[:, k], w)).sum(-1) for k in (0, 1)], dim=-1)
    leak = torch.full_like(pull[:, 0], 0.02)
    extra = along_gap(pull, leak, visits=visits, sum_kl=0.1)
    assert (extra > 0).all()
    seen = made.seen + (extra / visits)[:, None, None, None] * (w[:, :, None] * w[:, None, :])[:, None]
    left = torch.stack([(w * torch.linalg.solve(seen[:, k], w)).sum(-1) for k in (0, 1)], dim=-1)
    torch.testing.assert_close(left.amax(-1), torch.full_like(leak, 0.08), rtol=1e-8, atol=0)
    assert (along_gap(pull * 1e-6, leak, visits=visits, sum_kl=0.1) == 0).all()  # a gap that is hidden already


def test_classes_that_are_alike_get_the_same_noise():
    classes = some_classes()
    alike = Classes(
        classes.covariance[:, :1].expand(-1, 2, -1, -1),
        classes.rest[:, :1].expand(-1, 2),
        0,
        classes.gap,
        classes.share,
    )
    made = plan(alike, visits=3, smooth=1.0, floor=1.0, sum_kl=0.1)
    torch.testing.assert_close(made.covariance[:, 0], made.covariance[:, 1], rtol=0, atol=1e-12)
    assert made.leak.abs().max() < 1e-12


def test_a_class_without_spread_is_lifted_to_the_other():
    classes = some_classes()
    flat = Classes(
        torch.stack([torch.zeros_like(classes.covariance[:, 0]), classes.covariance[:, 1]], dim=1),
        classes.rest,
        0,
        classes.gap,
        classes.share,
    )
    made = plan(flat, visits=1, smooth=4.0, floor=1.0, sum_kl=0.1)
    sent = flat.covariance + made.covariance
    torch.testing.assert_close(sent[:, 0], sent[:, 1], rtol=1e-9, atol=1e-9)


def test_a_plan_for_a_stack_is_the_plans_of_its_problems():
    classes = some_classes(stack=4)
    together = plan(classes, visits=5, smooth=20.0, floor=5.0, sum_kl=0.02)
    for i in range(4):
        one = Classes(
            *(part[i : i + 1] for part in (classes.covariance, classes.rest)),
            0,
            classes.gap[i : i + 1],
            classes.share[:1],
        )
        alone = plan(one, visits=5, smooth=20.0, floor=5.0, sum_kl=0.02)
        torch.testing.assert_close(together.covariance[i], alone.covariance[0], rtol=1e-9, atol=1e-12)
