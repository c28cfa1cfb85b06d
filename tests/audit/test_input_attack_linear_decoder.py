"""The linear decoder, where the right answer is known."""

import pytest
import torch
from sklearn.linear_model import Ridge

from tacit.audit.input_attacks._ridge import ridge
from tacit.audit.input_attacks.linear_decoder import linear_decoder
from tacit.audit.inputs import attack_inputs, grant_inputs
from tacit.contracts import View


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed):
    return torch.randn(*shape, generator=generator(seed))


def relative(z, x, attack, seed=1, pairs=0.5):
    view = z if isinstance(z, View) else View.of_embeddings(z[None])
    (found,) = attack_inputs(view, x, [attack], noise=generator(seed), pairs=pairs)
    return found.relative


def test_a_linear_bottom_is_read_whole():
    x = normal(600, 2, 4, seed=1) * torch.tensor([1.0, 100.0, 0.01, 1.0]) + 5
    z = x.flatten(1) @ normal(8, 20, seed=2) + 3
    found = relative(z, x, linear_decoder())
    assert found.value < 1e-6
    assert relative(z, x, linear_decoder(share=0.05)).value < 1e-6  # thirty pairs for eight numbers


def test_a_projection_leaves_what_it_hides():
    x = normal(4000, 6, seed=1)
    found = relative(x[:, :2], x, linear_decoder())
    assert found.low < 4 / 6 < found.high


def test_more_pairs_read_more():
    x = normal(1500, 40, seed=1)
    z = x @ normal(40, 60, seed=2) + 4 * normal(1500, 60, seed=3)
    errors = [relative(z, x, linear_decoder(share=share)).value for share in (0.01, 0.05, 0.5)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > errors[2] + 0.1


@pytest.mark.parametrize("how", ["noise", "permuted"])
def test_where_nothing_is_to_be_read_nothing_is_read(how):
    """A false alarm is an interval all below 1, at 2.5% or less: more than 4 in 40 less than once in 250 times."""
    alarms = 0
    for seed in range(40):
        x = normal(300, 5, seed=seed)
        z = normal(300, 12, seed=1000 + seed)
        if how == "permuted":
            z = (x @ normal(5, 12, seed=77))[torch.randperm(300, generator=generator(seed))]
        found = relative(z, x, linear_decoder(), seed)
        alarms += found.high < 1
        assert found.value < 1.25
    assert alarms <= 4


def test_visits_of_one_example_are_all_used_and_judged():
    x = normal(200, 4, seed=1)
    rows = torch.cat([torch.randperm(200, generator=generator(i)) for i in range(6)]).reshape(12, 100)
    z = (x @ normal(4, 8, seed=2))[rows] + 2 * normal(12, 100, 8, seed=3)  # fresh noise at each visit
    guess = linear_decoder()(View.of_embeddings(z, rows=rows), grant_inputs(x, noise=generator()), generator())
    assert int(guess.counted.sum()) == 600
    once = relative(z[:2].flatten(0, 1), x[rows[:2].flatten()], linear_decoder(), pairs=0.5).value
    often = relative(View.of_embeddings(z, rows=rows), x, linear_decoder()).value
    assert often < once  # six times the pairs, of the same examples


@pytest.mark.parametrize(("rows", "width"), [(80, 12), (30, 100)])
def test_the_map_is_that_of_a_reference_with_the_best_penalty_on_the_rows_held_out(rows, width):
    z, truth = normal(rows, width, seed=1), normal(width, 3, seed=2)
    x = z @ truth + 3 * normal(rows, 3, seed=3) + 7
    fit, held = torch.arange(rows * 4 // 5), torch.arange(rows * 4 // 5, rows)
    a = z[fit].double() - z[fit].double().mean(0)
    largest = torch.linalg.eigvalsh(a.mT @ a)[-1].item()

    def fitted(penalty, some):
        return Ridge(alpha=penalty).fit(z[some].double().numpy(), x[some].double().numpy())

    def miss(penalty):
        return float((torch.tensor(fitted(penalty, fit).predict(z[held].double().numpy())) - x[held]).square().sum())

    best = min((largest * 10 ** (power / 2) for power in range(-20, 7)), key=miss)
    first = ridge(z, x, fit, held, refit=False)
    reference = fitted(best, fit)
    torch.testing.assert_close(first(z), torch.tensor(reference.predict(z.double().numpy())).float(), atol=1e-3, rtol=0)
    whole = fitted(best * rows / len(fit), torch.arange(rows))
    line = ridge(z, x, fit, held)
    torch.testing.assert_close(line.weight, torch.tensor(whole.coef_).mT, atol=1e-4, rtol=0)
    torch.testing.assert_close(line.bias, torch.tensor(whole.intercept_), atol=1e-3, rtol=0)


def test_a_few_embeddings_that_went_far_out_do_not_hide_the_others(noise):
    """Sixteen of 8,000 rows are 300 times too large; who lets them set the scale is left with 0.99, next to nothing."""
    x = torch.randn(8000, 12, generator=noise)
    z = (x @ torch.randn(12, 32, generator=noise)).relu()
    calm = attack_inputs(View.of_embeddings(z[None]), x, ["linear_decoder"], noise=noise)[0].relative.value
    z[::500] *= 300
    wild = attack_inputs(View.of_embeddings(z[None]), x, ["linear_decoder"], noise=noise)[0].relative.value
    assert wild < calm + 0.2
