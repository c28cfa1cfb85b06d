"""`matched` holds what it promises: no row's label can be told beyond a leak AUC, over one visit or many.

Everything is seeded. A threshold is the promise plus a slack for chance; where it says "slack 4 errors", a fresh seed
would break a promise that just holds about once in 30,000 times for each attack (one side of a normal).
"""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from tacit.audit.attacks.accumulated import accumulated
from tacit.audit.metrics.leak_auc import auc, delong, fold
from tacit.audit.run import attack_all
from tacit.contracts import Protection, View
from tacit.errors import UsageError
from tacit.protect.gradient._knob import sum_kl_for
from tacit.protect.gradient.marvell import marvell
from tacit.protect.gradient.matched import RAREST, REFRESH, State, matched
from tacit.testing.subject import bits


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


# --- classes, populations, runs --------------------------------------------------------------------------------------


@cache
def gaussian_classes(width: int, ratio: float = 3.0, gap: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Two covariances with axes of their own and spectra over two decades, and a gap.  C0, C1, w"""

    def covariance(seed: int, size: float) -> Tensor:
        axes = torch.linalg.qr(normal(seed, width, width)).Q
        return (axes * (size * torch.logspace(0, -2, width, dtype=torch.float64))) @ axes.mT

    w = normal(3, width)
    return covariance(1, 1.0), covariance(2, ratio), gap * w / w.norm()


def sample(seed: int, size: int, width: int, share: float = 0.25) -> tuple[Tensor, Tensor]:
    """Gradients of the Gaussian classes, and labels."""
    c0, c1, w = gaussian_classes(width)
    labels = (torch.rand(size, generator=generator(seed)) < share).long()
    z = normal(seed + 1000, size, width)
    positive = z @ torch.linalg.cholesky(c1).mT + w
    return torch.where(labels[:, None] == 1, positive, z @ torch.linalg.cholesky(c0).mT), labels


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


def leaks(view: View, truth: Tensor, attacks, clean: Tensor | None = None) -> dict[str, float]:
    return {f.attack: f.leak.value for f in attack_all(view, truth, attacks, noise=generator(11), clean=clean)}


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


def stream(protection: Protection, make, steps: int):
    """What is received of batches that differ from step to step; each example comes once."""
    state, g, sent, truth, clean = protection.init(), generator(6), [], [], []
    for step in range(steps):
        grad, labels = make(step)
        done = protection.update(grad, labels, state, g)
        state = done.state
        sent.append(done.value)
        truth.append(labels)
        clean.append(grad)
    return View.of(torch.stack(sent)), torch.cat(truth), torch.stack(clean)


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


# --- (6) in the course of a run --------------------------------------------------------------------------------------


def small(step: int, factor: float = 1.0, width: int = 6) -> tuple[Tensor, Tensor]:
    grad, labels = sample(step, 64, width)
    return (factor * grad).float(), labels


def run(protection: Protection, batches) -> list:
    state, out = protection.init(), []
    for i, (grad, labels) in enumerate(batches):
        out.append(protection.update(grad, labels, state, generator(i)))
        state = out[-1].state
    return out


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
