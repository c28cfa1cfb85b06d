"""What the doctor hands back of each check."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from tacit.errors import TacitError

__all__ = ["Finding", "of_error"]


@dataclass(frozen=True)
class Finding:
    """What one check came to.

    Attributes:
        name: what was checked.
        verdict: "ok"; "warning" where it works but should be looked at; "problem" where something will not work.
        seen: what was found.
        do: what to do about it; empty where there is nothing to do.
    """

    name: str
    verdict: Literal["ok", "warning", "problem"]
    seen: str
    do: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return asdict(self)


def of_error(name: str, error: TacitError) -> Finding:
    """A problem, from an error whose message says what happened and after its last colon what to do."""
    seen, colon, do = str(error).rpartition(": ")
    if not colon or "\n" in str(error):
        first, *rest = str(error).splitlines()
        seen = " ".join([first, "; ".join(line.strip() for line in rest)]).rstrip()
        return Finding(name, "problem", seen, "correct it as is said there")
    return Finding(name, "problem", seen, do)
