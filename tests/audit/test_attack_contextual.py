import pytest
import torch

from tacit.audit.attacks.contextual import contextual
from tacit.audit.attacks.learned import learned
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Guess, Known, View
from tacit.errors import UsageError


def judged(guess, truth):
    baseline = Guess(guess.rows, guess.baseline, guess.counted)
    return leak_auc(guess, truth).value, leak_auc(baseline, truth).value


def test_bare_gradients_lift_it_above_its_baseline(scene, noise):
    s = scene(1)
    reached, baseline = judged(contextual()(s.view, s.known, noise), s.truth)
    assert reached > 0.99
    assert 0.85 < baseline < 0.995  # five features, 1.5 apart


def test_gradients_that_tell_nothing_leave_it_at_its_baseline(noise):
    label = (torch.rand(12, 256, generator=noise) < 0.4).long()
    embedding = torch.randn(12, 256, 6, generator=noise) + label[..., None] * 0.4
    view = View.of(torch.randn(12, 256, 10, generator=noise), embedding=embedding)
    known = Known(labels=torch.where(torch.rand(label.numel(), generator=noise) < 0.5, label.flatten(), -1))
    reached, baseline = judged(contextual()(view, known, noise), label.flatten())
    assert baseline > 0.7
    assert abs(reached - baseline) < 0.03


def test_it_sees_what_neither_side_tells_alone(noise):
    """The gradient is the label times the embedding's sign: each alone is symmetric, together they are the label."""
    label = (torch.rand(12, 256, generator=noise) < 0.4).long()
    embedding = torch.randn(12, 256, 4, generator=noise)
    signed = (2 * label - 1)[..., None] * embedding + 0.3 * torch.randn(12, 256, 4, generator=noise)
    view = View.of(signed, embedding=embedding)
    known = Known(labels=torch.where(torch.rand(label.numel(), generator=noise) < 0.5, label.flatten(), -1))
    reached, baseline = judged(contextual()(view, known, noise), label.flatten())
    assert reached > 0.95
    assert baseline < 0.56
    assert leak_auc(learned()(view, known, noise), label.flatten()).value < 0.56


def test_it_needs_embeddings(scene, noise):
    s = scene(2, steps=2, batch=32)
    with pytest.raises(UsageError, match="record them"):
        contextual()(View.of(s.view.gradient, rows=s.view.rows), s.known, noise)
