import pytest
import torch

from tacit.audit.attacks import _network
from tacit.audit.attacks.learned import learned
from tacit.audit.attacks.likelihood import likelihood
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Known, View, noise_source


def known_half(label, noise):
    return Known(labels=torch.where(torch.rand(label.numel(), generator=noise) < 0.5, label.flatten(), -1))


def test_it_is_perfect_on_bare_gradients_and_on_noise_of_one_class(scene, one_class_noise, noise):
    for s in (scene(1), scene(2, noise=one_class_noise)):
        guess = learned()(s.view, s.known, noise)
        assert leak_auc(guess, s.truth).value > 0.99
        assert torch.equal(guess.counted, s.known.labels[s.view.rows] < 0)


@pytest.mark.parametrize(("shift", "stretch"), [(1.2, 0.0), (0.0, 0.25)])
def test_on_gaussians_it_reaches_the_likelihood(noise, shift, stretch):
    label = (torch.rand(16, 512, generator=noise) < 0.25).long()
    x = torch.randn(16, 512, 32, generator=noise) * (1 + stretch * label[..., None])
    x[..., 0] += shift * label
    view, known = View.of(x), known_half(label, noise)
    best, reached = (leak_auc(a(view, known, noise), label.flatten()).value for a in (likelihood(), learned()))
    assert best > 0.75
    assert reached > best - 0.015


def test_on_a_ring_it_beats_the_likelihood(noise):
    """Positives lie on a circle, negatives fill a Gaussian disc of the same covariance."""
    label = (torch.rand(16, 512, generator=noise) < 0.4).long()
    angle = 6.283185 * torch.rand(16, 512, generator=noise)
    ring = 2**0.5 * torch.stack([angle.cos(), angle.sin()], dim=-1)
    disc = torch.where(label[..., None] == 1, ring, torch.randn(16, 512, 2, generator=noise))
    x = 0.3 * torch.randn(16, 512, 24, generator=noise) + disc @ torch.randn(2, 24, generator=noise)
    view, known = View.of(x), known_half(label, noise)
    assert leak_auc(likelihood()(view, known, noise), label.flatten()).value < 0.55
    assert leak_auc(learned()(view, known, noise), label.flatten()).value > 0.7


def test_visits_of_one_example_stay_on_one_side_of_the_split(scene, noise, monkeypatch):
    """Otherwise the network is checked on rows that it remembers, and stops too late."""
    s = scene(3, steps=12, batch=64, examples=128)
    seen = {}

    def spy(x, label, fit, held, source):
        seen.update(fit=fit, held=held, label=label)
        return trained(x, label, fit, held, source)

    trained = _network.trained
    monkeypatch.setattr(_network, "trained", spy)
    learned()(s.view, s.known, noise)
    ids = s.view.rows.flatten()
    fit, held = (set(ids[seen[part]].tolist()) for part in ("fit", "held"))
    assert len(fit) > 3 * len(held) / 2 > 0
    assert not fit & held
    assert fit | held == set((s.known.labels >= 0).nonzero()[:, 0].tolist()), "all known ids, and no other"
    assert torch.equal(seen["label"], s.known.labels[ids])


def test_training_starts_from_the_last_input_and_keeps_the_best_check(noise, monkeypatch):
    x = torch.randn(400, 5, generator=noise)
    label = (x[:, -1] > 0).long()
    rows = torch.arange(400)
    monkeypatch.setattr(_network, "_UPDATES", 0)
    start = _network.trained(x, label, rows[:300], rows[300:], noise_source(noise))
    assert torch.equal(start(x)[:, 0], x[:, -1])
    monkeypatch.setattr(_network, "_UPDATES", 200)
    wrong = torch.where(rows < 300, 1 - label, label)  # what is fitted contradicts what is checked
    kept = _network.trained(x, wrong, rows[:300], rows[300:], noise_source(noise))
    assert torch.equal(kept(x)[:, 0], x[:, -1])
    right = _network.trained(x, label, rows[:300], rows[300:], noise_source(noise))
    assert not torch.equal(right(x)[:, 0], x[:, -1])
