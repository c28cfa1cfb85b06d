"""Matched in the course of a run: warm-up, odd batches, options, and hundreds of updates."""

import pytest
import torch
from torch import Tensor

from tacit.audit.metrics.leak_auc import auc, fold
from tacit.audit.run import attack_all
from tacit.contracts import View
from tacit.errors import UsageError
from tacit.split.protect.check import bits
from tacit.split.protect.gradient.marvell import marvell
from tacit.split.protect.gradient.matched import RAREST, REFRESH, matched
from tests.split.protect.classes import generator, leaks, normal, run, sample, small, stream


@pytest.mark.parametrize("warmup", [1, 2, 4])
def test_zeros_are_sent_while_there_is_nothing_to_plan_with(warmup):
    """In the warm-up, and after it until a batch was not zero; each problem of a stack for itself."""
    protection = matched(leak_auc=0.6, warmup=warmup)
    out = run(protection, [small(i) for i in range(6)])
    assert [bool(done.report["stateless"]) for done in out] == [i < warmup for i in range(6)]
    assert [bits(done.value).strip(b"\0") == b"" for done in out] == [i < warmup for i in range(6)]
    assert [float(done.report["row_kl"]) for done in out] == [protection.row_kl * (i >= warmup) for i in range(6)]
    both = [tuple(torch.stack([each, each]) for each in small(i)) for i in range(8)]
    for grad, _ in both[:5]:
        grad[0] = 0
    done = run(protection, both)
    assert [bits(one.value[0]).strip(b"\0") == b"" for one in done] == [i < 6 for i in range(8)]
    assert [float(one.report["row_kl"][0]) for one in done] == [protection.row_kl * (i >= 6) for i in range(8)]
    assert [float(one.report["power"][0]) > 0 for one in done] == [i >= 6 for i in range(8)]
    assert not torch.stack([one.report["untouched_rows"] for one in done]).any()
    for one, alone in zip(done[:6], out, strict=True):
        assert (one.value[1] != 0).any() == (alone.value != 0).any()


def test_a_batch_on_its_own_has_no_warm_up():
    assert float(matched(leak_auc=0.6)(*small(1), generator(1)).report["stateless"]) == 0


def test_factors_are_kept_between_refreshes_and_renewed_when_due():
    out = run(matched(leak_auc=0.6, warmup=2), [small(i) for i in range(2 + 3 * REFRESH)])
    factors = [done.state.factors for done in out]
    assert factors[0] is None
    assert factors[1] is None
    renewed = [i - 2 for i in range(2, len(factors)) if factors[i] is not factors[i - 1]]
    assert renewed == [0, 1, 2, 4, 8, REFRESH, 2 * REFRESH]
    assert not torch.equal(factors[-1].root, factors[2].root)


@pytest.mark.parametrize("only", [0, 1])
def test_a_batch_without_a_class_gets_the_noise_of_any_other(only):
    """Not the far louder stateless noise: what a batch holds decides nothing about its own noise."""
    protection = matched(leak_auc=0.6)
    before = run(protection, [small(i) for i in range(12)])[-1].state
    grad, labels = small(40)
    usual = protection.update(grad, labels, before, generator(1))
    alone = protection.update(grad, torch.full_like(labels, only), before, generator(1))
    assert float(alone.report["stateless"]) == 0
    assert float(alone.report["power"]) == pytest.approx(float(usual.report["power"]))
    assert torch.isfinite(protection.update(*small(41), alone.state, generator(2)).value).all()


def test_a_class_that_was_never_seen_is_not_cut_to_nothing():
    protection = matched(leak_auc=0.6)
    state = run(protection, [(small(i)[0], torch.zeros(64)) for i in range(80)])[-1].state
    assert float(state.share) == pytest.approx(RAREST)


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_gradients_that_suddenly_grow_or_shrink_are_still_hidden(factor):
    """Five steps of 256 rows after the jump, seen by attackers of their own. Slack 4 errors (1280 rows: 0.02 each)."""

    def make(step: int) -> tuple[Tensor, Tensor]:
        grad, labels = sample(step, 256, 12)
        return (grad * (factor if step >= 12 else 1.0)).float(), labels

    view, truth, clean = stream(matched(leak_auc=0.6), make, 17)
    view, truth, clean = View.of(view.gradient[12:]), truth[12 * 256 :], clean[12:]
    found = leaks(view, truth, ["residual", "likelihood", "norm", "cosine"], clean)
    assert max(found.values()) <= 0.68, found
    sent, size = (x.square().sum(-1).mean(-1).sqrt() for x in (view.gradient, clean))  # (5,) each
    assert (sent > 2 * size).all() if factor < 1 else (sent[0] < size[0] / 2)  # rows that are too long are cut


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"leak_auc": 0.6, "visits": 0}, "visits = 0"),
        ({"leak_auc": 0.6, "visits": 2.0}, "visits = 2.0"),
        ({"leak_auc": 0.6, "visits": True}, "visits = True"),
        ({"leak_auc": 0.6, "warmup": 0}, "warmup = 0"),
        ({"leak_auc": 0.6, "warmup": 1.5}, "warmup = 1.5"),
        ({"leak_auc": 0.5}, "leak_auc = 0.5"),
        ({"leak_auc": 1.0}, "leak_auc = 1.0"),
        ({"scale": 0.0}, "scale = 0.0"),
        ({"scale": -1.0}, "scale = -1.0"),
        ({"scale": True}, "scale = True"),
        ({}, "got none"),
        ({"scale": 1.0, "leak_auc": 0.6}, "got leak_auc and scale"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused_by_name(options, said):
    with pytest.raises(UsageError, match=said.replace(".", r"\.")):
        matched(**options)


def test_more_visits_and_a_lower_promise_cost_more():
    grad, labels = sample(0, 512, 12)

    def power(**options) -> float:
        return float(matched(**options)(grad, labels, generator(1)).report["power"])

    assert power(leak_auc=0.7) < power(leak_auc=0.6) < power(leak_auc=0.55)
    assert power(leak_auc=0.6) < power(leak_auc=0.6, visits=2) < power(leak_auc=0.6, visits=15)
    assert power(scale=1.0) < power(scale=10.0)


# --- (7) long runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("visits", [1, 15])
def test_500_updates_with_a_drifting_scale_stay_finite_and_zeros_in_between_are_hidden(visits):
    """Sizes wander over many decades; each tenth batch lacks a class, each seventeenth is all zero."""
    protection = matched(leak_auc=0.6, visits=visits)
    state, g = protection.init(), generator(3)
    logs = (0.7 * torch.randn(500, generator=g)).cumsum(0)
    for step in range(500):
        grad, labels = small(step)
        grad = grad * float(logs[step].exp())
        if step % 10 == 9:
            labels = torch.full_like(labels, step // 10 % 2)
        if step % 17 == 16:
            grad = torch.zeros_like(grad)
        done = protection.update(grad, labels, state, g)
        state = done.state
        assert torch.isfinite(done.value).all()
        assert bool((done.value != grad).any(-1).all())  # every row of every batch
        assert torch.isfinite(done.report["power"])
    parts = [state.size, state.share, *vars(state.spread).values(), *vars(state.factors).values()]
    assert all(torch.isfinite(part).all() for part in parts if isinstance(part, Tensor))


def test_zeros_in_a_run_get_their_neighbours_noise_and_change_nothing():
    batches = [small(i) for i in range(12)]
    zeros = torch.zeros_like(batches[0][0]), batches[0][1]
    *_, before, silent = run(matched(leak_auc=0.6), [*batches, zeros])
    noise = float(silent.state.factors.power) * float(before.state.size) ** 2 / matched(leak_auc=0.6).row_kl
    assert float(silent.report["power"]) == pytest.approx(noise, rel=1e-5)
    assert float(silent.value.square().sum(-1).mean()) == pytest.approx(noise, rel=0.5)  # 384 numbers
    for name in ("size", "share"):
        assert torch.equal(getattr(silent.state, name), getattr(before.state, name))
    for name in ("weight", "square", "rest"):
        assert torch.equal(getattr(silent.state.spread, name), getattr(before.state.spread, name))


@pytest.mark.parametrize("factor", [0.0, 0.01])
def test_small_gradients_in_between_do_not_water_down_what_is_known_of_the_classes(factor):
    """Seven of eight batches are zero or tiny; the eighth is as well hidden as ever. Slack 4 errors (5120 rows)."""

    def make(step: int) -> tuple[Tensor, Tensor]:
        labels = (torch.rand(256, generator=generator(step)) < 0.25).long()
        grad = normal(step + 100, 256, 32) * (1 + 2 * labels)[:, None]
        grad[:, 0] += 2 * labels
        return (grad * (1.0 if step % 8 == 0 else factor)).float(), labels

    view, truth, clean = stream(matched(leak_auc=0.6), make, 22 * 8)
    large = torch.arange(16, 22 * 8, 8)
    truth = truth.reshape(-1, 256)[large].flatten()
    found = leaks(View.of(view.gradient[large]), truth, ["residual", "likelihood", "norm"], clean[large])
    assert max(found.values()) <= 0.64, found


@pytest.mark.parametrize(("name", "size"), [("marvell", 1), ("matched", 1), ("matched", 4)])
def test_noise_does_not_tell_the_size_of_a_tiny_batch(name, size):
    """Positives are five times longer; in batches of one, noise as large as the row itself would say so.

    The norm attack, pooled over 2,000 rows after 50 batches of running in; the standard error of its AUC is 0.03 where
    nothing leaks, so 0.65 is five of them off.
    """
    draw = torch.Generator().manual_seed(7)
    labels = (torch.rand(2000 + 50 * size, generator=draw) < 0.1).float()
    grad = torch.randn(len(labels), 8, generator=draw) * (1 + 4 * labels[:, None])
    protect, sent = {"marvell": marvell, "matched": matched}[name](leak_auc=0.6), []
    state = protect.init()
    for rows in torch.arange(len(labels)).split(size):
        done = protect.update(grad[rows], labels[rows], state, draw)
        state = done.state
        sent.append(done.value)
    kept = torch.arange(len(labels)) >= 50 * size
    score = torch.cat(sent).norm(dim=-1)[kept]
    bare = grad.norm(dim=-1)[kept]
    assert fold(auc(bare, labels[kept])) > 0.95
    assert fold(auc(score, labels[kept])) < 0.65


def test_a_wide_cut_with_many_directions_stays_matched():
    """150 directions of equal size in a cut of 600, positives twice as long: more than a few leading ones."""
    draw = torch.Generator().manual_seed(8)
    directions = torch.linalg.qr(torch.randn(600, 150, generator=draw))[0].T
    protect = matched(leak_auc=0.6)
    state, sent, truth = protect.init(), [], []
    for _ in range(40):
        labels = (torch.rand(256, generator=draw) < 0.2).float()
        grad = torch.randn(256, 150, generator=draw) @ directions * (1 + labels[:, None])
        done = protect.update(grad, labels, state, draw)
        state = done.state
        sent.append(done.value)
        truth.append(labels)
    view = View.of(torch.stack(sent[-12:]))
    found = attack_all(view, torch.cat(truth[-12:]), ["residual", "norm"], noise=torch.Generator().manual_seed(9))
    assert all(one.leak.value < 0.65 for one in found), found
