"""Who answers, on record, for a run that is let out, goes on after a restore, or has rows that were vouched for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tacit.company.verdict import now
from tacit.errors import UsageError
from tacit.report import seals
from tacit.report.document import Override
from tacit.report.run_files import OVERRIDES

_VOUCHED = "a bound on labels: no split run of an older version had these rows"


def overrides(where: Path) -> tuple[Override, ...]:
    """Who let a run out all the same."""
    return tuple(Override(**line) for line in seals.read(where / OVERRIDES))


def vouch(where: Path, by: tuple[str, str] | None) -> None:
    """Put on record that somebody says that no split run of an older version had this run's rows."""
    if by is not None:
        who, reason = _named(by, "that no split run had these rows")
        seals.append(where / OVERRIDES, {"time": now(), "who": who, "what": _VOUCHED, "reason": reason})


def vouched(where: Path) -> bool:
    """Whether somebody has."""
    return any(one.what == _VOUCHED for one in overrides(where))


def restored(where: Path, log: Callable[..., None], by: tuple[str, str] | None) -> Callable[[str], None] | None:
    """What puts on record that somebody answers for going on after a restore; None where nobody does."""
    if by is None:
        return None
    who, reason = _named(by, "going on after a restore")

    def record(problem: str) -> None:
        what = f"training after a restore: {problem}"
        seals.append(where / OVERRIDES, {"time": now(), "who": who, "what": what, "reason": reason})
        log("restored", who=who, reason=problem)

    return record


def _named(by: tuple[str, str], what: str) -> tuple[str, str]:
    who, reason = (word.strip() for word in by)
    if not who or not reason:
        raise UsageError(f"{what} is on record with a name and a reason: give both")
    return who, reason
