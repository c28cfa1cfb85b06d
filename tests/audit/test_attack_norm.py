import torch

from tacit.audit.attacks.norm import norm
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Known, View


def test_it_bites_where_the_model_is_less_sure_of_positives(scene, noise):
    s = scene(1, share=0.1)
    assert leak_auc(norm()(s.view, s.known, noise), s.truth).value > 0.95


def test_it_is_perfect_on_two_lengths(noise):
    label = (torch.arange(300) % 3 == 0).long()
    rows = torch.randn(3, 100, 8, generator=noise)
    view = View.of(rows / rows.norm(dim=-1, keepdim=True) * (1 + label.reshape(3, 100, 1)))
    assert leak_auc(norm()(view, Known(), noise), label).value == 1.0


def test_it_is_the_length_step_by_step(scene, noise):
    s = scene(2)
    score = norm()(s.view, Known(), noise).score
    assert torch.allclose(score, s.view.gradient.double().square().sum(-1).sqrt())
    for step, gradient in enumerate(s.view.gradient):
        assert torch.equal(norm()(View.of(gradient[None]), Known(), noise).score[0], score[step])
