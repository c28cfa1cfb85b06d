import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve

from tacit.audit.metrics.calibration_error import calibration_error
from tacit.errors import TensorError, UsageError


def drawn(seed, *shape, power=1.0):
    g = torch.Generator().manual_seed(seed)
    probability = torch.rand(*shape, generator=g, dtype=torch.float64)
    label = (torch.rand(*shape, generator=g, dtype=torch.float64) < probability**power).long()
    return probability, label


def brute(probability, label, bins):
    order = np.argsort(probability, kind="stable")
    parts = [order[[i for i in range(len(order)) if i * bins // len(order) == b]] for b in range(bins)]
    return np.mean([abs(probability[part].mean() - label[part].mean()) for part in parts])


@pytest.mark.parametrize(("rows", "bins"), [(150, 15), (103, 10), (7, 15), (1, 1)])
def test_a_stack_equals_brute_force(rows, bins):
    probability, label = drawn(1, 4, rows)
    value = calibration_error(probability, label, bins)
    expected = [brute(p, y, min(bins, rows)) for p, y in zip(probability.numpy(), label.numpy(), strict=True)]
    assert np.allclose(value.numpy(), expected, atol=1e-12)


def test_it_equals_scikit_learns_quantile_bins():
    probability, label = drawn(2, 300)
    share, mean = calibration_curve(label, probability, n_bins=15, strategy="quantile")
    assert calibration_error(probability, label).item() == pytest.approx(np.abs(share - mean).mean(), abs=1e-6)


def test_it_tells_a_calibrated_model_from_another():
    assert calibration_error(*drawn(3, 100_000)).item() < 0.01
    assert calibration_error(*drawn(3, 100_000, power=3.0)).item() > 0.2


def test_refusals():
    with pytest.raises(TensorError, match="sigmoid"):
        calibration_error(torch.tensor([1.5]), torch.tensor([1]))
    with pytest.raises(UsageError, match="bins"):
        calibration_error(torch.tensor([0.5]), torch.tensor([1]), bins=0)
    with pytest.raises(TensorError, match="no rows"):
        calibration_error(torch.zeros(2, 0), torch.zeros(2, 0))
