import pytest
import torch

from tacit.audit.attacks.hint import hint
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Known, View
from tacit.errors import UsageError


def test_it_is_perfect_on_bare_gradients(scene, noise):
    s = scene(1)
    assert leak_auc(hint()(s.view, s.known, noise), s.truth).value > 0.99


@pytest.mark.parametrize("k", [1, 3, 5, 1000])
def test_hints_are_the_first_known_positives_and_are_not_judged(scene, noise, k):
    s = scene(3, steps=4, batch=40)
    guess = hint(k=k)(s.view, s.known, noise)
    assert guess.counted is not None
    for step, gradient in enumerate(s.view.gradient):
        known = (s.known.labels[s.view.rows[step]] == 1).nonzero()[:k, 0]
        assert known.numel() > 0
        assert (~guess.counted[step]).nonzero()[:, 0].tolist() == known.tolist()
        expected = (gradient @ gradient[known].T).amax(-1) / gradient.square().mean()
        assert torch.allclose(guess.score[step], expected, rtol=1e-4, atol=1e-5)
        alone = hint(k=k)(View.of(gradient[None], rows=s.view.rows[step][None]), s.known, noise)
        assert torch.allclose(alone.score[0], guess.score[step], atol=1e-5)


def test_by_cosine_lengths_do_not_count(scene, noise):
    s = scene(4, steps=3, batch=40)
    guess = hint(similarity="cosine")(s.view, s.known, noise)
    for step, gradient in enumerate(s.view.gradient):
        known = (s.known.labels[s.view.rows[step]] == 1).nonzero()[:5, 0]
        expected = torch.cosine_similarity(gradient[:, None], gradient[known][None], dim=-1).amax(-1)
        torch.testing.assert_close(guess.score[step], expected, rtol=1e-4, atol=1e-5)
    longer = View.of(s.view.gradient * torch.rand(3, 40, 1, generator=noise).add(0.5), rows=s.view.rows)
    again = hint(similarity="cosine")(longer, s.known, noise)
    torch.testing.assert_close(again.score, guess.score, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(hint()(longer, s.known, noise).score, hint()(s.view, s.known, noise).score, rtol=0.1)


@pytest.mark.parametrize("similarity", ["inner", "cosine"])
def test_it_needs_no_imbalance(scene, noise, similarity):
    s = scene(2, share=0.5)
    assert leak_auc(hint(similarity=similarity)(s.view, s.known, noise), s.truth).value > 0.99
    assert hint(similarity=similarity).name == ("hint" if similarity == "inner" else "hint(similarity=cosine)")


def test_a_batch_without_a_hint_is_not_judged(noise):
    labels = torch.full((12,), -1)
    labels[7] = 1
    labels[1] = 0
    guess = hint()(View.of(torch.randn(2, 6, 3, generator=noise)), Known(labels=labels), noise)
    assert guess.counted.tolist() == [[False] * 6, [True, False, True, True, True, True]]
    assert (guess.score[0] == 0).all()


def test_wrong_options_are_refused():
    with pytest.raises(UsageError, match="at least one"):
        hint(k=0)
    with pytest.raises(UsageError, match="choose 'inner' or 'cosine'"):
        hint(similarity="distance")
