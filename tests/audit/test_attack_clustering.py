import pytest
import torch
from sklearn.cluster import KMeans

from tacit.audit import attacks
from tacit.audit.attacks.clustering import _side, clustering
from tacit.audit.attacks.spectral import spectral
from tacit.audit.metrics.leak_auc import auc, leak_auc
from tacit.contracts import Known, View


def heaps(seed, gap=5.0, share=0.25, steps=4, batch=500, width=20):
    """Rows in two heaps along a quiet direction, under one that is much louder and says nothing."""
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(steps, batch, generator=g) < share).long()
    z = torch.randn(steps, batch, width, generator=g) * torch.linspace(1, 0.1, width)
    z[..., 0] *= 20
    z[..., 1] += gap * y
    return z @ torch.linalg.qr(torch.randn(width, width, generator=g)).Q, y.flatten()


@pytest.mark.parametrize("seed", range(3))
def test_heaps_in_embeddings_are_found_under_louder_directions(seed, noise):
    z, y = heaps(seed)
    view = View.of_embeddings(z, role="features")
    guess = clustering()(view, Known(), noise)
    assert float(auc(guess.score.flatten(), y)) > 0.97, "the smaller heap is positive"
    assert torch.equal(guess.baseline, guess.score)
    assert leak_auc(spectral()(view, Known(), noise), y).value < 0.6
    prediction = torch.randn(len(y), generator=noise)
    granted = clustering()(view, Known(prediction=prediction), noise)
    assert torch.equal(granted.baseline.float(), prediction[view.rows])


def test_bare_gradients_are_read_and_have_no_baseline(scene, noise):
    s = scene(2)
    guess = clustering("gradient")(s.view, Known(), noise)
    assert leak_auc(guess, s.truth).value > 0.95
    assert guess.baseline is None


def test_noise_on_one_class_is_a_heap_too(scene, one_class_noise, noise):
    s = scene(3, noise=one_class_noise)
    assert leak_auc(clustering("gradient", components=4)(s.view, Known(), noise), s.truth).value > 0.95


def test_two_means_are_those_of_a_reference(noise):
    z, _ = heaps(4, width=3, gap=3.0)
    x = z.flatten(0, 1).double()
    x = (x - x.mean(0)) / x.std(0)
    fit = KMeans(2, n_init=20, random_state=0).fit(x.numpy())
    member = torch.from_numpy(fit.labels_) == 1
    ours = _side(x, noise) > 0
    assert ours.sum() <= len(ours) / 2
    assert max((ours == member).double().mean(), (ours != member).double().mean()) > 0.995


def test_noise_alone_stays_chance(noise, far_from_chance):
    """Two looks at four standard errors: a false alarm has probability 1.3e-4, at a fixed seed."""
    y = (torch.rand(2000, generator=noise) < 0.3).long()
    view = View.of(torch.randn(4, 500, 9, generator=noise), embedding=torch.randn(4, 500, 30, generator=noise))
    for of in ("embedding", "gradient"):
        assert far_from_chance(clustering(of)(view, Known(), noise), y) < 4


def test_names():
    assert clustering().name == "clustering"
    assert attacks.attack("clustering", of="gradient", components=4).name == "clustering(of=gradient, components=4)"
