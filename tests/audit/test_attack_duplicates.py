import pytest
import torch

from tacit.audit import attacks
from tacit.audit.attacks._visits import Visits
from tacit.audit.attacks.duplicates import _questions, duplicates
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Known, View
from tacit.errors import UsageError


def repeated(s, times, *, loud=0.0, jitter=0.0, seed=7):
    """The scene's transcript answered several times, each time with fresh noise, embeddings moved by a little."""
    g = torch.Generator().manual_seed(seed)
    gradient = s.clean.repeat(times, 1, 1)
    z = s.view.embedding.repeat(times, 1, 1)
    gradient = gradient + loud * torch.randn(gradient.shape, generator=g)
    z = z * (1 + jitter * torch.randn(z.shape, generator=g))
    return View.of(gradient, rows=s.view.rows.repeat(times, 1), embedding=z)


def leak(attack, view, s, noise, known=None):
    return leak_auc(attack(view, known or s.known, noise), s.truth).value


def test_bare_answers_are_read(scene, noise):
    s = scene(1, steps=3)
    assert leak(duplicates(), repeated(s, 2), s, noise) > 0.95
    assert leak(duplicates("direct_label"), repeated(s, 2), s, noise, Known()) > 0.99


@pytest.mark.parametrize("jitter", [0.0, 1e-5])
def test_eight_answers_tell_what_one_did_not(scene, noise, jitter):
    s = scene(2, steps=4)
    view = repeated(s, 8, loud=1.2, jitter=jitter)
    once = leak(attacks.attack("direct_label"), view, s, noise)
    together = leak(duplicates("direct_label"), view, s, noise)
    assert once < 0.75
    assert together > 0.9


def test_each_mean_is_that_of_one_question_and_what_came_once_is_left_out(scene, noise):
    s = scene(3, steps=4, batch=32, examples=64)  # every example comes twice, with another embedding each time
    view = s.view
    alone = Visits.of(view)
    assert (alone.count == 2).all()
    again = View.of(
        torch.cat([view.gradient, view.gradient[:1] + 1]),
        rows=torch.cat([view.rows, view.rows[:1]]),
        embedding=torch.cat([view.embedding, view.embedding[:1]]),
    )
    found = _questions(again, again.embedding, noise)
    assert sorted(found.count.tolist()) == [1] * 96 + [2] * 32
    pairs = found.count == 2
    assert set(found.ids[pairs].tolist()) == set(view.rows[0].tolist())
    assert torch.equal(found.slot[0], found.slot[4])
    mean = found.mean(again.gradient)[found.slot[0]]
    assert torch.allclose(mean, view.gradient[0] + 0.5, atol=1e-6)
    guess = duplicates("norm")(again, s.known, noise)
    assert set(guess.rows.flatten().tolist()) == set(view.rows[0].tolist())


def test_without_duplicates_there_is_a_clear_refusal(scene, noise):
    s = scene(4, steps=4, batch=32, examples=64)
    with pytest.raises(UsageError, match=r"asked about twice with the same embedding.*leave it out"):
        duplicates()(s.view, s.known, noise)
    with pytest.raises(UsageError, match="'duplicates' needs the embeddings"):
        duplicates()(View.of(s.clean, rows=s.view.rows), s.known, noise)
    frozen = View.of(s.clean, rows=s.view.rows, embedding=torch.ones(4, 32, 3))
    assert duplicates("norm")(frozen, s.known, noise).score.shape == (1, 64)


def test_noise_alone_stays_chance(scene, noise, far_from_chance):
    """Four standard errors: a false alarm has probability 6e-5, at a fixed seed."""
    s = scene(5, leak=False)
    view = repeated(s, 4, loud=1.0)
    assert far_from_chance(duplicates("direct_label")(view, s.known, noise), s.truth) < 4


def test_names():
    assert duplicates().name == "duplicates(likelihood)"
    assert duplicates(attacks.attack("hint", k=3)).name == "duplicates(hint(k=3))"
