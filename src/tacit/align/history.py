"""Record of a party's answers, so that nobody learns about single ids by asking again with an edited set.

An intersection tells who is in both sets. Two intersections with sets that differ in one id tell about that very id,
though each of them was large enough. So every alignment is written down before the peer gets an answer, and the next
one is measured against them, whatever has become of this party's own table since. A peer that swaps ids keeps the size
of its set and is not noticed by it: against that only the number of alignments helps.

Nothing is ever taken out of the log, and a clock that was set ahead makes nothing old: what lies between two lines
counts as a quarter of the window at most, since nobody saw the time pass. Who was refused and waits should therefore
ask now and then; that is written down as well.

What is kept are sizes, no id and no hash of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Protocol

from tacit.errors import RefusedError, StorageError, UsageError

_WINDOW = timedelta(days=30)  # for how long an alignment counts


@dataclass(frozen=True)
class Alignment:
    """Line of the record: an alignment that began, how it ended, or that it was refused before."""

    date: str  # when the line was written, in UTC
    peer: str  # with whom
    count: int  # ids in this party's set
    peer_count: int  # ids in the peer's set
    common: int  # ids in both; -1 where that is not known
    result: str  # "begun"; then "done", or the field over which it was refused: "history" where it never began


class Log(Protocol):
    """Record that alignments are written to."""

    def read(self) -> list[dict[str, Any]]:
        """Lines of the record, oldest first; a `StorageError` where one is damaged or missing."""

    def append(self, fields: Mapping[str, Any]) -> None:
        """Add a line; it is on the disk when this returns."""


def newest(dates: Sequence[str], now: datetime, window: timedelta) -> int:
    """Number of the last lines (oldest first) within a window; a pause counts as a quarter of it at most."""
    later, age = now, timedelta(0)
    for count, text in enumerate(reversed(dates)):
        date = datetime.fromisoformat(text)
        age += min(max(later - date, timedelta(0)), window / 4)
        if age > window:
            return count
        later = date
    return len(dates)


@dataclass(frozen=True)
class History:
    """The alignments of one party."""

    log: Log  # that only it can read
    _: KW_ONLY
    runs: int = 10  # how many alignments with one peer may begin within the window
    share: float = 0.001  # a set whose size differs by at most this share of it counts as edited
    few: int = 100  # and so does one that differs by at most so many ids
    allow_edits: bool = False  # let edited sets pass, for a peer whose table grows by a little every day
    now: Callable[[], datetime] = lambda: datetime.now(UTC)  # the clock
    _writing: Lock = field(default_factory=Lock, repr=False, compare=False)  # peers align side by side

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise UsageError(f"runs = {self.runs}: allow at least one alignment with a peer")

    def check(self, peer: str, peer_count: int | None = None) -> None:
        """Refuse a peer that has aligned too often, or whose set (where its size is given) is a former one, edited."""
        recent = [line for line in self._recent(peer) if line.result == "begun"]
        if len(recent) >= self.runs:
            raise RefusedError(
                "history",
                f"{peer} has aligned {len(recent)} times since {recent[0].date}, and {self.runs} are allowed in "
                f"{_WINDOW.days} days: every one may tell about the ids that changed; allow more runs, or wait and "
                f"ask every week (a longer pause counts as {_WINDOW.days / 4:g} days, for clocks jump)",
            )
        if peer_count is None or self.allow_edits:
            return
        for line in recent:
            change = abs(line.peer_count - peer_count)
            if 0 < change <= max(self.few, self.share * line.peer_count):
                raise RefusedError(
                    "history",
                    f"{peer} comes with {peer_count} ids, and on {line.date} it came with {line.peer_count}: both "
                    f"answers together would tell about {change} single ids; ask what changed, then allow edits or "
                    "wait until more has",
                )

    def begin(self, peer: str, count: int, peer_count: int) -> Alignment:
        """Check, and write down that an alignment begins, before the peer gets any answer; pass the line to `end`."""
        line = Alignment(self._stamp(), peer, count, peer_count, -1, "begun")
        with self._writing:
            try:
                self.check(peer, peer_count)
            except RefusedError as error:
                self._append(replace(line, result=error.field))
                raise
            self._append(line)
        return line

    def end(self, begun: Alignment, *, common: int = -1, result: str = "done") -> None:
        """Write down how an alignment ended."""
        with self._writing:
            self._append(replace(begun, date=self._stamp(), common=common, result=result))

    def lines(self) -> list[Alignment]:
        """Lines of the record, oldest first."""
        return [Alignment(**line) for line in self.log.read()]

    def _recent(self, peer: str) -> list[Alignment]:
        """The lines of this peer within the window, oldest first; a pause counts as a quarter of it at most."""
        lines = self.lines()
        old = len(lines) - newest([line.date for line in lines], self.now(), _WINDOW)
        return [line for line in lines[old:] if line.peer == peer]

    def _append(self, line: Alignment) -> None:
        """Add a line, on the disk when this returns."""
        try:
            self.log.append(asdict(line))
        except StorageError as error:
            raise StorageError(f"{error}; an alignment that is not written down does not start") from error

    def _stamp(self) -> str:
        return self.now().astimezone(UTC).isoformat(timespec="seconds")
