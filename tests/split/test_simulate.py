"""Simulated training: repeatable, with right figures, and one clear error for each wrong input."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.align.batches import batches
from tacit.contracts import Event, Protected
from tacit.errors import LabelsError, TensorError, UsageError
from tacit.split.feature_party import FeatureParty
from tacit.split.protect.gradient import chain
from tacit.split.protect.gradient.clip import clip
from tacit.split.protect.gradient.iso import iso
from tacit.split.protect.gradient.marvell import marvell
from tacit.split.protect.gradient.matched import matched
from tacit.split.protect.gradient.max_norm import max_norm
from tacit.split.protect.gradient.none import none
from tacit.split.protect.labels.randomized_response import randomized_response
from tacit.split.record import Recorder
from tacit.split.simulate import Simulation, simulate
from tests.plain_network import mlp

COUNT, BATCH = 70, 16  # 6 rows sit out at each epoch
PROTECTIONS = {
    "none": none(),
    "clip": clip(1e-3),
    "iso": iso(1.0),
    "max_norm": max_norm(),
    "marvell": marvell(scale=4.0),
    "matched": matched(leak_auc=0.6),
    "chain": chain(clip(1e-2), iso(0.5)),
}


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=2):
    return torch.randn(*shape, generator=generator(seed))


def labels(count=COUNT):
    return (torch.rand(count, generator=generator(3)) < 0.4).float()


def run(**options):
    bottom, top = mlp(5, widths=(8, 6), own_inputs=2, generator=generator())
    return simulate(
        **{"bottom": bottom, "top": top, "features": normal(COUNT, 5), "own": normal(COUNT, 2), "labels": labels(),
           "protect": none(), "epochs": 2, "batch_size": BATCH, **options}
    )  # fmt: skip


def weights(simulation):
    return torch.cat([p.detach().flatten() for half in (simulation.bottom, simulation.top) for p in half.parameters()])


@pytest.mark.parametrize("name", PROTECTIONS)
def test_the_seed_decides_everything(name):
    torch.manual_seed(0)
    one = run(protect=PROTECTIONS[name], seed=4)
    torch.manual_seed(1)  # torch's own generator has no part in it
    two = run(protect=PROTECTIONS[name], seed=4)
    assert torch.equal(weights(one), weights(two))
    assert one.history == two.history
    assert not torch.equal(weights(one), weights(run(protect=PROTECTIONS[name], seed=5)))


class Asked:
    """Sends bare gradients and writes down what it was asked with."""

    def __init__(self):
        self.calls = []

    def init(self):
        return 0

    def update(self, grad, labels, state, noise, embedding=None):
        draw = torch.rand(1, generator=noise).item()
        self.calls.append((grad.clone(), labels.clone(), state, draw, embedding.clone()))
        return Protected(grad.clone(), state + 1, Event("asked"), {})


def test_what_a_protection_is_asked_with():
    """The clean gradient, the batch's labels (not the targets), its own state, fresh noise, the embedding."""
    asked, recorder = Asked(), Recorder(last=8)
    run(protect=asked, targets=3 * labels() - 1, record=recorder, seed=4)
    transcript = recorder.batches()
    for step, (grad, y, state, _, embedding) in enumerate(asked.calls):
        assert torch.equal(grad, transcript.clean[step])
        assert torch.equal(y, labels()[transcript.view.rows[step]])
        assert state == step
        assert torch.equal(embedding, transcript.view.embedding[step])
    draws = [draw for _, _, _, draw, _ in asked.calls]
    other = Asked()
    run(protect=other, seed=5)
    assert len({*draws, *(draw for _, _, _, draw, _ in other.calls)}) == 16


def test_protections_differ_in_what_they_leave():
    left = {name: weights(run(protect=protect)) for name, protect in PROTECTIONS.items()}
    assert len({tuple(each.tolist()) for each in left.values()}) == len(PROTECTIONS)


# --- figures ---------------------------------------------------------------------------------------------------------


def test_history_of_bare_gradients():
    """With a learning rate of 0 the loss of every batch can be had from the first weights."""
    simulation = run(epochs=3, optimizer=lambda module: torch.optim.SGD(module.parameters(), lr=0.0))
    x, own, y = normal(COUNT, 5), normal(COUNT, 2), labels()
    logits = simulation.top(simulation.bottom(x), own)
    assert [epoch.epoch for epoch in simulation.history] == [0, 1, 2]
    for epoch in simulation.history:
        rows = torch.stack(list(batches(COUNT, BATCH, epoch=epoch.epoch, seed=0)))
        expected = functional.binary_cross_entropy_with_logits(logits[rows], y[rows])
        assert epoch.loss == pytest.approx(expected.item(), rel=1e-5)
        assert (epoch.steps, epoch.power, epoch.untouched_rows, epoch.stateless) == (4, 0.0, 4 * BATCH, 0.0)
    assert len({epoch.loss for epoch in simulation.history}) == 3  # others sat out


class Reporting:
    """Doubles the gradient and reports what it is told to, one report for each step."""

    def __init__(self, *reports):
        self.reports = reports

    def init(self):
        return 0

    def update(self, grad, labels, state, noise, embedding=None):
        report = {key: torch.tensor(value) for key, value in self.reports[state].items()}
        return Protected(2 * grad, state + 1, Event("reporting"), report)


def test_figures_are_means_and_sums_over_the_epoch():
    steps = [
        {"power": 1.0, "untouched_rows": 3, "stateless": 1.0, "valid": True},
        {"power": 2.0, "untouched_rows": 0, "stateless": 1.0, "valid": True},
        {"power": 4.0, "untouched_rows": 1, "stateless": 0.0, "valid": True},
        {"power": 9.0, "untouched_rows": 16, "stateless": 0.0, "valid": True},
    ]
    recorder = Recorder(last=4)
    (epoch,) = run(protect=Reporting(*steps), epochs=1, record=recorder).history
    transcript = recorder.batches()
    assert torch.equal(transcript.view.gradient, 2 * transcript.clean)
    size = transcript.clean.square().sum(-1).mean().item()
    assert epoch.power == pytest.approx(4.0 / size, rel=1e-5)
    assert (epoch.untouched_rows, epoch.stateless, epoch.steps) == (20, 0.5, 4)


def test_what_a_protection_does_not_report_counts_as_nothing():
    (epoch,) = run(protect=Reporting({}, {}, {}, {}), epochs=1).history
    assert (epoch.power, epoch.untouched_rows, epoch.stateless) == (0.0, 0, 0.0)


def test_a_gradient_that_was_flagged_as_not_finite_ends_the_run():
    ok, lost = {"valid": True}, {"valid": False}
    with pytest.raises(TensorError, match="epoch 1: a gradient was not finite"):
        run(protect=Reporting(ok, ok, ok, ok, ok, lost, ok, ok), epochs=2)


def test_power_of_isotropic_noise_is_what_was_added():
    """The noise that was really sent, against the power that was reported: 512 squared normals, four sigma are 0.25."""
    recorder = Recorder(last=4)
    (epoch,) = run(protect=iso(2.0), epochs=1, record=recorder).history
    transcript = recorder.batches()
    added = (transcript.view.gradient - transcript.clean).square().sum(-1).mean(-1)  # (steps,)
    largest = transcript.clean.square().sum(-1).amax(-1)
    assert epoch.power == pytest.approx(
        (2 * largest.mean() / transcript.clean.square().sum(-1).mean()).item(), rel=1e-4
    )
    assert (added / (2 * largest)).mean().item() == pytest.approx(1.0, abs=0.25)
    assert epoch.untouched_rows == 0


def test_progress_is_told_after_each_step():
    told = []
    run(epochs=3, progress=lambda done, total: told.append((done, total)))
    assert told == [(step, 12) for step in range(1, 13)]


# --- prediction ------------------------------------------------------------------------------------------------------


def test_predict_is_the_network_in_evaluation_mode_and_leaves_every_mode_as_it_was():
    bottom = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
    top = nn.Linear(6, 2)
    bottom[1].eval()  # a user's frozen normalisation must stay frozen
    x = normal(50, 5)
    party = FeatureParty(bottom=bottom, features=x, optimizer=torch.optim.SGD(bottom.parameters(), lr=0.1))
    simulation = Simulation(bottom, top, [], None, party)
    predicted = simulation.predict(x, batch_size=7)
    assert predicted.shape == (50, 2)
    assert not predicted.requires_grad
    torch.testing.assert_close(simulation.predict(x), predicted)
    assert (bottom.training, bottom[1].training, bottom[2].training, top.training) == (True, False, True, True)
    bottom.eval()
    torch.testing.assert_close(predicted, top(bottom(x)))


def test_predict_leaves_every_mode_as_it_was_after_an_error_too():
    simulation = run(epochs=1)
    with pytest.raises(TensorError):
        simulation.predict(normal(10, 4), normal(10, 2))
    assert simulation.bottom.training
    assert simulation.top.training


@pytest.mark.parametrize(
    ("features", "own", "says"),
    [((), (), "features hold no tensor"), (normal(10, 5), normal(9, 2), "own have 9 rows, not 10 each")],
)
def test_predict_refuses_rows_that_do_not_fit(features, own, says):
    with pytest.raises(UsageError, match=says):
        run(epochs=1).predict(features, own)


# --- wrong input -----------------------------------------------------------------------------------------------------


def changed(value):
    wrong = labels()
    wrong[11] = value
    return wrong


WRONG = {
    "mismatched_rows": ({"features": normal(COUNT - 1, 5)}, UsageError, "69 rows of features for 70 labels: align"),
    "feature_lengths": ({"features": [normal(COUNT, 5), normal(9, 1)]}, UsageError, "have 70, 9 rows, not the same"),
    "no_features": ({"features": []}, UsageError, "features hold no tensor: pass one"),
    "own_rows": ({"own": normal(COUNT + 1, 2)}, UsageError, "own have 71 rows, not 70 each: align the tables first"),
    "epochs_0": ({"epochs": 0}, UsageError, "epochs = 0 is out of range: it is a whole number, 1 or more"),
    "epochs_half": ({"epochs": 1.5}, UsageError, r"epochs = 1\.5 is out of range"),
    "epochs_true": ({"epochs": True}, UsageError, "epochs = True is out of range"),
    "batch_size_0": ({"batch_size": 0}, UsageError, "batch_size = 0 does not fit 70 rows: choose .* between 1 and 70"),
    "batch_size_71": ({"batch_size": 71}, UsageError, "batch_size = 71 does not fit 70 rows"),
    "loss": ({"loss": "hinge"}, UsageError, "no loss 'hinge'; there are: binary, softmax"),
    "label_nan": ({"labels": changed(float("nan"))}, LabelsError, "label nan of row 11 .*: use 0, 1"),
    "label_2": ({"labels": changed(2.0)}, LabelsError, r"label 2\.0 of row 11 is not 0 or 1: use the loss 'softmax'"),
    "label_half": ({"labels": changed(0.5)}, LabelsError, r"label 0\.5 of row 11 is not a class number: use 0, 1"),
    "label_axes": ({"labels": labels()[:, None]}, LabelsError, r"shape \(70, 1\): pass one label for each example"),
    "label_list": ({"labels": [0, 1] * (COUNT // 2)}, UsageError, r"labels\[0\] is no tensor with rows"),
    "label_tensors": ({"labels": [labels()]}, LabelsError, "labels are a list: pass a tensor"),
    "protect_name": ({"protect": "none"}, UsageError, "protect is 'none', no gradient protection: pass one"),
    "protect_factory": ({"protect": none}, UsageError, "protect is <function none.*, no gradient protection"),
    "protect_labels": ({"protect": randomized_response(0.1)}, UsageError, "goes into labels and targets"),
    "targets": ({"targets": labels()[:-1]}, LabelsError, r"targets have shape \(69,\) .*pass one for each"),
    "record": ({"record": True}, UsageError, r"record = True is no recorder: pass one, as Recorder\(last=32\)"),
    "optimizer": ({"optimizer": torch.optim.SGD([normal(2)])}, UsageError, r"pass a function, .* not SGD"),
    "optimizer_class": ({"optimizer": torch.optim.Adam}, UsageError, r"pass a function, .* not Adam"),
    "seed": ({"seed": "a"}, UsageError, "seed = 'a' is no seed: pass a whole number"),
    "seed_large": ({"seed": 2**64}, UsageError, "is no seed: pass a whole number of at most 64 bits"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_refused_before_the_first_step(case):
    options, error, says = WRONG[case]
    steps = []
    with pytest.raises(error, match=says):
        run(**options, progress=lambda done, total: steps.append(done))
    assert not steps


@pytest.mark.parametrize(
    ("top", "own", "says"),
    [(nn.Linear(7, 1), (), r"the embedding \(16, 8\), its 'weight' is \(1, 7\).* as wide as what comes"),
     (nn.Bilinear(8, 3, 1), normal(COUNT, 2), r"and own features \(16, 8\), \(16, 2\), its 'weight' is \(1, 8, 3\)")],
)  # fmt: skip
def test_a_top_that_does_not_fit_the_cut_is_refused_with_both_shapes(top, own, says):
    with pytest.raises(TensorError, match=says) as caught:
        run(top=top, own=own)
    assert type(caught.value.__cause__) is RuntimeError


def test_features_that_are_not_finite_are_refused_with_the_step():
    x = normal(COUNT, 5)
    x[:, 3] = float("nan")
    with pytest.raises(TensorError, match="step 0: the embedding is not finite"):
        run(features=x)


# --- randomized response ---------------------------------------------------------------------------------------------


def test_corrected_targets_lead_to_the_model_of_the_true_labels():
    """Flipped labels alone pull every probability towards 1/2; with their targets that is undone.

    The mean distance of the probabilities from those of the model of the true labels, over eleven seeds: 0.020 to 0.038
    with targets, 0.120 to 0.136 without.
    """
    count = 8000
    x = normal(count, 4)
    truth = (torch.rand(count, generator=generator(5)) < torch.sigmoid(2 * x[:, 0] - x[:, 1])).float()
    answer = randomized_response(0.2)(truth, generator(6))
    assert 0.18 < (answer.labels != truth).float().mean() < 0.22

    def probability(labels, targets=None):
        bottom, top = mlp(4, widths=(8,), generator=generator())
        simulation = simulate(
            bottom=bottom, top=top, features=x, labels=labels, targets=targets, protect=none(), epochs=4,
            batch_size=100, optimizer=lambda module: torch.optim.Adam(module.parameters(), lr=0.01),
        )  # fmt: skip
        return torch.sigmoid(simulation.predict(x))

    true = probability(truth)
    distance = [
        (probability(*given) - true).abs().mean() for given in ((answer.labels, answer.targets), (answer.labels,))
    ]
    assert distance[0] < 0.06
    assert distance[1] > 0.1


def test_the_bottom_may_learn_at_another_rate():
    start = [p.detach().clone() for p in mlp(5, widths=(8, 6), own_inputs=2, generator=generator())[0].parameters()]
    still = run(bottom_optimizer=lambda module: torch.optim.SGD(module.parameters(), lr=0.0))
    assert all(map(torch.equal, still.bottom.parameters(), start))
    same = run(bottom_optimizer=lambda module: torch.optim.Adam(module.parameters(), lr=1e-3))
    assert torch.equal(weights(same), weights(run())), "1e-3 is what is taken where none is given"
    assert not torch.equal(weights(still), weights(same))
    with pytest.raises(UsageError, match="bottom_optimizer is to make an optimizer"):
        run(bottom_optimizer=torch.optim.SGD)
