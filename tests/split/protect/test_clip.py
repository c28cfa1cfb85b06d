import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import UsageError
from tacit.split.protect.gradient.clip import clip


def test_long_rows_come_down_to_the_norm_and_short_ones_stay(seeded):
    grad = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-6.0, 8.0], [0.0, 1.0]])
    protected = clip(1.0)(grad, torch.zeros(5), seeded(0))
    torch.testing.assert_close(protected.value[0], torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(protected.value[3], torch.tensor([-0.6, 0.8]))
    for row in (1, 2, 4):
        assert torch.equal(protected.value[row], grad[row])
    assert protected.report["untouched_rows"] == 3
    assert protected.report["power"].item() == pytest.approx((4**2 + 9**2) / 5)  # what was removed, squared
    assert protected.event.parameters == {"norm": 1.0}


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.floats(-8, 8), st.floats(-8, 8))
def test_no_row_is_longer_than_the_norm_or_turned(seed, size, cap):
    grad = torch.randn(12, 5, generator=torch.Generator().manual_seed(seed)) * 10**size
    limit = 10**cap
    value = clip(limit)(grad, torch.zeros(12), torch.Generator()).value
    length, before = value.norm(dim=1), grad.norm(dim=1)
    assert (length <= limit * (1 + 1e-5)).all()
    torch.testing.assert_close(length, before.clamp(max=limit), rtol=1e-4, atol=0)
    turned = torch.nn.functional.cosine_similarity(value.double(), grad.double(), eps=0.0)
    assert (turned > 1 - 1e-5).all()


@pytest.mark.parametrize("size", [1e-40, 1e-38, 0.0, 1e38])
@pytest.mark.parametrize("cap", [1e-38, 1.0, 1e38])
def test_sizes_at_the_ends_of_single_precision(seeded, size, cap):
    grad = torch.tensor([[size, -size], [0.0, 0.0], [0.0, size / 8]])
    value = clip(cap)(grad, torch.zeros(3), seeded(0)).value
    wanted = grad.double().norm(dim=1).clamp(max=cap)
    if size / cap > 1e40:  # no factor in single precision is that small: such rows are removed
        wanted = torch.zeros(3, dtype=torch.float64)
    torch.testing.assert_close(value.double().norm(dim=1), wanted, rtol=1e-4, atol=1e-43)


def test_a_stack_is_its_problems_one_by_one(seeded):
    grad = torch.randn(3, 8, 4, generator=seeded(1)) * torch.tensor([0.01, 1.0, 100.0])[:, None, None]
    together = clip(1.5)(grad, torch.zeros(3, 8), seeded(2))
    for i in range(3):
        alone = clip(1.5)(grad[i], torch.zeros(8), seeded(2))
        torch.testing.assert_close(together.value[i], alone.value)
        assert together.report["untouched_rows"][i] == alone.report["untouched_rows"]
    assert together.report["untouched_rows"][0] == 8
    assert together.report["untouched_rows"][2] == 0


def test_no_randomness_is_used(seeded):
    g = seeded(3)
    before = g.get_state()
    clip(1.0)(torch.ones(4, 2), torch.zeros(4), g)
    assert torch.equal(g.get_state(), before)


@pytest.mark.parametrize("norm", [0, -1.0, math.nan, math.inf, True, None, "1"])
def test_a_norm_is_a_positive_number(norm):
    with pytest.raises(UsageError, match="norm = "):
        clip(norm)
