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
    reached, baseline = judged(contextual("network")(s.view, s.known, noise), s.truth)
    assert reached > 0.99
    assert 0.85 < baseline < 0.995  # five features, 1.5 apart


def test_gradients_that_tell_nothing_leave_it_at_its_baseline(noise):
    label = (torch.rand(12, 256, generator=noise) < 0.4).long()
    embedding = torch.randn(12, 256, 6, generator=noise) + label[..., None] * 0.4
    view = View.of(torch.randn(12, 256, 10, generator=noise), embedding=embedding)
    known = Known(labels=torch.where(torch.rand(label.numel(), generator=noise) < 0.5, label.flatten(), -1))
    reached, baseline = judged(contextual("network")(view, known, noise), label.flatten())
    assert baseline > 0.7
    assert abs(reached - baseline) < 0.03


def test_it_sees_what_neither_side_tells_alone(noise):
    """The gradient is the label times the embedding's sign: each alone is symmetric, together they are the label."""
    label = (torch.rand(12, 256, generator=noise) < 0.4).long()
    embedding = torch.randn(12, 256, 4, generator=noise)
    signed = (2 * label - 1)[..., None] * embedding + 0.3 * torch.randn(12, 256, 4, generator=noise)
    view = View.of(signed, embedding=embedding)
    known = Known(labels=torch.where(torch.rand(label.numel(), generator=noise) < 0.5, label.flatten(), -1))
    reached, baseline = judged(contextual("network")(view, known, noise), label.flatten())
    assert reached > 0.95
    assert baseline < 0.56
    assert leak_auc(learned()(view, known, noise), label.flatten()).value < 0.56


@pytest.mark.parametrize("fit", ["slope", "network"])
def test_it_needs_embeddings(scene, noise, fit):
    s = scene(2, steps=2, batch=32)
    with pytest.raises(UsageError, match="record them"):
        contextual(fit)(View.of(s.view.gradient, rows=s.view.rows), s.known, noise)


# --- the slope -------------------------------------------------------------------------------------------------------


def test_the_slope_is_seen_where_neither_side_tells_alone_and_where_features_tell_too(noise):
    """The gradient is the label times the embedding, under noise; labels are coins, or follow from the embedding."""
    for follow in (0.0, 1.0):
        embedding = torch.randn(8, 512, 6, generator=noise)
        chance = torch.sigmoid(follow * 2 * embedding[..., 0])
        label = (torch.rand(8, 512, generator=noise) < chance).long()
        signed = (2 * label - 1)[..., None] * embedding + torch.randn(8, 512, 6, generator=noise)
        known = Known(labels=torch.where(torch.rand(label.numel(), generator=noise) < 0.5, label.flatten(), -1))
        guess = contextual()(View.of(signed, embedding=embedding), known, noise)
        assert leak_auc(guess, label.flatten()).value > (0.8 if follow else 0.92)
        assert guess.baseline is None


def test_what_features_tell_by_themselves_does_not_count_as_a_slope(noise):
    """Gradients that depend on the embedding alone, as do labels: nothing was said about them.

    2,048 judged rows: an error of 0.013, so 0.06 is more than four.
    """
    embedding = torch.randn(8, 512, 6, generator=noise)
    label = (torch.rand(8, 512, generator=noise) < torch.sigmoid(2 * embedding[..., 0])).long()
    gradient = torch.sigmoid(2 * embedding[..., :1]) * torch.ones(6) + torch.randn(8, 512, 6, generator=noise)
    known = Known(labels=torch.where(torch.rand(label.numel(), generator=noise) < 0.5, label.flatten(), -1))
    guess = contextual()(View.of(gradient, embedding=embedding), known, noise)
    assert abs(leak_auc(guess, label.flatten()).value - 0.5) < 0.06


def test_wide_embeddings_and_gradients_are_projected(noise):
    embedding = torch.randn(4, 512, 600, generator=noise)
    label = (torch.rand(4, 512, generator=noise) < 0.5).long()
    signed = (2 * label - 1)[..., None] * embedding + torch.randn(4, 512, 600, generator=noise)
    known = Known(labels=torch.where(torch.rand(label.numel(), generator=noise) < 0.5, label.flatten(), -1))
    assert leak_auc(contextual()(View.of(signed, embedding=embedding), known, noise), label.flatten()).value > 0.6


def test_options_and_too_few_labels_are_refused(scene, noise):
    with pytest.raises(UsageError, match="'slope' or 'network'"):
        contextual("trees")
    s = scene(2, steps=2, batch=32)
    labels = torch.full_like(s.known.labels, -1)
    labels[:3] = 1
    with pytest.raises(UsageError, match="needs 4 known rows of each class"):
        contextual()(s.view, Known(labels=labels), noise)
