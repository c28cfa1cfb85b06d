import pytest
import torch
from sklearn.metrics import log_loss as reference

from tacit.audit.metrics.log_loss import log_loss
from tacit.errors import TensorError


def test_a_stack_equals_scikit_learn():
    g = torch.Generator().manual_seed(1)
    logit = 3 * torch.randn(5, 80, generator=g)
    label = (torch.rand(5, 80, generator=g) < 0.4).long()
    expected = [reference(y, torch.sigmoid(x.double())) for x, y in zip(logit, label, strict=True)]
    assert log_loss(logit, label).tolist() == pytest.approx(expected, abs=1e-9)


def test_confident_and_wrong_is_charged_in_full():
    assert log_loss(torch.tensor([500.0]), torch.tensor([0.0])).item() == pytest.approx(500)
    assert log_loss(torch.tensor([-500.0]), torch.tensor([True])).item() == pytest.approx(500)


def test_rows_that_do_not_count():
    value = log_loss(torch.tensor([0.0, torch.nan]), torch.tensor([1, 7]), torch.tensor([True, False]))
    assert value.item() == pytest.approx(0.6931471805599453, abs=1e-12)
    with pytest.raises(TensorError, match="not finite"):
        log_loss(torch.tensor([torch.nan]), torch.tensor([1]))
