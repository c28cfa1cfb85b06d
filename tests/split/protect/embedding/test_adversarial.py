import pytest
import torch
from torch import nn

from tacit.contracts import noise_source
from tacit.errors import TensorError, UsageError
from tacit.split.protect.embedding.adversarial import adversarial
from tacit.split.protect.embedding.noise_regularization import noise_regularization


def rows(seed=0, size=6, cut=(3, 2), inputs=5):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(size, inputs, generator=g, dtype=torch.float64)
    return x, torch.randn(size, *cut, generator=g, dtype=torch.float64).requires_grad_()


def network(width=6, inputs=5):
    torch.manual_seed(2)
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 4), nn.Tanh(), nn.Linear(4, inputs)).double()


def source():
    return noise_source(torch.Generator().manual_seed(0))


def plain(module, x, z):
    """The gradients of |R(z) - x|^2, summed over columns and averaged over rows, by the definition."""
    loss = sum(((module(z)[i].flatten() - x[i]) ** 2).sum() for i in range(len(x))) / len(x)
    into_z, *into_weights = torch.autograd.grad(loss, [z, *module.parameters()])
    return loss.detach(), into_z, into_weights


@pytest.mark.parametrize("weight", [0.01, 1.0, 30.0])
def test_the_gradient_into_z_is_reversed_and_weighted_and_the_reconstructors_is_whole(weight):
    x, z = rows()
    made = adversarial(weight, network(), clip=None).regularizer(x, z, [])
    wanted, into_z, into_weights = plain(made.reconstructor, x, z)
    loss = made(x, z, source())
    loss.backward()
    torch.testing.assert_close(loss.detach(), wanted)
    torch.testing.assert_close(z.grad, -weight * into_z)
    for parameter, gradient in zip(made.parameters(), into_weights, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("clip", [1e-3, 2.0, 1e6])
def test_each_row_is_clipped_by_its_own_loss_whatever_the_size_of_the_batch(clip):
    x, z = rows(size=12)
    made = adversarial(0.5, network(), clip=clip).regularizer(x, z, [])
    _, into_z, _ = plain(made.reconstructor, x, z)
    errors = (made.reconstructor(z) - x).square().sum(1)
    informed = errors < x.square().sum(1).mean()
    assert 0 < informed.sum() < 12  # both kinds of rows are there
    own = into_z.flatten(1) * 12
    keep = (clip / own.norm(dim=1)).clamp(max=1) * informed
    made(x, z, source()).backward()
    torch.testing.assert_close(z.grad.flatten(1), -0.5 * own * keep[:, None] / 12)
    assert (z.grad.flatten(1).norm(dim=1) * 12 <= 0.5 * clip * (1 + 1e-9)).all()


def test_the_reconstructor_learns_from_rows_that_are_left_alone_too():
    x, z = rows()
    made = adversarial(1.0, network()).regularizer(x, z, [])
    with torch.no_grad():
        made.own[-1].bias += 100.0  # worse than any answer
    _, _, into_weights = plain(made.reconstructor, x, z)
    made(x, z, source()).backward()
    assert (z.grad == 0).all()
    for parameter, gradient in zip(made.parameters(), into_weights, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_the_given_reconstructor_is_copied_and_the_protection_stays_as_it_is():
    x, z = rows()
    given = network()
    before = [p.clone() for p in given.parameters()]
    protection = adversarial(1.0, given, learning_rate=0.1)
    made, again = protection.regularizer(x, z, []), protection.regularizer(x, z, [])
    made(x, z, source()).backward()
    made.optimizer.step()
    assert all(torch.equal(p, old) for p, old in zip(given.parameters(), before, strict=True))
    assert all(torch.equal(p, old) for p, old in zip(again.parameters(), before, strict=True))
    assert not any(torch.equal(p, old) for p, old in zip(made.parameters(), before, strict=True))


def test_the_default_is_built_for_the_input_from_torchs_own_generator():
    x, z = rows(cut=(2, 3, 3), inputs=7)
    torch.manual_seed(5)
    one = adversarial(1.0).regularizer(x, z, [])
    torch.manual_seed(5)
    two = adversarial(1.0).regularizer(x, z, [])
    assert one.reconstructor(z).shape == (6, 7)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert next(one.parameters()).dtype == torch.float64


def test_a_reconstructor_of_any_output_shape_with_the_right_numbers_will_do():
    x, z = rows(inputs=12)
    made = adversarial(1.0, nn.Sequential(network(6, 12), nn.Unflatten(1, (3, 2, 2)))).regularizer(x, z, [])
    assert made(x, z, source()).shape == ()


def test_modes_and_single_rows_do_not_matter_to_the_check():
    x, z = rows()
    given = nn.Sequential(network(), nn.BatchNorm1d(5).double())
    made = adversarial(1.0, given).regularizer(x[:1], z[:1], [])
    assert made.own.training
    assert made.own[1].num_batches_tracked == 0
    assert made(x, z, source()).isfinite()


def test_a_lazy_reconstructor_is_made_before_its_optimizer():
    x, z = rows()
    made = adversarial(1.0, nn.Sequential(nn.Flatten(), nn.LazyLinear(5))).regularizer(x, z, [])
    assert [p.shape for p in made.optimizer.param_groups[0]["params"]] == [(5, 6), (5,)]


@pytest.mark.parametrize("factory", [adversarial, noise_regularization])
@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(6, 9)), r"gives \(6, 9\) for an embedding \(6, 3, 2\).* are \(6, 5\)"),
        (nn.Linear(6, 5), r"can't take an embedding \(6, 3, 2\) .*; pass one that maps it to \(6, 5\)"),
        (nn.Sequential(nn.Flatten(0), nn.Linear(36, 30)), r"gives \(30,\) for an embedding \(6, 3, 2\)"),
        (nn.LSTM(2, 5), r"gives tuple for an embedding"),
    ],
)
def test_a_reconstructor_that_does_not_fit_is_refused_with_both_shapes(factory, module, said):
    x, z = rows()
    with pytest.raises(TensorError, match=said):
        factory(1.0, reconstructor=module).regularizer(x, z, [])


def test_a_reconstructor_that_can_not_learn_is_refused():
    x, z = rows(cut=(5,))
    with pytest.raises(UsageError, match=r"Identity\(\) has no parameters to train"):
        adversarial(1.0, nn.Identity()).regularizer(x, z, [])


def test_embeddings_stay_bounded_where_the_bare_reversal_runs_away():
    """A bottom that answers to nothing but a strong reversal, by plain gradient steps.

    Over four seeds the largest entry stays below 180 with the bounds, and is NaN after 60 to 120 steps without them.
    """
    largest = {}
    for clip in (1.0, None):
        torch.manual_seed(0)
        x = torch.randn(64, 4)
        bottom = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(bottom.parameters(), 1.0)
        made = adversarial(10.0, clip=clip).regularizer(x, bottom(x), [])
        for _ in range(200):
            optimizer.zero_grad()
            made.zero_grad()
            z = bottom(x)
            if not z.isfinite().all():
                break
            made(x, z, source()).backward()
            optimizer.step()
            made.optimizer.step()
        largest[clip] = float(z.detach().abs().max())
    assert largest[1.0] < 1000
    assert not largest[None] < 1e30
