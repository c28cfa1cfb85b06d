"""The two ways to train, as a company's verbs and services use them: found by the mode of the contract.

Each stands in a package of its own, `tacit.split` and `tacit.exchange`, above a company: its module `way` has these
functions, and is imported when a party with such a contract asks for one.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from tacit.company.folder import Folder
from tacit.config import Contract, OneShotContract
from tacit.progress import Progress
from tacit.report.document import Report

if TYPE_CHECKING:
    from tacit.company.plans import Plan

_MODULES = {"split": "tacit.split.way", "one_shot": "tacit.exchange.way"}


class Way(Protocol):
    """What differs between the two ways to train."""

    def check_minimum(self, folder: Folder, contract: Any) -> None:
        """Refuse protections of party.toml that are less than the contract's minimum."""

    def train(self, folder: Folder, *own: Any, **options: Any) -> Any:
        """Train with the other parties; started again, it resumes."""

    def check(self, folder: Folder) -> None:
        """Refuse settings and past runs that this way can't train with; nothing of which rows are aligned."""

    def plan(self, folder: Folder) -> Plan:
        """What the party would send, and under what bound, limit or protection, as its settings are."""

    def audit(self, folder: Folder, *, limit: float | None, repeat: Sequence[str], progress: Progress) -> Report:
        """Attack what the party sent in its run."""

    def problem(self, folder: Folder, where: Path, report: Report | None) -> str | None:
        """Why the run's model may not be let out, if so."""

    def check_over(self, folder: Folder, where: Path) -> None:
        """Refuse a run that is not over, or of which nothing can be let out."""

    def export(self, folder: Folder, where: Path, out: Path, about: dict[str, str]) -> Path:
        """Copy the party's half out of its run, with what is known about it."""

    def embedder(self, folder: Folder, where: Path) -> Any:
        """A feature party's half, as `tacit.serve.halves.Embedder`."""

    def scorer(self, folder: Folder, where: Path) -> Any:
        """The label party's half, as `tacit.serve.halves.Scorer`."""


def way_of(terms: Contract | OneShotContract) -> Way:
    """The way to train that a contract names."""
    return cast(Way, importlib.import_module(_MODULES[terms.mode]))
