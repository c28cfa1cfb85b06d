"""The running second moments of rows: what is kept, in narrow and in wide cuts."""

import pytest
import torch
from torch import Tensor

from tacit.split.protect.gradient._moments import DECAY
from tacit.split.protect.gradient.matched import FULL_WIDTH, RANK, Spread


def rows_of(seed: int, size: int, width: int, stack: int = 1) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    mixed = torch.randn(width, width, generator=g, dtype=torch.float64)
    return torch.randn(stack, size, width, generator=g, dtype=torch.float64) @ mixed + 1


def size_of(rows: Tensor) -> Tensor:
    return rows.square().sum(-1).mean(-1).sqrt()


def added(kept: Spread | None, rows: Tensor) -> Spread:
    size = size_of(rows)
    return (kept or Spread.start(rows)).add(rows, size, size > 0)


def test_sums_are_decayed_second_moments_in_units_of_each_batch():
    kept, square, weight = None, 0.0, 0.0
    for seed in range(4):
        rows = rows_of(seed, 40, 5)
        kept = added(kept, rows)
        own = rows[0] / size_of(rows)[0]
        square, weight = DECAY * square + own.T @ own / 40, DECAY * weight + 1
    torch.testing.assert_close(kept.square[0], square, rtol=1e-10, atol=1e-12)
    assert float(kept.weight) == pytest.approx(weight)
    assert float(kept.square[0].trace() / kept.weight) == pytest.approx(1)


def test_the_size_of_a_batch_does_not_weigh_and_zeros_and_bad_input_change_nothing():
    kept = [None, None]
    for seed, factor in enumerate([1.0, 1e-6, 30.0]):
        rows = rows_of(seed, 40, 5)
        kept = [added(kept[0], rows), added(kept[1], factor * rows)]
    torch.testing.assert_close(kept[0].square, kept[1].square, rtol=1e-9, atol=1e-12)
    for strange in (torch.zeros_like(rows), torch.full_like(rows, torch.nan)):
        same = kept[0].add(strange, size_of(strange), torch.tensor([False]))
        assert torch.equal(same.square, kept[0].square)
        assert torch.equal(same.weight, kept[0].weight)


def test_a_stack_keeps_each_problem_by_itself():
    rows = rows_of(1, 30, 4, stack=3)
    together = added(added(None, rows), rows.flip(1) * 2)
    for place in range(3):
        alone = added(added(None, rows[place : place + 1]), rows[place : place + 1].flip(1) * 2)
        torch.testing.assert_close(together.square[place], alone.square[0])


def test_a_narrow_cut_is_kept_whole_and_a_wide_one_in_its_leading_coordinates():
    for width, rank in ((FULL_WIDTH, None), (FULL_WIDTH + 1, RANK)):
        kept = Spread.start(torch.randn(1, 2 * RANK, width, generator=torch.Generator().manual_seed(1)))
        assert (kept.basis is None) == (rank is None)
        assert kept.square.shape[-1] == (rank or width)


def wide(seed: int, size: int = 128, width: int = 400, leading: int = 10) -> Tensor:
    """Much in ten fixed directions, a little everywhere."""
    fixed = torch.Generator().manual_seed(99)
    axes = torch.linalg.qr(torch.randn(width, leading, generator=fixed, dtype=torch.float64)).Q
    g = torch.Generator().manual_seed(seed)
    inside = torch.randn(1, size, leading, generator=g, dtype=torch.float64) @ axes.T * 3
    return inside + torch.randn(1, size, width, generator=g, dtype=torch.float64) * 0.05


def test_a_wide_cut_loses_no_energy_when_its_coordinates_are_renewed():
    """Inside and outside together hold the trace, before and after, to rounding."""
    kept = None
    for seed in range(6):
        kept = added(kept, wide(seed))
        for one in (kept, kept.renew(wide(seed + 50))):
            held = one.square.diagonal(dim1=-2, dim2=-1).sum(-1) + one.rest
            torch.testing.assert_close(held, one.weight, rtol=1e-9, atol=0)
        kept = one
        eye = torch.eye(kept.basis.shape[-1], dtype=torch.float64)
        torch.testing.assert_close(kept.basis[0].T @ kept.basis[0], eye, rtol=0, atol=1e-10)
    # Ten directions of variance 9 beside 400 of variance 0.0025: 90 of 91 parts lie inside, in equal shares.
    top = torch.linalg.eigvalsh(kept.square[0] / kept.weight)[-10:]
    assert float(top.sum()) == pytest.approx(90 / 91, rel=0.01)
    assert float(top[0] / top[-1]) > 0.5
