"""What a training would send, before anything is sent: the same words for the yes to a contract and for `--plan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.company.aligned import Aligned, aligned, alignment_of
from tacit.company.check import usable_ids
from tacit.company.folder import Folder


@dataclass(frozen=True)
class Plan:
    """What one party would send in the contract's run, and under what bound, limit or protection."""

    sent: tuple[str, ...]  # sentences
    warnings: tuple[str, ...] = ()  # what should be looked at before
    figures: Mapping[str, Any] = field(default_factory=dict)  # the same for programs


@dataclass(frozen=True)
class Ahead:
    """The rows that a training would be about."""

    aligned: Aligned | None  # None where nothing is aligned yet
    most: int | None  # rows that it can have at most; None where nobody knows yet
    young: int = 0  # rows of the party's table that stay out, for their labels are not complete

    @property
    def count(self) -> int | None:
        """How many they are, or at most."""
        return self.most if self.aligned is None else self.aligned.count

    @property
    def words(self) -> str:
        """How many they are, in words."""
        if self.aligned is not None:
            return f"{self.aligned.count:,} common rows"
        return "the common rows" if self.most is None else f"the common rows, {self.most:,} at most"


def of_young(folder: Folder, ahead: Ahead) -> tuple[str, ...]:
    """How many rows stay out of an alignment today, where the party has a rule for it."""
    complete = folder.config.label.complete
    return (
        ()
        if complete is None
        else (f"{ahead.young:,} rows stay out of an alignment today: their labels are complete {complete}.",)
    )


def rows_ahead(folder: Folder) -> Ahead:
    """What is aligned for the contract's run, else the rows of the party's own table that can be."""
    made = alignment_of(folder) is not None
    here = folder.config.data is not None and folder.data.exists()  # a query's rows are copied when they are aligned
    rule = folder.config.label.rule
    report = usable_ids(folder, folder.data).report if here and (rule or not made) else None
    young = 0 if report is None else report.young
    return Ahead(aligned(folder), None, young) if made else Ahead(None, None if report is None else report.kept, young)
