"""What every tracker does, so that whoever has figures need not know where they go."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tacit.errors import UsageError

State = Literal["running", "finished", "stopped"]
"""How a run stands when its tracker is closed; one that stopped may go on some day."""


class Point(NamedTuple):
    """One figure."""

    name: str  # of the curve, with a group in front: "leak/norm", "gate/residual on visits.low"
    step: int  # where on the curve
    value: float  # the figure
    time: float | None = None  # in seconds since 1970; None is now


class Tracker(ABC):
    """One run, as one of the programs that show runs keeps it."""

    @abstractmethod
    def reached(self, name: str) -> int:
        """The last step that is kept under a name, whoever wrote it; -1 where there is none."""

    @abstractmethod
    def facts(self, facts: Mapping[str, object]) -> None:
        """What stays the same during the run, such as the batch size. What is known already is left as it is."""

    @abstractmethod
    def points(self, points: Sequence[Point]) -> None:
        """Keep figures; of one name they come with rising steps."""

    @abstractmethod
    def text(self, name: str, step: int, text: str, *, time: float | None = None) -> None:
        """Keep words, such as a decision and its reason."""

    def files(self, paths: Sequence[Path]) -> None:
        """Keep files beside the figures, in place of those of the same names, where the program keeps any."""
        return

    def flush(self) -> None:
        """Let others see what was kept so far, where they do not see it at once."""
        return

    @abstractmethod
    def close(self, state: State = "finished") -> None:
        """Nothing more will come from here."""


def needed(module: str) -> Any:
    """A module of an extra, imported when it is first needed; a `UsageError` where it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise UsageError(
            f"{package} is not installed ({error}): pip install -e '.[tracking]' in the checkout"
        ) from None
