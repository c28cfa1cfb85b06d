import pytest
import torch

from tacit.audit.attacks.top_share import top_share
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Known, View
from tacit.errors import UsageError


def test_it_calls_exactly_the_longest(noise):
    label = (torch.rand(4, 50, generator=noise).argsort(-1) < 15).long()
    gradient = torch.randn(4, 50, 6, generator=noise) + 20.0 * label[..., None]
    guess = top_share()(View.of(gradient), Known(share=0.3), noise)
    assert set(guess.score.flatten().tolist()) == {0.0, 1.0}
    assert guess.score.sum(-1).tolist() == [15.0] * 4
    assert torch.equal(guess.score.long(), label)


def test_it_bites_on_bare_gradients_and_needs_one_batch_alone(scene, noise):
    """Of some 150 positives about two thirds are called: an AUC of 0.84, known to 0.02, so 0.74 is five errors off."""
    s = scene(1, share=0.1)
    assert leak_auc(top_share()(s.view, s.known, noise), s.truth).value > 0.74
    guess = top_share()(s.view, Known(share=0.5), noise)
    assert guess.score.mean() == 0.5
    alone = top_share()(View.of(s.view.gradient[2:3]), Known(share=0.5), noise)
    assert torch.equal(alone.score[0], guess.score[2])


def test_a_share_is_needed(scene, noise):
    with pytest.raises(UsageError, match=r"known\.share"):
        top_share()(scene(1).view, Known(), noise)
