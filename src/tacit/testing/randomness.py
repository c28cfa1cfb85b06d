"""Where randomness comes from, and what it adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import scipy.stats
import torch
from torch import Tensor

from tacit.protect.keyed_noise import KeyedNoise
from tacit.testing.subject import Batch, Subject, bits, finite, require, same_tree

FALSE_ALARM = 1e-6
"""The chance that a statistical check fails a protection that is right."""

_FROM_SOURCE = (
    "draw everything from what is passed: source = tacit.contracts.noise_source(noise), then source.normal(...)"
)


def same_noise_same_bytes(subject: Subject) -> str:
    """The same call with the same noise gives the same bytes, state, event and report: a step can be repeated."""
    for steps in (0, 1, 5):
        state, batch = subject.after(steps), subject.batch(1)
        first = subject.update(batch, state, 3)
        subject.update(subject.batch(2), first.state, 4)
        again = subject.update(batch, state, 3)
        for name in ("value", "state", "event", "report"):
            require(
                same_tree(_plain(getattr(first, name)), _plain(getattr(again, name))),
                f"the same {name} when step {steps} is computed again with the same noise",
                f"the second {name} differs from the first",
                "keep nothing in the object between calls; what must be remembered belongs into the state",
            )
    return "after 0, 1 and 5 steps"


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else value


def other_noise_other_bytes(subject: Subject) -> str:
    """Other noise gives another value: what is sent can't be computed without it."""
    batch = subject.batch()
    one, two = (subject.once(batch, seed, world=seed).value for seed in (1, 2))
    require(
        bits(one) != bits(two), "another value under other noise",
        "two sources of noise gave the same bytes, so nothing random hides the gradient",
        "add noise from the source; what has none can only be a first link of a chain, before one that has",
    )  # fmt: skip
    return "two seeds, two values"


def no_randomness_of_its_own(subject: Subject) -> str:
    """All randomness comes from the source that is passed: torch's, numpy's and Python's own generators don't matter.

    Between two companies the source is a keyed stream, so that a step that is repeated after a crash has the same noise
    and nobody else can know it. A protection with another source has noise that can be averaged away, or guessed.
    """
    batch, state = subject.batch(), subject.after(2)
    for call in (subject.once, lambda *a, **k: subject.update(a[0], state, a[1], **k)):
        require(
            bits(call(batch, 7, world=1).value) == bits(call(batch, 7, world=2).value),
            "the same bytes whatever the global generators hold",
            "a torch.manual_seed between the calls changed what was sent", _FROM_SOURCE,
        )  # fmt: skip
    return "global generators at two seeds, the same bytes"


def takes_a_noise_source(subject: Subject) -> str:
    """Noise may be a torch.Generator (simulations) or a NoiseSource such as a keyed stream (between two companies)."""
    keyed = KeyedNoise(bytes(range(32)), "conformance")
    batch, state = subject.batch(), subject.after(2)
    first, again, other = (subject.update(batch, state, keyed.at(step)).value for step in (0, 0, 1))
    subject.update(batch, state, subject.noise())
    require(
        finite(first) and bits(first) == bits(again), "the same finite value for the same step of a keyed stream",
        "it differs" if finite(first) else "it is not finite", _FROM_SOURCE,
    )  # fmt: skip
    drawn = bits(subject.update(batch, state, 1).value) != bits(subject.update(batch, state, 2).value)
    require(
        not drawn or bits(first) != bits(other), "another value at another step",
        "a keyed stream makes no difference", _FROM_SOURCE,
    )  # fmt: skip
    return "both kinds"


def unbiased(subject: Subject) -> str:
    """What is added has mean zero, so that training goes where it would go without protection.

    Every entry, and what is added along the gradient, between the classes and over all entries; at the first step and
    in a run. The chance that this check fails a protection that is right is 1 in a million.
    """
    batch, farthest = subject.batch(), 0.0
    for steps in (0, 3):
        each, names = _means(_drawn(subject, steps)[0], batch)
        limit = _limit(subject.draws, 2 * each.shape[1])
        size = float(batch.grad.abs().max())
        mean, error = each.mean(0), each.std(0) / subject.draws**0.5 + 1e-9 * size
        off = torch.where(mean.abs() <= 1e-6 * size, 0.0, mean.abs() / error)
        worst = int(off.argmax())
        farthest = max(farthest, float(off[worst]))
        require(
            float(off[worst]) <= limit,
            f"a mean of zero, within {limit:.1f} standard errors over {subject.draws} draws",
            f"{names(worst)}, at step {steps}, it is {float(mean[worst]):.3g}, with a standard error of "
            f"{float(error[worst]):.2g}",
            "add noise of mean zero to the gradient as it is; scaling or clipping the gradient moves its mean",
        )
    return f"at most {farthest:.1f} standard errors from zero over {subject.draws} draws"


def _means(added: Tensor, batch: Batch) -> tuple[Tensor, Callable[[int], str]]:
    """What should be zero on average, for each draw, and its names: entries first, then three sums over them."""
    grad = batch.grad.flatten(1).double()
    positive = batch.labels > 0
    gap = grad[positive].mean(0) - grad[~positive].mean(0)
    apart = torch.where(positive, 1.0, -1.0)[:, None] * gap
    towards = torch.stack([grad, apart, torch.ones_like(grad)])  # (3, batch, width)
    towards = towards / towards.flatten(1).norm(dim=1)[:, None, None]
    sums = torch.einsum("nbw,kbw->nk", added, towards)
    width, count = grad.shape[1], grad.numel()

    def name(place: int) -> str:
        sums_of = ("along the gradient", "between the classes", "over all entries")
        return f"at row {place // width}, column {place % width}" if place < count else sums_of[place - count]

    return torch.cat([added.flatten(1), sums], dim=1), name


def reported_power(subject: Subject) -> str:
    """Where the report has a `power`, it is the mean squared norm of what is added to a row."""
    ratio = 1.0
    for steps in (0, 3):
        added, told = _drawn(subject, steps)
        if told is None:
            return "it reports no power"
        measured = added.square().sum(-1).mean(-1)  # (draws,)
        error = float((measured - told).std()) / subject.draws**0.5
        off = abs(float((measured - told).mean()))
        require(
            off <= _limit(subject.draws, 2) * error + 1e-6 * float(told.mean()),
            f"a power of {float(measured.mean()):.4g}, as measured over {subject.draws} draws",
            f"the report says {float(told.mean()):.4g}, at step {steps}",
            "report the expected squared norm of a row's noise, the mean over rows, in the gradient's units",
        )
        ratio = float(measured.mean() / told.mean()) if float(told.mean()) > 0 else 1.0
    return f"measured over reported: {ratio:.3f}"


def _limit(draws: int, count: int) -> float:
    """How many standard errors so many means may be away, all together, at the chance of a false alarm."""
    return float(scipy.stats.t.isf(FALSE_ALARM / 2 / count, draws - 1))


def _drawn(subject: Subject, steps: int) -> tuple[Tensor, Tensor | None]:
    """What is added to one batch, drawn often, and the power that is reported each time.  (draws, batch, width)

    A step at which zeros are sent, whatever is drawn, adds nothing: it is later ones that are judged.
    """
    if steps not in subject.drawn:
        batch, state, source = subject.batch(), subject.after(steps), subject.noise(77)
        done = [subject.update(batch, state, source, world=draw) for draw in range(subject.draws)]
        sent = torch.stack([one.value.flatten(1) for one in done]).double()
        added = sent - batch.grad.flatten(1) if bool(sent.any()) else sent
        told = [torch.as_tensor(one.report["power"]).double() for one in done if "power" in one.report]
        subject.drawn[steps] = added, torch.stack(told).to(added.device) if len(told) == len(done) else None
    return subject.drawn[steps]


CHECKS: tuple[Callable[[Subject], str], ...] = (
    same_noise_same_bytes, other_noise_other_bytes, no_randomness_of_its_own, takes_a_noise_source, unbiased,
    reported_power,
)  # fmt: skip
