"""What has been spent of every example, in a few figures, by what each mechanism promises."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tacit.contracts import Event
from tacit.errors import UsageError
from tacit.ledger.keys import Keys
from tacit.ledger.run import Declared
from tacit.protect import embedding, gradient


@dataclass(frozen=True)
class RunSummary:
    """One run's part."""

    name: str  # the contract's run
    role: str  # of this party
    rows: int  # aligned ones
    epochs: int  # planned
    trained: int  # answered training steps
    evaluated: int  # answered steps of evaluations
    answers: int  # rows in them that count, each visit by itself
    known: bool  # whether its examples are known again in other runs
    mechanisms: tuple[str, ...]  # that acted, in the order in which they first occurred
    sum_kl: float | None  # what all visits of an example leave together in the worst case; None where that is not known
    notes: tuple[str, ...] = ()  # what the figure does not know


@dataclass(frozen=True)
class Summary:
    """What has been spent of every example, over all runs of this party."""

    examples: int  # that were ever answered about
    answers: int  # rows answered, each visit counted
    runs: int  # trainings in the ledger
    most_visits: int  # of one example
    visits: dict[int, int]  # how many examples have been visited so often: visits -> examples
    # the leak AUC up to which messages about the most exposed example tell its label to whoever knows everything else;
    # 1 where a mechanism promises nothing; None where it is not known
    worst_case: float | None
    budget: float | None  # that the owner set for it
    head: str  # digest at the end of the hash chain
    notes: tuple[str, ...] = ()  # what the figures do not know
    each: tuple[RunSummary, ...] = field(default=(), repr=False)  # the runs, one by one


@dataclass(frozen=True)
class Spent:
    """What all visits of an example of one run leave together: a sumKL, None where it is not known; and notes."""

    sum_kl: float | None
    notes: tuple[str, ...] = ()


def spent_in(declared: Declared, events: Sequence[Event]) -> Spent:
    """The worst case of one run.

    Every example of the run that was visited at all counts as visited in every epoch that has begun, and as exposed as
    the most exposed one of it: who sat an epoch out is charged a little too much, never too little.
    """
    if not declared.most:
        return Spent(0.0)
    acted = [events[number] for number in sorted(declared.events)]
    unknown = sorted({name for event in acted if (name := strange(event, declared.run.role)) is not None})
    if unknown:
        return Spent(None, (f"the ledger does not know what {', '.join(unknown)} promises, and does not guess",))
    if declared.run.role == "features":
        return _features(declared, acted)
    bare = [event.mechanism for event in acted if not noisy(event)]
    if bare:
        return Spent(math.inf, (f"{', '.join(bare)} leaves rows as they are: the worst case is 1",))
    if declared.untouched > 0:
        return Spent(math.inf, (f"{declared.untouched:.0f} rows were sent as they were: the worst case is 1",))
    found = sum(declared.row_kl.values())
    if math.isinf(found):
        names = ", ".join(dict.fromkeys(event.mechanism for event in acted))
        return Spent(None, (f"{names} has noise, but no bound for a row: matched has one",))
    return Spent(found)


def _features(declared: Declared, acted: Sequence[Event]) -> Spent:
    """For embeddings: between any two of them, whatever they are."""
    bounds = [embedding_sum_kl(event) for event in acted]
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds):
        return Spent(None, ("no bound for embeddings without gaussian(std, clip): only visits are counted",))
    return Spent(declared.most * max(known), ("of embeddings: how well any two of them could be told apart",))


# --- what each mechanism promises over many visits, as its own file says; one without such a file is refused ----------


def strange(event: Event, role: str) -> str | None:
    """The name of a mechanism in here that the ledger does not know, for a party of this role; None where it knows all.

    >>> strange(Event("chain", parts=(Event("clip"), Event("mine"))), "label")
    'mine'
    """
    parts = event.parts if event.mechanism == "chain" else (event,)
    known = gradient.names() if role == "label" else ["none", *embedding.names()]  # who does nothing is "none"
    inner = (strange(part, role) if part.parts else part.mechanism for part in parts)
    return next((name for name in inner if name is not None and name not in known), None)


def noisy(event: Event) -> bool:
    """Whether a label party's mechanism puts noise on every row; a chain does what the best of its parts does.

    >>> noisy(Event("chain", parts=(Event("clip"), Event("marvell"))))
    True
    """
    if event.mechanism == "chain":
        return any(map(noisy, event.parts))
    return bool(gradient.facts(event.mechanism).noise)


def embedding_sum_kl(event: Event) -> float | None:
    """What one visit leaves between any two embeddings in the worst case, n visits n times that; None without a bound.

    Bare embeddings leave no bound at all: infinity.
    """
    parts = event.parts if event.mechanism == "chain" else (event,)
    if all(part.mechanism == "none" for part in parts):
        return math.inf
    rules = [(part, embedding.facts(part.mechanism).visit_kl) for part in parts if part.mechanism != "none"]
    bounds = [rule(part.parameters) for part, rule in rules if rule is not None]
    return min((bound for bound in bounds if bound is not None), default=None)


# --- the worst case ---------------------------------------------------------------------------------------------------
#
# The worst case: how well a row's label can be told by whoever knows everything else, as a figure and as a sum.
#
# With the one label and with the other, what is sent of a row lies a certain distance apart, and the noise on it is the
# same. In units of that noise the squared distance is a sumKL, K, and the best attacker's AUC is Phi(sqrt(K/2)). Visits
# of a row, in one run and in all of them, have noise of their own, so their K add up. `tacit.protect.gradient.matched`
# says of every step what K is at most for any row in it; what others do to a row is not bounded by row, and not known.
#
# It bounds what messages about a row tell about its label. What the rest of a training tells, because its other
# messages come from a model that has seen that label too, is not in it.


def auc_of(sum_kl: float) -> float:
    """The figure for a sumKL: Phi(sqrt(K/2)).

    >>> round(auc_of(0.1284), 3), auc_of(math.inf)
    (0.6, 1.0)
    """
    return NormalDist().cdf(math.sqrt(max(0.0, sum_kl) / 2))


def sum_kl_of(auc: float) -> float:
    """The sumKL that a figure allows: 2 z^2 with z = Phi^-1(AUC).

    >>> round(sum_kl_of(0.6), 4), sum_kl_of(1.0)
    (0.1284, inf)
    """
    if not 0.5 <= auc <= 1.0:
        raise UsageError(f"a leak AUC of {auc!r}: it lies between 0.5, a coin flip, and 1")
    return math.inf if auc == 1.0 else 2 * NormalDist().inv_cdf(auc) ** 2


# --- examples over all runs ------------------------------------------------------------------------------------------


def by_example(
    runs: Sequence[Declared], of: Callable[[Declared], NDArray[np.float64]], load: Callable[[str], Keys]
) -> list[NDArray[np.float64]]:
    """A quantity of each row, added up over all runs in which the same example was.

    Pieces whose examples are all different: those of all runs with keys, if there are any; then each run without keys,
    whose examples are its row numbers.
    """
    sums: dict[str, NDArray[np.float64]] = {}
    apart: list[NDArray[np.float64]] = []
    for declared in runs:
        if not declared.keys:
            apart.append(of(declared))
        else:
            sums[declared.keys] = sums.get(declared.keys, 0.0) + of(declared)
    if len(sums) < 2:
        return [*sums.values(), *apart]
    _, where = np.unique(np.concatenate([load(digest) for digest in sums]), return_inverse=True)
    joined: NDArray[np.float64] = np.bincount(where, weights=np.concatenate(list(sums.values()))).astype(np.float64)
    return [joined, *apart]


def histogram(pieces: Sequence[NDArray[np.float64]]) -> dict[int, int]:
    """How many examples were visited so often; those that never were are left out."""
    most = max((int(values.max(initial=0)) for values in pieces), default=0)
    counts = np.zeros(most + 1, np.int64)
    for values in pieces:
        counts += np.bincount(values.astype(np.int64), minlength=most + 1)
    return {visits: int(counts[visits]) for visits in range(1, most + 1) if counts[visits]}
