"""A party's ledger while its run goes on, looked at now and then: a sum over all examples takes its time."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from tacit.errors import TacitError

_APART = 60.0  # seconds between two looks
_LARGEST = 4 * 2**20  # bytes of keys, of some hundred thousand examples; above that `tacit ledger` is asked


@dataclass
class LedgerGlance:
    """The summary of a party's ledger, at most a minute old while somebody looks."""

    folder: Path  # of the ledger, which may not be there yet
    _: KW_ONLY
    now: Callable[[], float] = time.monotonic  # a clock that never goes back
    _looked: float = -math.inf
    _summary: dict[str, Any] | None = None

    def summary(self) -> dict[str, Any] | None:
        """What was spent of every example; None where that is not known, or would take long to tell."""
        if self.now() - self._looked >= _APART:
            self._summary = self._look()
            self._looked = self.now()
        return self._summary

    def _look(self) -> dict[str, Any] | None:
        try:
            keys = sum(path.stat().st_size for path in self.folder.glob("keys-*"))
            if not (self.folder / "log").is_file() or keys > _LARGEST:
                return None
            return summed_up(self.folder)
        except (OSError, TacitError):
            return self._summary


def summed_up(folder: Path) -> dict[str, Any]:
    """What a party's ledger comes to over all examples, and nothing about single ones."""
    from tacit.ledger.ledger import Ledger

    summary = dataclasses.asdict(Ledger(folder).summary())
    del summary["each"]
    return summary
