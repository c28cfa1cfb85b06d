"""The whole examination of one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.contracts import EmbeddingProtection, Protection
from tacit.errors import UsageError
from tacit.lab.conformance.attacking import Attacked, attacked, check_limit, ours
from tacit.lab.conformance.checking import CHECKS, Outcome, examine
from tacit.lab.conformance.embedding import EMBEDDING_CHECKS, Shielded
from tacit.lab.conformance.loading import Loaded, load
from tacit.lab.conformance.reading import Read, beside, check_share, read
from tacit.lab.conformance.subject import CheckError, Subject
from tacit.lab.data import load as load_data
from tacit.lab.data.rows import Data
from tacit.lab.sweeping.settings import Option

__all__ = ["Conformance", "run"]

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Conformance:
    """What came of an examination.

    Attributes:
        loaded: what was examined.
        outcomes: of every check, in order.
        limit: what no attack may reach; None where none was set.
        data: the data set of the trainings; None where nothing was trained.
        attacked: what attacks on labels reached: under this protection first, then under ours.
        read: what decoders read, where an embedding protection was examined: under it first, then under ours.
    """

    loaded: Loaded
    outcomes: tuple[Outcome, ...]
    limit: float | None = None
    data: str | None = None
    attacked: tuple[Attacked, ...] = ()
    read: tuple[Read, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(one.passed for one in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "file": str(self.loaded.file),
            "protection": self.loaded.spelled,
            "kind": "embedding" if isinstance(self.loaded.protection, EmbeddingProtection) else "gradient",
            "passed": self.passed,
            "checks": [one.as_dict() for one in self.outcomes],
            "limit": self.limit,
            "data": self.data,
            "attacked": [*(one.as_dict() for one in self.attacked), *(one.as_dict() for one in self.read)],
        }


def run(
    spec: str,
    options: Mapping[str, Option] | None = None,
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
        check_share(limit)
        outcomes = examine(Shielded(theirs), EMBEDDING_CHECKS, progress=progress)
    else:
        check_limit(limit)
        outcomes = examine(Subject(theirs), CHECKS, progress=progress)
    if quick:
        return Conformance(loaded, tuple(outcomes))
    table = load_data(data, rows=rows)
    if isinstance(theirs, EmbeddingProtection):
        more, found = _read(loaded, theirs, table, limit, seed, progress)
        return Conformance(loaded, (*outcomes, *more), limit, data, read=tuple(found))
    more, seen = _attacked(loaded, theirs, table, limit, seed, progress)
    return Conformance(loaded, (*outcomes, *more), limit, data, attacked=tuple(seen))


def _attacked(
    loaded: Loaded, theirs: Protection, data: Data, limit: float | None, seed: int, progress: Progress
) -> tuple[Sequence[Outcome], Sequence[Attacked]]:
    """A training under this protection and, where that runs at all, under ours."""
    done: list[Attacked] = []

    def trains(protect: Protection) -> str:
        """A model trains under it from the first step to the last, and every attack can be tried on what was sent."""
        done.append(attacked(loaded.spelled, protect, data, seed=seed, progress=progress))
        return f"{len(data.train):,} rows of {data.name}; test AUC {done[0].test_auc:.3f}"

    def holds_the_limit(protect: Protection) -> str:
        """The worst attack, with the upper end of its interval, stays at or under the limit that was set."""
        worst = done[0].worst
        reached = f"{worst.attack} reaches {worst.leak}, which counts as up to {worst.held:.3f}"
        if limit is not None and not done[0].holds(limit):
            raise CheckError(
                f"that no attack reaches more than {limit:g}",
                reached,
                "add noise where that attack looks (docs/ref-attacks.md says where), or more of it; the table shows "
                "what ours reach",
            )
        return reached

    outcomes = examine(theirs, [trains])
    if done:
        outcomes += examine(theirs, [holds_the_limit] if limit is not None else [])
        for name, protect in ours(limit).items():
            done.append(attacked(name, protect, data, seed=seed, progress=progress))
    return outcomes, done


def _read(
    loaded: Loaded, theirs: EmbeddingProtection, data: Data, limit: float | None, seed: int, progress: Progress
) -> tuple[Sequence[Outcome], Sequence[Read]]:
    """A training under this embedding protection and, where that runs at all, under ours."""
    done: list[Read] = []

    def trains(protect: EmbeddingProtection) -> str:
        """A model trains under it from the first step to the last, and decoders can be tried on what was sent."""
        done.append(read(loaded.spelled, [protect], data, seed=seed, progress=progress))
        return f"{len(data.train):,} rows of {data.name}; test AUC {done[0].test_auc:.3f}"

    def holds_the_limit(protect: EmbeddingProtection) -> str:
        """The worst decoder, with the upper end of its interval, reads at most the share that was set."""
        reached = f"{done[0].worst.attack} reads up to {done[0].up_to:.1%} of the inputs' variance"
        if limit is not None and done[0].up_to > limit:
            raise CheckError(f"that no decoder reads more than {limit:.0%}", reached, "add noise, or weight")
        return reached

    outcomes = examine(theirs, [trains])
    if done:
        outcomes += examine(theirs, [holds_the_limit] if limit is not None else [])
        for name, protect in beside().items():
            done.append(read(name, protect, data, seed=seed, progress=progress))
    return outcomes, done
