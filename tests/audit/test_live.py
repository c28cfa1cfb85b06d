"""A look at one batch: what leaks is seen, what does not is not, and what can't be judged is left out."""

import pytest
import torch

from tacit.audit.live import INPUTS, LABELS, look_at_embedding, look_at_gradient


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


Z = torch.randn(512, 8, generator=generator(9))  # embeddings


@pytest.fixture(name="batch")
def _batch():
    """Gradients (p - y) * a direction, with a small spread."""
    noise = generator()
    labels = (torch.rand(512, generator=noise) < 0.3).long()
    p = torch.sigmoid(torch.randn(512, generator=noise) - 1)
    direction = torch.randn(8, generator=noise)
    return (p - labels)[:, None] * direction + 0.01 * torch.randn(512, 8, generator=noise), labels


def test_bare_gradients_tell_their_labels(batch):
    clean, labels = batch
    found = look_at_gradient(clean, clean, labels, Z, seed=1)
    assert set(found) == set(LABELS)
    assert max(abs(value - 0.5) for value in found.values()) > 0.49


def test_noise_alone_tells_nothing(batch):
    clean, labels = batch
    found = look_at_gradient(torch.randn(clean.shape, generator=generator(5)), clean, labels, Z, seed=1)
    error = (1 / 12 * (1 / labels.sum() + 1 / (1 - labels).sum())) ** 0.5
    assert found.keys() == set(LABELS)
    for name, value in found.items():
        assert abs(value - 0.5) < 4.5 * 2**0.5 * error, name  # half of the rows may be all that is judged


def test_a_look_is_the_same_again(batch):
    clean, labels = batch
    sent = clean + torch.randn(clean.shape, generator=generator(6))
    assert look_at_gradient(sent, clean, labels, Z, seed=3) == look_at_gradient(sent, clean, labels, Z, seed=3)


def test_any_shape_of_a_cut_is_looked_at(batch):
    clean, labels = batch
    flat = look_at_gradient(clean, clean, labels, Z, seed=1)
    shaped = [each.reshape(512, 2, 4) for each in (clean, clean, Z)]
    assert look_at_gradient(*shaped[:2], labels, shaped[2], seed=1) == pytest.approx(flat)


@pytest.mark.parametrize("label", [0, 1])
def test_a_batch_of_one_class_tells_nothing(batch, label):
    clean, _ = batch
    assert look_at_gradient(clean, clean, torch.full((512,), label), Z, seed=1) == {}


def test_of_an_embedding_the_share_of_variance_that_is_read():
    hidden = torch.randn(600, 4, generator=generator(2))
    assert (
        look_at_embedding(hidden @ torch.randn(4, 6, generator=generator(3)), hidden, seed=0)["linear_decoder"] > 0.99
    )
    half = torch.cat([hidden[:, :2], torch.zeros(600, 4)], dim=1)
    found = look_at_embedding(half, hidden, seed=0)
    assert set(found) == set(INPUTS)
    assert found["linear_decoder"] == pytest.approx(0.5, abs=0.1)
    nothing = look_at_embedding(torch.randn(600, 6, generator=generator(4)), hidden, seed=0)
    assert 0.0 <= nothing["linear_decoder"] < 0.05
