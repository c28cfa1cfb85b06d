"""What is sent of the features: the cells of what was learnt, attacked first; where the limit does not hold, nothing.

The attack never changes what is sent. Where it refuses, it says what would hold, measured on these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.align.encoder import Columns, Inputs
from tacit.company.shipments import Before
from tacit.config import Exchange
from tacit.errors import LimitError, UsageError
from tacit.exchange._rows import Target
from tacit.exchange.cells import Cells
from tacit.exchange.findings import Finding, ReleaseAudit
from tacit.exchange.learn import Bottom
from tacit.exchange.release import attack_release
from tacit.exchange.segments import AND
from tacit.progress import Progress

_WITHHELD = 8  # columns that are withheld at most, one after the other, to see what would hold

Relearn = Callable[[Inputs], Bottom]  # learns anew from the columns that are left


@dataclass(frozen=True)
class Home:
    """What a feature party has at home when it decides what it sends."""

    rows: Inputs  # all columns, training rows first: what decoders look for
    columns: Columns  # their names
    train: int  # how many of the rows are for training
    exchange: Exchange  # what was agreed on
    withheld: tuple[str, ...] = ()  # columns that the learner does not see
    limit: float | None = None  # on what decoders may recover of any column; None for none
    known: float = 0.5  # the share of the rows that decoders know
    attacked: bool = True  # whether decoders attack at all
    seed: int = 0  # of everything that is drawn
    threads: int = 1  # that may be used
    progress: Progress = lambda *_: None  # is told how far it is
    before: Before | None = None  # what was sent of these rows before; None where nobody keeps a book of that

    @property
    def shown(self) -> Inputs:
        """What the learner sees of all rows."""
        return shown(self.rows, self.columns, self.withheld)

    def cells(self, z: NDArray[np.floating[Any]], received: Target | None) -> Cells:
        """The cells of an embedding, cut on the training rows."""
        return Cells.fit(z[: self.train], bits=self.exchange.bits, smallest=self.exchange.smallest, received=received)

    def attack(self, sent: NDArray[np.uint8]) -> ReleaseAudit:
        """The audit of what would be sent, together with all that was sent before."""
        return attack_release(
            sent, self.rows, self.columns, train=self.train, known=self.known, seed=self.seed, threads=self.threads,
            before=None if self.before is None else self.before.besides(sent), progress=self.progress,
        )  # fmt: skip


@dataclass(frozen=True)
class Released:
    """An embedding as it is sent."""

    bottom: Bottom  # what made it
    cells: Cells  # of its numbers
    codes: NDArray[np.uint8]  # what is sent. (rows, numbers)
    audit: ReleaseAudit | None  # what decoders read of it; None where it was not attacked

    def as_dict(self) -> dict[str, Any]:
        """What is stored of it, for JSON."""
        audit = None if self.audit is None else self.audit.as_dict()
        return {"audit": audit, "cells": self.cells.state(), "bottom": self.bottom.name}


def release(bottom: Bottom, received: Target | None, home: Home, relearn: Relearn) -> Released:
    """What was learnt, in cells; a `LimitError` where decoders recover more of a column than the limit allows.

    Args:
        received: what was received of the training rows' labels; None where nothing was.
        relearn: learns again, to see which columns would have to be withheld.
    """
    home.progress("embedding", 0, 1)
    z = bottom.embed(home.shown, threads=home.threads)
    home.progress("embedding", 1, 1)
    cells = home.cells(z, received)
    codes = cells.code(z)
    audit = home.attack(codes) if home.attacked else None
    if audit is not None and home.limit is not None and not audit.holds(home.limit):
        raise LimitError(_refusal(audit, z, received, home, relearn))
    return Released(bottom, cells, codes, audit)


def shown(inputs: Inputs, columns: Columns, withheld: Collection[str], what: str = "[learn] withheld") -> Inputs:
    """The inputs without the columns that their owner withholds from the learner."""
    unknown = set(withheld) - set(columns.names)
    if unknown:
        raise UsageError(f"{what}: {', '.join(sorted(unknown))} is none of the columns: correct the name")
    if not withheld:
        return inputs  # as it is mapped from files: no copy
    categories = [place for place, name in enumerate(columns.categorical) if name not in withheld]
    numbers = [place for place, name in enumerate((*columns.numeric, *columns.flagged)) if name not in withheld]
    if not categories and not numbers:
        raise UsageError(f"{what}: no column is left to learn from: withhold fewer")
    cardinalities = tuple(inputs.cardinalities[place] for place in categories)
    places = [*categories, *(len(inputs.cardinalities) + place for place in numbers)]
    names = tuple(inputs.names[place] for place in places) if inputs.names else ()
    values = tuple(inputs.values[place] for place in categories) if inputs.values else ()
    return Inputs(inputs.categorical[:, categories], inputs.numeric[:, numbers], cardinalities, names, values)


# --- what would hold -------------------------------------------------------------------------------------------------


def _refusal(audit: ReleaseAudit, z: NDArray[np.float32], received: Target | None, home: Home, relearn: Relearn) -> str:
    """Which column is read beyond the limit, and what would hold: each measured, none of it sent."""
    worst = next((one for one in audit.findings if one.counted), None)
    of = "something" if worst is None else f"{worst.column!r} ({worst.question})"
    would = [
        *(f"bits = {bits}, which needs a new `run` ({most:.3f})" for bits, most in _fewer_bits(z, received, home)),
        *(
            f"withheld = [{', '.join(repr(name) for name in names)}], in this run ({most:.3f})"
            for names, most in _fewer_columns(audit, received, home, relearn)
        ),
    ]
    listed = f"what would hold, measured: {'; or '.join(would)}" if would else "neither fewer bits nor columns hold"
    return (
        f"limit = {home.limit:g}: decoders recovered up to {audit.worst:.3f} of {of}, so nothing was sent; {listed}; "
        f"or raise the limit to {_rounded_up(audit.worst)}, in this run"
    )


def _rounded_up(value: float) -> str:
    return f"{min(1.0, np.ceil(value * 1000) / 1000):.3f}"


def _fewer_bits(z: NDArray[np.float32], received: Target | None, home: Home) -> Iterator[tuple[int, float]]:
    """The largest number of bits that would hold, and what is read of it, if there is one."""
    for bits in range(home.exchange.bits - 1, 0, -1):
        fewer = replace(home, exchange=home.exchange.model_copy(update={"bits": bits}))
        audit = fewer.attack(fewer.cells(z, received).code(z))
        assert home.limit is not None  # else nothing is refused
        if audit.holds(home.limit):
            yield bits, audit.worst
            return


def _fewer_columns(
    audit: ReleaseAudit, received: Target | None, home: Home, relearn: Relearn
) -> Iterator[tuple[tuple[str, ...], float]]:
    """A list of columns without which the limit would hold, and what is read then, if there is one.

    The worst column is withheld next, again and again; a column that need not have been is taken off the list again.
    """

    def tried(names: tuple[str, ...]) -> ReleaseAudit:
        without = replace(home, withheld=names)
        z = relearn(without.shown).embed(without.shown, threads=home.threads)
        return without.attack(without.cells(z, received).code(z))

    assert home.limit is not None  # else nothing is refused
    names = home.withheld
    while not audit.holds(home.limit):
        name = next((name for one in audit.findings for name in _columns(one) if name not in names), None)
        if name is None or len(names) - len(home.withheld) == _WITHHELD or len({*names, name}) == len(_all(home)):
            return
        names = (*names, name)
        audit = tried(names)
    for name in names[len(home.withheld) : -1]:  # the last one was needed
        fewer = tuple(one for one in names if one != name)
        found = tried(fewer)
        if found.holds(home.limit):
            names, audit = fewer, found
    yield names, audit.worst


def _columns(finding: Finding) -> list[str]:
    """The columns that a finding is about; of a conjunction the one that its tree asks for first comes first."""
    return finding.column.split(AND) if finding.counted else []


def _all(home: Home) -> set[str]:
    return set(home.columns.names)
