"""`matched` holds what it promises: no row's label can be told beyond a leak AUC, over one visit or many.

Everything is seeded. A threshold is the promise plus a slack for chance; where it says "slack 4 errors", a fresh seed
would break a promise that just holds about once in 30,000 times for each attack (one side of a normal).
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tacit.audit.attacks.accumulated import accumulated
from tacit.audit.metrics.leak_auc import auc, delong
from tacit.contracts import Protection, View
from tacit.split.protect.check import bits
from tacit.split.protect.gradient._knob import sum_kl_for
from tacit.split.protect.gradient.marvell import marvell
from tacit.split.protect.gradient.matched import State, matched
from tests.split.protect.classes import gaussian_classes, generator, leaks, normal, run, sample, small, stream


def train(protection: Protection, grad: Tensor, labels: Tensor, *, visits: int, batch: int = 256, drift=None, seed=5):
    """What a feature party receives when every example comes once in each of some epochs, and the clean gradients."""
    g = generator(seed)
    state, sent, rows, clean = protection.init(), [], [], []
    for epoch in range(visits):
        if epoch and drift is not None:
            grad = drift(grad, g)
        order = torch.randperm(len(labels), generator=g)
        for some in order[: len(order) // batch * batch].split(batch):
            done = protection.update(grad[some].float(), labels[some], state, g)
            state = done.state
            sent.append(done.value)
            rows.append(some)
            clean.append(grad[some].float())
    return View.of(torch.stack(sent), rows=torch.stack(rows)), torch.stack(clean)


OVER_VISITS = [accumulated(attack, how) for attack in ("residual", "likelihood") for how in ("mean", "sum", "spread")]


# --- (1) one covariance ----------------------------------------------------------------------------------------------


def noise_and_rows(protection: Protection, width: int, size: int = 40_000):
    grad, labels = sample(0, size, width)
    value = protection(grad, labels, generator(1)).value
    return value, value - grad, labels


def relative_difference(a: Tensor, b: Tensor) -> float:
    """The largest change of variance in any direction, from b's point of view: the norm of b^-1/2 (a - b) b^-1/2."""
    root = torch.linalg.cholesky(b)
    turned = torch.linalg.solve_triangular(root, a - b, upper=False)
    turned = torch.linalg.solve_triangular(root, turned.mT, upper=False)
    return float(torch.linalg.matrix_norm(turned, ord=2))


WIDTH = 16
# Covariances of n rows in d directions differ from the truth by at most (sqrt(d) + t)/sqrt(n), as deviations do,
# but with probability 2 exp(-t^2/2) (Davidson and Szarek). Two classes, 10,000 and 30,000 rows, t = 4: 0.13 + 0.08 in
# variance and false alarms below 1e-3. The plan itself knows the classes from the same rows.
CHANCE = 0.2


def test_what_is_sent_has_one_covariance_where_marvells_has_two():
    c0, c1, _ = gaussian_classes(WIDTH)
    assert (c0 @ c1 - c1 @ c0).norm() > 0.1  # no common axes
    assert relative_difference(c1, c0) > 30  # and very different
    value, _, labels = noise_and_rows(matched(leak_auc=0.6), WIDTH)
    t0, t1 = (torch.cov(value[labels == k].mT) for k in (0, 1))
    assert relative_difference(t1, t0) < CHANCE
    assert float((t1 - t0).norm() / t0.norm()) < CHANCE
    value, _, labels = noise_and_rows(marvell(leak_auc=0.6), WIDTH)
    t0, t1 = (torch.cov(value[labels == k].mT) for k in (0, 1))
    assert relative_difference(t1, t0) > 3 * CHANCE


def test_energy_outside_leading_directions_is_the_same_for_both_classes():
    """Means of chi-square like numbers: 10,000 rows know theirs to 1%, so 5% is 4 errors and more."""
    for protection, alike in ((matched(leak_auc=0.6), True), (marvell(leak_auc=0.6), False)):
        value, _, labels = noise_and_rows(protection, WIDTH)
        directions = torch.linalg.eigh(torch.cov(value.mT)).eigenvectors
        for kept in (4, 8, 12):  # of the rising eigenvalues: outside the leading 12, 8 and 4
            energy = (value @ directions[:, :kept]).square().sum(-1)
            ratio = float(energy[labels == 1].mean() / energy[labels == 0].mean())
            assert (abs(ratio - 1) < 0.05) == alike, (kept, ratio)


# --- (2) every row's own promise -------------------------------------------------------------------------------------


def noise_covariance(state: State, width: int, row_kl: float) -> Tensor:
    """What the noise of the next step will be like, in the gradient's units, from what is remembered."""
    factors = state.factors
    inside = factors.root[0].double() @ factors.root[0].double()
    if factors.basis is None:
        shape = inside
    else:
        basis = factors.basis[0].double()
        across = torch.eye(width, dtype=torch.float64) - basis @ basis.mT
        shape = basis @ inside @ basis.mT + float(factors.rest[0]) ** 2 * across
    return shape * float(state.size[0]) ** 2 / row_kl


def gradients_of(logits: Tensor, slopes: Tensor, labels: Tensor) -> Tensor:
    """Of the binary cross entropy: (p - y) times the slope of the logit."""
    return (torch.sigmoid(logits) - labels)[:, None] * slopes


@pytest.mark.parametrize("width", [12, 300])
@pytest.mark.parametrize("share", [0.5, 0.03])
@pytest.mark.parametrize(("size", "step"), [(1.0, 0), (1.0, 1), (1.0, 2), (0.01, 6), (1.0, 6), (1e4, 6)])
def test_no_row_is_farther_from_what_it_would_be_with_the_other_label_than_was_promised(width, share, size, step):
    """Honest rows and crafted ones (huge, or along directions where nothing ever was), by brute force: flip each label.

    The noise of a step comes from the steps before it, so the two worlds have the same noise, and what differs is the
    row alone. d^T N^-1 d is at most the promise for one visit, up to rounding in float32. In the first two steps
    nothing differs at all.
    """
    protection = matched(leak_auc=0.6, visits=3)
    g, axes = generator(1), torch.linalg.qr(normal(2, width, width)).Q
    spectrum = torch.logspace(0, -2, width, dtype=torch.float64)

    def batch(step: int, rows: int = 64):
        labels = (torch.rand(rows, generator=g) < share).double()
        slopes = (normal(step, rows, width) * spectrum) @ axes.mT + 0.3 * axes[0]
        return normal(step + 100, rows, 1)[:, 0] * 2, slopes * size, labels

    state = protection.init()
    for before in range(3, 3 + step):
        logits, slopes, labels = batch(before)
        state = protection.update(gradients_of(logits, slopes, labels).float(), labels, state, g).state
    logits, slopes, labels = batch(20)
    slopes[:8] *= 1e3
    slopes[8:16] = axes[:, -1] * size
    grad, other = (gradients_of(logits, slopes, y).float() for y in (labels, 1 - labels))
    done = protection.update(grad, labels, state, generator(5))
    before, worst = done.value, 0.0
    for row in range(len(labels)):
        changed, y = grad.clone(), labels.clone()
        changed[row], y[row] = other[row], 1 - labels[row]
        after = protection.update(changed, y, state, generator(5)).value
        if step < 2:
            assert bits(after) == bits(before) == bytes(4 * before.numel())  # a zero has a sign, too
            continue
        others = torch.arange(64) != row
        torch.testing.assert_close(after[others], before[others], rtol=1e-4, atol=1e-4 * float(before.abs().max()))
        d = (after[row] - before[row]).double()
        noise = noise_covariance(replace(state, factors=done.state.factors), width, protection.row_kl)
        worst = max(worst, float(d @ torch.linalg.solve(noise, d)))
    assert worst <= float(done.report["row_kl"]) * 1.01
    assert worst >= float(done.report["row_kl"]) * 0.5  # and noise is not thrown away either
    assert float(done.report["row_kl"]) == pytest.approx(0 if step < 2 else protection.row_kl)


def test_the_noise_is_what_it_is_said_to_be_and_knows_no_label():
    """Zero rows carry the bare noise: its covariance from 40,000 of them, and the same bytes for any labels."""
    protection = matched(leak_auc=0.6)
    state = run(protection, [small(i, width=WIDTH) for i in range(12)])[-1].state
    zeros = torch.zeros(40_000, WIDTH)
    zeros[0] = 1e-3  # not all zero
    sent = [protection.update(zeros, labels, state, generator(3)).value for labels in _some_labels(40_000)]
    for one in sent[1:]:
        assert torch.equal(one[1:], sent[0][1:])
    want = noise_covariance(state, WIDTH, protection.row_kl)
    assert relative_difference(torch.cov(sent[0][1:].double().mT), want) < CHANCE


def _some_labels(count: int):
    return [torch.zeros(count), torch.ones(count), (torch.arange(count) % 7 == 0).float()]


def test_the_promise_adds_up_over_visits_and_its_figures_say_so():
    for visits in (1, 4):
        protection = matched(leak_auc=0.6, visits=visits)
        done = protection(*sample(0, 512, 12), generator(1))
        assert float(done.report["row_kl"]) * visits == pytest.approx(sum_kl_for("leak_auc", 0.6))
        assert float(done.report["model_auc_gaussian"]) == pytest.approx(0.6, abs=1e-6)
    assert float(matched(scale=8.0, visits=4)(*sample(0, 512, 12), generator(1)).report["row_kl"]) == 1 / 8


@pytest.mark.parametrize("leak_auc", [0.55, 0.6, 0.7])
@pytest.mark.parametrize("visits", [1, 2, 5, 15])
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_no_attacker_who_knows_every_parameter_gets_beyond_the_promise(leak_auc, visits, share):
    found, error = exact_leak(matched(leak_auc=leak_auc, visits=visits), visits, share)
    assert found <= leak_auc + 4 * error
    assert found >= 0.5 + (leak_auc - 0.5) / 2  # and noise is not thrown away either, though a visit begins with zeros


def test_more_visits_than_planned_come_apart():
    """The control: the same attacker gets through where the plan was for one visit."""
    assert exact_leak(matched(leak_auc=0.6), 15, 0.5)[0] > 0.75


def exact_leak(protection: Protection, visits: int, share: float, size: int = 20_000) -> tuple[float, float]:
    """The AUC, with its error, of whoever knows each row's two gradients, the noise of each step, but not the label.

    The exact likelihood ratio over all visits of rows whose slopes do not change and tell nothing about labels.
    """
    g = generator(7)
    slopes = normal(1, size, 8) * torch.logspace(0, -1, 8, dtype=torch.float64) + 0.5
    logits = torch.full((size,), math.log(share / (1 - share)), dtype=torch.float64)
    labels = (torch.rand(size, generator=g) < share).double()
    of = [gradients_of(logits, slopes, torch.full_like(labels, y)) for y in (0.0, 1.0)]
    grad = torch.where(labels[:, None] > 0.5, of[1], of[0])
    state, score = protection.init(), torch.zeros(size, dtype=torch.float64)
    for _ in range(visits):
        for rows in torch.arange(size).split(1000):
            done = protection.update(grad[rows].float(), labels[rows], state, g)
            now, state = replace(state, factors=done.state.factors), done.state
            if now.factors is None:
                assert not done.value.any()  # two batches of the first visit
                continue
            negative, positive = (clean[rows] * cut_to(clean[rows], y, now) for y, clean in enumerate(of))
            apart = torch.linalg.solve(noise_covariance(now, 8, protection.row_kl), (positive - negative).mT).mT
            score[rows] += ((done.value.double() - (positive + negative) / 2) * apart).sum(-1)
    a, spread = delong(score[None], labels[None])
    return float(a), math.sqrt(float(spread))


def cut_to(clean: Tensor, label: int, state: State) -> Tensor:
    """What rows are multiplied by, by the words of the docstring.  (rows, 1)"""
    p = float(state.share[0])
    white = clean / (1 - p if label else p) / float(state.size[0]) @ state.factors.whiten[0].double()
    return 1 / white.norm(dim=-1, keepdim=True).clamp(min=1)


# --- (3) in the course of a run, against the audit's attacks ----------------------------------------------------------


def walk(grad: Tensor, g: torch.Generator) -> Tensor:
    return grad + 0.2 * grad.std(0) * torch.randn(grad.shape, generator=g, dtype=grad.dtype)


def decay(grad: Tensor, g: torch.Generator) -> Tensor:
    """The model learns: gradients shrink, those of some examples faster."""
    return grad * (0.6 + 0.3 * torch.rand(len(grad), 1, generator=g, dtype=grad.dtype))


DRIFTS = {"unchanged": None, "walk": walk, "decay": decay}
# A promise of 0.6 for 4096 examples, half of them judged where labels are granted: an error of 0.013 to 0.015 for an
# AUC of about 0.6 (DeLong), so 0.06 are 4 errors.
SLACK = 0.06


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("visits", [1, 2, 5, 15])
def test_the_promise_holds_in_a_run_over_one_two_and_all_visits(visits, drift):
    grad, labels = sample(20, 4096, 24)
    view, clean = train(matched(leak_auc=0.6, visits=visits), grad, labels, visits=visits, drift=DRIFTS[drift])
    steps = 4096 // 256
    found = {}
    for seen in sorted({1, min(2, visits), visits}):
        part = View.of(view.gradient[: seen * steps], rows=view.rows[: seen * steps])
        attacks = ["residual", "likelihood", *(OVER_VISITS if seen > 1 else [])]
        found |= {(seen, name): a for name, a in leaks(part, labels, attacks).items()}
    worst = max(found, key=found.get)
    assert found[worst] <= 0.6 + SLACK, (worst, found[worst])
    last = View.of(view.gradient[-steps:], rows=view.rows[-steps:])
    assert leaks(last, labels, ["norm", "cosine"], clean[-steps:])["cosine"] <= 0.6 + SLACK


# --- (3) a gap that turns --------------------------------------------------------------------------------------------


def turning(step: int, batch: int = 256, width: int = 24) -> tuple[Tensor, Tensor]:
    """Equal covariances, and a gap that turns by 40 degrees at every step."""
    labels = (torch.rand(batch, generator=generator(step)) < 0.25).long()
    axes = torch.linalg.qr(normal(1, width, width)).Q
    angle = 0.7 * step
    gap = 2 * (math.cos(angle) * axes[0] + math.sin(angle) * axes[1])
    return (0.5 * normal(step + 500, batch, width) + labels[:, None] * gap).float(), labels


def test_a_gap_that_turns_from_batch_to_batch_is_hidden():
    """The cosine attack gets a clean gradient of the very batch, the oracle its whole gap. Slack 0.03: 4 errors."""
    view, truth, clean = stream(matched(leak_auc=0.6), turning, 40)
    label = truth[view.rows]
    gaps = torch.stack([c[y == 1].mean(0) - c[y == 0].mean(0) for c, y in zip(clean, label, strict=True)])
    oracle = (view.gradient @ gaps[..., None]).squeeze(-1)
    assert float(auc(oracle, label).mean()) <= 0.63
    found = leaks(view, truth, ["cosine", "likelihood", "residual"], clean)
    assert max(found.values()) <= 0.63, found
    bare = (clean @ gaps[..., None]).squeeze(-1)
    assert float(auc(bare, label).mean()) > 0.99  # there is something to hide


# --- (4) wide cuts ---------------------------------------------------------------------------------------------------


def wide(step: int, width: int, batch: int = 128) -> tuple[Tensor, Tensor]:
    """Most in twelve directions, a little in all; positives three times the size, and more so outside."""
    axes = torch.linalg.qr(normal(1, width, 12)).Q
    labels = (torch.rand(batch, generator=generator(step)) < 0.3).long()
    inside = normal(step + 100, batch, 12) * torch.logspace(0, -1, 12, dtype=torch.float64)
    inside[:, 0] += labels
    outside = normal(step + 200, batch, width) * 0.5 / width**0.5
    size = (1 + 2 * labels)[:, None]
    return (size * (inside @ axes.mT) + (1 + labels[:, None]) * outside).float(), labels


@pytest.mark.parametrize("width", [600, 1600])
def test_a_wide_cut_is_matched_inside_and_outside_its_leading_directions(width):
    """Shares of energy of 600 positives and 1400 negatives: known to 3% or better inside, 1% outside."""

    def ratios(protection: Protection) -> tuple[float, float, dict[str, float]]:
        view, truth, clean = stream(protection, lambda step: wide(step, width), 24)
        view, clean = View.of(view.gradient[8:]), clean[8:]
        truth = truth[8 * 128 :]
        axes = torch.linalg.qr(normal(1, width, 12)).Q.float()
        label = truth[view.rows]
        x = view.gradient - torch.where(
            label[..., None] == 1,
            (clean * label[..., None]).sum(1, keepdim=True) / label.sum(1)[:, None, None],
            (clean * (1 - label)[..., None]).sum(1, keepdim=True) / (1 - label).sum(1)[:, None, None],
        )
        # The batch's own gap gets noise of its own, alike for both classes; the first axis holds it.
        inside = (x @ axes[:, 1:]).square().sum(-1)
        outside = x.square().sum(-1) - (x @ axes).square().sum(-1)
        found = leaks(view, truth, ["residual", "likelihood", "norm"])
        return (
            float(inside[label == 1].mean() / inside[label == 0].mean()),
            float(outside[label == 1].mean() / outside[label == 0].mean()),
            found,
        )

    inside, outside, found = ratios(matched(leak_auc=0.6))
    assert inside == pytest.approx(1, abs=0.12)
    assert outside == pytest.approx(1, abs=0.05)
    assert found["residual"] <= 0.56, found  # chance for 2048 rows is below 0.553 in all but 1 of 10,000 cases
    assert found["likelihood"] <= 0.66, found
    assert found["norm"] <= 0.66, found
    _, outside, found = ratios(marvell(scale=4.0))
    assert abs(outside - 1) > 0.2
    assert found["residual"] > 0.9, found


# --- (5) gradients that are not Gaussian -----------------------------------------------------------------------------


def real_like(size: int = 8192, width: int = 64) -> tuple[Tensor, Tensor]:
    """g = (p - y) J with a main direction and heavy tails (Student's t, 3 degrees) in twelve others."""
    g = generator(4)
    labels = (torch.rand(size, generator=g) < 0.25).long()
    p = torch.sigmoid(2.1 * (labels - 0.5) + torch.randn(size, generator=g) - 1.2)
    axes = torch.linalg.qr(torch.randn(width, width, generator=g)).Q
    tails = torch.randn(size, 12, generator=g) / torch.randn(size, 3, generator=g).square().mean(1, keepdim=True).sqrt()
    J = axes[0] + 0.3 * tails * torch.logspace(0, -1, 12) @ axes[1:13] + 0.01 * torch.randn(size, width, generator=g)
    return (p - labels)[:, None] * J, labels


def test_heavy_tailed_gradients_stay_under_stated_thresholds_where_marvells_do_not():
    """One seed. A promise of 0.6; 4096 judged rows have an error of 0.010, so 0.64 is 4 errors above it."""
    grad, labels = real_like()
    attacks = ["residual", "likelihood", "learned"]
    view, clean = train(matched(leak_auc=0.6), grad, labels, visits=1)
    found = leaks(view, labels, [*attacks, "norm", "cosine"], clean)
    assert found["residual"] <= 0.55, found
    assert max(found.values()) <= 0.64, found
    view, _ = train(marvell(scale=4.0), grad, labels, visits=1)
    assert leaks(view, labels, ["residual"])["residual"] > 0.9


def test_heavy_tailed_gradients_over_five_visits():
    grad, labels = real_like(4096)
    view, _ = train(matched(leak_auc=0.6, visits=5), grad, labels, visits=5)
    found = leaks(view, labels, ["residual", "likelihood", *OVER_VISITS, accumulated("learned")])
    assert max(found.values()) <= 0.6 + SLACK, found
