"""The attacks that a party tries on itself."""

import re

import pytest
import torch

from tacit.audit.attacks import attack, names
from tacit.audit.run import Finding, attack_all, worst
from tacit.audit.standard import ACCUMULATED, ATTACKS, JOINED, on_batches, on_visits
from tacit.contracts import Estimate, View
from tacit.errors import UsageError

pytestmark = pytest.mark.usefixtures("quick_network")


def small(scene, **changes):
    return scene(**{"steps": 4, "batch": 64, "width": 12, "examples": 128, **changes})


def test_every_attack_there_is_is_tried():
    tried = {one if isinstance(one, str) else one[0] for one in ATTACKS}
    assert tried | {"accumulated"} == set(names())


def test_all_run_and_take_some_time_on_a_whole_transcript(scene):
    s, skipped, steps = small(scene), {}, []
    findings = on_batches(
        s.view, s.clean, s.truth, skipped=skipped, progress=lambda done, total: steps.append((done, total))
    )
    assert len(findings) == len(ATTACKS)
    assert all(one.seconds > 0 for one in findings)
    assert skipped == {}
    assert steps == [(done, len(ATTACKS)) for done in range(1, len(ATTACKS) + 1)]
    assert on_batches(s.view, s.clean, s.truth) == findings, "the time is no part of what was found"
    assert on_batches(s.view, s.clean, s.truth, seed=1) != findings
    assert worst(findings).leak.value > 0.95


def test_gradients_alone_are_attacked_by_what_needs_no_more_and_the_rest_is_told_with_a_reason(scene):
    s, skipped = small(scene), {}
    findings = on_batches(View.of(s.view.gradient, rows=s.view.rows), None, s.truth, skipped=skipped)
    assert {"norm", "residual", "learned", "direct_label"} <= {one.attack for one in findings}
    assert set(skipped) == {
        "cosine", "spectral", "clustering", "contextual", "contextual(network)", "model_completion", "surrogate_top",
    }  # fmt: skip
    assert all(re.search("grant|record", reason) for reason in skipped.values()), skipped


def test_over_all_visits(scene):
    """Of 512 examples: among 128 a split by chance is at times tighter than that of the two classes."""
    s = small(scene, batch=256, examples=512)
    findings = on_visits(s.view, s.clean, s.truth)
    assert len(findings) == len(ACCUMULATED) + len(JOINED)
    assert all(one.attack.startswith("accumulated(") for one in findings)
    found = {one.attack: one.leak.value for one in findings}
    assert found["accumulated(direct_label)"] > 0.95
    assert found["accumulated(clustering(of=gradient))"] > 0.95


def test_nothing_that_can_run_is_an_error_and_not_a_clean_bill(scene):
    s = small(scene)
    with pytest.raises(UsageError, match="no attack can run on this transcript: no batch holds both classes"):
        on_batches(s.view, s.clean, torch.zeros_like(s.truth), skipped={})


def test_a_finding_has_its_attacks_time(scene):
    s = small(scene)

    class Slow:
        name = "slow"

        def __call__(self, view, known, noise):
            torch.linalg.eigh(torch.eye(600, dtype=torch.float64) + 1)
            return attack("norm")(view, known, noise)

    quick, slow = attack_all(s.view, s.truth, ["norm", Slow()], noise=torch.Generator().manual_seed(0))
    assert slow.seconds > quick.seconds > 0
    assert slow.leak == quick.leak
    one = Finding("a", Estimate(0.6, 0.5, 0.7))
    assert one.seconds == 0.0
