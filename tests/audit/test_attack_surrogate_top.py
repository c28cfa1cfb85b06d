import pytest
import torch
from torch.nn import functional

from tacit.audit.attacks._surrogate import Surrogate, _first_labels, _initial
from tacit.audit.attacks.surrogate_top import surrogate_top
from tacit.audit.metrics.leak_auc import auc, leak_auc
from tacit.contracts import Guess, Known, View, noise_source
from tacit.errors import UsageError


def behind_a_network(seed, share=0.3, steps=4, batch=256, width=10, loud=0.0, visits=1):
    """Gradients at the cut of an untrained top of two layers, of rows that come `visits` times.

    The straight way beside the hidden layer goes where that layer's slope goes on the whole: two ways that take each
    other away leave a top without a leading slope, which in some draws nobody could begin with.
    """
    g = torch.Generator().manual_seed(seed)
    total = steps * batch
    y = (torch.rand(total, generator=g) < share).long()
    z = torch.randn(total, width, generator=g) + 0.5 * y[:, None]
    inner, outer = (torch.randn(*shape, generator=g) / 3 for shape in ((width, 24), (24,)))
    order = torch.cat([torch.randperm(total, generator=g) for _ in range(visits)]).reshape(-1, batch)
    sent = z[order].requires_grad_()
    straight = functional.normalize(inner @ outer, dim=0) / 2
    logit = functional.silu(sent @ inner) @ outer + sent @ straight - 1.0
    functional.binary_cross_entropy_with_logits(logit, y[order].float()).backward()
    gradient = sent.grad / sent.grad.square().mean().sqrt()
    gradient = gradient + loud * torch.randn(gradient.shape, generator=g)
    return View.of(gradient, rows=order, embedding=sent.detach()), y


@pytest.mark.parametrize("share", [0.1, 0.35])
def test_labels_follow_from_gradients_and_the_share_alone(noise, share):
    view, y = behind_a_network(1, share)
    guess = surrogate_top()(view, Known(share=share), noise)
    assert guess.rows.tolist() == [list(range(1024))]
    assert float(auc(guess.score[0], y)) > 0.95, "and with the right sign"
    baseline = leak_auc(Guess(guess.rows, guess.baseline), y).value
    assert baseline < 0.9, "the surrogate's own prediction of what the embedding says"


def test_few_positives_of_whom_a_sure_model_is_wrong_are_found(noise):
    """A trained model gives most negatives a small p: only positives have long gradients."""
    g = torch.Generator().manual_seed(5)
    y = (torch.rand(4096, generator=g) < 0.08).long()
    z = 3 * torch.randn(4096, 16, generator=g)
    slope = torch.randn(16, generator=g)
    p = torch.sigmoid(0.2 * z @ slope / slope.norm() - 4.0)
    gradient = (p - y)[:, None] * (slope + 0.3 * torch.randn(4096, 16, generator=g))
    view = View.of(gradient.reshape(4, 1024, 16), embedding=z.reshape(4, 1024, 16))
    guess = surrogate_top()(view, Known(share=0.08), noise)
    assert float(auc(guess.score[0], y)) > 0.99


def test_the_first_labels_go_with_the_first_slope(noise):
    """Labels that all start in the middle let the surrogate turn around, as one did on flights without protection."""
    view, y = behind_a_network(6, share=0.15, visits=2)
    z, gradient = (x.flatten(0, 1) for x in (view.embedding, view.gradient))
    top = _initial(z, gradient, 0.15, noise_source(noise))
    explained, _ = top.explained(z, gradient)
    slot = view.rows.flatten()
    label = _first_labels(explained, slot, len(y)).sigmoid()[:, 0]
    assert float(auc(label, y)) > 0.9
    assert label.min() >= 0.05 - 1e-6
    assert label.max() <= 0.95 + 1e-6
    mine = explained[slot == 7].mean().clamp(0.05, 0.95)
    assert float(label[7]) == pytest.approx(float(mine), abs=1e-5)


def test_all_visits_of_an_example_are_explained_by_one_label(noise):
    once, y = behind_a_network(2, loud=3.0)
    often, y_often = behind_a_network(2, loud=3.0, visits=8)
    assert torch.equal(y, y_often)
    one, eight = (leak_auc(surrogate_top()(v, Known(share=0.3), noise), y).value for v in (once, often))
    assert eight > one + 0.05


def test_the_slope_is_the_gradient_of_the_logit(noise):
    z = torch.randn(6, 5, generator=noise, requires_grad=True)
    top = Surrogate(
        *(torch.randn(*shape, generator=noise) for shape in ((5, 7), (7,), (7,), (5,))),
        offset=torch.tensor(0.3), size=torch.tensor(0.0), way=None,
    )  # fmt: skip
    logit, slope = top.at(z)
    (expected,) = torch.autograd.grad(logit.sum(), z)
    torch.testing.assert_close(slope, expected, atol=1e-5, rtol=1e-5)


def test_a_row_is_explained_by_the_label_that_made_its_gradient(noise):
    z, y = torch.randn(50, 5, generator=noise), (torch.rand(50, generator=noise) < 0.5).float()
    top = _initial(z, torch.randn(50, 5, generator=noise), 0.4, noise_source(noise))
    logit, slope = top.at(z)
    told, own = top.explained(z, ((logit.sigmoid() - y)[:, None] * slope).detach())
    torch.testing.assert_close(told.float(), y, atol=1e-4, rtol=0)
    torch.testing.assert_close(own.float(), logit.detach())


def test_a_prediction_that_is_granted_is_the_baseline(noise, quick_network):
    view, y = behind_a_network(3)
    prediction = torch.randn(len(y), generator=noise)
    guess = surrogate_top()(view, Known(share=0.3, prediction=prediction), noise)
    assert torch.equal(guess.baseline[0].float(), prediction)


def test_at_another_layer_the_way_there_is_fitted(noise):
    view, y = behind_a_network(4)
    way = torch.randn(10, 4, generator=noise)
    there = View.of(view.gradient @ way, rows=view.rows, embedding=view.embedding)
    assert leak_auc(surrogate_top()(there, Known(share=0.3), noise), y).value > 0.9


def test_noise_alone_stays_chance(noise, far_from_chance):
    """Four standard errors: a false alarm has probability 6e-5, at a fixed seed."""
    y = (torch.rand(2000, generator=noise) < 0.3).long()
    view = View.of(torch.randn(4, 500, 9, generator=noise), embedding=torch.randn(4, 500, 9, generator=noise))
    assert far_from_chance(surrogate_top()(view, Known(share=0.3), noise), y) < 4


def test_name_and_refusals(noise):
    assert surrogate_top().name == "surrogate_top"
    bare = View.of(torch.zeros(2, 3, 4))
    with pytest.raises(UsageError, match="needs the embeddings"):
        surrogate_top()(bare, Known(share=0.2), noise)
    with pytest.raises(UsageError, match=r"needs known\.share"):
        surrogate_top()(View.of(torch.zeros(2, 3, 4), embedding=torch.zeros(2, 3, 4)), Known(), noise)
