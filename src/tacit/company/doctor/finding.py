"""What the doctor hands back of each check."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from tacit.errors import TacitError


@dataclass(frozen=True)
class Finding:
    """What one check came to."""

    name: str  # what was checked; `examine` writes it in
    # "ok"; "warning" where it works but should be looked at; "problem" where something will not work
    verdict: Literal["ok", "warning", "problem"]
    seen: str  # what was found
    do: str = ""  # what to do about it; empty where there is nothing to do

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return asdict(self)


ok, warning, problem = partial(Finding, "", "ok"), partial(Finding, "", "warning"), partial(Finding, "", "problem")


def of_error(error: TacitError | OSError) -> Finding:
    """A problem, from an error whose message says what happened and after its last colon what to do."""
    if not isinstance(error, TacitError):
        return problem(f"{error.filename}: {error.strerror or error}", "look at who owns it")
    seen, colon, do = str(error).rpartition(": ")
    if colon and "\n" not in str(error):
        return problem(seen, do)
    first, *rest = str(error).splitlines()
    return problem(" ".join([first, "; ".join(line.strip() for line in rest)]).rstrip(), "correct it as is said there")
