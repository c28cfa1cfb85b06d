import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity

from tacit.audit.attacks.cosine import cosine
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Known, View
from tacit.errors import UsageError


def test_it_is_perfect_on_bare_gradients(scene, noise):
    s = scene(1)
    assert leak_auc(cosine()(s.view, s.known, noise), s.truth).value > 0.99


def test_it_is_the_cosine_step_by_step(scene, noise):
    s = scene(2, steps=3, batch=40)
    score = cosine()(s.view, s.known, noise).score
    for step, (gradient, positive) in enumerate(zip(s.view.gradient, s.known.positive_gradient, strict=True)):
        expected = torch.tensor(cosine_similarity(gradient, positive[None]))[:, 0]
        assert torch.allclose(score[step], expected, atol=1e-6)
        alone = cosine()(View.of(gradient[None]), Known(positive_gradient=positive[None]), noise)
        assert torch.allclose(alone.score[0], score[step], atol=1e-6)


def test_another_layers_oracle_is_refused(scene, noise):
    s = scene(3, steps=2, batch=16)
    with pytest.raises(UsageError, match="clean gradients of this layer"):
        cosine()(View.of(s.view.gradient[..., :12], rows=s.view.rows), s.known, noise)
