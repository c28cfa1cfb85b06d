"""What leaves of the features: attacked first, in the first form that holds the limit, and never for nothing.

An embedding that labels had a part in must be worth more, on flipped labels, than one without that tells no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.align.encoder import Columns, Inputs
from tacit.contracts import Estimate
from tacit.errors import LimitError
from tacit.one_shot._rows import Progress
from tacit.one_shot.findings import Z95, ReleaseAudit
from tacit.one_shot.floor import Floor, clusters, pca, waist, worth
from tacit.one_shot.forms import Coding, Form
from tacit.one_shot.learn import Bottom, Learner
from tacit.one_shot.release import attack_release
from tacit.one_shot.shipments import Before

_GLANCE = 4000  # rows that decoders learn from, and that they are judged on, where only large differences matter
_MANY = 1_000_000  # rows that label-free embeddings are glanced at on, at most
_CLOSE = 0.01  # of what is read: as far apart as two glances at one embedding may lie


@dataclass(frozen=True)
class Home:
    """What a feature party has at home when it decides what leaves."""

    shown: Inputs  # what the learner sees of all rows, training rows first
    rows: Inputs  # all columns of these rows: what decoders look for
    columns: Columns  # their names
    train: int  # how many of the rows are for training
    width: int  # of the message
    secret: bytes  # keys the noise
    limit: float | None = None  # on what decoders may read of anything; None for none
    known: float = 0.5  # the share of the rows that decoders know
    attacked: bool = True  # whether decoders attack at all
    seed: int = 0  # of everything that is drawn
    threads: int = 1  # that may be used
    progress: Progress = lambda *_: None  # is told how far it is
    before: Before | None = None  # what has left of these rows before; None where nobody keeps a book of that

    def some(self, most: int) -> tuple[Home, NDArray[np.intp] | slice]:
        """The same with so many of the rows at most, drawn at random, and which they are."""
        if len(self.rows) <= most:
            return self, slice(None)
        places = np.sort(np.random.default_rng(self.seed).permutation(len(self.rows))[:most])
        rows, train = torch.from_numpy(places), int(np.searchsorted(places, self.train))
        before = None if self.before is None else self.before.of(places)
        return replace(self, shown=self.shown[rows], rows=self.rows[rows], train=train, before=before), places

    def coding(self, bottom: Bottom | Floor, z: NDArray[np.float32], form: Form) -> Coding:
        """An embedding of all rows in a form."""
        return Coding.fit(z[: self.train], form, width=self.width, secret=self.secret, digest=bottom.digest)

    def attack(self, sent: NDArray[Any], **options: Any) -> ReleaseAudit:
        """The audit of what would leave, whole, together with all that has left before."""
        return attack_release(
            sent, self.rows, self.columns, train=self.train, known=self.known, seed=self.seed, threads=self.threads,
            before=None if self.before is None else self.before.besides(sent),
            **{"progress": self.progress, **options},
        )  # fmt: skip

    def glance(self, sent: NDArray[Any]) -> ReleaseAudit:
        """An audit on few rows, and without what somebody would read who knows all other columns."""
        return self.attack(sent, others=False, known_rows=_GLANCE, judged_rows=_GLANCE, progress=None)


@dataclass(frozen=True)
class Released:
    """An embedding as it leaves."""

    bottom: Bottom | Floor  # that made it: learnt, or one that no label had a part in
    coding: Coding  # its form, and what codes any row alike
    codes: NDArray[np.uint8]  # what leaves. (rows, width)
    audit: ReleaseAudit | None  # what decoders read of it; None where it was not attacked
    tried: tuple[str, ...] = ()  # each form that was tried, and the most that was read of it
    why: str = ""  # what was sent instead of what was learnt, and why; empty where it is what was learnt

    def as_dict(self) -> dict[str, Any]:
        """What is told of it, for JSON."""
        audit = None if self.audit is None else self.audit.as_dict()
        name = {"bottom": self.bottom.name, "why": self.why}
        return {"audit": audit, **self.coding.state(), "tried": list(self.tried), **name}


def release(bottom: Bottom, form: Form, home: Home) -> Released:
    """An embedding in the first form, this one or a weaker one, that holds the limit; else a `LimitError`."""
    home.progress("embedding", 0, 1)
    z = bottom.embed(home.shown, threads=home.threads)
    home.progress("embedding", 1, 1)
    tried: list[str] = []
    for each in form.weaker():
        coding = home.coding(bottom, z, each)
        codes = coding.codes(z, home.secret)
        if not home.attacked:
            return Released(bottom, coding, codes, None)
        if home.limit is not None and (sure := home.glance(codes[:, : each.width]).sure) > home.limit:
            tried.append(f"{each}: surely {sure:.3f}")
            continue
        audit = home.attack(codes[:, : each.width])
        tried.append(f"{each}: {audit.worst:.3f}")
        if home.limit is None or audit.holds(home.limit):
            return Released(bottom, coding, codes, audit, tuple(tried))
    raise LimitError(
        f"limit = {home.limit:g}: in every form that was tried decoders read more of a column than that ("
        f"{'; '.join(tried)}), so nothing was sent: withhold columns, or raise the limit"
    )


def above_floor(first: Released, learner: Learner, sent: NDArray[Any], mechanism: Any, home: Home) -> Released:
    """What was learnt, or a label-free embedding where that tells no more of the rows and more of the labels.

    Cheap where there is none that tells so little: glances at three of them. Else what is learnt from four fifths of
    the flipped labels shows on the last fifth what it is worth, as do they.
    """
    if first.audit is None:
        return first  # there is nothing to compare
    form, rivals = first.coding.form, []
    some, places = home.some(_MANY)
    least = some.glance(first.codes[places, : form.width])
    for done, make in enumerate((pca, waist, clusters)):
        home.progress("label-free embeddings", done, 3)
        floor = make(home.shown[: home.train], form.width, seed=home.seed)
        read = some.glance(_rival(floor, form, some).codes[:, : form.width])
        pairs = ((read.worst, least.worst), (read.numbers, least.numbers), (read.codes, least.codes))
        if all(one <= other + _CLOSE for one, other in pairs):  # at its worst and on average no more is read
            rivals.append(_rival(floor, form, home))
    home.progress("label-free embeddings", 3, 3)
    if not rivals:
        return first
    return _best(first, rivals, learner, sent, mechanism, home)


def _rival(floor: Floor, form: Form, home: Home) -> Released:
    z = floor.embed(home.shown, threads=home.threads)
    coding = home.coding(floor, z, form)
    return Released(floor, coding, coding.codes(z, home.secret), None)


def _best(
    first: Released, rivals: list[Released], learner: Learner, sent: NDArray[Any], mechanism: Any, home: Home
) -> Released:
    """The rival that is worth most, where it is worth more than what is learnt from four fifths, and tells no more.

    More by a standard error: where flipped labels are too few to tell, what was learnt from them stays.
    """
    form, cut = first.coding.form, 4 * home.train // 5

    def worth_of(z: NDArray[Any]) -> Estimate:
        return worth(z, sent, mechanism, seed=home.seed, cut=cut)

    part = learner.fit(
        home.shown[: home.train], sent[:cut], mechanism, home.width, seed=home.seed, threads=home.threads,
        progress=home.progress,
    )  # fmt: skip
    z = part.embed(home.shown[: home.train], threads=home.threads)
    learnt = worth_of(home.coding(part, z, form).codes(z, home.secret)[:, : form.width])
    worths = [worth_of(rival.codes[: home.train, : form.width]) for rival in rivals]
    most, best = max(zip(worths, rivals, strict=True), key=lambda pair: pair[0].value)
    if most.value < learnt.value + math.hypot(*((one.high - one.low) / (2 * Z95) for one in (most, learnt))):
        return first
    audit = home.attack(best.codes[:, : form.width])
    assert first.audit is not None
    if audit.worst > first.audit.worst + _CLOSE or (home.limit is not None and not audit.holds(home.limit)):
        return first
    why = (
        f"{best.bottom.name} of {form} tells no more of the rows than what was learnt (at most {audit.worst:.3f} "
        f"against {first.audit.worst:.3f}) and more of flipped labels ({most.value:.3f} against {learnt.value:.3f})"
    )
    return replace(best, audit=audit, tried=first.tried, why=why)
