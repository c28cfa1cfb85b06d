import numpy as np
import pytest
import torch

from tacit.audit import views
from tacit.audit.attacks.norm import norm
from tacit.audit.attacks.residual import log_residual, residual
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Known, View
from tacit.errors import UsageError


def brute(rows, directions):
    """Energy outside the leading right singular vectors."""
    rows = rows.double().numpy()
    rows = rows / np.sqrt((rows**2).mean())
    _, _, axes = np.linalg.svd(rows, full_matrices=False)
    lead = axes[:directions]
    return np.log(((rows - rows @ lead.T @ lead) ** 2).sum(-1))


@pytest.mark.parametrize("shape", [(60, 16), (16, 60), (32, 32)])
@pytest.mark.parametrize("directions", [None, 1, 7])
def test_it_equals_a_singular_value_decomposition(noise, shape, directions):
    x = torch.randn(3, *shape, generator=noise) * torch.linspace(0.01, 3, shape[1])
    score = log_residual(x, directions)
    for step, rows in enumerate(x):
        assert np.allclose(score[step].numpy(), brute(rows, directions or min(shape) // 4), atol=1e-8)
        assert torch.allclose(log_residual(rows[None], directions)[0], score[step], atol=1e-8)


def test_it_sees_noise_on_one_class_that_the_norm_does_not(scene, one_class_noise, noise):
    s = scene(1, noise=one_class_noise)
    assert leak_auc(residual()(s.view, Known(), noise), s.truth).value > 0.99
    assert leak_auc(norm()(s.view, Known(), noise), s.truth).value < 0.7


def test_it_sees_it_in_narrow_batches_too(scene, noise):
    def one_class(label, normal):
        return (label == 0)[..., None] * 0.05 * normal(*label.shape, 96)

    s = scene(2, steps=20, batch=48, width=96, noise=one_class)
    assert leak_auc(residual()(s.view, Known(), noise), s.truth).value > 0.99


def test_noise_on_both_classes_is_not_seen(scene, noise, far_from_chance):
    """Four standard errors: probability 6e-5 by chance, at a fixed seed."""
    s = scene(3, noise=lambda y, normal: 0.3 * normal(*y.shape, 24))
    assert far_from_chance(residual()(s.view, Known(), noise), s.truth) < 4


def test_a_faint_class_under_a_signal_of_a_million_is_found(noise):
    """Residuals nine orders below the signal, squared eighteen: float64 rows keep them, sums of squares keep them."""
    label = (torch.arange(400) % 4 == 0).long()
    faint = torch.randn(1, 400, 20, generator=noise, dtype=torch.float64)
    faint = faint * torch.where(label == 1, 4e-3, 1e-3)[None, :, None]
    faint[..., 0] += 1e6 * torch.randn(1, 400, generator=noise, dtype=torch.float64)
    assert leak_auc(residual()(View.of(faint), Known(), noise), label).value > 0.99


def test_chunks_change_nothing(scene, noise, monkeypatch):
    s = scene(4)
    whole = residual()(s.view, Known(), noise).score
    monkeypatch.setattr(views, "_AT_ONCE", 10_000)
    assert torch.allclose(residual()(s.view, Known(), noise).score, whole, atol=1e-9)


def test_wrong_numbers_of_directions_are_refused(noise):
    with pytest.raises(UsageError, match="at least one"):
        residual(0)
    with pytest.raises(UsageError, match="leave nothing"):
        residual(8)(View.of(torch.randn(2, 20, 8, generator=noise)), Known(), noise)
