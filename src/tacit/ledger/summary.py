"""What has been spent of every example, in a few figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.contracts import Event
from tacit.ledger.keys import Keys
from tacit.ledger.mechanisms import embedding_sum_kl, promise, strange
from tacit.ledger.run import Declared

__all__ = ["RunSummary", "Spent", "Summary", "by_example", "histogram", "spent_in"]


@dataclass(frozen=True)
class RunSummary:
    """One run's part.

    Attributes:
        name: the contract's run.
        role: of this party.
        rows: aligned ones.
        epochs: planned.
        trained: answered training steps.
        evaluated: answered steps of evaluations.
        answers: rows in them that count, each visit by itself.
        known: whether its examples are known again in other runs.
        mechanisms: that acted, in the order in which they first occurred.
        sum_kl: what all visits of an example leave together in the worst case; None where that is not known.
        notes: what the figure does not know.
    """

    name: str
    role: str
    rows: int
    epochs: int
    trained: int
    evaluated: int
    answers: int
    known: bool
    mechanisms: tuple[str, ...]
    sum_kl: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """What has been spent of every example, over all runs of this party.

    Attributes:
        examples: that were ever answered about.
        answers: rows answered, each visit counted.
        runs: trainings in the ledger.
        most_visits: of one example.
        visits: how many examples have been visited so often: visits -> examples.
        worst_case: the leak AUC up to which messages about the most exposed example tell its label to whoever knows
            everything else; 1 where a mechanism promises nothing; None where it is not known.
        budget: that the owner set for it.
        head: digest at the end of the hash chain.
        notes: what the figures do not know.
        each: the runs, one by one.
    """

    examples: int
    answers: int
    runs: int
    most_visits: int
    visits: dict[int, int]
    worst_case: float | None
    budget: float | None
    head: str
    notes: tuple[str, ...] = ()
    each: tuple[RunSummary, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Spent:
    """What all visits of an example of one run leave together: a sumKL, None where it is not known; and notes."""

    sum_kl: float | None
    notes: tuple[str, ...] = ()


def spent_in(declared: Declared, events: Sequence[Event]) -> Spent:
    """The worst case of one run.

    Every example of the run that was visited at all counts as visited in every epoch that has begun, and as exposed as
    the most exposed one of it: who sat an epoch out is charged a little too much, never too little.

    Args:
        declared: the run, and what was answered.
        events: all mechanisms of the ledger.
    """
    if not declared.most:
        return Spent(0.0)
    acted = [events[number] for number in sorted(declared.events)]
    unknown = sorted({name for event in acted if (name := strange(event, declared.run.role)) is not None})
    if unknown:
        return Spent(None, (f"the ledger does not know what {', '.join(unknown)} promises, and does not guess",))
    if declared.run.role == "features":
        return _features(declared, acted)
    bare = [event.mechanism for event in acted if promise(event) == "nothing"]
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


# --- examples over all runs ------------------------------------------------------------------------------------------


def by_example(
    runs: Sequence[Declared],
    of: Callable[[Declared], NDArray[np.float64]],
    load: Callable[[str], Keys],
) -> list[tuple[Keys | None, NDArray[np.float64]]]:
    """A quantity of each row, added up over all runs in which the same example was.

    Args:
        runs: whose rows are added up.
        of: the quantity, one for each row of a run.
        load: keys by their digest.

    Returns:
        Pieces whose examples are all different: the known ones with their keys first, if there are any; then each run
        without keys, whose examples are its row numbers.
    """
    sums: dict[str, NDArray[np.float64]] = {}
    apart: list[tuple[Keys | None, NDArray[np.float64]]] = []
    for declared in runs:
        if not declared.keys:
            apart.append((None, of(declared)))
        elif declared.keys in sums:
            sums[declared.keys] += of(declared)
        else:
            sums[declared.keys] = of(declared)
    if len(sums) == 1:
        ((digest, values),) = sums.items()
        return [(load(digest), values), *apart]
    if not sums:
        return apart
    keys, where = np.unique(np.concatenate([load(digest) for digest in sums]), return_inverse=True)
    values = np.zeros(len(keys))
    np.add.at(values, where, np.concatenate(list(sums.values())))
    return [(keys, values), *apart]


def histogram(pieces: Sequence[tuple[Keys | None, NDArray[np.float64]]]) -> dict[int, int]:
    """How many examples were visited so often; those that never were are left out."""
    most = max((int(values.max(initial=0)) for _, values in pieces), default=0)
    counts = np.zeros(most + 1, np.int64)
    for _, values in pieces:
        counts += np.bincount(values.astype(np.int64), minlength=most + 1)
    return {visits: int(counts[visits]) for visits in range(1, most + 1) if counts[visits]}
