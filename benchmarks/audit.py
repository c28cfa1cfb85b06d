"""What it costs a party to keep an eye on what it sends, over the step that it does anyway."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks._measure import Result, seconds
from benchmarks._two_processes import NOTHING, set_up
from benchmarks.parties import two_processes
from benchmarks.protect import gradients
from benchmarks.step import BATCH, data, models
from tacit.align.batches import Plan, Task
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.config import Training
from tacit.split.audit import audit_files
from tacit.split.feature_party import FeatureParty
from tacit.split.feature_run import FeaturePartyGuard
from tacit.split.gate import Gate
from tacit.split.label_party import LabelParty
from tacit.split.label_run import LabelPartyGuard
from tacit.split.models import adam
from tacit.split.protect.gradient import protection
from tacit.split.protect.keyed_noise import KeyedNoise
from tacit.split.record import RecordedRun
from tacit.split.session import Turned
from tacit.split.simulate import pair

STEPS, EPOCHS = 256, 3  # of an epoch; the contract's template has three
BLOCK = 64  # steps of two processes at a time
MEASURED = 512  # steps, by turns with and without: two epochs, four looks and two checkpoints
EVERY = Training().checkpoint_every
SETTINGS = ""  # of party.toml, beside what it needs: all as it is by default
GOAL = 1.03
PROTECT = "matched=0.6"
FOLLOWED, WIDTH, BATCHES = 8192, 128, (12, 24)
NAMES = {"label": "label party", "features": "feature party"}
PARTS = {
    "recording what was sent": ("write", "keep"),
    "looks": ("look",),
}
"""What a party does beside its step, and the calls that do it."""


def run() -> Iterator[Result]:
    """One thread: what is measured runs beside a peer that has the other core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            yield from _steps(Path(scratch))
        yield from _together()
        for batches in BATCHES:
            with tempfile.TemporaryDirectory() as scratch:
                yield from _gate(Path(scratch), batches)
        with tempfile.TemporaryDirectory() as scratch:
            yield _audit(Path(scratch))
    finally:
        torch.set_num_threads(threads)


class Watched:
    """A party, with or without an eye on what it sends, and the seconds that everything has taken.

    Args:
        party: that steps.
        guard: of it; None for a plain one.
    """

    def __init__(
        self, party: LabelParty | FeatureParty, guard: LabelPartyGuard | FeaturePartyGuard | None = None
    ) -> None:
        self.party: Any = party
        self.guard: Any = guard
        self.seconds: dict[str, float] = defaultdict(float)
        if guard is not None:
            guard.resume(0, 0)
            recorder, watch = guard.watch.recorder, guard.watch
            for owner, call, name in (
                (recorder, "write", "write"), (watch, "step", "look"), (watch, "keep", "keep"),
            ):  # fmt: skip
                setattr(owner, call, self._timed(getattr(owner, call), name))

    def _timed(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*args, **named)
            finally:
                self.seconds[name] += time.perf_counter() - started

        return timed

    def guarded(self, task: Task, work: Callable[..., Any]) -> Any:
        """A part of a step that sends something."""
        if self.guard is None:
            return self.do(work)
        before, leaving = partial(self.guard.before, task, sent=False), partial(self.guard.leaving, task)
        return self.do(partial(work, before=before, leaving=leaving))

    def do(self, work: Callable[[], Any]) -> Any:
        """A part of a step."""
        started = time.perf_counter()
        done = work()
        self.seconds["step"] += time.perf_counter() - started
        return done

    def turned(self, task: Task, figures: dict[str, Tensor]) -> None:
        """What follows a step, and a checkpoint's share of it."""
        if self.guard is None:
            return
        started = time.perf_counter()
        self.guard.turned(Turned(task, False, figures, kept=(task.turn + 1) % EVERY == 0))
        self.seconds["step"] += time.perf_counter() - started

    def of(self, part: str) -> float:
        """Seconds of a part."""
        taken = sum(self.seconds[name] for name in PARTS[part])
        return taken - self.seconds["write"] if part == "looks" else taken  # a look's call has recorded, too


def _steps(scratch: Path) -> Iterator[Result]:
    """Both parties with and without, step by step, so that a busy machine disturbs them alike."""
    set_up(scratch, 0, 0, rows=STEPS * BATCH, threads=1, epochs=EPOCHS, settings=SETTINGS)
    folders = {role: Folder(scratch / role) for role in ("label", "features")}
    plan = Plan(STEPS * BATCH, BATCH, EPOCHS, seed=0)
    table = data(plan.count)
    plainly = [Watched(party) for party in _parties(*table).values()]
    watching = [Watched(party, _guard(folders[role], plan, party)) for role, party in _parties(*table).items()]
    _train(itertools.islice(plan.tasks(), MEASURED), (plainly, watching))
    for plain, watched in zip(plainly, watching, strict=True):
        who, bare = NAMES["label" if isinstance(plain.party, LabelParty) else "features"], plain.seconds["step"]
        yield Result("audit", f"{who}'s plain step, batch {BATCH} x {WIDTH}", bare / MEASURED * 1e3, "ms")
        for part in PARTS:
            goal = GOAL if part == "looks" else None
            yield Result("audit", f"{who}'s step with {part} over plain", 1 + watched.of(part) / bare, "x", goal)
        yield Result("audit", f"{who}'s step with all of it over plain", watched.seconds["step"] / bare, "x")


def _guard(folder: Folder, plan: Plan, party: LabelParty | FeatureParty) -> LabelPartyGuard | FeaturePartyGuard:
    kind: Any = LabelPartyGuard if isinstance(party, LabelParty) else FeaturePartyGuard
    guard: LabelPartyGuard | FeaturePartyGuard = kind(folder, aligned(folder), plan, party, lambda: None)
    return guard


def _train(tasks: Iterable[Task], sides: Sequence[Sequence[Watched]]) -> None:
    channels = [pair() for _ in sides]
    for task in tasks:
        for (label, features), (left, right) in zip(sides, channels, strict=True):
            features.guarded(task, partial(features.party.send, task.rows, left))
            told = label.guarded(task, partial(label.party.step, task.rows, right))
            label.turned(task, told)
            features.turned(task, features.do(partial(features.party.finish, left)))


def _parties(codes: Tensor, numbers: Tensor, labels: Tensor) -> dict[str, LabelParty | FeatureParty]:
    bottom, top = models()
    noise = KeyedNoise(bytes(range(32)), "gradient")
    label = LabelParty(
        top=top, labels=labels, features=(codes, numbers), optimizer=adam(top), noise=noise,
        protect=protection("matched", leak_auc=0.6, visits=EPOCHS),
    )  # fmt: skip
    return {"label": label, "features": FeatureParty(bottom=bottom, features=(codes, numbers), optimizer=adam(bottom))}


def _together() -> Iterator[Result]:
    """Two processes that keep an eye on what they send and two that do not, by turns; what a party does while it waits
    for its peer costs nothing here.
    """
    rows = STEPS * BATCH
    with ExitStack() as stack:
        variants = [
            stack.enter_context(
                two_processes(PROTECT, network="wide_deep", rows=rows, epochs=EPOCHS, settings=settings)
            )
            for settings in (NOTHING, SETTINGS)
        ]
        times = [[work(BLOCK)[0] for work in variants] for _ in range(MEASURED // BLOCK)]
    plain, watched = (sum(column) / MEASURED for column in zip(*times, strict=True))
    yield Result("audit", "step of two processes that do not watch", plain * 1e3, "ms")
    yield Result("audit", "step of two processes that watch over two that do not", watched / plain, "x", GOAL)


def _gate(scratch: Path, batches: int) -> Iterator[Result]:
    """Before the third epoch, with two visits of the followed examples on record: a look back, and one ahead."""
    plan = Plan(max(BATCHES) * BATCH, BATCH, 2 * EPOCHS, seed=0)
    settings = f"limit = 0.7\nrecord = {{ last = {batches}, follow = {FOLLOWED} }}"
    set_up(scratch, 0, 0, rows=plan.count, threads=1, epochs=plan.epochs, settings=settings)
    clean, labels = gradients(plan.count, WIDTH)
    protect, top = protection("matched", leak_auc=0.6, visits=plan.epochs), nn.Linear(WIDTH, 1)
    party = LabelParty(top=top, labels=labels, optimizer=torch.optim.SGD(top.parameters()), protect=protect)
    guard = _guard(Folder(scratch / "label"), plan, party)
    gate, recorder = cast(Gate, guard.gate), cast(RecordedRun, guard.watch.recorder)
    recorder.resume(0, 0)
    noise = torch.Generator().manual_seed(0)
    for task in itertools.islice(plan.tasks(), 2 * plan.steps):
        g, z = clean[task.rows], clean[task.rows.roll(1)]
        done = protect.update(g, labels[task.rows], party.state, noise, z)
        party.state = done.state
        recorder.write(rows=task.rows, embedding=z, gradient=done.value, clean=g)
    on = f"{batches} batches and {FOLLOWED} followed examples"
    task = next(iter(plan.tasks(2 * plan.epoch_turns)))
    looked = seconds(lambda: gate.seen(task.turn))
    yield Result("audit", f"the gate's attacks on {on}", looked, "s")
    yield Result("audit", f"its decision on {on}", looked + seconds(lambda: gate.foreseen(task)), "s")


def _audit(scratch: Path) -> Result:
    """All attacks on somebody's messages."""
    clean, labels = gradients(max(BATCHES) * BATCH, WIDTH)
    sent = protection("matched", leak_auc=0.6)(clean, labels, torch.Generator().manual_seed(0)).value
    arrays: dict[str, Any] = {
        "gradients": sent, "clean": clean, "embeddings": clean.roll(1, 0), "labels": labels,
    }  # fmt: skip
    np.savez(scratch / "messages.npz", **arrays)
    taken = seconds(lambda: audit_files(scratch / "messages.npz", batch_size=BATCH))
    return Result("audit", f"tacit audit of {max(BATCHES)} x {BATCH} x {WIDTH} gradients", taken, "s")
