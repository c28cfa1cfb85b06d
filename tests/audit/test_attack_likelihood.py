import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.covariance import LedoitWolf

from tacit.audit.attacks import _gaussian
from tacit.audit.attacks.likelihood import likelihood
from tacit.audit.metrics.leak_auc import auc, leak_auc
from tacit.contracts import Known, View
from tacit.errors import UsageError


def two_gaussians(seed, width, steps=12, batch=1000, shift=0.0, stretch=0.0):
    """Rows of two classes with other means and covariances, the truth, and the best possible score."""
    g = torch.Generator().manual_seed(seed)
    mix = torch.randn(width, width, generator=g, dtype=torch.float64) / width**0.5 + torch.eye(width)
    label = (torch.rand(steps, batch, generator=g) < 0.4).long()
    scale = torch.ones(2, width, dtype=torch.float64)
    scale[1, : width // 2] += stretch
    mean = torch.zeros(2, width, dtype=torch.float64)
    mean[1, 0] = shift
    z = torch.randn(steps, batch, width, generator=g, dtype=torch.float64)
    x = (z * scale[label] + mean[label]) @ mix
    best = [
        multivariate_normal((mean[c] @ mix).numpy(), (mix.T @ torch.diag(scale[c] ** 2) @ mix).numpy()).logpdf(x)
        for c in (1, 0)
    ]
    labels = torch.where(torch.rand(label.numel(), generator=g) < 0.5, label.flatten(), -1)
    return View.of(x.float()), label.flatten(), Known(labels=labels), torch.tensor(best[0] - best[1])


@pytest.mark.parametrize(("shift", "stretch"), [(1.0, 0.0), (0.0, 0.5), (0.6, 0.3)])
def test_it_comes_close_to_the_best_score_there_is(noise, shift, stretch):
    view, truth, known, best = two_gaussians(1, 10, shift=shift, stretch=stretch)
    guess = likelihood()(view, known, noise)
    possible = auc(best, truth[view.rows], guess.counted).mean().item()
    assert possible > 0.7
    assert leak_auc(guess, truth).value == pytest.approx(possible, abs=0.015)


def test_it_is_perfect_on_bare_gradients_and_on_noise_of_one_class(scene, one_class_noise, noise):
    for s in (scene(1), scene(2, noise=one_class_noise)):
        assert leak_auc(likelihood()(s.view, s.known, noise), s.truth).value > 0.99


def test_known_rows_are_not_judged(scene, noise):
    s = scene(3)
    guess = likelihood()(s.view, s.known, noise)
    assert torch.equal(guess.counted, s.known.labels[s.view.rows] < 0)
    assert 0.4 < guess.counted.double().mean() < 0.6


@pytest.mark.parametrize("rows", [12, 300])
def test_the_fit_is_ledoit_and_wolfs(noise, rows):
    z = torch.randn(rows, 8, generator=noise, dtype=torch.float64) * torch.linspace(0.5, 2, 8)
    mean, root, volume = _gaussian._fitted(z)
    reference = LedoitWolf().fit(z.numpy())
    assert np.allclose(mean.numpy(), reference.location_)
    assert np.allclose(torch.linalg.inv(root.mT @ root).numpy(), reference.covariance_, rtol=1e-6)
    assert volume.item() == pytest.approx(np.linalg.slogdet(reference.covariance_)[1] / 2, abs=1e-6)


@pytest.mark.parametrize("width", [40, 1500])
def test_wide_rows_are_seen_along_leading_directions_and_by_the_energy_outside(noise, width):
    steps, batch = 4, 200
    label = (torch.rand(steps, batch, generator=noise) < 0.4).long()
    rest = torch.randn(steps, batch, width, generator=noise) * torch.where(label == 1, 1.5, 1.0)[..., None]
    lead = 20 * torch.randn(steps, batch, 3, generator=noise) @ torch.randn(3, width, generator=noise)
    labels = torch.where(torch.rand(label.numel(), generator=noise) < 0.5, label.flatten(), -1)
    view, known = View.of(lead + rest), Known(labels=labels)
    assert leak_auc(likelihood(components=4)(view, known, noise), label.flatten()).value > 0.95
    white, leading = _gaussian.whitened(view.gradient, 4, noise)
    assert white.shape == (steps, batch, 5)
    assert torch.equal(white[..., :4], leading)
    covariance = torch.cov(white[..., :4].flatten(0, 1).mT)
    assert torch.allclose(covariance, torch.eye(4, dtype=torch.float64), atol=0.02)


def test_white_coordinates_have_covariance_one_and_drop_flat_directions(noise):
    x = torch.randn(3, 500, 6, generator=noise) @ torch.randn(6, 6, generator=noise)
    covariance = torch.cov(_gaussian.whitened(x, 99, noise)[0].flatten(0, 1).mT)
    assert torch.allclose(covariance, torch.eye(6, dtype=torch.float64), atol=0.01)
    flat = torch.cat([x[..., :2], x[..., :2]], dim=-1)
    covariance = torch.cov(_gaussian.whitened(flat, 99, noise)[0].flatten(0, 1).mT)
    assert torch.linalg.eigvalsh(covariance).tolist() == pytest.approx([0, 0, 1, 1], abs=0.01)


def test_shrinking_gradients_do_not_confuse_it(noise):
    view, truth, known, _ = two_gaussians(5, 10, stretch=0.5)
    fading = View.of(view.gradient * torch.logspace(0, -6, 12)[:, None, None])
    plain, faded = (leak_auc(likelihood()(v, known, noise), truth).value for v in (view, fading))
    assert faded == pytest.approx(plain, abs=1e-3)


def test_refusals(noise):
    view = View.of(torch.randn(2, 10, 3, generator=noise))
    with pytest.raises(UsageError, match="two known rows of each class, but has 1"):
        likelihood()(view, Known(labels=(torch.arange(20) == 3).long()), noise)
    with pytest.raises(UsageError, match="holds 5 entries"):
        likelihood()(view, Known(labels=torch.zeros(5)), noise)
    with pytest.raises(UsageError, match="component"):
        likelihood(components=0)
