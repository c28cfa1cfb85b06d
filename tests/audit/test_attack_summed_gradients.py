import pytest
import torch

from tacit.audit.attacks._visits import Visits
from tacit.audit.attacks.summed_gradients import _solved, summed_gradients
from tacit.audit.metrics.leak_auc import auc, leak_auc
from tacit.contracts import Known, View
from tacit.errors import UsageError


def linear(seed, epochs, examples=512, batch=64, width=16, share=0.2, loud=0.0):
    """A linear federated model: features that stay, residuals p - y that stay, batches drawn anew in each epoch."""
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(examples, generator=g) < share).long()
    x = torch.randn(examples, width, generator=g) * torch.logspace(0, -2, width)
    residual = torch.sigmoid(torch.randn(examples, generator=g) - 1.3) - y
    order = torch.cat([torch.randperm(examples, generator=g) for _ in range(epochs)]).reshape(-1, batch)
    gradient = residual[order][..., None] * torch.tensor([0.5, -0.5])
    gradient = gradient + loud * torch.randn(gradient.shape, generator=g)
    return View.of(gradient, rows=order, embedding=x[order]), y, residual


def reached(view, y, noise):
    return leak_auc(summed_gradients()(view, Known(), noise), y)


def test_sums_alone_give_every_label_after_enough_epochs(noise):
    """Sixteen columns and ones for batches of 64: the equations outnumber the rows from the fourth epoch on."""
    found = [reached(*linear(1, epochs)[:2], noise).value for epochs in (1, 3, 8)]
    assert found[0] < 0.9
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.99


def test_what_is_solved_for_is_the_residual(noise, monkeypatch):
    monkeypatch.setattr("tacit.audit.attacks.summed_gradients._RIDGE", 1e-6)
    view, y, residual = linear(2, epochs=10)
    guess = summed_gradients()(view, Known(), noise)
    score = guess.score[0]
    assert guess.rows.tolist() == [list(range(512))]
    found = torch.corrcoef(torch.stack([score, -residual.double()]))[0, 1]
    assert float(found) > 0.98, "turned so that positives are high"
    assert float(auc(score, y)) > 0.99


def test_batches_no_larger_than_the_columns_are_solved_at_once(noise):
    view, y, _ = linear(3, epochs=1, batch=16)
    assert reached(view, y, noise).value > 0.99


def test_conjugate_gradients_solve_the_normal_equations():
    g = torch.Generator().manual_seed(4)
    view, _, _ = linear(4, epochs=3, examples=60, batch=20, width=5)
    white = torch.linalg.qr(torch.randn(9, 20, 5, generator=g, dtype=torch.float64)).Q
    told = torch.randn(9, 5, generator=g, dtype=torch.float64)
    visits = Visits.of(view)
    whole = torch.zeros(45, 60, dtype=torch.float64)
    for step in range(9):
        whole[5 * step : 5 * step + 5, view.rows[step]] = white[step].mT
    expected = torch.linalg.solve(whole.mT @ whole + 0.01 * torch.eye(60), whole.mT @ told.flatten())
    torch.testing.assert_close(_solved(white, told, visits), expected, atol=1e-6, rtol=1e-6)


def test_only_the_sums_are_used(noise):
    """Noise that cancels in each batch's sums changes nothing, however loud it is."""
    view, y, _ = linear(5, epochs=8, width=6)
    x = torch.cat([view.embedding, torch.ones(len(view.rows), 64, 1)], dim=-1).double()
    basis = torch.linalg.qr(x).Q
    loud = torch.randn(view.gradient.shape, generator=noise, dtype=torch.float64)
    loud = loud - basis @ (basis.mT @ loud)
    hidden = View.of(view.gradient + 0.3 * loud, rows=view.rows, embedding=view.embedding)
    one, two = (reached(v, y, noise).value for v in (view, hidden))
    assert two == pytest.approx(one, abs=0.05)
    assert two > 0.75


def test_one_linear_function_of_the_embedding_is_the_baseline(noise):
    """Residuals that follow from the embedding, which every model learns: nothing lies above the baseline."""
    view, _, _ = linear(6, epochs=4)
    x = view.embedding
    y = (x[..., 0] > 1.0).long()
    truth = torch.zeros(512, dtype=torch.long)
    truth[view.rows] = y
    guess = summed_gradients()(View.of(-x[..., :2], rows=view.rows, embedding=x), Known(), noise)
    score, baseline = (leak_auc(type(guess)(guess.rows, one), truth).value for one in (guess.score, guess.baseline))
    assert baseline > 0.99
    assert score <= baseline + 0.005


def test_noise_alone_stays_chance(noise, far_from_chance):
    """Four standard errors: a false alarm has probability 6e-5, at a fixed seed."""
    view, y, _ = linear(7, epochs=8)
    bare = View.of(torch.randn(view.gradient.shape, generator=noise), rows=view.rows, embedding=view.embedding)
    assert far_from_chance(summed_gradients()(bare, Known(), noise), y) < 4


def test_name_and_refusal(noise):
    assert summed_gradients().name == "summed_gradients"
    with pytest.raises(UsageError, match="needs the embeddings"):
        summed_gradients()(View.of(torch.zeros(2, 3, 4)), Known(), noise)
