import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.audit.metrics.detection_error import detection_error
from tacit.errors import LabelsError


def brute(score, label):
    """Try every threshold, in both directions, and count."""
    best = 0.5
    for threshold in [*sorted(set(score)), max(score) + 1]:
        called = score >= threshold
        wrong = (called[label == 0].mean() + (~called)[label == 1].mean()) / 2
        best = min(best, wrong, 1 - wrong)
    return best


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=25))
def test_any_batch_equals_trying_every_threshold(rows):
    score, label = (np.array(column) for column in zip(*rows, strict=True))
    value = detection_error(torch.tensor(score).float(), torch.tensor(label)).item()
    if label.all() or not label.any():
        assert np.isnan(value)
    else:
        assert value == pytest.approx(brute(score, label.astype(int)), abs=1e-12)


def test_a_stack_with_rows_that_do_not_count():
    g = torch.Generator().manual_seed(1)
    label = (torch.rand(3, 4, 50, generator=g) < 0.3).long()
    score = torch.randn(3, 4, 50, generator=g) - 2 * label  # the sign must not matter
    counted = torch.rand(3, 4, 50, generator=g) < 0.8
    value = detection_error(torch.where(counted, score, torch.nan), label, counted)
    expected = [
        brute(s[c].numpy(), y[c].numpy())
        for s, y, c in zip(score.flatten(0, 1), label.flatten(0, 1), counted.flatten(0, 1), strict=True)
    ]
    assert np.allclose(value.flatten().numpy(), expected, atol=1e-12)
    assert value.max() < 0.3


def test_other_labels_are_refused():
    with pytest.raises(LabelsError):
        detection_error(torch.zeros(3), torch.tensor([0, 1, 2]))
