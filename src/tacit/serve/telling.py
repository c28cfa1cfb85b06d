"""Whom a prediction tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.wire.line import Alarm, Waiting


@dataclass(frozen=True)
class Telling:
    """Whom a prediction tells how far it is.

    Attributes:
        progress: told what is being done, how much of it is done and how much there is.
        waiting: told while a peer lets us wait.
        alarm: told of everything that was refused: the peer, the field, the reason.
        report: told what became of the rows of a table.
        trace: told of each point that is passed.
    """

    progress: Callable[[str, int, int], None] = lambda *_: None
    waiting: Waiting = lambda *_: None
    alarm: Alarm = lambda *_: None
    report: Callable[[str], None] = lambda _: None
    trace: Callable[[str], None] = lambda _: None
