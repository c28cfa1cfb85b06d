"""Granting, attacking, judging: the evaluator's side."""

import pytest
import torch

from tacit.audit.attacks.contextual import contextual
from tacit.audit.attacks.norm import norm
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.audit.run import Finding, attack_all, grant, worst
from tacit.contracts import Estimate, Guess, View
from tacit.errors import LabelsError, UsageError


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


class Remember:
    name = "remember"

    def __init__(self):
        self.seen = []

    def __call__(self, view, known, noise):
        self.seen.append((view, known))
        return Guess(view.rows, view.gradient.square().sum(-1))


def test_half_of_the_labels_the_share_and_a_clean_positive_are_granted(scene):
    s = scene(1)
    known = grant(s.view, s.truth.float(), s.clean, noise=generator())
    hidden = known.labels < 0
    assert hidden.sum() == s.truth.numel() // 2
    assert torch.equal(known.labels[~hidden], s.truth[~hidden])
    assert known.share == pytest.approx(s.truth.double().mean().item())
    other = grant(s.view, s.truth, noise=generator(6))
    assert not torch.equal(other.labels < 0, hidden)
    assert other.positive_gradient is None
    for step, one in enumerate(known.positive_gradient):
        (at,) = (s.clean[step] == one).all(-1).nonzero()[:, 0]
        assert s.label[step, at] == 1


def test_which_positive_is_random(scene):
    s = scene(2, steps=2)
    drawn = {grant(s.view, s.truth, s.clean, noise=generator(i)).positive_gradient[0, 0].item() for i in range(10)}
    assert len(drawn) > 5


def test_a_batch_without_positives_gets_zeros():
    clean = torch.ones(2, 3, 4)
    known = grant(View.of(clean), torch.tensor([0, 0, 0, 0, 1, 0]), clean, noise=generator())
    assert known.positive_gradient.tolist() == [[0.0] * 4, [1.0] * 4]


def test_findings_are_what_the_metrics_say(scene):
    s = scene(3)
    findings = attack_all(s.view, s.truth, ["norm", "cosine"], noise=generator(), clean=s.clean)
    assert [f.attack for f in findings] == ["norm", "cosine"]
    label_free = Guess(s.view.rows, s.view.gradient.norm(dim=-1))
    assert findings[0].leak.value == pytest.approx(leak_auc(label_free, s.truth).value, abs=1e-4)
    assert findings[0].leak.low < findings[0].leak.value < findings[0].upper <= 1
    assert findings[1].leak.value > 0.99
    assert worst(findings) is findings[1]


def test_attacks_get_the_same_grant_and_no_truth(scene):
    s, spy = scene(4), Remember()
    attack_all(s.view, s.truth, [spy, spy], noise=generator())
    attack_all(s.view, s.truth, [spy], noise=generator(), clean=s.clean)
    (here, a), (_, b), (_, c) = spy.seen
    assert torch.equal(a.labels, b.labels)
    assert (a.labels < 0).sum() == s.truth.numel() // 2
    assert a.positive_gradient is None
    assert c.positive_gradient.shape == (6, 24)
    assert here is s.view


def test_what_cannot_run_is_an_error_or_is_noted(scene):
    s = scene(5, steps=2, batch=32)
    bare = View.of(s.view.gradient, rows=s.view.rows)
    for name, reason in [("cosine", "positive_gradient"), ("contextual", "embeddings"), ("spectral", "embeddings")]:
        with pytest.raises(UsageError, match=reason):
            attack_all(bare, s.truth, ["norm", name], noise=generator())
    skipped = {}
    findings = attack_all(bare, s.truth, ["cosine", "norm", "contextual"], noise=generator(), skipped=skipped)
    assert [f.attack for f in findings] == ["norm"]
    assert set(skipped) == {"cosine", "contextual"}
    assert "positive_gradient" in skipped["cosine"]


def test_truth_of_one_class_is_never_a_clean_bill(scene):
    s = scene(6, steps=2, batch=32)
    with pytest.raises(LabelsError, match="no batch holds both classes"):
        attack_all(s.view, torch.zeros_like(s.truth), ["norm"], noise=generator())


def test_baselines_are_judged_and_the_worst_is_above_its_baseline(scene, quick_network):
    s = scene(7)
    (finding,) = attack_all(s.view, s.truth, [contextual(fit="network")], noise=generator())
    assert finding.baseline is not None
    assert 0.8 < finding.baseline.value < finding.leak.value
    assert finding.excess == pytest.approx(finding.leak.value - finding.baseline.value)
    features = Finding("a", Estimate(0.9, 0.8, 1.0), Estimate(0.89, 0.8, 1.0))
    message = Finding("b", Estimate(0.6, 0.5, 0.7))
    assert worst([features, message]) is message


def test_refusals(scene):
    s = scene(8, steps=2, batch=16)
    with pytest.raises(UsageError, match="no findings"):
        worst([])
    with pytest.raises(UsageError, match="clean gradients are"):
        grant(s.view, s.truth, s.clean[:1], noise=generator())
    with pytest.raises(LabelsError, match="0 or 1"):
        grant(s.view, s.truth + 1, noise=generator())
    with pytest.raises(UsageError, match="clean gradients are a dict: pass one tensor"):
        grant(s.view, s.truth, {"cut": s.clean}, noise=generator())
    for wrong in (3, norm):
        with pytest.raises(UsageError, match="is no attack: pass a name such as 'norm'"):
            attack_all(s.view, s.truth, [wrong], noise=generator())


@pytest.mark.parametrize("judge", [grant, lambda view, truth, noise: attack_all(view, truth, ["norm"], noise=noise)])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda truth: truth[:16], "row ids run from 0 to 31, but truth holds 16 labels: pass the labels of all"),
        (lambda truth: truth.tolist(), "truth is a list: pass a tensor with one label for each row id"),
        (lambda truth: truth[:, None], "truth is one label, 0 or 1, for each row id"),
    ],
)
def test_truth_that_does_not_fit_the_rows(scene, judge, wrong, says):
    s = scene(9, steps=2, batch=16)
    with pytest.raises(LabelsError, match=says):
        judge(s.view, wrong(s.truth), noise=generator())


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"gradient": torch.zeros(4)}, ValueError, r"gradient has shape \(4,\): pass \(steps, batch, \*cut\)"),
        ({"gradient": torch.zeros(4, 2)}, ValueError, r"gradient has shape \(4, 2\): .* gradient\[None\]"),
        ({"gradient": [torch.zeros(4, 2)]}, TypeError, "gradient is a list: .* as torch.stack makes"),
        ({"embedding": torch.zeros(3, 5, 2)}, ValueError, r"embedding is \(3, 5, 2\) .* 3 steps of 4 rows"),
        ({"embedding": torch.zeros(2, 4, 2)}, ValueError, ".*record both at the same steps"),
        ({"embedding": [1]}, TypeError, "embedding is a list"),
        ({"rows": torch.zeros(3, 5).long()}, ValueError, r"rows are \(3, 5\) .* pass one id for each row, \(3, 4\)"),
        ({"rows": torch.zeros(3, 4)}, TypeError, r"rows is torch.float32: .* whole numbers"),
        ({"rows": [[0]]}, TypeError, "rows is list: pass the examples' ids as a tensor"),
    ],
)
def test_a_view_of_what_does_not_belong_together(options, error, says):
    with pytest.raises(error, match=rf"View\.of: {says}"):
        View.of(**{"gradient": torch.zeros(3, 4, 2), **options})
