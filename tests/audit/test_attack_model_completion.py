import pytest
import torch
from sklearn.linear_model import Ridge

from tacit.audit.attacks.model_completion import _PENALTIES, _ridge, model_completion
from tacit.audit.attacks.spectral import spectral
from tacit.audit.metrics.leak_auc import auc, leak_auc
from tacit.audit.run import attack_all
from tacit.contracts import Known, View
from tacit.errors import LabelsError, UsageError

ROWS, WIDTH = 4000, 60


def party(seed, gap=1.0):
    """Embeddings in which the classes lie apart along one of many directions, and the labels."""
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(ROWS, generator=g) < 0.3).long()
    z = torch.randn(ROWS, WIDTH, generator=g) * torch.linspace(3, 0.3, WIDTH)
    z[:, 30] += gap * 3 * y  # not the leading direction: labels are needed to find it
    return View.of_embeddings(z.reshape(8, -1, WIDTH), role="features"), y, z


def granted(y, seed=1000):
    g = torch.Generator().manual_seed(seed)
    return torch.where(torch.rand(len(y), generator=g) < 0.5, y, -1)


@pytest.mark.parametrize("seed", range(3))
def test_forty_labels_find_what_no_label_does_not(seed, noise):
    view, y, _ = party(seed, gap=1.5)
    known = Known(labels=granted(y))
    found = leak_auc(model_completion()(view, known, noise), y).value
    assert found > 0.65
    assert leak_auc(spectral()(view, known, noise), y).value < 0.6
    more = leak_auc(model_completion(k=1000)(view, known, noise), y).value
    assert more > found


def test_only_k_labels_are_looked_at_and_half_of_each_class(noise, monkeypatch):
    view, y, _ = party(1)
    asked = []
    monkeypatch.setattr("tacit.audit.attacks.model_completion._ridge", lambda x, t: asked.append(t) or x.mT @ t)
    model_completion(k=40)(view, Known(labels=granted(y)), noise)
    assert asked[0].tolist() == [-1.0] * 20 + [1.0] * 20
    few = torch.where((y == 1) & (torch.arange(ROWS) > 100), -1, y)  # some thirty positives, all negatives
    model_completion(k=100)(view, Known(labels=few), noise)
    assert len(asked[1]) == 100
    assert (asked[1] == 1).sum() == ((few == 1).sum())


def test_visits_of_one_example_count_once(noise, monkeypatch):
    _, y, z = party(1)
    rows = torch.arange(500).repeat(8).reshape(8, 500)
    seen = []
    monkeypatch.setattr("tacit.audit.attacks.model_completion._ridge", lambda x, t: seen.append(x) or x.mT @ t)
    visits = View.of_embeddings(z.reshape(8, 500, WIDTH), rows=rows, role="features")
    model_completion(k=400)(visits, Known(labels=y[:500]), noise)
    assert len(seen[0]) == 400
    assert len(seen[0].unique(dim=0)) == 400


def test_the_penalty_is_the_best_one_by_leaving_each_row_out():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(12, 20, generator=g, dtype=torch.float64)
    y = (x[:, 0] > 0).double() * 2 - 1
    y = y - y.mean()
    unit = x.square().sum() / 12

    def left_out(penalty):
        miss = 0.0
        for i in range(12):
            rest = torch.arange(12) != i
            fit = Ridge(alpha=float(penalty * unit), fit_intercept=False).fit(x[rest].numpy(), y[rest].numpy())
            miss += (fit.predict(x[i : i + 1].numpy())[0] - float(y[i])) ** 2
        return miss

    best = min(_PENALTIES.tolist(), key=left_out)
    expected = Ridge(alpha=float(best * unit), fit_intercept=False).fit(x.numpy(), y.numpy()).coef_
    torch.testing.assert_close(_ridge(x, y), torch.tensor(expected), atol=1e-9, rtol=1e-6)


def test_labels_that_have_nothing_to_do_with_embeddings_give_chance():
    """Ten independent runs; their mean AUC has a standard error of about 0.004, and is beyond 0.02 once in 1e6."""
    scores = []
    for seed in range(10):
        view, y, _ = party(seed)
        y = y[torch.randperm(ROWS, generator=torch.Generator().manual_seed(100 + seed))]
        guess = model_completion()(view, Known(labels=granted(y)), torch.Generator().manual_seed(seed))
        scores.append(auc(guess.score.flatten(), y[guess.rows.flatten()], guess.counted.flatten()))
    assert abs(float(torch.stack(scores).mean()) - 0.5) < 0.02


def test_the_baseline_is_what_the_finished_model_predicts(noise):
    view, y, z = party(2)
    prediction = z[:, 30] + torch.randn(ROWS, generator=noise)
    attacks = ["model_completion", "spectral"]
    with_it = attack_all(view, y, attacks, noise=torch.Generator().manual_seed(1), prediction=prediction)
    without = attack_all(view, y, attacks, noise=torch.Generator().manual_seed(1))
    for one, other in zip(with_it, without, strict=True):
        assert one.leak == other.leak
        assert other.baseline == other.leak
        assert one.baseline.value == pytest.approx(float(auc(prediction, y)), abs=0.02)
    with pytest.raises(UsageError, match="one number for each row id"):
        attack_all(view, y, attacks, noise=noise, prediction=prediction[:5])


def test_labels_of_one_class_are_not_enough(noise):
    view, y, _ = party(1)
    with pytest.raises(LabelsError, match="one class alone"):
        model_completion()(view, Known(labels=torch.where(y == 1, -1, y)), noise)
    with pytest.raises(UsageError, match="known label"):
        model_completion(k=0)
