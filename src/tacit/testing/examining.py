"""Running checks, and what comes of them."""

from __future__ import annotations

import inspect
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tacit.testing.subject import CheckError, global_randomness

Examined = TypeVar("Examined")


@dataclass(frozen=True)
class Outcome:
    """What came of one check."""

    name: str  # of the check
    asks: str  # what it asks for, in a sentence or two
    passed: bool  # whether the protection does that
    detail: str  # what was tried; where it failed, what happened
    expected: str | None = None  # what the contract asks for, where it failed
    remedy: str | None = None  # what to do about it, where it failed
    seconds: float = 0.0  # that the check took

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def asked(check: Callable[..., Any]) -> str:
    """What a check asks for: its docstring, on one line."""
    return " ".join((inspect.getdoc(check) or "").split())


def examine(
    subject: Examined,
    checks: Sequence[Callable[[Examined], str]],
    *,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[Outcome]:
    """Run checks, each on its own; one that fails stops no other."""
    found = []
    for done, check in enumerate(checks):
        progress(check.__name__.replace("_", " "), done, len(checks))
        start = time.perf_counter()
        with global_randomness(0):
            outcome = _outcome(subject, check)
        found.append(replace(outcome, seconds=time.perf_counter() - start))
    return found


def _outcome(subject: Examined, check: Callable[[Examined], str]) -> Outcome:
    name, asks = check.__name__, asked(check)
    try:
        return Outcome(name, asks, True, check(subject))
    except CheckError as fault:
        return Outcome(name, asks, False, fault.happened, fault.expected, fault.remedy)
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything at all, and that is a finding
        raised = f"it raised {type(error).__name__}: {error}{where(error)}"
        return Outcome(name, asks, False, raised, "an answer", "repeat the call by hand and look at that line")


def where(error: BaseException, file: Path | None = None) -> str:
    """The last line of somebody else's code that an error came through, as ` (file.py, line 12)`; empty if none."""
    found, root = "", Path(__file__).parents[2]
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        foreign = path.is_file() and root not in path.parents and "site-packages" not in path.parts
        if path == file or (file is None and foreign):
            found = f" ({path.name}, line {frame.lineno})"
    return found
