import torch
from torch.nn.functional import cosine_similarity

from tacit.audit import views
from tacit.audit.attacks.majority import majority
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Known, View


def test_it_is_perfect_on_bare_gradients_and_knows_the_smaller_class(scene, noise):
    s = scene(1)
    guess = majority()(s.view, Known(), noise)
    assert leak_auc(guess, s.truth).value > 0.99
    positive = s.label == 1
    assert guess.score[positive].mean() > 0 > guess.score[~positive].mean()


def test_it_is_the_count_of_pairs(scene, noise):
    s = scene(2, steps=2, batch=30, noise=lambda y, normal: 0.3 * normal(*y.shape, 24))
    score = majority()(s.view, Known(), noise).score
    for step, rows in enumerate(s.view.gradient):
        for i, row in enumerate(rows):
            others = torch.cat([rows[:i], rows[i + 1 :]])
            expected = -cosine_similarity(others, row[None]).sign().mean()
            assert torch.allclose(score[step, i], expected, atol=1e-6)


def test_blocks_and_steps_one_by_one_give_the_same(scene, noise, monkeypatch):
    s = scene(3, steps=3, batch=50, noise=lambda y, normal: 0.3 * normal(*y.shape, 24))
    whole = majority()(s.view, Known(), noise).score
    monkeypatch.setattr(views, "_AT_ONCE", 700)
    assert torch.equal(majority()(s.view, Known(), noise).score, whole)
    for step, gradient in enumerate(s.view.gradient):
        assert torch.equal(majority()(View.of(gradient[None]), Known(), noise).score[0], whole[step])


def test_a_zero_row_agrees_with_nobody(noise):
    gradient = torch.ones(1, 5, 3)
    gradient[0, 2] = 0
    score = majority()(View.of(gradient), Known(), noise).score[0]
    assert score.tolist() == [-0.75, -0.75, 0.0, -0.75, -0.75]
