import pytest
import torch
from sklearn.decomposition import PCA

from tacit.audit.attacks.spectral import spectral
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Known, View
from tacit.errors import UsageError


def test_it_bites_on_embeddings_that_lie_apart(scene, noise):
    s = scene(1)
    guess = spectral()(s.view, Known(), noise)
    assert leak_auc(guess, s.truth).value > 0.9
    assert guess.score[s.label == 1].mean() > 0.5  # the longer tail is the smaller class


def test_it_bites_on_bare_gradients(scene, noise):
    s = scene(2)
    assert leak_auc(spectral("gradient")(s.view, Known(), noise), s.truth).value > 0.99


def test_balanced_classes_are_turned_the_same_way_at_every_step(scene, noise):
    s = scene(3, steps=40, batch=64, share=0.5)
    assert leak_auc(spectral("gradient")(s.view, Known(), noise), s.truth).value > 0.99


@pytest.mark.parametrize(("steps", "batch", "width"), [(3, 50, 8), (3, 12, 40), (12, 20, 4)])
def test_it_is_the_first_principal_component(noise, steps, batch, width):
    x = torch.randn(steps, batch, width, generator=noise) @ torch.randn(width, width, generator=noise) + 5
    score = spectral("gradient")(View.of(x), Known(), noise).score
    for step, rows in enumerate(x):
        expected = torch.tensor(PCA(1).fit_transform(rows.double().numpy()))[:, 0]
        expected = expected / expected.std(correction=0)
        sign = (expected @ score[step]).sign()
        assert torch.allclose(score[step], sign * expected, atol=1e-5)
        alone = spectral("gradient")(View.of(rows[None]), Known(), noise).score[0]
        assert torch.allclose(alone.abs(), score[step].abs(), atol=1e-8)  # a step's sign is chosen among all steps


def test_other_sources_are_refused():
    with pytest.raises(UsageError, match="'embedding' or 'gradient'"):
        spectral("labels")
