import pytest
import torch
from torch.nn import functional

from tacit.audit.attacks.direct_label import direct_label
from tacit.audit.metrics.leak_auc import auc, leak_auc
from tacit.contracts import Known, View


def summing_top(width, seed=1, steps=4, batch=200, share=0.3):
    """Gradients at the cut of a top that only adds the parties' logits, by autograd, of an untrained model."""
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(steps, batch, generator=g) < share).long()
    logits = torch.randn(steps, batch, width, generator=g, requires_grad=True)
    both = logits + torch.randn(steps, batch, width, generator=g)  # the label party's own share of the sum
    if width == 1:
        loss = functional.binary_cross_entropy_with_logits(both[..., 0], y.float())
    else:
        loss = functional.cross_entropy(both.flatten(0, 1), y.flatten())
    loss.backward()
    return View.of(logits.grad), y.flatten()


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_summing_top_hands_every_label_over(width, share, noise):
    view, y = summing_top(width, share=share)
    guess = direct_label()(view, Known(), noise)
    assert torch.equal(guess.score.flatten() > 0, y == 1), "the sign itself is the label"


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_at_a_wide_cut_the_side_of_the_leading_direction(scene, noise, share):
    s = scene(2, steps=40, batch=64, share=share)
    guess = direct_label()(s.view, Known(), noise)
    assert leak_auc(guess, s.truth).value > 0.99
    assert guess.score.abs().max() <= 1 + 1e-9
    if share < 0.5:
        assert float(auc(guess.score.flatten(), s.label.flatten())) > 0.99, "the fewer rows are positive"


def test_lengths_do_not_matter(scene, noise):
    s = scene(3, steps=2)
    longer = s.view.gradient * torch.rand(2, 256, 1, generator=noise).add(0.1)
    one, two = (direct_label()(View.of(x), Known(), noise).score for x in (s.view.gradient, longer))
    assert torch.allclose(one, two, atol=1e-6)


def test_noise_alone_stays_chance(noise, far_from_chance):
    """Three looks at four standard errors: a false alarm has probability 2e-4, at a fixed seed."""
    y = (torch.rand(2000, generator=noise) < 0.3).long()
    for width in (1, 2, 9):
        view = View.of(torch.randn(4, 500, width, generator=noise))
        assert far_from_chance(direct_label()(view, Known(), noise), y) < 4
