"""The whole examination of somebody else's protection: its contract, and a training that all attacks are tried on.

The contract alone is `tacit.testing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch

from tacit.audit.input_attacks.decoder import decoder
from tacit.audit.input_attacks.linear_decoder import linear_decoder
from tacit.audit.inputs import InputFinding, attack_inputs
from tacit.contracts import EmbeddingProtection, InputAttack, Protection, View
from tacit.errors import UsageError
from tacit.lab.choosing import check_limit
from tacit.lab.data import load as load_data
from tacit.lab.data.rows import Data
from tacit.lab.trial import Course, Progress, Trial, as_dict, attack, problem_of, train
from tacit.protect.embedding.gaussian import gaussian
from tacit.protect.gradient.marvell import marvell
from tacit.protect.gradient.matched import matched
from tacit.protect.gradient.none import none
from tacit.testing import CHECKS, EMBEDDING_CHECKS, Outcome, Shielded, Subject, examine
from tacit.testing.loading import Loaded, load
from tacit.testing.subject import require

USUAL = 0.6
"""The limit at which ours are made for comparison where none is set."""

GRADIENTS, EMBEDDINGS = Course(), Course(epochs=3, last=12, follow=0)
"""How a model trains under a protection of gradients, and of embeddings."""


@dataclass(frozen=True)
class Read:
    """What decoders read under one embedding protection."""

    protection: str  # as it would be written in code
    test_auc: float  # of the trained model on rows it has not seen
    findings: Sequence[InputFinding]  # what each decoder reached

    @property
    def highest(self) -> InputFinding:
        """The decoder that may have read most."""
        return max(self.findings, key=up_to)


def up_to(finding: InputFinding) -> float:
    """The share of the inputs' variance that a decoder may have read, at the upper end of its interval."""
    return 1.0 if finding.relative is None else max(0.0, 1 - finding.relative.low)


_Found = TypeVar("_Found", Trial, Read)


@dataclass(frozen=True)
class Conformance:
    """What came of an examination."""

    loaded: Loaded  # what was examined
    outcomes: tuple[Outcome, ...]  # of every check, in order
    limit: float | None = None  # what no attack may reach; None where none was set
    data: str | None = None  # the data set of the trainings; None where nothing was trained
    attacked: tuple[Trial, ...] = ()  # what attacks on labels reached: under this protection first, then under ours
    # what decoders read, where an embedding protection was examined: under it first, then under ours
    read: tuple[Read, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(one.passed for one in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        read = [[{"attack": finding.attack, "up_to": up_to(finding)} for finding in one.findings] for one in self.read]
        return {
            "file": str(self.loaded.file),
            "protection": self.loaded.spelled,
            "kind": "embedding" if isinstance(self.loaded.protection, EmbeddingProtection) else "gradient",
            "passed": self.passed,
            "checks": [one.as_dict() for one in self.outcomes],
            "limit": self.limit,
            "data": self.data,
            "attacked": [
                *({**one.as_dict(), "worst": as_dict(one.highest)} for one in self.attacked),
                *(
                    {"protection": one.protection, "test_auc": one.test_auc, "attacks": attacks,
                     "worst": attacks[list(one.findings).index(one.highest)]}
                    for one, attacks in zip(self.read, read, strict=True)
                ),
            ],
        }  # fmt: skip


def run(
    spec: str,
    options: Mapping[str, object] | None = None,
    *,
    limit: float | None = None,
    data: str = "flights",
    rows: int = 16000,
    quick: bool = False,
    seed: int = 0,
    progress: Progress = lambda *_: None,
) -> Conformance:
    """Examine what a file makes: first against the contract, then in a small training that every attack is tried on.

    Args:
        spec: the file's path, or path:factory.
        options: what the factory is called with.
        limit: what no attack may reach, with the upper end of its interval: a leak AUC where gradients are protected,
            the share of the inputs' variance that a decoder reads where embeddings are.
        data: a data set that needs no files, as flights or generated:credit.
        rows: how many of its rows are used.
        quick: the contract alone, nothing is trained.
        seed: of weights, batches, noise and attacks.
        progress: called with what is being done, the part that is done, and the whole.
    """
    if quick and limit is not None:
        raise UsageError("--quick trains nothing, so no limit can be judged: leave out --quick or --limit")
    loaded = load(spec, options or {})
    theirs = loaded.protection
    if isinstance(theirs, EmbeddingProtection):
        if limit is not None and not 0 < limit < 1:
            raise UsageError(
                f"limit = {limit}: for an embedding protection it is the share of the inputs' variance that a decoder "
                "may read, between 0 and 1"
            )
        outcomes = examine(Shielded(theirs), EMBEDDING_CHECKS, progress=progress)
    else:
        if limit is not None:
            check_limit(limit)
        outcomes = examine(Subject(theirs), CHECKS, progress=progress)
    if quick:
        return Conformance(loaded, tuple(outcomes))
    table = load_data(data, rows=rows)
    if isinstance(theirs, EmbeddingProtection):
        read = partial(_read, data=table, seed=seed, progress=progress)
        others = [partial(read, name, chain) for name, chain in beside().items()]
        more, decoded = _compared(partial(read, loaded.spelled, [theirs]), others, limit, table)
        return Conformance(loaded, (*outcomes, *more), limit, data, read=tuple(decoded))
    tried = partial(_attacked, data=table, seed=seed, progress=progress)
    rivals = [partial(tried, name, protect) for name, protect in ours(limit).items()]
    judged, trials = _compared(partial(tried, loaded.spelled, theirs), rivals, limit, table)
    return Conformance(loaded, (*outcomes, *judged), limit, data, attacked=tuple(trials))


def ours(limit: float | None) -> Mapping[str, Protection]:
    """What is run beside a protection of gradients: nothing, the papers' best, and what we would take at this limit.

    `matched` is made for half of the way to the limit: the rest is for what no model sees and for the interval.
    """
    goal, visits = USUAL if limit is None else limit, GRADIENTS.epochs
    half = round(0.25 + goal / 2, 3)
    return {
        "none()": none(),
        f"marvell(leak_auc={goal:g})": marvell(leak_auc=goal),
        f"matched(leak_auc={half:g}, visits={visits})": matched(leak_auc=half, visits=visits),
    }


def beside() -> Mapping[str, Sequence[EmbeddingProtection]]:
    """What is run beside a protection of embeddings: nothing, and noise as large as the embedding."""
    return {"none": (), "gaussian(snr=1)": (gaussian(snr=1.0),)}


def decoders() -> list[InputAttack]:
    """What reads: a line, and a network that is smaller and learns for a shorter time than that of a whole audit."""
    return [linear_decoder(), decoder(hidden=(256, 256), updates=800)]


def _attacked(name: str, protect: Protection, *, data: Data, seed: int, progress: Progress) -> Trial:
    course = replace(GRADIENTS, seed=seed)
    return attack(train(name, problem_of(data), course, protect=protect, progress=progress), progress=progress)


def _read(name: str, protect: Sequence[EmbeddingProtection], *, data: Data, seed: int, progress: Progress) -> Read:
    """A training under embedding protections, read by decoders that know half of the rows."""
    course = replace(EMBEDDINGS, seed=seed)
    trained = train(name, problem_of(data), course, protect_embedding=protect, progress=progress)
    progress(f"attacking {name}", 0, 1)
    seen = trained.record.batches().view
    rows, places = seen.rows.unique(return_inverse=True)
    view, noise = View.of_embeddings(seen.embedding, rows=places), torch.Generator().manual_seed(seed)
    return Read(name, trained.test_auc, attack_inputs(view, trained.model.party.hidden(rows), decoders(), noise=noise))


def _compared(
    first: Callable[[], _Found], others: Sequence[Callable[[], _Found]], limit: float | None, data: Data
) -> tuple[list[Outcome], list[_Found]]:
    """A training under this protection and, where that runs at all, under ours."""
    done: list[_Found] = []

    def trains(subject: None) -> str:
        """A model trains under it from the first step to the last, and every attack can be tried on what was sent."""
        done.append(first())
        return f"{len(data.train):,} rows of {data.name}; test AUC {done[0].test_auc:.3f}"

    def holds_the_limit(subject: None) -> str:
        """The worst attack, with the upper end of its interval, stays at or under the limit that was set."""
        return _held(done[0], limit or 0.0)

    outcomes = examine(None, [trains])
    if done:
        outcomes += examine(None, [holds_the_limit] if limit is not None else [])
        done += [other() for other in others]
    return outcomes, done


def _held(one: Trial | Read, limit: float) -> str:
    if isinstance(one, Read):
        reached = f"{one.highest.attack} reads up to {up_to(one.highest):.1%} of the inputs' variance"
        holds = up_to(one.highest) <= limit
        require(holds, f"that no decoder reads more than {limit:.0%}", reached, "add noise, or weight")
    else:
        highest = one.highest
        reached = f"{highest.attack} reaches {highest.leak}, which counts as up to {highest.held:.3f}"
        require(
            one.holds(limit), f"that no attack reaches more than {limit:g}", reached,
            "add noise where that attack looks (docs/ref-attacks.md says where), or more of it; the table shows what "
            "ours reach",
        )  # fmt: skip
    return reached
