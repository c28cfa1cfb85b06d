"""Granting inputs, attacking, judging: the evaluator's side."""

from dataclasses import astuple

import pytest
import torch

from tacit.audit.input_attacks.linear_decoder import linear_decoder
from tacit.audit.inputs import attack_inputs, grant_inputs, mean_visits
from tacit.audit.metrics.reconstruction import relative_error
from tacit.contracts import Reconstruction, View
from tacit.errors import TensorError, UsageError


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


class Remember:
    """Answers a constant, for all rows or for some, and claims that all of them may be judged."""

    name = "remember"

    def __init__(self, rows=slice(None)):
        self.some, self.seen = rows, []

    def __call__(self, view, known, noise):
        self.seen.append(known)
        rows = view.rows.flatten()[self.some]
        return Reconstruction(rows, torch.zeros(len(rows), 3), torch.ones(len(rows), dtype=torch.bool))


def made(rows=200):
    x = torch.randn(rows, 3, generator=generator(1)) + 2
    return View.of_embeddings((x @ torch.randn(3, 6, generator=generator(2))).reshape(4, -1, 6)), x


@pytest.mark.parametrize("pairs", [0.0, 0.1, 0.5])
def test_a_part_of_the_rows_is_granted(pairs):
    _, x = made()
    codes = torch.arange(200) % 3
    known = grant_inputs(x, pairs=pairs, attribute=codes, noise=generator())
    hidden = known.inputs.isnan().any(1)
    assert int((~hidden).sum()) == round(pairs * 200)
    assert torch.equal(known.inputs[~hidden], x[~hidden])
    assert known.inputs[hidden].isnan().all()
    assert torch.equal(known.attribute < 0, hidden)
    assert torch.equal(known.attribute[~hidden], codes[~hidden])
    if pairs:
        assert not torch.equal(grant_inputs(x, pairs=pairs, noise=generator(6)).inputs.isnan().any(1), hidden)
    assert not x.isnan().any()


def test_only_rows_that_nobody_was_granted_are_judged():
    view, x = made()
    spy = Remember()
    found = attack_inputs(view, x, [spy, spy, "linear_decoder", linear_decoder(share=0.05)], noise=generator())
    hidden = spy.seen[0].inputs.isnan().any(1)
    assert spy.seen[0] is spy.seen[1]
    assert int(hidden.sum()) == 100
    zero = Reconstruction(torch.arange(200), torch.zeros(200, 3), hidden)
    assert found[0].relative == found[1].relative
    expected = relative_error(zero, x, x[~hidden].mean(0))
    assert astuple(found[0].relative) == pytest.approx(astuple(expected), rel=1e-5)  # means of single precision
    assert [one.attack for one in found[2:]] == ["linear_decoder", "linear_decoder(share=0.05)"]
    assert found[2].relative.value < 1e-6
    assert found[0].auc is None


def test_an_attack_that_picks_its_rows_is_refused():
    view, x = made()
    with pytest.raises(UsageError, match="'remember' leaves out rows"):
        attack_inputs(view, x, [Remember(slice(0, 150))], noise=generator())


def test_what_cannot_run_is_an_error_or_is_noted():
    view, x = made()
    with pytest.raises(UsageError, match=r"known\.attribute"):
        attack_inputs(view, x, ["attribute"], noise=generator())
    skipped = {}
    found = attack_inputs(view, x, ["attribute", "linear_decoder"], noise=generator(), skipped=skipped)
    assert [one.attack for one in found] == ["linear_decoder"]
    assert "known.attribute" in skipped["attribute"]


def test_refusals():
    view, x = made()
    with pytest.raises(UsageError, match="out of range"):
        grant_inputs(x, pairs=1.0, noise=generator())
    with pytest.raises(TensorError, match="one row of floating numbers"):
        grant_inputs(x.long(), noise=generator())
    with pytest.raises(TensorError, match="one code for each row id"):
        grant_inputs(x, attribute=torch.zeros(3).long(), noise=generator())
    with pytest.raises(UsageError, match="no attack on inputs 'norm'"):
        attack_inputs(view, x, ["norm"], noise=generator())


def test_who_averages_the_visits_of_an_example_reads_through_noise():
    """Ten visits under fresh noise of ten times the power: 0.91 of the variance hidden, 0.5 once they are averaged."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 4, generator=g)
    z = x + 10**0.5 * torch.randn(10, 2000, 4, generator=g)
    view = View.of_embeddings(z, rows=torch.arange(2000).expand(10, -1))
    single, averaged = (
        attack_inputs(seen, x, ["linear_decoder"], noise=torch.Generator().manual_seed(1))[0].relative.value
        for seen in (view, mean_visits(view))
    )
    assert single == pytest.approx(10 / 11, abs=0.02)
    assert averaged == pytest.approx(0.5, abs=0.03)
